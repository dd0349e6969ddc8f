"""How many requests are taken on at once: as many as there are places, and as are answered in good time."""

from __future__ import annotations

import pytest

from webhook.server.faults import Fault
from webhook.server.lifecycle import FEW, Lifecycle


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def waiting(requests: int, *, seconds: float) -> tuple[Lifecycle, Clock]:
    """With so many in flight, after many answers that came one every so many seconds."""
    clock = Clock()
    lifecycle = Lifecycle(64, clock)
    lifecycle.in_flight = 1000 + requests
    for _ in range(1000):
        clock.now += seconds
        lifecycle.leave()
    assert lifecycle.in_flight == requests
    return lifecycle, clock


@pytest.mark.parametrize(
    ("requests", "seconds", "full"),
    [
        (63, 0.0001, False),
        (64, 0.0001, True),
        (23, 0.0005, False),
        (25, 0.0005, True),
        (FEW - 1, 0.1, False),
        (FEW, 0.1, True),
    ],
)
def test_full_by_number_or_by_the_wait_that_is_to_be_expected(requests: int, seconds: float, full: bool) -> None:
    assert waiting(requests, seconds=seconds)[0].full() is full


def test_a_single_slow_answer_is_no_reason_to_refuse_others() -> None:
    lifecycle, clock = waiting(21, seconds=0.0001)
    clock.now += 60.0
    lifecycle.leave()
    assert not lifecycle.full()


def test_what_nobody_waited_for_says_nothing() -> None:
    lifecycle, clock = waiting(1, seconds=0.0001)
    lifecycle.leave()
    for _ in range(100):
        clock.now += 1.0
        lifecycle.enter()
        lifecycle.leave()
    lifecycle.in_flight = 60
    assert not lifecycle.full()


def test_a_limit_of_one_is_one() -> None:
    lifecycle = Lifecycle(1)
    assert not lifecycle.full()
    lifecycle.enter()
    assert lifecycle.full()
    lifecycle.check()
    lifecycle.enter()
    with pytest.raises(Fault, match="too many requests at once, try again"):
        lifecycle.check()
    lifecycle.leave(2)
    assert lifecycle.in_flight == 0
    assert not lifecycle.full()
