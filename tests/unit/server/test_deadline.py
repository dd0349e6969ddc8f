from __future__ import annotations

import pytest

from webhook.server.deadline import DEFAULT_SECONDS, MAX_SECONDS, allowance, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1),
        ("2h", 7200),
        ("100us", 1e-4),
        ("100µs", 1e-4),
        ("100μs", 1e-4),
        ("1ns", 1e-9),
        ("+3s", 3),
        ("-3s", -3),
        ("0", 0),
        ("0s", 0),
        ("", None),
        ("10", None),
        ("s", None),
        (".s", None),
        ("10 s", None),
        (" 10s", None),
        ("10s ", None),
        ("10S", None),
        ("ten", None),
        ("nan", None),
        ("1e3s", None),
        ("1_0s", None),
        ("١s", None),
        ("--1s", None),
        ("9" * 100 + "s", None),
    ],
)
def test_durations_as_go_reads_them(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        (b"timeout=5s", 5),
        (b"timeout=1m30s", MAX_SECONDS),
        (b"timeout=2s&timeout=3s", 3),
        (b"a=b&timeout=250ms", 0.25),
        (b"timeout=100%C2%B5s", 1e-4),
        (b"", DEFAULT_SECONDS),
        (b"timeout=", DEFAULT_SECONDS),
        (b"timeout=0s", DEFAULT_SECONDS),
        (b"timeout=-5s", DEFAULT_SECONDS),
        (b"timeout=soon", DEFAULT_SECONDS),
        (b"\xff=\xfe&timeout=%ff", DEFAULT_SECONDS),
    ],
)
def test_allowance(query: bytes, seconds: float) -> None:
    assert allowance(query) == pytest.approx(seconds)
