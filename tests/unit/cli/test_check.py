"""``kubectl mps check``: what it reads, what it prints, how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.builders import node, pod
from webhook import kubeyaml
from webhook.cli.kubectl import main

CONFIGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: nvidia-device-plugin-configs, namespace: kube-system}
data:
  mps-1x: "version: v1"
  mps-2x: "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"
  mps-4x: "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
"""
NODES = [
    node("half", config="mps-2x", memory=15360, product="Tesla-T4"),
    node("quarter", config="mps-4x", memory=15360, product="Tesla-T4"),
]
OVER = (
    "spec.containers[0] (app): memory-limit 9Gi × 4 shares = 36864Mi, but a card of config mps-4x has 15360Mi "
    "(1 node, Tesla-T4): ask for at most 3840Mi [memory-over-budget]"
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "configs.yaml").write_text(CONFIGS)
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": NODES}))
    return tmp_path


def check(files: Path, *arguments: str, stdin: str | None = None) -> Result:
    inventory = ["--nodes", str(files / "nodes.json"), "--configs", str(files / "configs.yaml")]
    return CliRunner().invoke(main, ["check", *arguments, *inventory], input=stdin, prog_name="kubectl mps")


def manifest(files: Path, *objects: Any, name: str = "m.yaml") -> str:
    (files / name).write_text("---\n".join(kubeyaml.dump(o) for o in objects))
    return str(files / name)


def named(name: str, memory: str, config: str | None = "mps-4x") -> dict[str, Any]:
    builder = pod().gpu().memory(memory)
    built = (builder.config(config) if config else builder).build()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **built,
        "metadata": {"name": name, "annotations": built["metadata"]["annotations"]},
    }


def deployment(memory: str) -> dict[str, Any]:
    template = pod().gpu().memory(memory).config("mps-4x").build()
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}


def test_json_is_one_object_a_pod(files: Path) -> None:
    path = manifest(files, named("good", "3Gi"), SERVICE, named("bad", "9Gi"))
    result = check(files, "-f", path, "-o", "json", "-n", "team-b")
    assert result.exit_code == 1
    good, bad = json.loads(result.stdout)
    assert good == {
        "source": path,
        "kind": "Pod",
        "namespace": "team-b",
        "name": "good",
        "allowed": True,
        "findings": [],
        "warnings": [],
        "patch": [
            {
                "op": "add",
                "path": "/spec/containers/0/env",
                "value": [{"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=3072M"}],
            }
        ],
        "candidates": {"fit": ["quarter"], "unfit": []},
    }
    assert bad["allowed"] is False
    assert bad["patch"] == []
    assert bad["findings"] == [
        {
            "code": "memory-over-budget",
            "severity": "deny",
            "field": "spec.containers[0]",
            "message": OVER,
            "hint": "ask for at most 3840Mi",
        }
    ]
    assert bad["candidates"] == {"fit": [], "unfit": ["quarter"]}


def test_text_says_the_verdict_the_way_out_and_the_patch(files: Path) -> None:
    result = check(files, "-f", manifest(files, named("bad", "9Gi"), named("good", "6Gi", config=None)))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"✗ Pod default/bad  denied  {files / 'm.yaml'}",
        "  deny  [memory-over-budget] spec.containers[0] (app)",
        "        memory-limit 9Gi × 4 shares = 36864Mi, but a card of config mps-4x has 15360Mi (1 node, Tesla-T4)",
        "        → ask for at most 3840Mi",
        "  fit   none",
        "  unfit mps-4x: quarter",
        "",
        f"✓ Pod default/good  allowed, patched  {files / 'm.yaml'}",
        "  warn  [steered] spec.affinity",
        "        restricted to nodes of config mps-2x; elsewhere it fails memory-over-budget",
        "        → pin nvidia.com/device-plugin.config to choose yourself",
        "  fit   mps-2x: half",
        "  unfit mps-4x: quarter",
        *[f"    {line}" for line in DIFF],
    ]


