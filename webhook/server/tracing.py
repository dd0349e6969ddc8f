"""Whether reviews are traced, and what a trace is told. What makes spans of it is `webhook.server.spans`.

Tracing is on where the standard variables of OpenTelemetry ask for it: `OTEL_TRACES_EXPORTER` or an endpoint
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) is set, and `OTEL_SDK_DISABLED` is not `true`.
Elsewhere neither its SDK nor an exporter is imported, installed or not (FastAPI brings and imports the API alone), and
a review costs the look at a None.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from webhook.server.logs import LOGGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.server.decide import Decision, Endpoint
    from webhook.server.review import Review

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
EXPORTERS = ("otlp", "console")


class Trace(Protocol):
    """Takes one review that has been answered."""

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
        """Note it; `seconds` is how long ago it began, `fault` names what ended it without a decision, or is empty."""


@lru_cache(maxsize=1)
def from_environment() -> Trace | None:
    """What the process traces with, None where tracing is not switched on or not possible; the log says which."""
    exporter = exporter_of(os.environ)
    if exporter is None:
        return None
    problem = problem_of(exporter, os.environ)
    if not problem:
        try:
            from webhook.server.spans import Spans, provider  # noqa: PLC0415 - imported only where it is asked for

            return Spans(provider(exporter))
        except ImportError:
            problem = "OpenTelemetry is not installed: pip install mps-webhook[otel]"
        except ValueError as error:
            # The SDK reads most variables it cannot use as unset, and raises for some: no reason not to serve.
            problem = f"OpenTelemetry does not take its variables: {error}"
    # In the message and not in a field: it has to show where logging has not been set up yet, too.
    LOGGER.warning("traces are switched on, and there are none: %s", problem)
    return None


def exporter_of(environment: Mapping[str, str]) -> str | None:
    """The exporter that the variables ask for, None for none. An empty variable counts as unset, as OpenTelemetry has
    it; its own default, to export wherever it is installed, would send spans that nobody asked for.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    named = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if named:
        return None if named == "none" else named
    return "otlp" if any(environment.get(name) for name in _ENDPOINTS) else None


def problem_of(exporter: str, environment: Mapping[str, str]) -> str:
    """Why what the variables ask for cannot be had, empty where it can."""
    if exporter not in EXPORTERS:
        return f"OTEL_TRACES_EXPORTER can be {', '.join(EXPORTERS)} or none"
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), _PROTOCOL)
    return "" if protocol == _PROTOCOL else f"the protocol of the exporter can only be {_PROTOCOL}"
