"""The examples are listed, valid, and show what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

FOLDER = Path(__file__).parents[3] / "deploy/examples"
FILES = sorted(p.name for p in FOLDER.glob("*.yaml"))


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return document


def template(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document if document["kind"] == "Pod" else document["spec"]["template"]
    return found


def test_every_example_is_listed() -> None:
    listed = re.findall(r"^\| \[([^]]+)\]\(([^)]+)\)", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert [text for text, _ in listed] == [target for _, target in listed]
    assert sorted(target for _, target in listed) == FILES


@pytest.mark.parametrize("name", FILES)
def test_valid(name: str) -> None:
    kubernetes_validate.validate(load(name), "1.36", strict=True)


@pytest.mark.parametrize("name", FILES)
def test_says_what_it_shows(name: str) -> None:
    assert (FOLDER / name).read_text().startswith("# ")


@pytest.mark.parametrize("name", FILES)
def test_asks_for_one_share_in_a_container(name: str) -> None:
    spec = template(load(name))["spec"]
    gpus = [c["resources"]["limits"]["nvidia.com/gpu"] for c in spec["containers"] if "resources" in c]
    assert gpus
    assert set(gpus) == {1}


@pytest.mark.parametrize("name", FILES)
def test_images_have_a_version(name: str) -> None:
    for container in template(load(name))["spec"]["containers"]:
        repository, _, tag = container["image"].partition(":")
        assert repository
        assert re.search(r"\d", tag)


def test_documented_variables_are_kept_as_documented() -> None:
    (container,) = load("limits-by-variable.yaml")["spec"]["containers"]
    assert container["env"] == [
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "4294967296"},
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "25"},
    ]


def test_documented_selector() -> None:
    assert load("pinned-config.yaml")["spec"]["nodeSelector"] == {"nvidia.com/device-plugin.config": "mps-4x"}


@pytest.mark.parametrize("name", ["inference.yaml", "jupyter.yaml", "batch-job.yaml", "ci-job.yaml"])
def test_annotations_are_on_the_pod(name: str) -> None:
    document = load(name)
    assert "mps.nvidia.com/memory-limit" in template(document)["metadata"]["annotations"]
    if document["kind"] != "Pod":
        assert "annotations" not in document["metadata"]


def test_quotas_for_containers_name_containers() -> None:
    pod = load("per-container.yaml")
    named = {k.partition("/")[2] for k in pod["metadata"]["annotations"] if not k.startswith("mps.")}
    assert named == {"generator", "embedder"}
    assert named <= {c["name"] for c in pod["spec"]["containers"]}


# What the webhook makes of them


def node(config: str, replicas: int) -> dict[str, Any]:
    labels = {
        "nvidia.com/device-plugin.config": config,
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.product": "Tesla-T4" if replicas == 1 else "Tesla-T4-SHARED",
        "nvidia.com/gpu.sharing-strategy": "none" if replicas == 1 else "mps",
        "nvidia.com/gpu.compute.major": "7",
        "nvidia.com/gpu.compute.minor": "5",
    }
    status = {"allocatable": {"nvidia.com/gpu": str(replicas)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": config, "labels": labels}, "status": status}


Check = Callable[..., dict[str, Any]]


@pytest.fixture
def check(runtime: list[dict[str, Any]], tmp_path: Path) -> Check:
    """`kubectl mps check` on one node for each config named, with the configs that are shipped."""

    def run(name: str, *configs: tuple[str, int]) -> dict[str, Any]:
        from webhook.cli.kubectl import main

        nodes, config_map = tmp_path / "nodes.yaml", tmp_path / "configs.yaml"
        nodes.write_text(yaml.safe_dump_all([node(*c) for c in configs]))
        config_map.write_text(yaml.safe_dump(next(o for o in runtime if o["kind"] == "ConfigMap")))
        arguments = ["check", "-f", str(FOLDER / name), "--nodes", str(nodes), "--configs", str(config_map)]
        done = CliRunner().invoke(main, [*arguments, "-o", "json"])
        (verdict,) = json.loads(done.stdout)
        assert done.exit_code == (0 if verdict["allowed"] else 1)
        found: dict[str, Any] = verdict
        return found

    return run


TWO = (("mps-2x", 2), ("mps-4x", 4))


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("basic.yaml", []),
        ("batch-job.yaml", []),
        ("ci-job.yaml", []),
        ("inference.yaml", []),
        ("jupyter.yaml", []),
        ("limits-by-variable.yaml", ["limit-rewritten", "steered"]),
        ("per-container.yaml", []),
        ("pinned-config.yaml", []),
        ("rejected.yaml", ["memory-over-budget"]),
    ],
)
def test_verdict(check: Check, name: str, codes: list[str]) -> None:
    verdict = check(name, *TWO)
    assert [f["code"] for f in verdict["findings"]] == codes
    assert verdict["allowed"] is (name != "rejected.yaml")


def test_verdicts_are_asked_for_every_example() -> None:
    (mark,) = test_verdict.pytestmark  # type: ignore[attr-defined]
    assert [name for name, _ in mark.args[1]] == FILES


def test_the_rejected_one_gets_the_message_it_quotes(check: Check) -> None:
    comment = (FOLDER / "rejected.yaml").read_text().split("apiVersion")[0].replace("#", " ")
    (finding,) = check("rejected.yaml", *TWO)["findings"]
    assert f"denied the request: {finding['message']}" in " ".join(comment.split())


def test_the_batch_is_steered_away_from_whole_cards(check: Check) -> None:
    verdict = check("batch-job.yaml", *TWO, ("mps-1x", 1))
    assert [f["code"] for f in verdict["findings"]] == ["steered"]
    assert verdict["candidates"] == {"fit": ["mps-2x", "mps-4x"], "unfit": ["mps-1x"]}


def test_two_processes_get_half_each(check: Check) -> None:
    patch = json.dumps(check("inference.yaml", *TWO)["patch"])
    assert "0=3072M" in patch
    assert '"15"' in patch
