"""Which objects the API server sends at all, told by the webhook's own counters; and no condition ever fails."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness.api import STRATEGIC, Object, eventually
from tests.e2e.harness.objects import GPU, container, plain, pod, template, unique, workload

if TYPE_CHECKING:
    from tests.e2e.harness.api import Api
    from tests.e2e.harness.installation import Installation

pytestmark = pytest.mark.usefixtures("watched")


def without_gpu(annotations: Any = None, labels: Any = None, spec: Any = None, **fields: Any) -> Object:
    """A pod of two containers without GPUs; `fields` are the second one's."""
    found = pod(annotations, container("first", resources=None), container("second", **{"resources": None, **fields}))
    del found["spec"]["nodeSelector"]
    if labels is not None:
        found["metadata"]["labels"] = labels
    found["spec"] |= spec or {}
    return found


MATTER = {
    "gpu": without_gpu(resources=GPU),
    "gpu in requests": without_gpu(resources={"requests": {"nvidia.com/gpu": "1"}}),
    "gpu.shared": without_gpu(resources={"limits": {"nvidia.com/gpu.shared": "1"}}),
    "mig": without_gpu(resources={"limits": {"nvidia.com/mig-1g.5gb": "1"}}),
    "gpu beside null requests": without_gpu(resources={**GPU, "requests": None}),
    "gpu in an init container": without_gpu(spec={"initContainers": [container("init")]}),
    "gpu in a sidecar": without_gpu(spec={"initContainers": [container("side", restartPolicy="Always")]}),
    "annotation": without_gpu({"a": "b", "mps.nvidia.com/memory-limit": "1Gi"}),
    "annotation for a container": without_gpu({"memory-limit.mps.nvidia.com/second": "1Gi"}),
    "annotation in capitals": without_gpu({"MPS.NVIDIA.com/memory-limit": "1Gi"}),
    "annotation that is unknown": without_gpu({"mps.nvidia.com/x": ""}),
    "label": without_gpu(labels={"a": "b", "mps.nvidia.com/memory-limit": "1Gi"}),
    "label in capitals": without_gpu(labels={"Memory-Limit.MPS.nvidia.com/c": "1Gi"}),
    "memory variable": without_gpu(env=[{"name": "A"}, {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "1"}]),
    "thread variable": without_gpu(env=[{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "5"}]),
    "pipe variable from elsewhere": without_gpu(
        env=[{"name": "CUDA_MPS_PIPE_DIRECTORY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    ),
    "bypass variable": without_gpu(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
    "variable of an init container": without_gpu(
        spec={"initContainers": [container("i", resources=None, env=[{"name": "NVIDIA_VISIBLE_DEVICES"}])]}
    ),
}
DO_NOT = {
    "plain": without_gpu(),
    "other resources": without_gpu(
        resources={"limits": {"cpu": "1", "example.com/gpu": "1"}, "requests": {"cpu": "1", "example.com/gpu": "1"}}
    ),
    "a name that only begins alike": without_gpu(resources={"limits": {"nvidia.com/gpus": "1"}}),
    "other keys": without_gpu({"nvidia.com/gpu": "x"}, {"nvidia.com/mps.capable": "true"}),
    "a domain that only ends alike": without_gpu({"notmps.nvidia.com/memory-limit": "1Gi"}),
    "the domain as a name": without_gpu(labels={"mps.nvidia.com": "x"}),
    "other variables": without_gpu(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}, {"name": "X"}]),
    "empty maps": without_gpu({}, {}, resources={}, env=[]),
    "null maps": {
        **without_gpu(resources={"limits": None, "requests": None}),
        "metadata": {"name": "null", "namespace": "default", "annotations": None, "labels": None},
    },
    "null lists": without_gpu(spec={"initContainers": None, "ephemeralContainers": None}, env=None),
    "null resources": {
        **without_gpu(),
        "spec": {"containers": [{"name": "c", "image": "i", "resources": None, "env": None, "ports": None}]},
    },
    "no containers": {**without_gpu(), "spec": {}},
    "null containers": {**without_gpu(), "spec": {"containers": None}},
    "no spec": {k: v for k, v in without_gpu().items() if k != "spec"},
    "an env entry of nothing": without_gpu(env=[{}]),
    "a container of nothing": {**without_gpu(), "spec": {"containers": [{}]}},
    "an init container of nothing": without_gpu(spec={"initContainers": [{}]}),
}


class Calls:
    """Reviews counted by the replicas between two moments."""

    def __init__(self, installation: Installation, operation: str = "CREATE") -> None:
        self._installation = installation
        self._operation = operation
        self._before = self._read()

    def since(self) -> dict[str, int]:
        """Reviews by endpoint; those without any are left out."""
        return {k: n - self._before[k] for k, n in self._read().items() if n > self._before[k]}

    def _read(self) -> dict[str, int]:
        endpoints = ("/mutate", "/validate", "/validate-workloads")
        return {endpoint: self._installation.calls(endpoint, operation=self._operation) for endpoint in endpoints}


@pytest.mark.parametrize("name", MATTER)
def test_pods_that_matter_are_sent(api: Api, installation: Installation, name: str) -> None:
    calls = Calls(installation)
    reply = api.try_create(MATTER[name], dry_run=True)
    assert reply.code < 500
    # A denial by the first webhook, or by the API server's own validation, comes before the second.
    assert calls.since() == {"/mutate": 1, "/validate": 1} if reply.code == 201 else {"/mutate": 1}


@pytest.mark.parametrize("name", DO_NOT)
def test_other_pods_are_not_sent(api: Api, installation: Installation, name: str) -> None:
    calls = Calls(installation)
    assert api.try_create(DO_NOT[name], dry_run=True).code in (201, 422)
    assert not calls.since()


def test_07_updates_of_pods_that_matter_are_sent(api: Api, installation: Installation) -> None:
    """Of the pod and of two subresources; status and everything else that kubelets write are not."""
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "nvidia.com/gpu": "1"}}
    name = api.create(pod(None, container(resources=resources)))["metadata"]["name"]
    calls = Calls(installation, "UPDATE")
    api.patch("Pod", name, {"metadata": {"labels": {"a": "b"}}})
    assert calls.since() == {"/validate": 1}
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}
    api.patch("Pod", name, debug, subresource="ephemeralcontainers", content_type=STRATEGIC)
    assert calls.since() == {"/validate": 2}
    size = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "200m"}}}]}}
    api.patch("Pod", name, size, subresource="resize", content_type=STRATEGIC)
    assert calls.since() == {"/validate": 3}
    api.patch("Pod", name, {"status": {"message": "x"}}, subresource="status")
    assert calls.since() == {"/validate": 3}


