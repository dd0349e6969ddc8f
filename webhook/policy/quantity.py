"""Kubernetes quantities (``3Gi``, ``500m``, ``1e3``), read exactly.

The grammar is that of apimachinery's ``resource.ParseQuantity``: an optional sign, decimal digits with at most one
point, then one suffix or one decimal exponent. ``E`` alone is exa; ``E`` followed by digits is an exponent.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

MIB = 1 << 20

MAX_VALUE = (1 << 63) - 1
"""Kubernetes caps a quantity here; so do we, which keeps every byte count inside 64 bits."""

_MAX_LENGTH = 64
"""A longer text is no quantity anybody writes; the bound keeps the arithmetic small."""

_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)

_SUFFIXES = {
    "n": (1, 10**9),
    "u": (1, 10**6),
    "m": (1, 1000),
    "k": (10**3, 1),
    "M": (10**6, 1),
    "G": (10**9, 1),
    "T": (10**12, 1),
    "P": (10**15, 1),
    "E": (10**18, 1),
    "Ki": (1 << 10, 1),
    "Mi": (1 << 20, 1),
    "Gi": (1 << 30, 1),
    "Ti": (1 << 40, 1),
    "Pi": (1 << 50, 1),
    "Ei": (1 << 60, 1),
}
"""Numerator and denominator: a fraction is made once, at the end, since each step of its arithmetic costs more than all
of the integers'."""


@lru_cache(maxsize=1024)
def parse_quantity(text: str) -> Fraction:
    """The exact value of a quantity, capped at ``±MAX_VALUE``.

    Raises ValueError where Kubernetes refuses the text too. Kept for the next call: a fleet writes few quantities.
    """
    match = _FORM.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError("not a Kubernetes quantity")
    whole, _, decimals = match["number"].partition(".")
    up, down = _scale(match["suffix"], match["exponent"])
    numerator, denominator = int(whole + decimals) * up, 10 ** len(decimals) * down
    if numerator > MAX_VALUE * denominator:
        numerator, denominator = MAX_VALUE, 1
    return Fraction(-numerator if match["sign"] == "-" else numerator, denominator)


def mib_text(mib: int) -> str:
    """A MiB count as people write it: ``3Gi`` where whole, else ``3500Mi``."""
    return f"{mib >> 10}Gi" if mib and mib % 1024 == 0 else f"{mib}Mi"


def _scale(suffix: str | None, exponent: str | None) -> tuple[int, int]:
    if suffix is not None:
        return _SUFFIXES[suffix]
    # Beyond these bounds every value is capped or vanishes all the same, and 10**999999 would cost a second.
    power = max(-_MAX_LENGTH * 2, min(_MAX_LENGTH * 2, int(exponent or 0)))
    return (10**power, 1) if power >= 0 else (1, 10**-power)
