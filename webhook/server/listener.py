"""Accepting connections: how many at once, and how much of each is taken into memory unasked.

asyncio's own servers accept whatever comes, and hand a connection over only after its TLS handshake; who never goes
through with that counts nowhere. A connection holds 55 KiB from the start, and with a body of 250 KB that never ends it
held 480 (measured): a few thousand of either would end the process.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from webhook.server.logs import FIELDS, LOGGER

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sized

HANDSHAKE_SECONDS = 10.0
"""From the opening of a connection to the end of its TLS handshake. Left alone, the event loop waits for a minute."""
MAX_CONNECTIONS = 2048
"""Those in a TLS handshake included. An API server calls for a few hundred pods at once, at the most."""
MAX_HANDSHAKES = 512
"""A handshake takes milliseconds. Where there are more, they are none, and the oldest has to go."""
RECEIVE_BYTES = 16 * 1024
"""Of each connection, what the kernel keeps while nobody has read it. Bounds what one read can bring as well, for which
the event loop has 256 KiB in store for each connection."""
BACKLOG = 2048
AT_ONCE = 64
"""Connections accepted before others have their turn."""
PAUSE_SECONDS = 0.5
"""Until the next attempt, where the process has no file descriptor left."""


class ListenError(Exception):
    """A port cannot be listened on; the message is one line for the person who chose it."""


class Listener:
    """A bounded number of connections on one bound socket.

    `made` are the connections that are through, as the protocol keeps them; `connected` makes the protocol of one more.
    """

    handshake_seconds = HANDSHAKE_SECONDS
    max_connections = MAX_CONNECTIONS
    max_handshakes = MAX_HANDSHAKES

    def __init__(
        self,
        bound: socket.socket,
        connected: Callable[[], asyncio.BaseProtocol],
        *,
        made: Sized,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._socket = bound
        self._connected = connected
        self._made = made
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening: dict[asyncio.Task[None], None] = {}
        self._crowded = False
        bound.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more, and end what is not through."""
        self._loop.remove_reader(self._socket)
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is under way any more."""
        if self._opening:
            await asyncio.wait(self._opening)

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                LOGGER.error("no connection can be accepted", extra={FIELDS: {"error": error.strerror}})
                self._loop.remove_reader(self._socket)
                self._loop.call_later(PAUSE_SECONDS, self._listen)
                return
            self._admit(accepted)

    def _admit(self, accepted: socket.socket) -> None:
        crowded = len(self._made) + len(self._opening) >= self.max_connections
        if crowded and not self._crowded:
            LOGGER.warning("too many connections", extra={FIELDS: {"connections": self.max_connections}})
        self._crowded = crowded
        if crowded:
            accepted.close()
            return
        if len(self._opening) >= self.max_handshakes:
            oldest = next(iter(self._opening))
            del self._opening[oldest]
            oldest.cancel()
        accepted.setblocking(False)
        task = self._loop.create_task(self._open(accepted))
        self._opening[task] = None
        task.add_done_callback(partial(self._opened, accepted))

    async def _open(self, accepted: socket.socket) -> None:
        seconds = self.handshake_seconds if self._tls else None
        # Whose handshake fails, or takes too long, is no client of ours.
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._connected, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )

    def _opened(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.pop(task, None)
        if task.cancelled():
            # It may have been so before it began. Where a transport has the socket, it is closed with that.
            accepted.close()


def listen_both(host: str, port: int, health_port: int) -> tuple[socket.socket, socket.socket]:
    """Bind two ports and return their sockets. Raises ListenError."""
    https = _bound(host, port)
    try:
        return https, _bound(host, health_port)
    except ListenError:
        https.close()
        raise


def _bound(host: str, port: int) -> socket.socket:
    """Bind; an empty host means every address, of IPv6 as well where there is any."""
    try:
        if not host and socket.has_dualstack_ipv6():
            bound = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"
        # The standard library appends the address to the system's text.
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise ListenError(f"cannot listen on {where}: {why}") from None
    # What is accepted has it from the socket that is listened on.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    return bound
