"""The matchConditions, run by CEL's reference implementation; the API server's own verdict is asked in tests/e2e."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

WHY = "cel-expr-python is not installed"
cel = pytest.importorskip("cel_expr_python.cel", reason=WHY)
ext_optional = pytest.importorskip("cel_expr_python.ext.ext_optional", reason=WHY)
ext_strings = pytest.importorskip("cel_expr_python.ext.ext_strings", reason=WHY)

Object = dict[str, Any]
Objects = list[Object]
Sent = Callable[[Object | None, Object | None], bool]


def compile_conditions(objects: Objects, kind: str, name: str) -> Sent:
    environment = cel.NewEnv(
        variables={"object": cel.Type.DYN, "oldObject": cel.Type.DYN},
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )
    (hook,) = (w for o in objects if o["kind"] == kind for w in o["webhooks"] if w["name"] == name)
    programs = [environment.compile(c["expression"]) for c in hook["matchConditions"]]

    def sent(new: Object | None, old: Object | None) -> bool:
        values = [p.eval(data={"object": new, "oldObject": old}).value() for p in programs]
        assert all(v is True or v is False for v in values), values
        return all(values)

    return sent


@pytest.fixture
def pods(webhook: Objects) -> Sent:
    return compile_conditions(webhook, "ValidatingWebhookConfiguration", "pods.mps.nvidia.com")


@pytest.fixture
def workloads(webhook: Objects) -> Sent:
    return compile_conditions(webhook, "ValidatingWebhookConfiguration", "workloads.mps.nvidia.com")


def pod(metadata: Object | None = None, spec: Object | None = None, **container: Any) -> Object:
    return {
        "metadata": {"name": "p", **(metadata or {})},
        "spec": {"containers": [{"name": "plain", "image": "i"}, {"name": "c", "image": "i", **container}]}
        | (spec or {}),
    }


GPU = {"limits": {"nvidia.com/gpu": "1"}}
MATTERS = {
    "gpu": pod(resources=GPU),
    "gpu in requests": pod(resources={"requests": {"nvidia.com/gpu": "1"}}),
    "gpu.shared": pod(resources={"limits": {"nvidia.com/gpu.shared": "1"}}),
    "mig": pod(resources={"limits": {"nvidia.com/mig-1g.5gb": "1"}}),
    "gpu in an init container": pod(spec={"initContainers": [{"name": "i", "resources": GPU}]}),
    "annotation": pod({"annotations": {"a": "b", "mps.nvidia.com/memory-limit": "1Gi"}}),
    "annotation for a container": pod({"annotations": {"memory-limit.mps.nvidia.com/c": "1Gi"}}),
    "annotation in capitals": pod({"annotations": {"MPS.NVIDIA.com/memory-limit": "1Gi"}}),
    "label": pod({"labels": {"mps.nvidia.com/memory-limit": "1Gi"}}),
    "label in capitals": pod({"labels": {"Memory-Limit.MPS.nvidia.com/c": "1Gi"}}),
    "memory variable": pod(env=[{"name": "A"}, {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "1"}]),
    "pipe variable": pod(env=[{"name": "CUDA_MPS_PIPE_DIRECTORY", "valueFrom": {}}]),
    "bypass variable": pod(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
}
DOES_NOT = {
    "plain": pod(),
    "other resources": pod(resources={"limits": {"cpu": "1", "example.com/gpu": "1"}, "requests": {"cpu": "1"}}),
    "other keys": pod({"annotations": {"nvidia.com/gpu": "x"}, "labels": {"nvidia.com/mps.capable": "true"}}),
    "a domain that only ends alike": pod({"annotations": {"notmps.nvidia.com/memory-limit": "1Gi"}}),
    "the domain as a name": pod({"labels": {"mps.nvidia.com": "x"}}),
    "other variables": pod(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}, {"name": "X"}]),
    "empty parts": pod({"annotations": {}, "labels": {}}, env=[], resources={}),
    "null maps": pod({"annotations": None, "labels": None}, resources={"limits": None, "requests": None}),
    "null containers": pod(spec={"initContainers": None, "ephemeralContainers": None}),
    "no containers": {"metadata": {}, "spec": {}},
    "nothing": {},
}


@pytest.mark.parametrize("name", MATTERS)
def test_pods_that_matter_are_sent(pods: Sent, name: str) -> None:
    assert pods(MATTERS[name], None)
    # Whichever side of an update carries the mark.
    assert pods(pod(), MATTERS[name])


@pytest.mark.parametrize("name", DOES_NOT)
def test_other_pods_start_while_the_webhook_is_down(pods: Sent, name: str) -> None:
    assert not pods(DOES_NOT[name], None)
    assert not pods(DOES_NOT[name], pod())


def test_a_debug_container_with_a_variable_is_sent(pods: Sent) -> None:
    debug = {"name": "d", "env": [{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": ""}]}
    assert pods(pod(spec={"ephemeralContainers": [debug]}), pod())
    assert not pods(pod(spec={"ephemeralContainers": [{"name": "d"}]}), pod())


def in_template(template: Object) -> Object:
    return {"metadata": {"name": "w"}, "spec": {"template": template}}


def in_cron_job(template: Object) -> Object:
    return {"metadata": {"name": "w"}, "spec": {"jobTemplate": {"spec": {"template": template}}}}


@pytest.mark.parametrize("wrap", [in_template, in_cron_job])
@pytest.mark.parametrize("name", MATTERS)
def test_workloads_that_matter_are_sent(workloads: Sent, wrap: Callable[[Object], Object], name: str) -> None:
    assert workloads(wrap(MATTERS[name]), None)
    assert workloads(wrap(pod()), wrap(MATTERS[name]))


@pytest.mark.parametrize("wrap", [in_template, in_cron_job])
@pytest.mark.parametrize("name", DOES_NOT)
def test_other_workloads_are_left_alone(workloads: Sent, wrap: Callable[[Object], Object], name: str) -> None:
    assert not workloads(wrap(DOES_NOT[name]), None)


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_misplaced_keys_are_sent(workloads: Sent, field: str) -> None:
    keys = {field: {"MPS.nvidia.com/memory-limit": "1Gi"}}
    assert workloads({"metadata": keys, "spec": {"template": pod()}}, None)
    assert workloads({"metadata": {}, "spec": {"jobTemplate": {"metadata": keys, "spec": {"template": pod()}}}}, None)


@pytest.mark.parametrize(
    ("owner", "sent"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "controller": True}, False),
        ({"apiVersion": "batch/v1", "kind": "CronJob", "controller": True}, False),
        ({"apiVersion": "apps/v1", "kind": "Deployment"}, True),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "controller": False}, True),
        ({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "controller": True}, True),
    ],
    ids=["Deployment", "CronJob", "no controller", "controller false", "another controller"],
)
def test_what_a_judged_workload_makes_is_not_judged_again(workloads: Sent, owner: Object, sent: bool) -> None:
    made = copy.deepcopy(in_template(pod(resources=GPU)))
    made["metadata"]["ownerReferences"] = [owner]
    assert workloads(made, None) is sent
