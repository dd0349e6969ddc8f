"""All kinds of containers, and pods after their creation: updates, subresources, mirror pods, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness.api import STRATEGIC, Reply
from tests.e2e.harness.objects import MEMORY, QUOTA, THREADS, container, env_of, plain, pod

if TYPE_CHECKING:
    from tests.e2e.harness.api import Api

pytestmark = pytest.mark.usefixtures("watched")
LIMITED = {MEMORY: "0=3072M", THREADS: "25"}
DENIED = 'admission webhook "pods.mps.nvidia.com" denied the request: '


def test_07_init_containers_and_sidecars_are_limited(api: Api) -> None:
    init = [
        container("first"),
        container("sidecar", restartPolicy="Always"),
        container("no-gpu", resources=None),
    ]
    found = api.create(pod(QUOTA, initContainers=init))
    assert [env_of(found, i, "initContainers") for i in range(3)] == [LIMITED, LIMITED, {}]
    assert env_of(found) == LIMITED


def debug(api: Api, name: str, *env: dict[str, Any]) -> Reply:
    """Add a debug container, as `kubectl debug` does."""
    found = {"name": "debug", "image": "busybox", "targetContainerName": "app", "env": list(env)}
    patch = {"spec": {"ephemeralContainers": [found]}}
    return api.try_patch("Pod", name, patch, subresource="ephemeralcontainers", content_type=STRATEGIC)


def test_07_a_debug_container_is_let_in_without_a_bypass(api: Api) -> None:
    name = api.create(pod(QUOTA))["metadata"]["name"]
    denied = debug(api, name, {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/tmp/own"})
    assert denied.code == 403
    assert "spec.ephemeralContainers[0].env[CUDA_MPS_PIPE_DIRECTORY] (debug): " in denied.body["message"]
    assert denied.body["message"].endswith("[daemon-bypass]")
    denied = debug(api, name, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    assert denied.code == 403
    assert denied.body["message"].endswith("[device-bypass]")
    found = debug(api, name, {"name": "TERM", "value": "xterm"}).checked()
    assert env_of(found, 0, "ephemeralContainers") == {"TERM": "xterm"}
    assert env_of(found) == LIMITED


def test_07_a_resize_passes(api: Api) -> None:
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "nvidia.com/gpu": "1"}}
    name = api.create(pod(QUOTA, container(resources=resources)))["metadata"]["name"]
    bigger = {"requests": {"cpu": "150m"}, "limits": {"cpu": "300m"}}
    patch = {"spec": {"containers": [{"name": "app", "resources": bigger}]}}
    found = api.try_patch("Pod", name, patch, subresource="resize", content_type=STRATEGIC).checked()
    assert found["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "300m", "nvidia.com/gpu": "1"}
    assert env_of(found) == LIMITED


def test_08_labels_annotations_and_finalizers_may_change(api: Api) -> None:
    name = api.create(pod(QUOTA))["metadata"]["name"]
    changes: list[dict[str, Any]] = [
        {"labels": {"team": "a"}},
        {"annotations": {"example.com/note": "x"}},
        {"labels": {"team": None}, "annotations": {"example.com/note": None}},
        {"finalizers": ["example.com/hold"]},
        {"finalizers": []},
    ]
    for change in changes:
        found = api.patch("Pod", name, {"metadata": change})
    assert found["metadata"]["annotations"] == QUOTA
    assert env_of(found) == LIMITED


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        ("mps.nvidia.com/memory-limit", "1Gi", "changed"),
        ("mps.nvidia.com/memory-limit", None, "removed"),
        ("mps.nvidia.com/processes", "2", "added"),
        ("memory-limit.mps.nvidia.com/app", "1Gi", "added"),
        ("MPS.nvidia.com/memory-limit", "1Gi", "added"),
    ],
)
def test_08_the_quota_may_not(api: Api, key: str, value: str | None, change: str) -> None:
    name = api.create(pod(QUOTA))["metadata"]["name"]
    reply = api.try_patch("Pod", name, {"metadata": {"annotations": {key: value}}})
    assert reply.code == 403
    assert reply.body["message"] == (
        f"{DENIED}metadata.annotations[{key}]: {change} on a pod that exists, whose variables are set already: "
        "delete the pod and create it anew [quota-immutable]"
    )


def test_08_a_quota_cannot_be_added_to_a_pod_without_gpus(api: Api) -> None:
    name = api.create(plain())["metadata"]["name"]
    assert api.try_patch("Pod", name, {"metadata": {"annotations": QUOTA}}).code == 403


def test_09_mirror_pods_stay_as_they_are(api: Api) -> None:
    """The kubelet shows its static pods so: what runs already cannot be kept from running, nor be changed."""
    mirror = pod(
        {"kubernetes.io/config.mirror": "hash", "mps.nvidia.com/memory-limit": "99Gi"},
        container(env=[{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/x"}]),
        nodeName="t4-quarter",
    )
    found = api.create(mirror)
    assert env_of(found) == {"CUDA_MPS_PIPE_DIRECTORY": "/x"}
    name = found["metadata"]["name"]
    api.patch("Pod", name, {"metadata": {"annotations": {"mps.nvidia.com/memory-limit": "1Gi"}}})
    api.delete("Pod", name)


def test_11_a_pod_that_is_being_deleted_goes(api: Api) -> None:
    """Its finalizer comes off, and its quota with it if somebody wants so."""
    held = pod(QUOTA)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    name = api.create(held)["metadata"]["name"]
    api.delete("Pod", name)
    assert api.get("Pod", name)["metadata"]["deletionTimestamp"]
    api.patch("Pod", name, {"metadata": {"annotations": {"mps.nvidia.com/memory-limit": None}}})
    api.patch("Pod", name, {"metadata": {"finalizers": []}})
    assert api.find("Pod", name) is None
