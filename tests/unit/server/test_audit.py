from __future__ import annotations

import pytest

from webhook.policy import Grant, Verdict
from webhook.policy.findings import Finding
from webhook.server.admission import MAX_ANNOTATION, audit_annotations
from webhook.server.decide import UNTOUCHED, Decision

DENIED = Finding("memory-over-budget", "deny", "spec", "too much")


@pytest.mark.parametrize(
    ("decision", "annotations"),
    [
        pytest.param(UNTOUCHED, {"decision": "untouched"}, id="untouched"),
        pytest.param(
            Decision(verdict=Verdict(grants=(Grant("a", 3072, None, 1), Grant("b", 512, "10", 2)))),
            {"decision": "allowed", "memory": "a=3072Mi,b=2x512Mi", "threads": "b=2x10"},
            id="grants",
        ),
        pytest.param(
            Decision(allowed=False, verdict=Verdict((DENIED,), grants=(Grant("a", 1, "1", 1),))),
            {"decision": "denied", "codes": "memory-over-budget"},
            id="nothing is granted by a denial",
        ),
    ],
)
def test_audit_annotations(decision: Decision, annotations: dict[str, str]) -> None:
    assert audit_annotations(decision) == annotations


def test_they_stay_short() -> None:
    grants = tuple(Grant(f"container-{number}", 1024, None, 1) for number in range(1000))
    assert len(audit_annotations(Decision(verdict=Verdict(grants=grants)))["memory"]) == MAX_ANNOTATION
