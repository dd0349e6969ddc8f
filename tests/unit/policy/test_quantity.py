"""Quantities, against the semantics of Kubernetes' resource.ParseQuantity."""

from __future__ import annotations

from fractions import Fraction

import pytest

from webhook.policy.quantity import MAX_VALUE, mib_text, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("007", 7),
        ("3221225472", 3 << 30),
        ("1Ki", 1 << 10),
        ("1Mi", 1 << 20),
        ("3Gi", 3 << 30),
        ("1Ti", 1 << 40),
        ("1Pi", 1 << 50),
        ("1Ei", 1 << 60),
        ("1k", 10**3),
        ("1M", 10**6),
        ("3G", 3 * 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1000m", 1),
        ("500m", Fraction(1, 2)),
        ("1u", Fraction(1, 10**6)),
        ("1n", Fraction(1, 10**9)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("1.5Gi", 3 << 29),
        ("0.1Ki", Fraction(1024, 10)),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E+3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("1.5e3", 1500),
        ("1e0", 1),
        ("+3", 3),
        ("-3", -3),
        ("-3Gi", -(3 << 30)),
        ("-0", 0),
    ],
)
def test_reads(text: str, value: Fraction | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["9223372036854775807", "9223372036854775808", "8Ei", "10E", "1e19", "1e999999999", "9" * 64],
)
def test_caps_above(text: str) -> None:
    assert parse_quantity(text) == MAX_VALUE == (1 << 63) - 1
    assert parse_quantity("-" + text[:63]) <= -1


def test_caps_below() -> None:
    assert parse_quantity("-8Ei") == -MAX_VALUE


def test_a_vanishing_exponent_is_nearly_zero() -> None:
    assert 0 < parse_quantity("1e-999999999") < Fraction(1, 10**9)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "+",
        "-",
        "lots",
        " 1",
        "1 ",
        "1\n",
        "3 Gi",
        "2000mb",
        "3GiB",
        "3GB",
        "3gi",
        "3g",
        "1K",
        "1KI",
        "1i",
        ".5i",
        "-3.01i",
        "1.1.M",
        "1+1.0M",
        "0.1mi",
        "0.1am",
        "--1",
        "+-1",
        "1e",
        "1E+",
        "1e1.5",
        "1e3Ki",
        "1Kie3",
        "-3.01e-",
        "0x10",
        "1_000",
        "1,5",
        "NaN",
        "inf",
        "٣",
        "３Gi",
        "3Gi,4Gi",
        "1" * 65,
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("mib", "text"),
    [(0, "0Mi"), (1, "1Mi"), (1023, "1023Mi"), (1024, "1Gi"), (1025, "1025Mi"), (3072, "3Gi"), (3840, "3840Mi")],
)
def test_writes_mib(mib: int, text: str) -> None:
    assert mib_text(mib) == text
