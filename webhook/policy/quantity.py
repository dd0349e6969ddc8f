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
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1 << 10),
    "Mi": Fraction(1 << 20),
    "Gi": Fraction(1 << 30),
    "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50),
    "Ei": Fraction(1 << 60),
}


@lru_cache(maxsize=1024)
def parse_quantity(text: str) -> Fraction:
    """The exact value of a quantity, capped at ``±MAX_VALUE``.

    Raises ValueError where Kubernetes refuses the text too. Kept for the next call: a fleet writes few quantities.
    """
    match = _FORM.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError("not a Kubernetes quantity")
    value = _decimal(match["number"]) * _scale(match["suffix"], match["exponent"])
    value = min(value, Fraction(MAX_VALUE))
    return -value if match["sign"] == "-" else value


def mib_text(mib: int) -> str:
    """A MiB count as people write it: ``3Gi`` where whole, else ``3500Mi``."""
    return f"{mib >> 10}Gi" if mib and mib % 1024 == 0 else f"{mib}Mi"


def _decimal(number: str) -> Fraction:
    whole, _, fraction = number.partition(".")
    return Fraction(int(whole + fraction or "0"), 10 ** len(fraction))


def _scale(suffix: str | None, exponent: str | None) -> Fraction:
    if suffix is not None:
        return _SUFFIXES[suffix]
    if exponent is None:
        return Fraction(1)
    # Beyond these bounds every value is capped or vanishes all the same, and 10**999999 would cost a second.
    return Fraction(10) ** max(-_MAX_LENGTH * 2, min(_MAX_LENGTH * 2, int(exponent)))
