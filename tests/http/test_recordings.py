"""Reviews exactly as an API server 1.36 sent them, against a small fleet and the real policy, over TLS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonpatch
import pytest

from tests.http.support import Running, patch_of, serving
from webhook import policy
from webhook.policy import Fleet, Inventory, Settings, parse_config_map, project_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cluster import SourceStatus

FOLDER = Path(__file__).parents[1] / "fixtures" / "admission-reviews"
CONFIG = "{{version: v1, sharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {0}}}]}}}}}}"
MEMORY, THREADS = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def node(name: str, shares: int) -> dict[str, Any]:
    labels = {
        "nvidia.com/device-plugin.config": f"mps-{shares}x",
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": str(shares),
        "nvidia.com/gpu.sharing-strategy": "mps",
        "nvidia.com/gpu.product": "Tesla-T4-SHARED",
        "nvidia.com/gpu.compute.major": "7",
        "nvidia.com/gpu.compute.minor": "5",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": str(shares)}},
    }


class SmallFleet:
    """Two T4 nodes: gpu-a hands out quarters of its card, gpu-b halves."""

    def __init__(self) -> None:
        configs = parse_config_map({f"mps-{shares}x": CONFIG.format(shares) for shares in (2, 4)})
        nodes = [project_node(node("gpu-a", 4)), project_node(node("gpu-b", 2))]
        self._inventory = Inventory(Fleet(nodes, configs, Settings()))

    def inventory(self) -> Inventory:
        return self._inventory

    def status(self) -> SourceStatus:
        from webhook.cluster import SourceStatus

        return SourceStatus(synced=True, nodes=2)

    async def run(self) -> None:
        return


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("recordings") / "tls", SmallFleet(), policy, workloads="deny") as running:
        yield running


def recorded(name: str) -> dict[str, Any]:
    found = json.loads((FOLDER / f"{name}.json").read_bytes())
    assert isinstance(found, dict)
    return found


def outcome(response: dict[str, Any]) -> tuple[str, str]:
    annotations = response["auditAnnotations"]
    return annotations["decision"], annotations.get("codes", "")


PODS: dict[str, tuple[str, str, dict[str, str]]] = {
    "pod-create-annotated-multi-container": ("patched", "", {MEMORY: "0=3072M", THREADS: "20"}),
    "pod-create-annotated-validate": ("patched", "", {MEMORY: "0=3072M", THREADS: "20"}),
    "pod-create-by-daemonset": ("allowed", "", {}),
    "pod-create-by-job": ("patched", "", {THREADS: "10"}),
    "pod-create-by-replicaset": ("patched", "", {MEMORY: "0=3072M"}),
    "pod-create-by-statefulset": ("patched", "", {MEMORY: "0=3072M"}),
    "pod-create-dry-run": ("allowed", "", {}),
    "pod-create-generate-name-no-gpu": ("allowed", "", {}),
    "pod-create-kubectl": ("allowed", "", {}),
    "pod-create-kubectl-raw-env": ("patched", "limit-rewritten,steered", {MEMORY: "0=4096M", THREADS: "25"}),
    "pod-create-node-name": ("denied", "gpu-count-over-share", {}),
    "pod-create-node-selector": ("allowed", "", {}),
    "pod-create-unvalidated-bad-annotation-key": ("patched", "", {MEMORY: "0=3072M", THREADS: "20"}),
}
UPDATES = {
    "pod-update-annotation": ("denied", "quota-immutable"),
    "pod-update-ephemeralcontainers": ("allowed", ""),
    "pod-update-label": ("allowed", ""),
    "pod-update-resize": ("allowed", ""),
}
WORKLOADS = {
    "cronjob-create": ("allowed", ""),
    "daemonset-create": ("allowed", ""),
    "deployment-create": ("allowed", ""),
    "job-create": ("allowed", ""),
    "job-create-from-cronjob": ("allowed", ""),
    "replicaset-create": ("allowed", ""),
    "replicaset-update": ("untouched", ""),
    "statefulset-create": ("allowed", ""),
}
UNTOUCHED = ("binding-create-scheduler", "deployment-scale-update", "pod-delete")


def test_every_recording_has_its_expectation() -> None:
    files = {path.stem for path in FOLDER.glob("*.json")}
    assert len(files) == 28
    assert files == {*PODS, *UPDATES, *WORKLOADS, *UNTOUCHED}


@pytest.mark.parametrize("name", PODS)
def test_pods(running: Running, name: str) -> None:
    decision, codes, variables = PODS[name]
    body = recorded(name)
    first = running.post("/mutate?timeout=10s", body).json()
    assert first["response"]["uid"] == body["request"]["uid"]
    assert outcome(first["response"]) == (decision, codes)
    assert first["response"]["allowed"] is (decision != "denied")
    if decision == "denied":
        return
    pod = body["request"]["object"]
    if decision == "patched":
        pod = jsonpatch.apply_patch(pod, patch_of(first))
    env = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0].get("env", [])}
    assert {key: value for key, value in env.items() if key.startswith("CUDA_MPS_")} == variables
    body["request"]["object"] = pod
    for path in ("/mutate", "/validate"):
        again = running.post(path, body).json()["response"]
        assert outcome(again)[0] == "allowed", f"{path} finds nothing left to do"


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("name", UPDATES)
def test_updates(running: Running, name: str, path: str) -> None:
    response = running.post(path, recorded(name)).json()["response"]
    assert outcome(response) == UPDATES[name]
    assert "patch" not in response


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads(running: Running, name: str) -> None:
    response = running.post("/validate-workloads", recorded(name)).json()["response"]
    assert outcome(response) == WORKLOADS[name]
    assert "patch" not in response


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/validate-workloads"])
@pytest.mark.parametrize("name", UNTOUCHED)
def test_untouched(running: Running, name: str, path: str) -> None:
    response = running.post(path, recorded(name)).json()["response"]
    assert (response["allowed"], outcome(response)) == (True, ("untouched", ""))


def test_what_a_pod_was_granted_is_in_the_audit_log(running: Running) -> None:
    response = running.post("/mutate", recorded("pod-create-annotated-multi-container")).json()["response"]
    assert response["auditAnnotations"] == {
        "decision": "patched",
        "memory": "app=3072Mi",
        "threads": "app=20",
        "configs": "mps-4x",
    }


def test_a_denial_is_the_policys_word(running: Running) -> None:
    response = running.post("/mutate", recorded("pod-create-node-name")).json()["response"]
    assert response["status"]["message"].endswith("[gpu-count-over-share]")
    assert response["status"]["details"]["causes"] == [
        {
            "reason": "gpu-count-over-share",
            "message": response["status"]["message"],
            "field": "spec.containers[0]",
        }
    ]


@pytest.mark.parametrize("name", [*PODS, *UPDATES, *WORKLOADS, *UNTOUCHED])
def test_the_uid_comes_back_at_every_endpoint(running: Running, name: str) -> None:
    body = recorded(name)
    for path in ("/mutate", "/validate", "/validate-workloads"):
        answer = running.post(path, body)
        assert (answer.status_code, answer.json()["response"]["uid"]) == (200, body["request"]["uid"])
