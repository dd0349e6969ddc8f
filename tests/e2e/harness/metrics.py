"""Metrics of the API server and of the webhook, read as text, compared over a stretch of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.e2e.harness.api import Api

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]

OURS = ("pods.mps.nvidia.com", "workloads.mps.nvidia.com")
REJECTIONS = "apiserver_admission_webhook_rejection_count"
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"
EVALUATION_ERRORS = "apiserver_admission_match_condition_evaluation_errors"


def parse(text: str, names: Iterable[str] = ()) -> Series:
    """Return every sample, or those of metrics that begin with one of `names` (the rest is not even parsed).

    Names are without the ending `_total`.
    """
    begins = tuple(names)
    if begins:
        text = "".join(
            line + "\n"
            for line in text.splitlines()
            if line.startswith(begins) or (line.startswith("#") and any(f" {one}" in line for one in begins))
        )
    # The parser gives every counter the name that OpenMetrics asks for; the API server's do not all have it.
    return {
        (sample.name.removesuffix("_total"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(series: Series, name: str, **labels: str) -> float:
    """Return the sum of a metric's samples that carry these labels; an absent series is 0."""
    wanted = labels.items()
    return sum(value for (metric, found), value in series.items() if metric == name and wanted <= found)


class Watched:
    """What the API server has counted against our webhooks since a moment in time."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._before = self._read()

    def webhook_errors(self) -> float:
        """Calls that failed and so decided about an object by failurePolicy Fail."""
        return self._grown(REJECTIONS, lambda labels: labels.get("error_type") != "no_error")

    def denials(self) -> float:
        """Objects that the webhook itself denied."""
        return self._grown(REJECTIONS, lambda labels: labels.get("error_type") == "no_error")

    def passed_open(self) -> float:
        """Calls that failed and were let pass by failurePolicy Ignore."""
        return self._grown(FAIL_OPEN)

    def evaluation_errors(self) -> float:
        """matchConditions that could not be evaluated."""
        return self._grown(EVALUATION_ERRORS)

    def assert_quiet(self) -> None:
        """No call failed, none was skipped, every condition could be evaluated."""
        found = (self.webhook_errors(), self.passed_open(), self.evaluation_errors())
        assert found == (0, 0, 0), f"webhook errors, passed open, evaluation errors: {found}"

    def _read(self) -> Series:
        return parse(self._api.text("/metrics"), (REJECTIONS, FAIL_OPEN, EVALUATION_ERRORS))

    def _grown(self, metric: str, counts: Callable[[dict[str, str]], bool] = lambda _: True) -> float:
        return sum(
            value - self._before.get((name, labels), 0.0)
            for (name, labels), value in self._read().items()
            if name == metric and dict(labels).get("name") in OURS and counts(dict(labels))
        )