def test_updates_of_other_pods_are_not_sent(api: Api, installation: Installation) -> None:
    """Except for a debug container that carries a variable."""
    name = api.create(plain())["metadata"]["name"]
    calls = Calls(installation, "UPDATE")
    api.patch("Pod", name, {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}})
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}
    api.patch("Pod", name, debug, subresource="ephemeralcontainers", content_type=STRATEGIC)
    assert not calls.since()
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    more = {"spec": {"ephemeralContainers": [{"name": "more", "image": "busybox", "env": env}]}}
    api.patch("Pod", name, more, subresource="ephemeralcontainers", content_type=STRATEGIC)
    assert calls.since() == {"/validate": 1}


def test_11_deletion_is_not_sent(api: Api, installation: Installation) -> None:
    name = api.create(pod())["metadata"]["name"]
    calls = [Calls(installation, operation) for operation in ("DELETE", "UPDATE", "other")]
    api.delete("Pod", name)
    assert [c.since() for c in calls] == [{}, {}, {}]


KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")


@pytest.mark.parametrize("kind", KINDS)
def test_workloads_that_matter_are_sent(api: Api, installation: Installation, kind: str) -> None:
    found = [
        workload(kind, template()),
        workload(kind, in_template(without_gpu()), annotations={"MPS.nvidia.com/x": "y"}),
    ]
    found += [workload(kind, in_template(MATTER[name])) for name in ("label", "annotation in capitals", "mig")]
    calls = Calls(installation)
    for obj in found:
        assert api.try_create(obj, dry_run=True).code == 201
    assert calls.since() == {"/validate-workloads": len(found)}


def in_template(made: Object) -> Object:
    """A pod as a template."""
    metadata = {k: v for k, v in made["metadata"].items() if k in ("labels", "annotations")}
    metadata["labels"] = {**(metadata.get("labels") or {}), "app": "w"}
    return {"metadata": metadata, "spec": made["spec"]}


@pytest.mark.parametrize("kind", KINDS)
def test_other_workloads_are_not_sent(api: Api, installation: Installation, kind: str) -> None:
    shapes = [made for made in DO_NOT.values() if made.get("spec", {}).get("containers")]
    calls = Calls(installation)
    for made in shapes:
        assert api.try_create(workload(kind, in_template(made)), dry_run=True).code in (201, 422)
    assert not calls.since()


@pytest.mark.usefixtures("controllers")
@pytest.mark.parametrize(("kind", "made"), [("Deployment", "ReplicaSet"), ("CronJob", "Job")])
def test_what_a_judged_workload_makes_is_not_sent_again(
    api: Api, installation: Installation, kind: str, made: str
) -> None:
    name = unique("judged")
    calls = Calls(installation)
    owner = api.create(workload(kind, template(), name=name))
    if kind == "CronJob":
        # As `kubectl create job --from=cronjob/…` does, and the controller.
        reference = {
            "apiVersion": "batch/v1", "kind": kind, "name": name, "uid": owner["metadata"]["uid"], "controller": True
        }  # fmt: skip
        api.create(workload("Job", template(), name=f"{name}-1", ownerReferences=[reference]))
    eventually(lambda: any(o["metadata"]["name"].startswith(name) for o in api.list(made)), f"the {made}")
    eventually(lambda: calls.since().get("/validate"), "its pod")
    assert calls.since()["/validate-workloads"] == 1
    api.delete(kind, name)
    api.delete("Job", f"{name}-1") if kind == "CronJob" else None


def test_conditions_are_cheap(api: Api) -> None:
    """A pod of 200 containers with 50 variables each, in a tenth of the time that a call may take."""
    env = [{"name": f"VARIABLE_{i}"} for i in range(50)]
    sent = pod(None, *(container(f"c{i}", env=env, resources=None) for i in range(200)))
    del sent["spec"]["nodeSelector"]
    started = time.monotonic()
    api.create(sent, dry_run=True)
    assert time.monotonic() - started < 1.0
