"""``kubectl mps nodes``: the table, the holders, the bar, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from tests.builders import LIMIT, THREADS, mig_node, node, pod
from tests.unit.cli.cluster import Sound, bound, gpu_node
from webhook.cli import nodetable
from webhook.cli.kubectl import main
from webhook.cli.nodetable import bar


@pytest.fixture
def used(sound: Sound) -> Sound:
    """Three of four shares held on t4-a, two of four on t4-b; what is finished holds nothing."""
    limited = pod().gpu().env(LIMIT, "0=5000M").env(THREADS, "20")
    sound.add(
        bound(limited, "t4-a", "infer"),
        bound(pod("one").gpu().env(LIMIT, "0=2000M").container("two").gpu(), "t4-a", "pair"),
        bound(pod().gpu().env(LIMIT, "0=1000M").memory("3000Mi").processes("3"), "t4-b", "workers"),
        bound(pod().gpu(), "t4-b", "done", phase="Succeeded"),
        bound(pod().gpu(), "t4-b", "plain"),
    )
    return sound


def lines(done: Any) -> list[str]:
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in done.stdout.splitlines()]


def test_the_table(used: Sound) -> None:
    assert lines(used.run("nodes")) == [
        "NODE      CONFIG  STRATEGY  SHARES  USED  FREE  A SHARE     PROMISED",
        "t4-a      mps-4x  mps            4     3     1  3840Mi 25%  ███████░░░ 70%",
        "t4-b      mps-2x  mps            4     2     2  7680Mi 50%  ███░░░░░░░ 34%",
    ]


def test_the_holders(used: Sound) -> None:
    assert lines(used.run("nodes", "--pods"))[4:] == [
        "NODE      NAMESPACE/POD/CONTAINER  SHARES  LIMIT     THREADS",
        "t4-a      team-a/infer/app              1  5000Mi    20%",
        "t4-a      team-a/pair/one               1  2000Mi    (25%)",
        "t4-a      team-a/pair/two               1  (3840Mi)  (25%)",
        "t4-a      (free)                        1",
        "t4-b      team-a/workers/app            1  3000Mi    (50%)",
        "t4-b      team-a/plain/app              1  (7680Mi)  (50%)",
        "t4-b      (free)                        2",
    ]


def test_json(used: Sound) -> None:
    first = json.loads(used.run("nodes", "-o", "json").stdout)[0]
    holders = first.pop("holders")
    assert first == {
        "name": "t4-a",
        "config": "mps-4x",
        "known_config": True,
        "strategy": "mps",
        "resource": "nvidia.com/gpu",
        "product": "Tesla-T4",
        "cards": 1,
        "card_memory_mib": 15360,
        "shares": {"total": 4, "used": 3, "free": 1},
        "share": {"memory_mib": 3840, "thread_percentage": 25},
        "promised": {"memory_mib": 10840, "percent": 70},
        "drift": None,
        "mig": False,
        "qgpu": False,
    }
    assert holders[0] == {
        "namespace": "team-a",
        "pod": "infer",
        "container": "app",
        "shares": 1,
        "limit": "variable",
        "limit_mib": 5000,
        "thread_percentage": "20",
    }


def test_what_is_remarkable_about_a_node(sound: Sound) -> None:
    sound.find("Node", "t4-a")["metadata"]["labels"]["nvidia.com/gpu.replicas"] = "2"
    sound.find("Node", "t4-b")["metadata"]["labels"]["nvidia.com/device-plugin.config"] = "mps-9x"
    sound.add(mig_node("z"), bound(pod().gpu().env(LIMIT, "4G"), "t4-b", "p"))
    shown = lines(sound.run("nodes"))
    assert [line.split()[:4] for line in shown[1:3]] == [["t4-a", "mps-4x", "!", "mps"], ["t4-b", "mps-9x", "!", "mps"]]
    assert shown[4:] == [
        "! t4-a: nvidia.com/gpu.replicas is 2, the configuration says 4: it is switching, or a component is stuck",
        "! t4-b: config mps-9x is not in the ConfigMap, shown is what its labels say",
        f"! t4-b: team-a/p/app has a {LIMIT} that MPS ignores: no limit holds, the bar counts a card",
        "! z: its cards are cut by MIG, MPS does not run there",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_a_terminal(used: Sound, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "cls-0a1b2c3d-node-pool-gpu-t4-shared-0123456789.internal"
    used.find("Node", "t4-a")["metadata"]["name"] = long
    used.add(gpu_node("ts", config="ts-4x"))

    def terminal(**options: Any) -> Console:
        return Console(**{**options, "width": width, "force_terminal": False})

    monkeypatch.setattr(nodetable, "Console", terminal)
    shown = lines(used.run("nodes", "--pods"))
    table = [line for line in shown if not line.startswith("!")]
    assert max(map(len, table)) <= width
    assert "%" in table[1] or "?" in table[1]


def test_names_are_whole_where_there_is_no_terminal(sound: Sound) -> None:
    name = "n" * 200
    sound.add(gpu_node(name))
    assert any(line.startswith(f"{name}  mps-4x") for line in lines(sound.run("nodes")))


@pytest.mark.parametrize(
    ("percent", "shown"),
    [
        pytest.param(None, "?", id="unknown"),
        pytest.param(0, "░░░░░░░░░░ 0%", id="nothing"),
        pytest.param(1, "█░░░░░░░░░ 1%", id="a little shows"),
        pytest.param(99, "█████████░ 99%", id="only all is full"),
        pytest.param(100, "██████████ 100%", id="full"),
        pytest.param(133, "██████████ 133%", id="over"),
    ],
)
def test_the_bar(percent: int | None, shown: str) -> None:
    assert bar(percent).plain == shown


def test_the_bar_without_unicode() -> None:
    assert bar(50, ascii_only=True).plain == "#####..... 50%"


def _file(folder: Path, name: str, *objects: Any) -> str:
    path = folder / name
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_separate_files_as_for_check(tmp_path: Path, sound: Sound) -> None:
    arguments = [
        "nodes",
        *("--nodes", _file(tmp_path, "nodes.yaml", gpu_node("gpu"), node("free", config="mps-1x"))),
        *("--configs", _file(tmp_path, "configs.yaml", sound.find("ConfigMap", "nvidia-device-plugin-configs"))),
    ]
    pods = ["--pods-file", _file(tmp_path, "pods.yaml", bound(pod().gpu(), "gpu", "p"))]
    assert lines(CliRunner().invoke(main, arguments)) == [
        "NODE      CONFIG  STRATEGY  SHARES  USED  FREE  A SHARE     PROMISED",
        "free      mps-1x  none           1     ?     ?  a card      ?",
        "gpu       mps-4x  mps            4     ?     ?  3840Mi 25%  ?",
    ]
    assert lines(CliRunner().invoke(main, [*arguments, *pods]))[2] == (
        "gpu       mps-4x  mps            4     1     3  3840Mi 25%  ██░░░░░░░░ 25%"
    )


def test_no_gpu_nodes(tmp_path: Path) -> None:
    empty = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "plain"}, "status": {"allocatable": {"cpu": "4"}}}
    done = CliRunner().invoke(main, ["nodes", "-f", _file(tmp_path, "nodes.yaml", empty)])
    assert lines(done) == ["No GPU nodes."]


def test_a_broken_config_is_said(sound: Sound) -> None:
    sound.find("ConfigMap", "nvidia-device-plugin-configs")["data"]["mps-8x"] = "version: v2"
    done = sound.run("nodes")
    assert done.exit_code == 0
    assert done.stderr == "kubectl mps: config mps-8x does not parse: unknown version: v2\n"


def test_unusable_files_are_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["nodes", "-f", _file(tmp_path, "x.yaml", ["no object"])])
    assert done.exit_code == 2
    assert done.stderr == f"kubectl mps: {tmp_path / 'x.yaml'}: something in it is no Kubernetes object\n"
