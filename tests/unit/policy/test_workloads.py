"""Workloads, judged as the pods they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from tests.builders import LIMIT, PodBuilder, inventory, node, pod
from tests.unit.policy.judging import codes, judge, told
from webhook.policy import Verdict, judge_workload

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "admission-reviews"
T4_4X, T4_2X = node("t4-4x"), node("t4-2x", config="mps-2x")

IN_SPEC = ("spec", "template")
KINDS = {
    "Deployment": IN_SPEC,
    "StatefulSet": IN_SPEC,
    "DaemonSet": IN_SPEC,
    "ReplicaSet": IN_SPEC,
    "ReplicationController": IN_SPEC,
    "Job": IN_SPEC,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}


def workload(kind: str, subject: PodBuilder, **metadata: object) -> dict[str, Any]:
    inner: dict[str, Any] = subject.build()
    inner = {"metadata": inner["metadata"], "spec": inner["spec"]}
    for step in reversed(KINDS[kind]):
        inner = {step: inner}
    return {"kind": kind, "metadata": {"name": "w", **metadata}, **inner}


def say(subject: dict[str, Any], *nodes: Any, **settings: Any) -> Verdict:
    return judge_workload(subject, "team-a", inventory(*(nodes or (T4_4X,)), **settings))


@pytest.mark.parametrize("kind", KINDS)
def test_patch_and_findings_are_where_the_template_is(kind: str) -> None:
    good = workload(kind, pod().gpu().memory("3Gi"))
    verdict = say(good)
    pointer = "/" + "/".join(KINDS[kind])
    assert list(verdict.patch) == [
        {"op": "add", "path": f"{pointer}/spec/containers/0/env", "value": [{"name": LIMIT, "value": "0=3072M"}]}
    ]
    assert say(jsonpatch.apply_patch(good, list(verdict.patch))).patch == ()

    denied = say(workload(kind, pod().gpu().memory("9Gi")))
    assert [f.field for f in denied.findings] == [f"{'.'.join(KINDS[kind])}.spec.containers[0]"]
    assert codes(denied, "deny") == {"memory-over-budget"}
    assert (denied.patch, denied.grants) == ((), ())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_misplaced(kind: str, where: str) -> None:
    path = ".".join(KINDS[kind])
    subject = workload(kind, pod().gpu(), **{where: {"mps.nvidia.com/memory-limit": "3Gi", "a": "b"}})
    verdict = say(subject)
    assert told(verdict.findings) == [
        (
            f"deny: metadata.{where}[mps.nvidia.com/memory-limit]: it does not reach the pods from here: write it under"
            f" {path}.metadata.annotations [misplaced-annotation]"
        )
    ]
    assert (verdict.allowed, verdict.patch) == (False, ())


def test_misplaced_beside_a_good_template_denies_the_whole() -> None:
    subject = workload("Deployment", pod().gpu().memory("3Gi"), annotations={"MPS.nvidia.com/x": "1"})
    assert say(subject).patch == ()


def test_a_label_in_the_template_is_misplaced_too() -> None:
    verdict = say(workload("Deployment", pod().gpu().label("mps.nvidia.com/processes", "2")))
    assert [f.field for f in verdict.findings] == ["spec.template.metadata.labels[mps.nvidia.com/processes]"]


DAEMONSET = (
    "deny: spec.template.spec.nodeSelector: its pods fit config mps-2x, but on config mps-4x they would be denied for"
    " ever: add a nodeSelector: nvidia.com/device-plugin.config: mps-2x [mixed-candidates]"
)


@pytest.mark.parametrize("placement", ["steer", "deny", "off"])
def test_a_mixed_daemonset_is_denied(placement: str) -> None:
    verdict = say(workload("DaemonSet", pod().gpu().memory("5Gi")), T4_4X, T4_2X, placement=placement)
    assert told(verdict.findings) == [DAEMONSET]
    assert verdict.patch == ()


def test_a_mixed_daemonset_within_one_config() -> None:
    verdict = say(workload("DaemonSet", pod().gpu().memory("5Gi")), T4_4X, node("big", memory=40960))
    assert told(verdict.findings) == [
        (
            "deny: spec.template.spec.nodeSelector: its pods fit config mps-4x, but on config mps-4x they would be"
            " denied for ever: add a nodeSelector that only fitting nodes meet [mixed-candidates]"
        )
    ]


def test_a_mixed_daemonset_with_another_fault_hears_of_both() -> None:
    subject = pod().gpu().memory("5Gi").env("CUDA_MPS_PIPE_DIRECTORY", "/x")
    verdict = say(workload("DaemonSet", subject), T4_4X, T4_2X)
    assert codes(verdict, "deny") == {"daemon-bypass", "mixed-candidates"}


@pytest.mark.parametrize(
    ("subject", "nodes"),
    [
        pytest.param(pod().gpu().memory("5Gi").config("mps-2x"), [T4_4X, T4_2X], id="pinned"),
        pytest.param(pod().gpu().memory("3Gi"), [T4_4X, T4_2X], id="all fit"),
        pytest.param(pod().gpu(), [T4_4X, node("e", config="mps-1x")], id="no quota"),
    ],
)
def test_a_daemonset_that_fits(subject: PodBuilder, nodes: list[Any]) -> None:
    verdict = say(workload("DaemonSet", subject), *nodes)
    assert (verdict.allowed, verdict.codes) == (True, ())


def test_a_daemonset_that_fits_nowhere_is_not_mixed() -> None:
    assert say(workload("DaemonSet", pod().gpu().memory("99Gi")), T4_4X, T4_2X).codes == ("memory-over-budget",)


def test_others_are_steered() -> None:
    subject = pod().gpu().memory("5Gi")
    verdict = say(workload("Deployment", subject), T4_4X, T4_2X)
    assert codes(verdict, "warn") == {"steered"}
    alone = judge(subject, T4_4X, T4_2X)
    assert [op["value"] for op in verdict.patch] == [op["value"] for op in alone.patch]
    assert [op["path"] for op in verdict.patch] == ["/spec/template" + op["path"] for op in alone.patch]
    assert verdict.grants == alone.grants


@pytest.mark.parametrize(
    "subject",
    [
        {},
        {"kind": "Scale", "spec": {"replicas": 3}},
        {"kind": "Deployment", "spec": None},
        {"kind": "Deployment", "spec": {"template": None}},
        {"kind": "Deployment", "spec": {"template": []}},
        {"kind": "CronJob", "spec": {"jobTemplate": {"spec": "text"}}},
        {"kind": ["x"], "spec": {"template": {}}},
        {"kind": "Deployment", "metadata": "text", "spec": {"template": {"spec": {"containers": "text"}}}},
        {"kind": "Deployment", "metadata": {"annotations": "text"}, "spec": {"template": {"metadata": 3}}},
    ],
)
def test_what_makes_no_gpu_pod_passes(subject: dict[str, Any]) -> None:
    verdict = say(subject)
    assert (verdict.allowed, verdict.findings, verdict.patch) == (True, (), ())


@pytest.mark.parametrize(
    "recording",
    [p.name for p in sorted(RECORDINGS.glob("*-create*.json")) if not p.name.startswith(("pod", "binding"))],
)
def test_recorded_workloads(recording: str) -> None:
    request = json.loads((RECORDINGS / recording).read_text())["request"]
    verdict = judge_workload(request["object"], request["namespace"], inventory(T4_4X, T4_2X))
    assert not codes(verdict, "deny") - {"memory-over-budget", "mixed-candidates"}
    if verdict.allowed:
        after = jsonpatch.apply_patch(request["object"], list(verdict.patch))
        assert judge_workload(after, request["namespace"], inventory(T4_4X, T4_2X)).patch == ()
