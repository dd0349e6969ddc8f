"""Updates of pods: the quota stays, and a debug container brings no way around it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import GPU, PodBuilder, inventory, node, pod
from tests.unit.policy.judging import told
from webhook.policy import Inventory, Verdict, judge_update

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "admission-reviews"
AT = inventory(node("t4-4x"))
WIDE = "metadata.annotations[mps.nvidia.com"


def update(old: Any, new: Any, subresource: str = "", at: Inventory = AT) -> Verdict:
    return judge_update(old, new, subresource, "team-a", at)


def immutable(key: str, change: str) -> str:
    return (
        f"deny: metadata.annotations[{key}]: {change} on a pod that exists, whose variables are set already: delete the"
        " pod and create it anew [quota-immutable]"
    )


def gpu() -> PodBuilder:
    return pod().gpu()


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(gpu(), gpu().memory("3Gi"), [("mps.nvidia.com/memory-limit", "added")], id="added"),
        pytest.param(gpu().memory("3Gi"), gpu(), [("mps.nvidia.com/memory-limit", "removed")], id="removed"),
        pytest.param(
            gpu().memory("3Gi"), gpu().memory("4Gi"), [("mps.nvidia.com/memory-limit", "changed")], id="changed"
        ),
        pytest.param(
            gpu().memory("3Gi"),
            gpu().memory("3072Mi"),
            [("mps.nvidia.com/memory-limit", "changed")],
            id="another spelling is a change",
        ),
        pytest.param(
            gpu().memory("3Gi").threads("5", "app"),
            gpu().host_ipc("true").memory("1Gi"),
            [
                ("mps.nvidia.com/memory-limit", "changed"),
                ("active-thread-percentage.mps.nvidia.com/app", "removed"),
                ("mps.nvidia.com/host-ipc", "added"),
            ],
            id="all of them",
        ),
        pytest.param(
            pod(), pod().annotate("MPS.nvidia.com/x", "1"), [("MPS.nvidia.com/x", "added")], id="any key, any pod"
        ),
        pytest.param(gpu().memory("3Gi"), gpu().memory("3Gi"), [], id="unchanged"),
        pytest.param(gpu().memory("lots"), gpu().memory("lots"), [], id="an old mistake stays"),
        pytest.param(
            gpu(), gpu().label("a", "b").annotate("example.com/x", "y"), [], id="labels and other annotations"
        ),
        pytest.param(gpu(), gpu().label("mps.nvidia.com/x", "y"), [], id="a label is judged at creation only"),
        pytest.param(gpu(), gpu().env("CUDA_MPS_PIPE_DIRECTORY", "/x"), [], id="nothing else is judged"),
    ],
)
@pytest.mark.parametrize("subresource", ["", "resize"])
def test_quota_immutable(old: PodBuilder, new: PodBuilder, found: list[tuple[str, str]], subresource: str) -> None:
    verdict = update(old.build(), new.build(), subresource)
    assert told(verdict.findings) == [immutable(key, change) for key, change in found]
    assert verdict.patch == ()


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param({"deletionTimestamp": "2024-01-01T00:00:00Z"}, id="being deleted"),
        pytest.param(
            {"annotations": {"kubernetes.io/config.mirror": "x", "mps.nvidia.com/processes": "7"}}, id="mirror"
        ),
    ],
)
def test_pods_that_always_pass(mark: dict[str, Any]) -> None:
    new = gpu().build()
    new["metadata"].update(mark)
    assert update(gpu().memory("3Gi").build(), new).findings == ()
    debug = copy.deepcopy(new)
    debug["spec"]["ephemeralContainers"] = [{"name": "d", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]
    assert update(new, debug, "ephemeralcontainers").findings == ()


ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
PIPE = {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": ""}


def debugging(subject: PodBuilder, *containers: object) -> dict[str, Any]:
    return subject.spec(ephemeralContainers=list(containers)).build()


def bypass(index: int, name: str, severity: str = "deny") -> str:
    return (
        f"{severity}: spec.ephemeralContainers[{index}].env[NVIDIA_VISIBLE_DEVICES] ({name}): it opens cards past the"
        " device plugin, other pods' shares too: drop it and request nvidia.com/gpu, or write none [device-bypass]"
    )


def daemon(index: int, name: str) -> str:
    return (
        f"deny: spec.ephemeralContainers[{index}].env[CUDA_MPS_PIPE_DIRECTORY] ({name}): not to be set: it leads away"
        " from the MPS daemon, so no limit holds: drop it [daemon-bypass]"
    )


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(
            debugging(gpu()),
            debugging(gpu(), {"name": "d", "env": [ALL]}),
            [bypass(0, "d")],
            id="beside a GPU: devices",
        ),
        pytest.param(
            debugging(gpu()),
            debugging(gpu(), {"name": "d", "env": [PIPE, ALL]}),
            [daemon(0, "d"), bypass(0, "d")],
            id="beside a GPU: daemon and devices",
        ),
        pytest.param(
            debugging(gpu(), {"name": "old", "env": [ALL]}),
            debugging(gpu(), {"name": "old", "env": [ALL]}, {"name": "new", "env": [ALL]}),
            [bypass(1, "new")],
            id="only what is added",
        ),
        pytest.param(
            debugging(pod()), debugging(pod(), {"name": "d", "env": [PIPE, ALL]}), [bypass(0, "d", "warn")], id="no GPU"
        ),
        pytest.param(debugging(gpu()), debugging(gpu(), {"name": "d", "env": []}), [], id="harmless"),
        pytest.param(
            debugging(gpu()),
            debugging(gpu(), {"name": "d", "env": [{**ALL, "value": "none"}]}),
            [],
            id="devices hidden",
        ),
        pytest.param(debugging(gpu()), debugging(gpu(), None, "text", {"name": ["d"]}), [], id="of no shape"),
        pytest.param(debugging(gpu(), {"name": {"a": 1}}), debugging(gpu(), {"name": {"a": 1}}), [], id="odd names"),
    ],
)
def test_debug_containers(old: Any, new: Any, found: list[str]) -> None:
    assert told(update(old, new, "ephemeralcontainers").findings) == found


@pytest.mark.parametrize(("setting", "found"), [("off", []), ("deny", [bypass(0, "d")])])
def test_debug_containers_without_a_gpu_follow_the_setting(setting: str, found: list[str]) -> None:
    at = inventory(device_bypass=setting)
    verdict = update(debugging(pod()), debugging(pod(), {"name": "d", "env": [ALL]}), "ephemeralcontainers", at)
    assert told(verdict.findings) == found


def test_other_subresources_pass() -> None:
    assert update(gpu().build(), gpu().memory("3Gi").build(), "status").findings == ()


@pytest.mark.parametrize(
    ("recording", "codes"),
    [
        ("pod-update-annotation.json", ("quota-immutable",)),
        ("pod-update-label.json", ()),
        ("pod-update-resize.json", ()),
        ("pod-update-ephemeralcontainers.json", ()),
    ],
)
def test_recorded_updates(recording: str, codes: tuple[str, ...]) -> None:
    request = json.loads((RECORDINGS / recording).read_text())["request"]
    verdict = update(request["oldObject"], request["object"], request.get("subResource", ""))
    assert verdict.codes == codes


def test_resizing_a_gpu_is_not_judged() -> None:
    old, new = gpu().build(), pod().gpu(2).build()
    assert new["spec"]["containers"][0]["resources"]["limits"][GPU] == 2
    assert update(old, new, "resize").findings == ()
