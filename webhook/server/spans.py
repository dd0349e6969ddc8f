"""Spans of reviews, with OpenTelemetry: imported by `webhook.server.tracing` where tracing is switched on.

A span is made when the answer is out, with the times that were measured: nobody waits for it, and since a review has no
parts worth a span of their own, no context has to be carried through the code.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from webhook import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.util.types import AttributeValue

    from webhook.server.decide import Decision, Endpoint
    from webhook.server.review import Review

_CONTINUED = {b"traceparent": "traceparent", b"tracestate": "tracestate"}
MAX_TEXT = 253
"""Characters of one attribute that a request chose."""


def provider(exporter: str) -> TracerProvider:
    """Return what makes spans for an exporter of `webhook.server.tracing.EXPORTERS`.

    Sampler, endpoint, headers, batches and limits are the variables' matter, which the SDK reads itself. Raises
    ImportError where the exporter is not installed.
    """
    resource = Resource.create({"service.name": "mps-webhook", "service.version": __version__})
    made = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()))
    made.add_span_processor(BatchSpanProcessor(_exporter(exporter)))
    return made


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - not needed for the console
        OTLPSpanExporter,
    )

    return OTLPSpanExporter()


class Spans:
    """Makes one span of each review, below the span of the API server where that sent its context."""

    def __init__(self, tracers: TracerProvider) -> None:
        self._tracer = tracers.get_tracer("webhook.server", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def __call__(
        self,
        endpoint: Endpoint,
        headers: Iterable[tuple[bytes, bytes]],
        seconds: float,
        code: int,
        *,
        review: Review | None,
        decision: Decision | None,
        fault: str,
    ) -> None:
        """See `webhook.server.tracing.Trace`."""
        now = time.time_ns()
        carrier = {_CONTINUED[name]: value.decode("latin-1") for name, value in headers if name in _CONTINUED}
        span = self._tracer.start_span(
            f"POST {endpoint}",
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=now - round(seconds * 1e9),
        )
        if span.is_recording():
            span.set_attributes(_attributes(endpoint, code, review, decision, fault))
            if code >= 500:
                span.set_status(Status(StatusCode.ERROR, fault))
        span.end(now)


def _attributes(
    endpoint: Endpoint, code: int, review: Review | None, decision: Decision | None, fault: str
) -> dict[str, AttributeValue]:
    """The same as the log has of a decision: who asked for what and what came of it, no part of the object."""
    found: dict[str, AttributeValue] = {
        "http.request.method": "POST",
        "http.route": endpoint,
        "http.response.status_code": code,
    }
    if review is not None:
        found["mps_webhook.uid"] = review.uid[:MAX_TEXT]
        found["mps_webhook.operation"] = review.operation[:MAX_TEXT]
        found["mps_webhook.kind"] = review.kind[1][:MAX_TEXT]
        found["mps_webhook.name"] = review.shown_name[:MAX_TEXT]
        found["mps_webhook.dry_run"] = review.dry_run
        found["k8s.namespace.name"] = review.namespace[:MAX_TEXT]
    if decision is not None:
        found["mps_webhook.decision"] = decision.outcome
        found["mps_webhook.codes"] = decision.verdict.codes if decision.verdict else ()
    if fault:
        found["error.type"] = fault
    return found
