"""Clients that are slow, silent or too many, and what the others notice of them: nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.support import Fixed, Fleetless, Running, closed, cut_off, read_answer, review
from webhook.server import listener
from webhook.server.app import create_app
from webhook.server.body import BodyReader
from webhook.server.connections import MAX_HEAD_BYTES, GuardedProtocol
from webhook.server.lifecycle import Lifecycle
from webhook.server.listener import Listener
from webhook.server.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


class Asgi:
    """The application called as a server would, without one: what arrives at once is then known exactly."""

    def __init__(self, **bodies: Any) -> None:
        source, lifecycle = Fleetless(), Lifecycle()
        self.bodies = BodyReader(**bodies)
        metrics = Metrics(source, lifecycle)
        self.app = create_app(source, Fixed(), lifecycle=lifecycle, metrics=metrics, bodies=self.bodies)

    async def post(
        self, *chunks: bytes | float, ends: bool = True, query: bytes = b""
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Send chunks; a number among them is a pause in seconds."""
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        sent: list[dict[str, Any]] = []
        pending = list(chunks)

        async def receive() -> dict[str, Any]:
            chunk = pending.pop(0) if pending else None
            if isinstance(chunk, float):
                await asyncio.sleep(chunk)
                chunk = pending.pop(0)
            if chunk is not None:
                return {"type": "http.request", "body": chunk, "more_body": bool(pending) or not ends}
            return await events.get()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mutate",
            "root_path": "",
            "query_string": query,
            "headers": headers,
        }
        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], found, json.loads(sent[1]["body"])


BODY = json.dumps(review()).encode()


async def test_a_body_that_stops_coming_is_given_up() -> None:
    asgi = Asgi(read_seconds=0.05)
    code, headers, body = await asgi.post(BODY[:100], ends=False)
    assert (code, headers["connection"]) == (408, "close")
    assert body["message"] == "mps-webhook: the request body did not arrive within 0.05 seconds"


async def test_a_body_that_outlasts_its_caller_ends_the_connection() -> None:
    code, headers, body = await Asgi().post(BODY[:100], ends=False, query=b"timeout=50ms")
    assert (code, headers["connection"]) == (504, "close")
    assert body["message"] == "mps-webhook: the request could not be answered within its timeout"


async def test_large_bodies_share_a_budget_that_small_ones_do_not_need() -> None:
    asgi = Asgi(budget=1024 * 1024, read_seconds=0.3)
    large = b" " * 600 * 1024
    waiting = asyncio.create_task(asgi.post(large, ends=False))
    await asyncio.sleep(0.05)
    assert asgi.bodies.held == len(large)
    code, headers, body = await asgi.post(large, 0.01, BODY)
    assert (code, headers["retry-after"]) == (503, "1")
    assert body["message"] == "mps-webhook: too many large requests at once, try again"
    assert (await asgi.post(BODY))[0] == 200
    assert (await waiting)[0] == 408
    assert asgi.bodies.held == 0
    assert (await asgi.post(large, 0.01, BODY))[0] == 200


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /mut", HEAD, b"\r\n", HEAD + b"a: b\r\n"],
    ids=["nothing", "half a line", "half the headers", "empty lines", "more headers"],
)
def test_headers_that_do_not_come_end_the_connection(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(GuardedProtocol, "head_seconds", 0.2)
    running = serve()
    with running.connect() as connection:
        connection.sendall(sent)
        assert closed(connection)
    assert running.post("/mutate", review()).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["nothing", "a part of the first message"])
def test_a_handshake_that_does_not_come_ends_the_connection(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(Listener, "handshake_seconds", 0.2)
    running = serve()
    with socket.create_connection(("127.0.0.1", running.service.port), timeout=10) as connection:
        connection.sendall(sent)
        assert closed(connection)
    assert running.post("/mutate", review()).status_code == 200


def test_a_byte_now_and_then_does_not_keep_a_connection(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedProtocol, "head_seconds", 0.3)
    running = serve()
    with running.connect() as connection:
        connection.settimeout(0.05)
        for byte in HEAD:
            try:
                connection.sendall(bytes([byte]))
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    pytest.fail("the connection was kept")


def test_an_idle_connection_between_requests_is_kept(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedProtocol, "head_seconds", 0.1)
    running = serve()
    request = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    with running.connect() as connection:
        connection.sendall(request)
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.sendall(request)
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")


def test_endless_headers_end_the_connection(serve: Callable[..., Running]) -> None:
    with serve().connect() as connection:
        assert cut_off(connection, HEAD, b"x: " + b"y" * (MAX_HEAD_BYTES // 8) + b"\r\n")


def test_half_open_clients_do_not_stop_others(serve: Callable[..., Running]) -> None:
    running = serve(max_in_flight=2)
    address = ("127.0.0.1", running.service.port)
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(address))  # no handshake
        for _ in range(10):
            stack.enter_context(running.connect()).sendall(HEAD[:-5])
            stack.enter_context(running.connect()).sendall(HEAD + b"content-length: 1000\r\n\r\n{")
        for _ in range(20):
            assert running.post("/mutate", review()).status_code == 200


def refused(running: Running) -> bool:
    """Whether one more connection is closed before its handshake."""
    try:
        running.connect().close()
    except OSError:
        return True
    return False


def test_connections_are_limited(serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listener, "max_connections", 3)
    running = serve()
    with ExitStack() as stack:
        kept = [stack.enter_context(running.connect()) for _ in range(3)]
        for connection in kept:
            connection.sendall(b"GET /mutate HTTP/1.1\r\nhost: x\r\n\r\n")
            assert read_answer(connection).startswith(b"HTTP/1.1 405 ")
        assert refused(running)
    assert any(not refused(running) for _ in range(100)), "there is room again"


def test_who_never_ends_the_handshake_counts_as_well(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listener, "max_connections", 3)
    running = serve()
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", running.service.port)))
        assert refused(running)
    assert any(not refused(running) for _ in range(100)), "there is room again"


def test_of_too_many_handshakes_the_oldest_has_to_go(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listener, "max_handshakes", 3)
    running = serve()
    address = ("127.0.0.1", running.service.port)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(4)]
        assert closed(silent[0])
        silent[1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            silent[1].recv(1)
        assert running.post("/mutate", review()).status_code == 200


def test_without_a_file_descriptor_left_it_waits_for_one(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PAUSE_SECONDS", 0.1)
    running = serve()
    real, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def accept(self: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    assert running.post("/mutate", review()).status_code == 200
    assert not failures
