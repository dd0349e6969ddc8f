"""How many requests are taken on at once: a burst whole, an overload in part."""

from __future__ import annotations

from webhook.server.lifecycle import Lifecycle


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_fills_every_place_and_an_overload_a_quarter() -> None:
    clock = Clock()
    lifecycle = Lifecycle(64, clock)
    lifecycle.in_flight = 63
    assert not lifecycle.full()
    lifecycle.in_flight = 64
    assert lifecycle.full()
    for _ in range(4):  # it goes on
        clock.now += 0.03
        lifecycle.in_flight = 16
        lifecycle.full()
    assert lifecycle.full()
    lifecycle.in_flight = 15
    assert not lifecycle.full()


def test_after_a_calm_moment_a_burst_is_a_burst_again() -> None:
    clock = Clock()
    lifecycle = Lifecycle(64, clock)
    for _ in range(20):
        clock.now += 0.02
        lifecycle.in_flight = 40
        crowded = lifecycle.full()
    assert crowded
    clock.now += 0.11
    assert not lifecycle.full()


def test_a_limit_of_one_is_one() -> None:
    lifecycle = Lifecycle(1, Clock())
    assert not lifecycle.full()
    lifecycle.in_flight = 1
    assert lifecycle.full()
