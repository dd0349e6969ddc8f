"""How long the API server is going to wait: the `timeout` of the URL, written as Go writes durations."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import parse_qs

DEFAULT_SECONDS = 10.0
"""What the API server assumes where a webhook configuration names no `timeoutSeconds`."""
MAX_SECONDS = 30.0
"""The largest `timeoutSeconds` that the API server accepts."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float | None:
    """Return the seconds of a Go duration (`10s`, `1m30s`, `500ms`, `0`); None for what Go would not take."""
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    if not rest or len(rest) > 64:
        return None
    seconds, at = 0.0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            return None
        seconds += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    return sign * seconds


@lru_cache(maxsize=64)
def allowance(query: bytes) -> float:
    """Return the seconds that the caller grants, by the query string of the URL; above 0, at most 30.

    A value that is absent or no duration counts as the default: the parameter only tells how long an answer is worth
    something, and to refuse admission for the way a hint is spelled would turn a hint into an outage.
    """
    values = parse_qs(query.decode("latin-1"), encoding="utf-8", errors="replace").get("timeout", [])
    seconds = parse_duration(values[-1]) if values else None
    return min(seconds, MAX_SECONDS) if seconds is not None and seconds > 0 else DEFAULT_SECONDS
