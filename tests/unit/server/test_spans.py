from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from tests.builders import pod
from tests.http.support import review
from tests.unit.server.asgi import Nodes, endpoint, post
from webhook import __version__
from webhook.server import spans, tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-01")


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(exporter: InMemorySpanExporter) -> spans.Spans:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return spans.Spans(provider)


async def test_a_span_continues_the_trace_of_the_api_server(
    traced: spans.Spans, exporter: InMemorySpanExporter
) -> None:
    await post(endpoint(traced), review(pod().gpu().memory("3Gi").build()), SAMPLED, ("tracestate", "a=1"))
    (span,) = exporter.get_finished_spans()
    assert span.name == "POST /mutate"
    assert span.kind is SpanKind.SERVER
    assert span.context is not None
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.context.trace_state.get("a") == "1"
    assert span.start_time is not None
    assert span.end_time is not None
    assert 0 < span.end_time - span.start_time < 5_000_000_000
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/mutate",
        "http.response.status_code": 200,
        "mps_webhook.uid": "0f1e2d3c-uid",
        "mps_webhook.operation": "CREATE",
        "mps_webhook.kind": "Pod",
        "mps_webhook.name": "p",
        "mps_webhook.dry_run": False,
        "k8s.namespace.name": "team-a",
        "mps_webhook.decision": "patched",
        "mps_webhook.codes": (),
    }


@pytest.mark.parametrize(
    ("body", "decision", "codes"),
    [
        pytest.param(pod().build(), "allowed", (), id="allowed"),
        pytest.param(pod().gpu().memory("6Gi").build(), "denied", ("memory-over-budget",), id="denied"),
        pytest.param(
            pod().gpu().memory("512Mi").build(), "patched", ("memory-below-minimum",), id="patched with a warning"
        ),
    ],
)
async def test_a_span_has_decision_and_codes(
    body: Any, decision: str, codes: tuple[str, ...], traced: spans.Spans, exporter: InMemorySpanExporter
) -> None:
    await post(endpoint(traced), review(body))
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert span.attributes is not None
    assert (span.attributes["mps_webhook.decision"], span.attributes["mps_webhook.codes"]) == (decision, codes)


@pytest.mark.parametrize(
    "parent",
    [
        pytest.param("rubbish", id="no traceparent at all"),
        pytest.param(f"00-{'0' * 32}-{PARENT}-01", id="a trace of zero"),
        pytest.param("00-" + "a" * 60_000, id="a very long one"),
        pytest.param("\xff\xfe", id="bytes that are no text"),
    ],
)
async def test_a_parent_that_cannot_be_read_begins_a_trace_of_its_own(
    parent: str, traced: spans.Spans, exporter: InMemorySpanExporter
) -> None:
    code, _ = await post(endpoint(traced), review(pod().build()), ("traceparent", parent))
    (span,) = exporter.get_finished_spans()
    assert (code, span.parent) == (200, None)


async def test_what_the_api_server_does_not_sample_is_not_exported(exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(1.0)), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    application = endpoint(spans.Spans(provider))
    await post(application, review(pod().build()), ("traceparent", f"00-{TRACE}-{PARENT}-00"))
    assert exporter.get_finished_spans() == ()
    await post(application, review(pod().build()), SAMPLED)
    assert len(exporter.get_finished_spans()) == 1


async def test_a_fault_of_the_webhook_is_an_error(traced: spans.Spans, exporter: InMemorySpanExporter) -> None:
    class Unsynced(Nodes):
        def inventory(self) -> Any:
            return None

    await post(endpoint(traced, source=Unsynced()), review(pod().build()))
    (span,) = exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "not-synced")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "not-synced"
    assert span.attributes["http.response.status_code"] == 503
    assert "mps_webhook.decision" not in span.attributes


async def test_a_fault_of_the_caller_is_none(traced: spans.Spans, exporter: InMemorySpanExporter) -> None:
    await post(endpoint(traced), {"kind": "nothing"})
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes is not None
    assert span.attributes["error.type"] == "malformed"


async def test_no_part_of_the_object_and_no_long_text_is_in_a_span(
    traced: spans.Spans, exporter: InMemorySpanExporter
) -> None:
    body = pod().gpu().env("SECRET", "hunter2").env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=hunter3").build()
    await post(endpoint(traced), review(body, uid="u" * 9000, operation="o" * 9000))
    (span,) = exporter.get_finished_spans()
    assert "hunter" not in span.to_json()
    assert all(len(value) <= spans.MAX_TEXT for value in (span.attributes or {}).values() if isinstance(value, str))


@pytest.mark.parametrize("exporter_name", tracing.EXPORTERS)
def test_a_provider_is_made_as_the_variables_say(exporter_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    provider = spans.provider(exporter_name)
    try:
        attributes = provider.resource.attributes
        assert attributes["service.name"] == "mps-webhook"
        assert attributes["service.version"] == __version__
        assert attributes["deployment.environment"] == "test"
    finally:
        provider.shutdown()


def test_a_name_of_ones_own_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gate")
    provider = spans.provider("console")
    try:
        assert provider.resource.attributes["service.name"] == "gate"
    finally:
        provider.shutdown()
