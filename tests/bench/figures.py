"""Percentiles and medians of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


def percentile(values: Sequence[float], rank: float) -> float:
    """The value that `rank` percent of the sorted `values` do not exceed; 0 where there is none."""
    return values[max(0, ceil(len(values) * rank / 100) - 1)] if values else 0.0


def median(values: Sequence[float]) -> float:
    """The middle one of `values`, in any order; 0 where there is none."""
    return percentile(sorted(values), 50)


def counted(connections: int) -> str:
    """`1 connection`, `8 connections`."""
    return "1 connection" if connections == 1 else f"{connections} connections"
