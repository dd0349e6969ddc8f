"""Pods at creation: what is stored in the end is what was meant to be."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness.api import ApiError, Object
from tests.e2e.harness.metrics import total
from tests.e2e.harness.mutator import another_webhook
from tests.e2e.harness.objects import (
    CONFIG_LABEL,
    GPU,
    MEMORY,
    QUOTA,
    THREADS,
    container,
    env_of,
    plain,
    pod,
    stored_spec,
    unique,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.harness.api import Api
    from tests.e2e.harness.installation import Installation
    from tests.e2e.harness.mutator import Patch

pytestmark = pytest.mark.usefixtures("watched")

SET = [{"name": MEMORY, "value": "0=3072M"}, {"name": THREADS, "value": "25"}]
HALF: dict[str, Any] = {"key": CONFIG_LABEL, "operator": "In", "values": ["mps-2x"]}
"""Where 5Gi holds: half a card of 15,360 MiB."""


def required(*terms: list[dict[str, Any]]) -> Object:
    """Required node affinity; each term is a list of matchExpressions."""
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": term} for term in terms]
        }
    }


def twins(sent: Object, meant: Object) -> tuple[Object, Object]:
    """The same pod as it is sent, and as it is meant to become, to a namespace that no webhook of ours looks at."""
    meant = copy.deepcopy(meant)
    meant["metadata"] |= {"namespace": "kube-system", "name": unique("meant")}
    return sent, meant


def with_env(base: Object, *envs: list[Object]) -> Object:
    """A pod with these variables, container by container."""
    found = copy.deepcopy(base)
    for one, env in zip(found["spec"]["containers"], envs, strict=True):
        one["env"] = env
    return found


def cases() -> dict[str, tuple[Object, Object]]:
    """Pods as sent and as meant."""
    annotated = pod(QUOTA)
    own = {"name": "USER/OWN~x", "value": "1"}
    mixed = pod(QUOTA, container("a", env=[own]), container("b", resources=None, env=[own]), container("c"))
    per_container = pod({"memory-limit.mps.nvidia.com/b": "1Gi"}, container("a"), container("b"))
    bare = pod(None, container(env=[own, {"name": MEMORY, "value": "3221225472"}]))
    host_ipc = pod({"mps.nvidia.com/host-ipc": "true"})
    steered = pod({"mps.nvidia.com/memory-limit": "5Gi"})
    del steered["spec"]["nodeSelector"]
    five = [{"name": MEMORY, "value": "0=5120M"}]
    found = {
        "a quota": (annotated, with_env(annotated, SET)),
        "beside own variables": (mixed, with_env(mixed, [own, *SET], [own], SET)),
        "per container": (per_container, with_env(per_container, [], [{"name": MEMORY, "value": "0=1024M"}])),
        "a bare number": (bare, with_env(bare, [own, {"name": MEMORY, "value": "0=3072M"}])),
        "host IPC": (host_ipc, {**host_ipc, "spec": {**host_ipc["spec"], "hostIPC": True}}),
        "no quota": (plain_gpu := pod(), plain_gpu),
    }
    affinity = {"nodeAffinity": required([HALF])}
    meant = with_env(steered, five)
    found["steered"] = (steered, {**meant, "spec": {**meant["spec"], "affinity": affinity}})
    return found


CASES = cases()


@pytest.mark.parametrize("case", CASES)
def test_01_read_back_equals_the_intended_object(api: Api, case: str) -> None:
    sent, meant = twins(*CASES[case])
    api.create(sent)
    api.create(meant)
    stored = api.get("Pod", sent["metadata"]["name"])
    assert stored_spec(stored) == stored_spec(api.get("Pod", meant["metadata"]["name"], "kube-system"))
    annotations = stored["metadata"].get("annotations", {})
    assert annotations == sent["metadata"].get("annotations", {}), "the pod's own metadata was touched"


@pytest.mark.parametrize("case", CASES)
def test_02_a_second_pass_changes_nothing(api: Api, installation: Installation, case: str) -> None:
    sent = copy.deepcopy(CASES[case][0])
    sent["metadata"]["name"] = unique("first")
    first = api.create(sent)
    again = {
        **sent,
        "metadata": {**sent["metadata"], "name": unique("second")},
        "spec": {k: v for k, v in stored_spec(first).items() if k != "serviceAccount"},
    }
    patched, allowed = decisions(installation, "patched"), decisions(installation, "allowed")
    second = api.create(again)
    assert stored_spec(second) == stored_spec(first)
    assert decisions(installation, "patched") == patched
    assert decisions(installation, "allowed") > allowed


def decisions(installation: Installation, outcome: str) -> float:
    """How often `/mutate` has come to an outcome."""
    return sum(
        total(r.metrics(), "mps_webhook_decisions", endpoint="/mutate", decision=outcome) for r in installation.replicas
    )


TOUCHED = {"op": "add", "path": "/metadata/annotations/touched-by-another-webhook", "value": "true"}


def touching(found: Object) -> Patch:
    """Leave a mark."""
    missing = not found["metadata"].get("annotations")
    return [{"op": "add", "path": "/metadata/annotations", "value": {}}, TOUCHED] if missing else [TOUCHED]


def test_03_a_container_added_later_gets_its_limits_too(api: Api, tmp_path: Path) -> None:
    def add(found: Object) -> Patch:
        if any(c["name"] == "injected" for c in found["spec"]["containers"]):
            return []
        value = {"name": "injected", "image": "example.com/injected:1", "resources": GPU}
        return [*touching(found), {"op": "add", "path": "/spec/containers/-", "value": value}]

    with another_webhook(api, tmp_path, "zz-adds-a-container", add, "Never") as labels:
        found = api.create(pod(QUOTA, labels=labels))
    assert [c["name"] for c in found["spec"]["containers"]] == ["app", "injected"]
    assert env_of(found, 0) == env_of(found, 1) == {MEMORY: "0=3072M", THREADS: "25"}


@pytest.mark.parametrize("reinvocation", ["Never", "IfNeeded"])
def test_04_what_another_webhook_undoes_is_denied(api: Api, tmp_path: Path, reinvocation: Any) -> None:
    """Undone once, it is done again in the second round; undone in both, the pod is denied."""

    def undo(found: Object) -> Patch:
        has_env = found["spec"]["containers"][0].get("env")
        return [*touching(found), *([{"op": "remove", "path": "/spec/containers/0/env"}] if has_env else [])]

    with another_webhook(api, tmp_path, "zz-undoes", undo, reinvocation) as labels:
        reply = api.try_create(pod(QUOTA, labels=labels))
    if reinvocation == "Never":
        assert env_of(reply.checked()) == {MEMORY: "0=3072M", THREADS: "25"}
        return
    assert reply.code == 403
    assert reply.body["message"].endswith(
        'admission webhook "pods.mps.nvidia.com" denied the request: '
        f"spec.containers[0].env[{MEMORY}] (app): it was set to 0=3072M and changed afterwards: find the other "
        f"admission webhook that changes it [undone]; spec.containers[0].env[{THREADS}] (app): it was set to 25 and "
        "changed afterwards: find the other admission webhook that changes it [undone]"
    )


def test_05_a_dry_run_shows_the_patch_and_stores_nothing(api: Api) -> None:
    sent = pod(QUOTA)
    assert env_of(api.create(sent, dry_run=True)) == {MEMORY: "0=3072M", THREADS: "25"}
    assert api.find("Pod", sent["metadata"]["name"]) is None
    assert api.try_create(pod({"mps.nvidia.com/memory-limit": "5Gi"}), dry_run=True).code == 403


def test_06_generate_name(api: Api) -> None:
    sent = pod(QUOTA)
    sent["metadata"] = {"generateName": "made-", "annotations": QUOTA, "namespace": "default"}
    found = api.create(sent)
    assert found["metadata"]["name"].startswith("made-")
    assert env_of(found) == {MEMORY: "0=3072M", THREADS: "25"}


PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "disk/x", "operator": "In", "values": ["a/b"]}]}}
    ]
}
SPREAD = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"a.b/c": "d"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
LINUX: dict[str, Any] = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
PRESENT: dict[str, Any] = {"key": "nvidia.com/gpu.present", "operator": "Exists"}


@pytest.mark.parametrize(
    ("affinity", "meant"),
    [
        (None, {"nodeAffinity": required([HALF])}),
        ({}, {"nodeAffinity": required([HALF])}),
        ({"nodeAffinity": None}, {"nodeAffinity": required([HALF])}),
        ({"nodeAffinity": {}}, {"nodeAffinity": required([HALF])}),
        (SPREAD, {**SPREAD, "nodeAffinity": required([HALF])}),
        ({"nodeAffinity": PREFERRED}, {"nodeAffinity": {**PREFERRED, **required([HALF])}}),
        (
            {"nodeAffinity": required([LINUX], [PRESENT])},
            {"nodeAffinity": required([LINUX, HALF], [PRESENT, HALF])},
        ),
    ],
    ids=["absent", "empty", "null", "empty node affinity", "pod affinity", "preferred", "terms of the user's"],
)
def test_12_absent_parents_and_keys_with_slashes(api: Api, affinity: Any, meant: Object) -> None:
    """Every parent on the way is made where it is missing; what the user wrote stays."""
    annotations = {"a.b/c": "/~1", "memory-limit.mps.nvidia.com/app": "5Gi"}
    sent = pod(annotations, container(env=[{"name": "a/b~0c", "value": "/~"}]), affinity=affinity)
    del sent["spec"]["nodeSelector"]
    found = api.create(sent)
    assert found["spec"]["affinity"] == meant
    assert env_of(found) == {"a/b~0c": "/~", MEMORY: "0=5120M"}
    assert found["metadata"]["annotations"] == annotations


def test_12_a_key_that_validation_refuses_is_told_by_the_api_server(api: Api) -> None:
    """Mutating webhooks see such a key first: it may be no failure there."""
    reply = api.try_create(pod({**QUOTA, "bad~/key": "x"}))
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert "bad~/key" in reply.body["message"]


def test_13_fields_that_are_newer_than_the_webhook_survive(api: Api) -> None:
    """Typed models would drop them. Everything here came to pods in recent versions."""
    recent: Object = {
        "schedulingGates": [{"name": "example.com/gate"}],
        "hostUsers": False,
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
        "hostnameOverride": "other.example.com",
        "securityContext": {"supplementalGroupsPolicy": "Strict", "seLinuxChangePolicy": "Recursive"},
        "volumes": [{"name": "model", "image": {"reference": "example.com/model:1", "pullPolicy": "IfNotPresent"}}],
    }
    one = container(
        resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        restartPolicy="Never",
        restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
        lifecycle={"stopSignal": "SIGUSR1"},
        volumeMounts=[{"name": "model", "mountPath": "/model", "recursiveReadOnly": "IfPossible", "readOnly": True}],
    )
    sent = pod(QUOTA, one, os={"name": "linux"}, **recent)
    sent, meant = twins(sent, with_env(sent, SET))
    found, expected = api.create(sent), api.create(meant)
    assert stored_spec(found) == stored_spec(expected)
    # The comparison says little where the API server itself does not know the fields.
    assert recent.keys() <= found["spec"].keys()


def test_14_a_pod_of_a_megabyte(api: Api) -> None:
    """A thousand variables of a kilobyte each."""
    env = [{"name": f"VARIABLE_{i:04}", "value": "x" * 1000} for i in range(1000)]
    found = api.create(pod(QUOTA, container(env=env)))
    assert found["spec"]["containers"][0]["env"] == [*env, *SET]


@pytest.mark.parametrize("gpu", [True, False], ids=["GPU", "no GPU"])
@pytest.mark.parametrize(
    "shape",
    [
        {"env": [{"name": f"V{i}"} for i in range(20_000)]},
        {"annotations": {f"example.com/k{i}": "" for i in range(12_000)}},
        {"containers": 500, "env": [{"name": f"V{i}"} for i in range(100)]},
        {"labels": {f"example.com/k{i}": "" for i in range(20_000)}},
    ],
    ids=["20,000 variables", "12,000 annotations", "500 containers of 100 variables", "20,000 labels"],
)
def test_14_the_largest_pods_stay_within_the_cost_of_conditions(api: Api, shape: dict[str, Any], gpu: bool) -> None:
    """A condition that exceeds the API server's cost limit would be an error, and with `Fail` a refusal of the pod."""
    containers = [
        container(f"c{i}", env=shape.get("env"), resources=GPU if gpu and i == 0 else None)
        for i in range(shape.get("containers", 1))
    ]
    sent = pod(shape.get("annotations"), *containers, labels=shape.get("labels"))
    if not gpu:
        del sent["spec"]["nodeSelector"]
    assert api.try_create(sent, dry_run=True).checked()["spec"]["containers"][0]["name"] == "c0"


def test_denials_are_counted_and_told(api: Api, installation: Installation) -> None:
    """One finding, word for word, with its cause for programs."""
    before = decisions(installation, "denied")
    with pytest.raises(ApiError) as caught:
        api.create(pod({"mps.nvidia.com/memory-limit": "5Gi"}))
    message = (
        "spec.containers[0] (app): memory-limit 5Gi × 4 shares = 20480Mi, but a card of config mps-4x has 15360Mi "
        "(1 node, Tesla-T4): ask for at most 3840Mi, or use mps-2x [memory-over-budget]"
    )
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    assert caught.value.message == f'admission webhook "pods.mps.nvidia.com" denied the request: {message}'
    assert caught.value.details["causes"] == [
        {"reason": "memory-over-budget", "message": message, "field": "spec.containers[0]"}
    ]
    assert decisions(installation, "denied") == before + 1


def test_a_pod_without_gpus_is_never_seen(api: Api, installation: Installation) -> None:
    """Not even one: the conditions keep it at the API server."""
    before = installation.calls("/mutate"), installation.calls("/validate")
    api.create(plain())
    assert (installation.calls("/mutate"), installation.calls("/validate")) == before
