"""Clients that mean no good: each holds what it can get for as long as it is let.

One thread drives them all, and keeps account of when each began and when the server ended it.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from tests.soak.wire import head

DRIP_SECONDS = 1.0
PATIENT = "30s"
"""The longest time that a caller may claim."""
LARGE_BYTES = 4 << 20
MIDDLING_BYTES = 250_000
FLOOD = b"40000\r\n" + b" " * 0x40000 + b"\r\n"
"""One chunk of 256 KiB; a body of blanks is a review that has not begun yet."""


@dataclass(slots=True)
class Stranger:
    """One connection. Times are of `time.monotonic`; `ended` is 0 while the server lets it be.

    `drip` is what it sends every second, `flood` what it sends as fast as it is taken, `first` what is left of what it
    begins with.
    """

    kind: str
    socket: socket.socket
    began: float
    first: bytes = b""
    drip: bytes = b""
    flood: bytes = b""
    due: float = 0.0
    ended: float = 0.0

    def go_on(self, now: float) -> None:
        """Send what there is to send, take what comes; raises OSError at the end."""
        if not self._received():
            raise ConnectionResetError
        if not self.first and self.flood:
            self.first = self.flood
        if not self.first and self.drip and now >= self.due:
            self.first, self.due = self.drip, now + DRIP_SECONDS
        if self.first:
            try:
                self.first = self.first[self.socket.send(self.first) :]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return

    def _received(self) -> bool:
        try:
            while block := self.socket.recv(65536):
                del block
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        return False


class Strangers:
    """All of them."""

    def __init__(self, port: int, ca: str) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=ca)
        self.all: list[Stranger] = []

    def idle(self) -> None:
        """A TLS connection, and not a byte on it."""
        self._add("idle", self._tls())

    def slow_headers(self) -> None:
        """A header a second."""
        self._add("slow headers", self._tls(), first=head(self._port), drip=b"X-Slow: 1\r\n")

    def slow_body(self) -> None:
        """A body that never ends, a byte a second."""
        first = head(self._port, "Transfer-Encoding: chunked", timeout=PATIENT) + b"\r\n"
        self._add("slow bodies", self._tls(), first=first, drip=b"1\r\n \r\n")

    def large_body(self) -> None:
        """A body of megabytes, whose end never comes."""
        first = (
            head(self._port, f"Content-Length: {LARGE_BYTES + 1000}", timeout=PATIENT) + b"\r\n" + b" " * LARGE_BYTES
        )
        self._add("large bodies", self._tls(), first=first, drip=b" ")

    def middling_body(self) -> None:
        """A body that is nothing by itself, whose end never comes: many of them would be hundreds of MiB."""
        length = f"Content-Length: {MIDDLING_BYTES + 1000}"
        first = head(self._port, length, timeout=PATIENT) + b"\r\n" + b" " * MIDDLING_BYTES
        self._add("middling bodies", self._tls(), first=first, drip=b" ")

    def flood(self) -> None:
        """A body that never ends, as fast as it is taken."""
        first = head(self._port, "Transfer-Encoding: chunked", timeout=PATIENT) + b"\r\n"
        self._add("floods", self._tls(), first=first, flood=FLOOD)

    def silent(self) -> None:
        """A TCP connection on which no handshake begins."""
        self._add("no handshake", self._tcp())

    def half_handshake(self) -> None:
        """The first half of a TLS handshake's first message."""
        into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._context.wrap_bio(into, out, server_hostname="localhost").do_handshake()
        except ssl.SSLWantReadError:
            hello = out.read()
        self._add("half a handshake", self._tcp(), first=hello[: len(hello) // 2])

    def drive(self, until: Callable[[], bool]) -> None:
        """Keep them at it until so told, or until none is left."""
        alive = [one for one in self.all if not one.ended]
        poll = select.epoll()
        while alive and not until():
            now = monotonic()
            for one in alive:
                try:
                    one.go_on(now)
                except OSError:
                    one.ended = now
                    one.socket.close()
            alive = [one for one in alive if not one.ended]
            poll.poll(0.02 if any(one.flood for one in alive) else 0.1)
        poll.close()

    def close(self) -> None:
        """Close all that are left."""
        for one in self.all:
            one.socket.close()

    def ages(self) -> dict[str, list[float]]:
        """Seconds from beginning to end by kind, of those that the server has ended, ascending."""
        found: dict[str, list[float]] = defaultdict(list)
        for one in self.all:
            if one.ended:
                found[one.kind].append(one.ended - one.began)
        return {kind: sorted(ages) for kind, ages in found.items()}

    def left(self) -> dict[str, int]:
        """How many have not been ended, by kind."""
        found: dict[str, int] = defaultdict(int)
        for one in self.all:
            found[one.kind] += not one.ended
        return {kind: count for kind, count in found.items() if count}

    def _add(
        self, kind: str, opened: socket.socket, *, first: bytes = b"", drip: bytes = b"", flood: bytes = b""
    ) -> None:
        opened.setblocking(False)
        self.all.append(Stranger(kind, opened, monotonic(), first, drip, flood, monotonic() + DRIP_SECONDS))

    def _tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=10.0)

    def _tls(self) -> socket.socket:
        return self._context.wrap_socket(self._tcp(), server_hostname="localhost")
