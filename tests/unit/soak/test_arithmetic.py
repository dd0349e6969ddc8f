"""What the soak scenarios compute: a bound from a histogram, and a verdict from what was put down."""

from __future__ import annotations

from math import inf

import pytest

from tests.e2e.harness.metrics import parse
from tests.soak.histogram import Histogram, of
from tests.soak.outcome import Outcome

TEXT = """# TYPE mps_webhook_request_duration_seconds histogram
mps_webhook_request_duration_seconds_bucket{endpoint="/mutate",le="0.01"} 90
mps_webhook_request_duration_seconds_bucket{endpoint="/mutate",le="0.05"} 99
mps_webhook_request_duration_seconds_bucket{endpoint="/mutate",le="+Inf"} 100
mps_webhook_request_duration_seconds_bucket{endpoint="/validate",le="0.01"} 7
"""
HUNDRED = Histogram((0.01, 0.05, inf), (90.0, 99.0, 100.0))


def test_one_endpoint_is_read() -> None:
    assert of(parse(TEXT)) == HUNDRED


def test_only_what_came_after_counts() -> None:
    assert HUNDRED - Histogram((), ()) == HUNDRED
    assert HUNDRED - Histogram((0.01, 0.05, inf), (80.0, 88.0, 88.0)) == Histogram((0.01, 0.05, inf), (10, 11, 12))


@pytest.mark.parametrize(
    ("but", "bound"),
    [(0, inf), (1, 0.05), (9, 0.05), (10, 0.01), (100, 0.0)],
    ids=["all", "all but the slowest", "one fewer than the quick", "the quick", "none"],
)
def test_all_but_the_slowest_keep_a_bound(but: float, bound: float) -> None:
    assert HUNDRED.slowest_but(but) == bound


def test_without_a_request_there_is_no_bound() -> None:
    assert Histogram((), ()).slowest_but(0) == 0.0


def test_a_scenario_fails_by_what_is_not_as_expected() -> None:
    outcome = Outcome("overload")
    outcome.say("5 sent")
    outcome.expect(True, "never said")
    assert (outcome.ok, outcome.line()) == (True, "overload: ok: 5 sent")
    outcome.expect(False, "nothing was shed")
    outcome.expect(False, "p99 too high")
    assert (outcome.ok, outcome.line()) == (False, "overload: FAILED (nothing was shed; p99 too high): 5 sent")
