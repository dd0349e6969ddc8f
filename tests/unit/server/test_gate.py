"""What is refused before it is read, and with which bytes."""

from __future__ import annotations

import pytest

from tests.http.support import Fleetless
from webhook.server.gate import Gate
from webhook.server.lifecycle import Lifecycle
from webhook.server.metrics import Metrics

BODY = (
    b'{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", '
    b'"message": "mps-webhook: too many requests at once, try again", "reason": "ServiceUnavailable", "code": 503}'
)
HEAD = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"


@pytest.fixture
def gate() -> Gate:
    """Of a process that is full."""
    lifecycle = Lifecycle(1)
    lifecycle.enter()
    return Gate(lifecycle, Metrics(Fleetless(), lifecycle), ("/mutate", "/validate"))


@pytest.mark.parametrize("url", [b"/mutate", b"/mutate?timeout=10s", b"/validate?"])
def test_one_too_many_is_refused(gate: Gate, url: bytes) -> None:
    assert gate.refusal(b"POST", url, close=False) == HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


def test_the_last_response_of_a_connection_says_so(gate: Gate) -> None:
    refusal = gate.refusal(b"POST", b"/mutate", close=True)
    assert refusal == HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.mark.parametrize(
    ("method", "url"), [(b"GET", b"/mutate"), (b"POST", b"/"), (b"POST", b"/mutate/"), (b"POST", b"http://x/mutate")]
)
def test_what_no_endpoint_would_answer_is_left_to_the_application(gate: Gate, method: bytes, url: bytes) -> None:
    assert gate.refusal(method, url, close=False) is None


def test_where_there_is_a_place_nothing_is_refused(gate: Gate) -> None:
    gate.lifecycle.leave()
    assert gate.refusal(b"POST", b"/mutate", close=False) is None


def test_refusals_are_counted(gate: Gate) -> None:
    gate.refusal(b"POST", b"/mutate", close=False)
    found = gate._metrics.exposition().decode()
    assert 'mps_webhook_requests_total{code="503",endpoint="/mutate",operation="other"} 1.0' in found
    assert 'mps_webhook_faults_total{endpoint="/mutate",fault="in-flight"} 1.0' in found
