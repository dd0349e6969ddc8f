"""What Prometheus would scrape of a cluster with the webhook: from the real service, the real rotation, and recordings.

``kube-apiserver.prom`` was recorded from an API server 1.36 with webhooks of our names that could not be reached and a
match condition that could not be evaluated. ``kube-state-metrics.prom`` is written as its documentation says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from certs.controller import View
from certs.rotation import Bootstrap, Publish, Target
from certs.rotation import Policy as RotationPolicy
from certs.rotation import apply as rotate
from certs.state import State
from certs.status import Status
from tests.builders import inventory, node, pod
from tests.http.support import Running, review, serving
from tests.unit.deploy.monitoring.promql import Series
from webhook import policy
from webhook.cluster import SourceStatus

HERE = Path(__file__).parent
TARGET_LABELS = {"namespace": "mps-system", "service": "mps-webhook-metrics", "endpoint": "metrics"}
"""What Prometheus Operator adds to each series of a ServiceMonitor, beside job, pod and so on."""


@dataclass(frozen=True)
class Grown:
    """A series with its values at two moments."""

    series: Series
    first: float
    second: float


class _Fleet:
    """An inventory as a watch would have it."""

    def inventory(self) -> Any:
        return inventory(node("a", config="mps-2x"), node("b", config="mps-4x"))

    def status(self) -> SourceStatus:
        return SourceStatus(True, 12.0, ("one",), 2, ("mps-2x", "mps-4x"), {"nodes": 1})

    async def run(self) -> None:
        return


class _Stumbling:
    """The real policy, but for a pod that brings a bug to light."""

    def judge_pod(self, raw: dict[str, Any], namespace: str, known: Any) -> Any:
        if raw["metadata"]["name"] == "bug":
            raise AssertionError
        return policy.judge_pod(raw, namespace, known)

    validate_pod = staticmethod(policy.validate_pod)
    judge_update = staticmethod(policy.judge_update)
    judge_workload = staticmethod(policy.judge_workload)


@dataclass(frozen=True)
class Scraped:
    """All series, and the last texts of the webhook and of the certificates' pod."""

    series: list[Grown]
    texts: tuple[str, str]


def cluster(folder: Path, *, honor_labels: bool) -> Scraped:
    """Every series, as it would be stored with the ServiceMonitor's ``honorLabels``."""
    found: list[Grown] = []
    texts = (_webhook(folder), _certs())
    for (first, second), job in zip(texts, ("mps-webhook", "mps-webhook-certs"), strict=True):
        found += [
            Grown(_stored(one.series, job, honor_labels=honor_labels), one.first, one.second)
            for one in _grown(first, second)
        ]
        found.append(Grown(_stored(Series("up", {}), job, honor_labels=honor_labels), 1, 1))
    for name in ("kube-apiserver", "kube-state-metrics"):
        found += [
            Grown(Series(metric, {**dict(labels), "job": name}), value, 2 * value)
            for (metric, labels), value in _parse((HERE / f"{name}.prom").read_text())
        ]
    return Scraped(found, (texts[0][1], texts[1][1]))


def _stored(series: Series, job: str, *, honor_labels: bool) -> Series:
    target = {**TARGET_LABELS, "job": job, "pod": f"{job}-0", "instance": "10.0.0.1:8080"}
    if honor_labels:
        return Series(series.name, target | dict(series.labels))
    renamed = {(f"exported_{k}" if k in target else k): v for k, v in series.labels.items()}
    return Series(series.name, renamed | target)


def _webhook(folder: Path) -> tuple[str, str]:
    with serving(folder, _Fleet(), _Stumbling()) as running:
        _traffic(running)
        first = running.get("/metrics").text
        _traffic(running)
        # A pair that fits no more, as the certificate's poll would find it.
        (folder / "tls.key").write_text("none")
        running.service.certificate.poll()
        return first, running.get("/metrics").text


def _traffic(running: Running) -> None:
    """Pods that are patched, steered, warned about and denied; a workload; a fault; a panic."""
    quota = pod().gpu().memory("2Gi").build()
    for body in (
        review(quota),
        review(pod().gpu().memory("6Gi").build()),
        review(pod().gpu().memory("50Gi").build()),
        review(pod().build()),
        review({**quota, "metadata": {"name": "bug"}}),
        {"kind": "nothing"},
    ):
        running.post("/mutate", body)
    running.post("/validate", review(quota))
    template = {"metadata": quota["metadata"], "spec": quota["spec"]}
    deployment = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}}
    running.post("/validate-workloads", review(deployment, kind=("apps", "Deployment")))


def _certs() -> tuple[str, str]:
    now = datetime.now(UTC)
    targets = (Target("mutating", "mps-webhook"), Target("validating", "mps-webhook"))
    status = Status(targets, lambda: now, timedelta(seconds=60))
    first = generate_latest(status.registry).decode()
    state = rotate(Bootstrap(), State(), {}, RotationPolicy(("mps-webhook.mps-system.svc",)), now)
    status.acted(Bootstrap())
    status.acted(Publish(targets))
    status.failed(leading=True)
    status.looked(View(state, "1", dict.fromkeys(targets), now), leading=True)
    return first, generate_latest(status.registry).decode()


def _grown(first: str, second: str) -> Iterator[Grown]:
    before = dict(_parse(first))
    for (name, labels), value in _parse(second):
        yield Grown(Series(name, dict(labels)), before.get((name, labels), value), value)


def _parse(text: str) -> Iterator[tuple[tuple[str, frozenset[tuple[str, str]]], float]]:
    """Every line by its name as it is written; the parser itself would give all counters the ending ``_total``."""
    written = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name if sample.name in written else sample.name.removesuffix("_total")
            assert name in written, name
            yield (name, frozenset(sample.labels.items())), sample.value
