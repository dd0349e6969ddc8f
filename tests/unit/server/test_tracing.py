from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import pod
from tests.http.support import review
from tests.unit.server.asgi import endpoint, post
from webhook.server import tracing

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No variable of OpenTelemetry, and no memory of what was found before."""
    import os

    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    tracing.from_environment.cache_clear()
    yield monkeypatch
    tracing.from_environment.cache_clear()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, None, id="nothing set"),
        pytest.param({"OTEL_SERVICE_NAME": "x"}, None, id="a name asks for nothing"),
        pytest.param(ENDPOINT, "otlp", id="an endpoint"),
        pytest.param({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "otlp", id="an endpoint for traces"),
        pytest.param({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, None, id="an endpoint for metrics"),
        pytest.param({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp", id="the exporter, at its default endpoint"),
        pytest.param({"OTEL_TRACES_EXPORTER": "console"}, "console", id="console"),
        pytest.param({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, None, id="none beats the endpoint"),
        pytest.param({**ENDPOINT, "OTEL_TRACES_EXPORTER": ""}, "otlp", id="an empty one is unset"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None, id="an empty endpoint is unset"),
        pytest.param({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, None, id="switched off"),
        pytest.param({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, "otlp", id="not switched off"),
    ],
)
def test_what_switches_it_on(variables: dict[str, str], expected: str | None) -> None:
    assert tracing.exporter_of(variables) == expected


@pytest.mark.parametrize(
    ("exporter", "variables", "problem"),
    [
        ("otlp", {}, ""),
        ("console", {}, ""),
        ("otlp", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ""),
        (
            "otlp",
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "the protocol of the exporter can only be http/protobuf",
        ),
        (
            "otlp",
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "",
        ),
        ("jaeger", {}, "OTEL_TRACES_EXPORTER can be otlp, console or none"),
    ],
)
def test_what_cannot_be_had(exporter: str, variables: dict[str, str], problem: str) -> None:
    assert tracing.problem_of(exporter, variables) == problem


def test_it_is_off_by_itself(environment: pytest.MonkeyPatch) -> None:
    assert tracing.from_environment() is None


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER can be otlp, console or none"),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "http://127.0.0.1:4318",
            "OpenTelemetry is not installed: pip install mps-webhook[otel]",
        ),
    ],
)
def test_what_cannot_be_done_is_logged_once_and_stops_nothing(
    name: str, value: str, problem: str, environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.setenv(name, value)
    environment.setitem(sys.modules, "webhook.server.spans", None)  # as where the extra is absent
    with caplog.at_level(logging.WARNING, "webhook"):
        assert tracing.from_environment() is None
        assert tracing.from_environment() is None
    (record,) = caplog.records
    assert record.message == f"traces are switched on, and there are none: {problem}"


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        pytest.param(
            {"OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "20"},
            "max_export_batch_size must be less than or equal to max_queue_size",
            id="a batch longer than the queue",
        ),
        pytest.param(
            {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "-1"},
            "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer",
            id="a limit below zero",
        ),
    ],
)
def test_variables_that_the_sdk_refuses_do_not_keep_the_webhook_from_serving(
    variables: dict[str, str], problem: str, environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    for name, value in {**ENDPOINT, **variables}.items():
        environment.setenv(name, value)
    with caplog.at_level(logging.WARNING, "webhook"):
        endpoint()
    (record,) = (one for one in caplog.records if one.name == "webhook")
    # The end of the line is the SDK's own.
    assert record.message.startswith(
        f"traces are switched on, and there are none: OpenTelemetry does not take its variables: {problem}"
    )


def test_nothing_is_imported_where_nobody_asks() -> None:
    program = (
        "import sys, webhook.cli.main, webhook.server.app\n"
        "from webhook.server.tracing import from_environment\n"
        "assert from_environment() is None\n"
        "heavy = ('opentelemetry.sdk', 'opentelemetry.exporter', 'webhook.server.spans')\n"
        "found = [m for m in sys.modules if m.startswith(heavy)]\n"
        "sys.exit(str(found) if found else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_review_is_told_once_with_all_that_a_span_needs() -> None:
    told: list[Any] = []

    def trace(*arguments: Any, **more: Any) -> None:
        told.append((arguments, more))

    application = endpoint(trace)
    code, _ = await post(application, review(pod().gpu().memory("6Gi").build()), ("traceparent", "x"))
    (((path, headers, seconds, traced), more),) = told
    assert (path, code, traced) == ("/mutate", 200, 200)
    assert (b"traceparent", b"x") in headers
    assert 0 < seconds < 5
    assert more["review"].namespace == "team-a"
    assert more["decision"].verdict.codes == ("memory-over-budget",)
    assert more["fault"] == ""


async def test_a_fault_is_told_by_its_name() -> None:
    told: list[Any] = []
    code, _ = await post(endpoint(lambda *_, **more: told.append(more)), {"kind": "nothing"})
    assert code == 400
    assert told == [{"review": None, "decision": None, "fault": "malformed"}]
