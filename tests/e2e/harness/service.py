"""The webhook's Service, played by a TCP forwarder: one port in front of the replicas.

Without kubelets and a network plugin nothing routes a ClusterIP, so the Service is of type ExternalName and the API
server dials one port of this machine. What stands there behaves as a Service does, where it matters: a new connection
goes to one of the ready replicas in turn, readiness is what probes of the given period and threshold find, a connection
that exists stays where it is, and one to a replica that has died but is not noticed yet is lost (nobody tries another).
One port shared by both replicas (SO_REUSEPORT) would be less: it knows no readiness, so that a draining replica would
go on to get new connections. And the forwarder can be asked how many connections there were.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine

_BLOCK = 64 << 10


@dataclass(eq=False, slots=True)
class Backend:
    """One replica as the Service sees it."""

    port: int
    health_port: int
    ready: bool = False
    failures: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    accepted: int = 0
    """Connections it was ever given."""


class Service:
    """The forwarder, on a thread of its own. Probe times are seconds."""

    def __init__(self, *, probe_period: float = 2.0, failure_threshold: int = 2) -> None:
        self.port = 0
        self.accepted = 0
        """Connections that were ever opened to the Service."""
        self.lost = 0
        """Connections that found no replica: none ready, or one that had died unnoticed."""
        self._period = probe_period
        self._threshold = failure_threshold
        self._backends: list[Backend] = []
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service", daemon=True)
        self._thread.start()
        self._call(self._listen())

    def add(self, port: int, health_port: int) -> Backend:
        """Add a replica; it gets connections once a probe has found it ready."""
        backend = Backend(port, health_port)
        self._backends = [*self._backends, backend]
        return backend

    def remove(self, backend: Backend) -> None:
        """Take a replica out, as when its pod is deleted; its connections stay."""
        self._backends = [one for one in self._backends if one is not backend]

    @property
    def ready(self) -> list[Backend]:
        """The replicas that get new connections."""
        return [backend for backend in self._backends if backend.ready]

    def drop_connections(self) -> None:
        """Close every connection, as a network does that forgets them."""

        async def drop() -> None:
            for backend in self._backends:
                for writer in tuple(backend.open):
                    writer.transport.abort()

        self._call(drop())

    def stop(self) -> None:
        """Close the port and every connection."""

        async def end() -> None:
            for server in self._servers:
                server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10.0)
        self._loop.close()

    def _call(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(15.0)

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=512)
        self.port = int(server.sockets[0].getsockname()[1])
        self._servers.append(server)
        with suppress(OSError):
            # `localhost` may be this address first.
            self._servers.append(await asyncio.start_server(self._connected, "::1", self.port, backlog=512))
        self._begin(self._probe())

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe(self) -> None:
        while True:
            for backend in self._backends:
                if await _answers_ready(backend.health_port):
                    backend.ready, backend.failures = True, 0
                else:
                    backend.failures += 1
                    if backend.failures >= self._threshold:
                        backend.ready = False
            # What is not ready yet is looked at more often, as a startup probe does: it saves the tests waiting.
            starting = any(not backend.ready for backend in self._backends)
            await asyncio.sleep(min(0.2, self._period) if starting else self._period)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ready = self.ready
        if not ready:
            self.lost += 1
            writer.transport.abort()
            return
        self._turn += 1
        backend = ready[self._turn % len(ready)]
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", backend.port)
        except OSError:
            self.lost += 1
            writer.transport.abort()
            return
        backend.accepted += 1
        backend.open.add(writer)
        try:
            await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        finally:
            backend.open.discard(writer)
            up_writer.close()
            writer.close()
            with suppress(OSError):
                await up_writer.wait_closed()
            with suppress(OSError):
                await writer.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction; its end, in whatever way, ends the other one too."""
    try:
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def _answers_ready(port: int) -> bool:
    try:
        async with asyncio.timeout(2.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return False
