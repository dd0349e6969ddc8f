"""What the service's own histogram says about the requests of a stretch of time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tests.e2e.harness.metrics import Series

NAME = "mps_webhook_request_duration_seconds_bucket"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Requests by their duration: `counts` are cumulative, one for each of the ascending `bounds` (seconds)."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    def __sub__(self, before: Histogram) -> Histogram:
        """Those that came after `before`; there may have been none at that time."""
        if not before.bounds:
            return self
        return Histogram(self.bounds, tuple(a - b for a, b in zip(self.counts, before.counts, strict=True)))

    def slowest_but(self, count: float) -> float:
        """The bound in seconds that all requests but the `count` slowest keep; 0 where there are no more than those.

        Answers of all codes are in one histogram, and a refusal is quick. Who wants to know how long the slowest
        hundredth of the accepted took, and asks for all but so many, errs on the safe side: none of them is faster.
        """
        if not self.counts or self.counts[-1] <= count:
            return 0.0
        wanted = self.counts[-1] - count
        return next(bound for bound, below in zip(self.bounds, self.counts, strict=True) if below >= wanted)


def of(series: Series, endpoint: str = "/mutate") -> Histogram:
    """The histogram of one endpoint."""
    found: dict[float, float] = {}
    for (name, labels), value in series.items():
        values = dict(labels)
        if name == NAME and values.get("endpoint") == endpoint:
            found[inf if values["le"] == "+Inf" else float(values["le"])] = value
    bounds = tuple(sorted(found))
    return Histogram(bounds, tuple(found[bound] for bound in bounds))
