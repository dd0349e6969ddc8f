"""uvicorn's HTTP protocol with the limits that it leaves to a proxy: nothing stands in front of a webhook."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from webhook.server.faults import Fault
from webhook.server.logs import FIELDS, LOGGER
from webhook.server.tls import peer_names

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from webhook.server.gate import Gate

HEAD_SECONDS = 10.0
"""From the handshake of a connection, or the first byte of a later request, to the end of the request's headers."""
GOODBYE_SECONDS = 2.0
"""From the last answer on a connection to its end, should the client not close it as well."""
MAX_HEAD_BYTES = 64 * 1024
MAX_REQUEST_BYTES = 32 * 1024 * 1024
"""On the wire, chunk sizes and trailers included. What goes beyond the body's limit is thrown away up to here, so that
the sender has a chance to read the 413 before the connection ends."""


class _HeadHeld:
    """A transport for one response, which keeps the head until the body comes and writes both at once.

    uvicorn writes them apart, and each write is a system call, a TLS record and a wake-up of the client: together a
    sixth of what a review costs (measured).
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Write; the first piece waits for the second. `100 Continue` is none of the response."""
        if self._head is None and not data.startswith(b"HTTP/1.1 100 "):
            self._head = data
        elif self._head:
            self._transport.write(self._head + data)
            self._head = b""
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write a head that no body followed."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        """Write what is left, and close."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """One connection.

    uvicorn times idle connections and nothing else: it waits for ever for headers, and any byte ends the idle timer.
    Here a connection has `HEAD_SECONDS` to complete the headers of a request. The body's time is limited where it is
    read, which can answer; here is nobody to answer, so the connection is closed.
    """

    head_seconds = HEAD_SECONDS
    client_names: frozenset[str] = frozenset()
    """Names of which a client's certificate has to carry one; empty for no such check."""
    gate: Gate | None = None
    """What refuses requests that are too many."""

    _guard: asyncio.TimerHandle | None = None
    _received = 0
    _in_body = False
    _refused = False
    """Whether the request that is being read has been refused at the gate."""
    _places = 0
    """Places in flight held by requests of this connection."""

    @property
    def idle(self) -> bool:
        """Whether no request is with the application: none has come whole in its headers, or it has been answered."""
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr] # None at first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: see who it is, start the clock."""
        super().connection_made(transport)
        if self.client_names:
            names = peer_names(transport.get_extra_info("peercert"))
            if not names & self.client_names:
                self.app, self.gate = _refuse, None
                LOGGER.warning("client certificate refused", extra={FIELDS: {"names": sorted(names)[:10]}})
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and count them against the part of the request they belong to."""
        self._received += len(data)
        super().data_received(data)
        if self._received > (MAX_REQUEST_BYTES if self._in_body else MAX_HEAD_BYTES):
            self.transport.abort()
        elif self.idle and self.timeout_keep_alive_task is None:
            # Headers are incomplete, or a body goes on although it has been answered: nobody else looks at the clock.
            self._watch()
        else:
            self._unwatch()

    def on_headers_complete(self) -> None:
        """The headers are complete: from here on the application keeps the time, or the request is refused."""
        self._in_body = True
        if self.gate is not None and self.idle:
            close = self.gate.lifecycle.leaving or not self.parser.should_keep_alive()
            refusal = self.gate.refusal(self.parser.get_method(), self.url, close=close)
            if refusal is not None:
                self._refused = True
                self.transport.write(refusal)
                if close:
                    self.transport.close()
                    self._goodbye()
                return
        super().on_headers_complete()
        self.scope["state"]["arrived"] = monotonic()
        # The application has not run yet: it is a task, or waits behind an earlier request of the connection.
        self.cycle.transport = _HeadHeld(self.transport)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body; that of a refused request is thrown away."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._in_body = False
        self._received = 0
        if self._refused:
            self._refused = False
            super().on_response_complete()
            return
        if self.gate is not None and not self.cycle.response_complete:
            self.gate.lifecycle.enter()
            self._places += 1
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is complete; one without a body has not been written yet."""
        held = self.cycle.transport
        if isinstance(held, _HeadHeld):
            held.flush()
        self._leave(min(self._places, 1))
        super().on_response_complete()
        if self.transport.is_closing():
            self._goodbye()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._unwatch()
        self._leave(self._places)
        super().connection_lost(exc)

    def _leave(self, places: int) -> None:
        if self.gate is not None and places:
            self.gate.lifecycle.leave(places)
            self._places -= places

    def _goodbye(self) -> None:
        """TLS says goodbye and waits for the other side's, half a minute where it never comes."""
        self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    def _watch(self) -> None:
        if self._guard is None:
            self._guard = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _unwatch(self) -> None:
        if self._guard is not None:
            self._guard.cancel()
            self._guard = None


def guarded(**limits: Any) -> type[GuardedProtocol]:
    """Return the protocol with other limits, given as its class attributes."""
    return type("Guarded", (GuardedProtocol,), limits)


async def _refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
    fault = Fault(403, "the client certificate carries none of the allowed names", counted="client", close=True)
    body = fault.body()
    headers = [*fault.headers(), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": fault.code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