DIFF = [
    "@@ -12,2 +12,14 @@",
    "       limits:",
    "         nvidia.com/gpu: 1",
    "+    env:",
    "+    - name: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "+      value: 0=6144M",
    "+  affinity:",
    "+    nodeAffinity:",
    "+      requiredDuringSchedulingIgnoredDuringExecution:",
    "+        nodeSelectorTerms:",
    "+        - matchExpressions:",
    "+          - key: nvidia.com/device-plugin.config",
    "+            operator: In",
    "+            values:",
    "+            - mps-2x",
]


def test_yaml_is_what_would_be_stored(files: Path) -> None:
    path = manifest(files, SERVICE, named("bad", "9Gi"), named("good", "3Gi"), deployment("2Gi"))
    result = check(files, "-f", path, "-o", "yaml")
    assert result.exit_code == 1
    service, good, made = kubeyaml.load_all(result.stdout)
    assert service == SERVICE
    limit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    assert good["spec"]["containers"][0]["env"] == [{"name": limit, "value": "0=3072M"}]
    assert made["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": limit, "value": "0=2048M"}]
    assert result.stderr.splitlines() == [f"{path}: Pod bad: denied: {OVER}"]


def test_a_workload_is_told_in_its_own_paths(files: Path) -> None:
    result = check(files, "-f", manifest(files, deployment("9Gi")), "-o", "json")
    (found,) = json.loads(result.stdout)
    assert found["kind"] == "Deployment"
    assert [f["message"] for f in found["findings"]] == [f"spec.template.{OVER}"]


def test_standard_input_lists_and_several_files(files: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [named("a", "3Gi"), named("b", "3Gi")]}
    path = manifest(files, named("c", "3Gi"))
    result = check(files, "-f", "-", "-f", path, "-o", "json", stdin=json.dumps(listed))
    assert result.exit_code == 0
    assert [(p["source"], p["name"]) for p in json.loads(result.stdout)] == [("-", "a"), ("-", "b"), (path, "c")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: [", "m.yaml: no YAML: line 2: did not find expected node content", id="broken YAML"),
        pytest.param("- a", "m.yaml: not a Kubernetes object, it has no kind", id="a list"),
        pytest.param("kind: Service", "m.yaml: no Pod and no workload with a pod template in it", id="no pods"),
        pytest.param("", "m.yaml: no Pod and no workload with a pod template in it", id="empty"),
    ],
)
def test_manifests_that_cannot_be_used(files: Path, text: str, said: str) -> None:
    (files / "m.yaml").write_text(text)
    result = check(files, "-f", str(files / "m.yaml"))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"kubectl mps: {files}/{said}\n"


def test_no_such_file(files: Path) -> None:
    result = check(files, "-f", str(files / "absent.yaml"))
    assert (result.exit_code, result.stderr) == (2, f"kubectl mps: {files}/absent.yaml: No such file or directory\n")


def test_a_config_that_does_not_parse(files: Path) -> None:
    (files / "configs.yaml").write_text(CONFIGS.replace("replicas: 4", "replicas: 1"))
    result = check(files, "-f", manifest(files, named("a", "3Gi")))
    assert result.exit_code == 2
    assert result.stderr == (
        f"kubectl mps: {files}/configs.yaml: config mps-4x: number of replicas must be >= 2 "
        "(leave sharing out for one pod a card)\n"
    )


def test_settings_with_an_unknown_key(files: Path) -> None:
    (files / "settings.yaml").write_text("placment: off\nminimum_memory: 3 Gi\n")
    result = check(files, "-f", manifest(files, named("a", "3Gi")), "--settings", str(files / "settings.yaml"))
    assert result.exit_code == 2
    assert sorted(result.stderr.splitlines()) == [
        f"kubectl mps: {files}/settings.yaml: minimum_memory: not a quantity such as 256Mi or 16Gi",
        f"kubectl mps: {files}/settings.yaml: placment: no such setting; did you mean placement?",
    ]


def test_a_node_without_labels_is_fine(files: Path) -> None:
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    (files / "nodes.json").write_text(json.dumps(bare))
    result = check(files, "-f", manifest(files, named("a", "3Gi")), "-o", "json")
    assert result.exit_code == 0
    assert [f["code"] for f in json.loads(result.stdout)[0]["findings"]] == ["no-candidate-node"]
