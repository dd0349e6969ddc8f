"""Enough of PromQL to say which series a query reads: selectors with their matchers, labels that it groups by.

Whether a query is PromQL at all, and what comes of it, only Prometheus can say; this is for machines without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{([^{}]*)\}|(?![\w:]|\s*\())")
_MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*(\d+)\s*")
_WORDS = frozenset(("and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "time"))


@dataclass(frozen=True)
class Series:
    """One line of an exposition: the metric's name and its labels."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Selector:
    """A metric's name with matchers: label, operator, value."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def selects(self, series: Series) -> bool:
        """Whether it reads a series."""
        return series.name == self.name and all(
            _holds(series.labels.get(label, ""), operator, value) for label, operator, value in self.matchers
        )


def selectors(query: str) -> list[Selector]:
    """Every selector of a query."""
    strings: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        strings.append(match[0][1:-1])
        return str(len(strings) - 1)

    plain = _GROUPING.sub(" ", _STRING.sub(put_aside, query))
    plain = re.sub(r"\[[^\]]*\]|\boffset\s+\w+", " ", plain)
    return [
        Selector(name, tuple((label, operator, strings[int(at)]) for label, operator, at in _MATCHER.findall(body)))
        for name, body in _SELECTOR.findall(plain)
        if name not in _WORDS
    ]


def grouping(query: str) -> set[str]:
    """Labels that a query groups, joins or keeps by."""
    return {label for inside in _GROUPING.findall(query) for label in re.findall(r"\w+", inside)}


def missing(query: str, exposition: Iterable[Series]) -> list[str]:
    """What a query asks for and no series has: one line for each selector that reads nothing, each unknown label."""
    series = list(exposition)
    found = selectors(query)
    read = [s for s in series if any(one.selects(s) for one in found)]
    known = {label for s in read for label in s.labels}
    return [str(one) for one in found if not any(one.selects(s) for s in series)] + sorted(grouping(query) - known)


def _holds(have: str, operator: str, value: str) -> bool:
    match operator:
        case "=":
            return have == value
        case "!=":
            return have != value
        case "=~":
            return re.fullmatch(value, have) is not None
        case _:
            return re.fullmatch(value, have) is None
