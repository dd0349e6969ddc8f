"""More requests at once than are taken on: who is refused, with what, and what remains of it."""

from __future__ import annotations

import json
import socket
import struct
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.http.support import Fixed, Running, closed, read_answer, review
from webhook.server.connections import GuardedProtocol
from webhook.server.lifecycle import Phase

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

BODY = json.dumps(review()).encode()
HEAD = b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(BODY)
REQUEST = HEAD + b"\r\n" + BODY
WORK_SECONDS = 0.3
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"


@contextmanager
def at_work(running: Running, policy: Fixed) -> Iterator[None]:
    """While a request is worked on, so that what is sent within the block arrives all at once after it."""
    asked = len(policy.asked)
    with running.connect() as connection:
        connection.sendall(REQUEST)
        while len(policy.asked) == asked:
            time.sleep(0.005)
        yield
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")


def codes(connections: list[ssl.SSLSocket]) -> list[int]:
    return sorted(int(read_answer(connection).split()[1]) for connection in connections)


def test_more_than_the_limit_at_once_are_refused_and_the_rest_is_served(
    serve: Callable[..., Running], policy: Fixed
) -> None:
    running = serve(policy=policy, max_in_flight=3)
    with ExitStack() as stack:
        connections = [stack.enter_context(running.connect()) for _ in range(8)]
        with at_work(running, policy):
            for connection in connections:
                connection.sendall(REQUEST)
        assert codes(connections) == [200] * 3 + [503] * 5
        for connection in connections:  # all of them are kept
            connection.sendall(REQUEST)
            assert read_answer(connection).startswith(b"HTTP/1.1 200 ")
    assert running.service.lifecycle.in_flight == 0
    assert running.metric('mps_webhook_faults_total{endpoint="/mutate",fault="in-flight"}') == 5
    assert running.metric('mps_webhook_requests_total{code="503",endpoint="/mutate",operation="other"}') == 5


@contextmanager
def refused(running: Running, policy: Fixed, request: bytes = REQUEST) -> Iterator[ssl.SSLSocket]:
    """A connection whose request came when the only place was taken."""
    with running.connect() as served, running.connect() as late:
        with at_work(running, policy):
            served.sendall(REQUEST)
            late.sendall(request)
        yield late


@pytest.fixture
def policy() -> Fixed:
    return Fixed(pause=WORK_SECONDS)


def test_the_refusal_word_for_word(serve: Callable[..., Running], policy: Fixed) -> None:
    with refused(serve(policy=policy, max_in_flight=1), policy) as connection:
        head, _, body = read_answer(connection).partition(b"\r\n\r\n")
        assert (head + b"\r\n").startswith(REFUSED)
        assert b"connection:" not in head
        assert json.loads(body)["message"] == "mps-webhook: too many requests at once, try again"


def test_a_refused_connection_is_kept_while_it_is_idle(
    serve: Callable[..., Running], policy: Fixed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedProtocol, "head_seconds", 1.0)
    with refused(serve(policy=policy, max_in_flight=1), policy) as connection:
        assert read_answer(connection).startswith(REFUSED)
        connection.settimeout(1.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(5)
        connection.sendall(REQUEST)
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")


def test_a_refused_body_that_never_ends_ends_the_connection(
    serve: Callable[..., Running], policy: Fixed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedProtocol, "head_seconds", 1.0)
    with refused(serve(policy=policy, max_in_flight=1), policy, REQUEST[:-10]) as connection:
        assert read_answer(connection).startswith(REFUSED)
        assert closed(connection)


def test_the_body_of_a_refused_request_may_come_later(serve: Callable[..., Running], policy: Fixed) -> None:
    with refused(serve(policy=policy, max_in_flight=1), policy, REQUEST[:-10]) as connection:
        assert read_answer(connection).startswith(REFUSED)
        connection.sendall(REQUEST[-10:] + REQUEST)
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("phase", "request_"),
    [(Phase.DRAINING, REQUEST), (Phase.SERVING, HEAD + b"connection: close\r\n\r\n" + BODY)],
    ids=["the process is leaving", "the client wants it so"],
)
def test_the_last_refusal_of_a_connection_ends_it(
    serve: Callable[..., Running], policy: Fixed, monkeypatch: pytest.MonkeyPatch, phase: Phase, request_: bytes
) -> None:
    running = serve(policy=policy, max_in_flight=1)
    with monkeypatch.context() as patched:
        patched.setattr(running.service.lifecycle, "phase", phase)
        with refused(running, policy, request_) as connection:
            assert read_answer(connection).startswith(REFUSED + b"connection: close\r\n")
            assert closed(connection)


def test_bodies_that_end_all_at_once_are_refused_as_well(serve: Callable[..., Running], policy: Fixed) -> None:
    running = serve(policy=policy, max_in_flight=2)
    with ExitStack() as stack:
        connections = [stack.enter_context(running.connect()) for _ in range(6)]
        for connection in connections:
            connection.sendall(REQUEST[:-10])
        with at_work(running, policy):
            for connection in connections:
                connection.sendall(REQUEST[-10:])
        assert codes(connections) == [200] * 2 + [503] * 4
    assert running.service.lifecycle.in_flight == 0


def test_slow_senders_hold_no_place(serve: Callable[..., Running]) -> None:
    running = serve(max_in_flight=1)
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(running.connect()).sendall(REQUEST[:-10])
        for _ in range(5):
            assert running.post("/mutate", review()).status_code == 200


def test_who_goes_away_gives_the_places_back(serve: Callable[..., Running], policy: Fixed) -> None:
    running = serve(policy=policy, max_in_flight=6)
    with running.connect() as connection:
        connection.sendall(REQUEST * 6)
        while not policy.asked:
            time.sleep(0.005)
        # Reset while the first is worked on: the others are not answered.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert running.post("/mutate", review()).status_code == 200
    assert running.service.lifecycle.in_flight == 0


def test_a_fault_gives_its_place_back(serve: Callable[..., Running]) -> None:
    running = serve(policy=Fixed(raises=RuntimeError()), max_in_flight=1)
    for _ in range(3):
        assert running.post("/mutate", review()).status_code == 500
        assert running.post("/mutate", []).status_code == 400
        assert running.post("/nowhere", review()).status_code == 404
    assert running.service.lifecycle.in_flight == 0


def test_requests_in_a_row_on_one_connection_are_answered_in_turn(serve: Callable[..., Running]) -> None:
    running = serve(max_in_flight=2)
    with running.connect() as connection:
        connection.sendall(REQUEST * 3)
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 3 or not answers.endswith(b"}"):
            answers += connection.recv(65536)
    assert answers.count(b"HTTP/1.1 200 ") + answers.count(b"HTTP/1.1 503 ") == 3
    assert running.service.lifecycle.in_flight == 0
