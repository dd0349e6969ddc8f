"""Malformed pods: the API server refuses them right after us, and must not be kept from it."""

from __future__ import annotations

import pytest

from tests.builders import inventory, node, pod
from tests.unit.policy.judging import codes, judge
from webhook.policy import judge_pod

FLEET = inventory(node("quarter", config="mps-4x", memory=15360), node("half", config="mps-2x", memory=15360))


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param("near", id="text"),
        pytest.param({"nodeAffinity": []}, id="node affinity is a list"),
        pytest.param({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 7}}, id="number"),
    ],
)
def test_affinity_of_a_wrong_type_stays(affinity: object) -> None:
    verdict = judge_pod(pod().gpu().memory("5Gi").spec(affinity=affinity).build(), "team-a", FLEET)
    assert [op["path"] for op in verdict.patch] == ["/spec/containers/0/env"]


def test_null_is_zero() -> None:
    plain = pod().resources(limits={"nvidia.com/gpu": None})
    assert judge(plain).findings == ()
    assert codes(judge(plain.memory("3Gi")), "deny") == {"quota-without-gpu"}


def test_host_ipc_beside_qgpu_reaches_nobody() -> None:
    subject = pod().resources(limits={"tke.cloud.tencent.com/qgpu-core": 20}).host_ipc("true")
    assert codes(judge(subject), "deny") == {"quota-without-gpu"}


def test_values_that_are_equal_to_python_are_told_apart() -> None:
    """Verdicts are remembered; true and 1 are one key of a dict, and two things to a person."""
    told = [
        judge_pod(pod().gpu().annotate("mps.nvidia.com/host-ipc", value).build(), "team-a", FLEET).findings[0].problem
        for value in (True, 1, 1.0)
    ]
    assert told == ["true is no string", "1 is no string", "1.0 is no string"]
