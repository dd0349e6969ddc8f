"""What can be seen from outside, in the Prometheus text format.

Every label has a bounded set of values: what comes from a request is mapped to a known value or to "other".
"""

from __future__ import annotations

import platform
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from webhook import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from webhook.cluster import Source
    from webhook.policy import Verdict
    from webhook.server.lifecycle import Lifecycle

# A `_created` series beside every counter doubles the exposition, and Prometheus makes nothing of it.
disable_created_metrics()  # type: ignore[no-untyped-call]

OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Seconds. A typical review takes well under a millisecond, a caller waits ten seconds at most by default."""
MAX_CONFIGS = 100
"""How many names of configurations become label values; an administrator names them, and may name many over time."""


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self, source: Source, lifecycle: Lifecycle, *, settings_hash: str = "") -> None:
        self.registry = registry = CollectorRegistry()
        # A labelled series is looked up under a lock, and each request touches half a dozen of the same few.
        self._series = lru_cache(maxsize=1024)(_series)
        self._requests = Counter(
            "mps_webhook_requests", "Requests answered.", ["endpoint", "operation", "code"], registry=registry
        )
        self._duration = Histogram(
            "mps_webhook_request_duration_seconds",
            "Time from a request's headers to its answer.",
            ["endpoint"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._decisions = Counter(
            "mps_webhook_decisions", "Decisions by outcome.", ["endpoint", "decision"], registry=registry
        )
        self._findings = Counter(
            "mps_webhook_findings", "Findings by code.", ["endpoint", "severity", "code"], registry=registry
        )
        self._profiles = Counter(
            "mps_webhook_judged_profiles",
            "Profiles judged as candidates of a pod, by configuration.",
            ["config", "outcome"],
            registry=registry,
        )
        self._faults = Counter(
            "mps_webhook_faults", "Requests that ended without a decision.", ["endpoint", "fault"], registry=registry
        )
        self._panics = Counter("mps_webhook_panics", "Requests ended by an unexpected exception.", registry=registry)
        self._configs: set[str] = set()
        self.tls_reloads = Counter(
            "mps_webhook_tls_reloads", "Serving pairs taken or refused.", ["result"], registry=registry
        )
        for result in ("ok", "failed"):
            self.tls_reloads.labels(result)
        self.certificate_expiry = Gauge(
            "mps_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate being served expires; 0 without one.",
            registry=registry,
        )
        Gauge("mps_webhook_in_flight", "Requests being worked on.", registry=registry).set_function(
            lambda: lifecycle.in_flight
        )
        Gauge("mps_webhook_draining", "1 from SIGTERM on.", registry=registry).set_function(
            lambda: int(lifecycle.leaving)
        )
        build = Gauge("mps_webhook_build_info", "Always 1.", ["version", "python"], registry=registry)
        build.labels(__version__, platform.python_version()).set(1)
        settings = Gauge("mps_webhook_settings_info", "Always 1.", ["hash"], registry=registry)
        settings.labels(settings_hash).set(1)
        registry.register(_SourceCollector(source))
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def request(self, endpoint: str, operation: str, code: int, seconds: float) -> None:
        """Count one answered request."""
        known = operation if operation in OPERATIONS else "other"
        self._series(self._requests, endpoint, known, code).inc()
        self._series(self._duration, endpoint).observe(seconds)

    def decision(self, endpoint: str, decision: str, verdict: Verdict | None) -> None:
        """Count one decision with what led to it."""
        self._series(self._decisions, endpoint, decision).inc()
        if verdict is None:
            return
        for finding in verdict.findings:
            self._series(self._findings, endpoint, finding.severity, finding.code).inc()
        for outcome, groups in (("fit", verdict.fit), ("unfit", verdict.unfit)):
            for group in groups:
                self._series(self._profiles, self._bounded(group.config), outcome).inc()

    def fault(self, endpoint: str, fault: str) -> None:
        """Count one request that ended without a decision."""
        self._series(self._faults, endpoint, fault).inc()

    def panic(self) -> None:
        """Count an exception that nobody expected."""
        self._panics.inc()

    def exposition(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)

    def _bounded(self, config: str) -> str:
        if config in self._configs:
            return config
        if len(self._configs) >= MAX_CONFIGS:
            return "other"
        self._configs.add(config)
        return config


def _series(metric: Any, *labels: str | int) -> Any:
    return metric.labels(*labels)


class _SourceCollector(Collector):
    """The state of the inventory, asked for when the metrics are."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        status = self._source.status()
        yield GaugeMetricFamily("mps_webhook_inventory_synced", "1 once everything was read.", value=int(status.synced))
        yield GaugeMetricFamily(
            "mps_webhook_inventory_age_seconds", "Since the API server was last heard of.", value=status.age_seconds
        )
        yield GaugeMetricFamily("mps_webhook_inventory_nodes", "Nodes in the inventory.", value=status.nodes)
        yield GaugeMetricFamily("mps_webhook_inventory_configs", "Configurations in force.", value=len(status.configs))
        yield GaugeMetricFamily(
            "mps_webhook_inventory_problems", "Parts of the input that cannot be used.", value=len(status.problems)
        )
        restarts = CounterMetricFamily(
            "mps_webhook_watch_restarts", "Watches opened anew after an error.", labels=["resource"]
        )
        for resource, count in status.watch_restarts.items():
            restarts.add_metric([resource], count)
        yield restarts
