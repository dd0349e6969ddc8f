"""Objects of megabytes that were made to keep the webhook busy: what is done for them is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import expression, inventory, node, pod, where
from webhook.policy import fleet, judge_pod
from webhook.policy.findings import MAX_OF_ONE_RULE, Finding, denial
from webhook.policy.fleet import MAX_EFFORT
from webhook.policy.pod import read_container
from webhook.policy.scheduling import Scheduling

HOSTNAME = "kubernetes.io/hostname"
NODES = [node(f"n-{i}", labels={HOSTNAME: f"n-{i}"}) for i in range(100)]
MANY = MAX_EFFORT // len(NODES) + 1


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(lambda: [where(*[expression(HOSTNAME, "NotIn", "x")] * MANY)], id="expressions"),
        pytest.param(lambda: [where(expression(HOSTNAME, "NotIn", "x"))] * MANY, id="terms"),
        pytest.param(lambda: [where(expression(HOSTNAME, "NotIn", *map(str, range(MANY * 32))))], id="values"),
    ],
)
def test_who_selects_at_too_great_length_is_taken_to_select_every_node(
    monkeypatch: pytest.MonkeyPatch, subject: Any
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Scheduling, "selects", lambda *_: asked.append("node"))
    verdict = judge_pod(pod().gpu().memory("1Gi").terms(*subject()).build(), "team-a", inventory(*NODES))
    assert [len(group.names) for group in verdict.fit] == [len(NODES)]
    assert not asked


def test_so_it_passes_no_rule_that_it_would_not_pass_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "MAX_EFFORT", 1000)
    fitting = node("big", memory=81920, labels={HOSTNAME: "big"})
    at = inventory(*NODES, fitting, placement="deny")
    named = where(expression(HOSTNAME, "In", "big"))
    assert judge_pod(pod().gpu().memory("16Gi").terms(named).build(), "team-a", at).allowed
    padded = pod().gpu().memory("16Gi").terms(*[named] * 1000)
    assert judge_pod(padded.build(), "team-a", at).codes == ("mixed-candidates",)


def test_below_that_length_everything_is_looked_at() -> None:
    verdict = judge_pod(
        pod().gpu().memory("1Gi").terms(where(*[expression(HOSTNAME, "NotIn", "n-7")] * 1000)).build(),
        "team-a",
        inventory(*NODES),
    )
    assert sum(len(group.names) for group in verdict.fit) == len(NODES) - 1


def test_of_many_mistakes_a_few_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = pod().gpu()
    for i in range(5000):
        subject.annotate(f"mps.nvidia.com/memory-limt-{i}", "3Gi")
    verdict = judge_pod(subject.build(), "team-a", inventory(*NODES))
    assert len(verdict.findings) == MAX_OF_ONE_RULE
    told: list[str] = []

    def message(finding: Finding) -> str:
        told.append(finding.field)
        return "x" * 100

    monkeypatch.setattr(Finding, "message", property(message))
    assert denial(verdict.findings * 100).endswith("(+9991 more)")
    assert len(told) < 20


def test_containers_are_listed_up_to_a_number() -> None:
    subject = pod("c-0").gpu()
    for i in range(1, 30):
        subject.container(f"c-{i}").gpu()
    subject.memory("1Gi", "nowhere")
    found = judge_pod(subject.build(), "team-a", inventory(*NODES)).findings
    (finding,) = [f for f in found if f.code == "unknown-container"]
    assert finding.hint == f"containers with a GPU are {', '.join(f'c-{i}' for i in range(10))} and 20 more"


def test_a_variable_is_read_as_often_as_it_is_set() -> None:
    env = [{"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=1G"}] * 50_000
    read = read_container({"name": "a", "env": env}, "spec.containers[0]", "/spec/containers/0", "container")
    assert len(read.variables("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")) == len(env)
