"""The process: two listeners on one event loop, what runs beside them, and how all of it ends."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, get_args

import uvicorn

from webhook.server.app import create_app
from webhook.server.connections import GOODBYE_SECONDS, GuardedProtocol, guarded
from webhook.server.decide import Endpoint
from webhook.server.gate import Gate
from webhook.server.health import create_health_app, drain_check, inventory_check
from webhook.server.lifecycle import Lifecycle
from webhook.server.listener import Listener, listen_both
from webhook.server.logs import FIELDS, LOGGER
from webhook.server.memory import keep_trimmed
from webhook.server.metrics import Metrics
from webhook.server.tls import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.cluster import Source
    from webhook.server.decide import Policy
    from webhook.server.health import Check
    from webhook.settings import WebhookSettings

CLOSE_SECONDS = 10
"""How long requests already taken may still run once the drain is over."""
HURRY_SECONDS = 0.5
RESTART_SECONDS = 5.0
READY_POLL_SECONDS = 0.05


class Service:
    """The webhook as a process runs it.

    Making one binds both ports (raises ListenError); `run` serves until `terminate` or `stop`, which are to be called
    from the event loop's thread.
    """

    def __init__(self, settings: WebhookSettings, source: Source, policy: Policy, *, host: str = "") -> None:
        self._source = source
        self.lifecycle = Lifecycle(settings.max_in_flight)
        self.metrics = Metrics(source, self.lifecycle, settings_hash=_fingerprint(settings))
        self.certificate = ServingCertificate(settings.tls_dir, self.metrics, client_ca=settings.client_ca_file)
        self._checks: tuple[Callable[[], Check], ...] = (
            lambda: drain_check(self.lifecycle),
            lambda: inventory_check(source),
            self.certificate.check,
        )
        app = create_app(source, policy, lifecycle=self.lifecycle, metrics=self.metrics, workloads=settings.workloads)
        gate = Gate(self.lifecycle, self.metrics, get_args(Endpoint))
        self._sockets = listen_both(host, settings.port, settings.health_port)
        self._https = _Server(
            uvicorn.Config(
                app,
                http=guarded(client_names=settings.client_names, gate=gate),
                ssl_context_factory=lambda _config, _default: self.certificate.context,
                timeout_keep_alive=round(settings.keep_alive_seconds),
                **_COMMON,
            )
        )
        self._health = _Server(uvicorn.Config(create_health_app(self._checks, self.metrics), http=guarded(), **_COMMON))
        self._drain_seconds = settings.drain_seconds
        self._ending = asyncio.Event()
        self._hurry = asyncio.Event()

    @property
    def port(self) -> int:
        """The HTTPS port, as chosen where 0 was asked for."""
        return int(self._sockets[0].getsockname()[1])

    @property
    def health_port(self) -> int:
        """The plain port, likewise."""
        return int(self._sockets[1].getsockname()[1])

    @property
    def listening(self) -> bool:
        """Whether both ports accept connections."""
        return self._https.started and self._health.started

    def terminate(self) -> None:
        """Drain and end; asked a second time, end at once."""
        if self.lifecycle.leaving:
            self._hurry.set()
        LOGGER.info("ending at once" if self.lifecycle.leaving else "draining")
        self.lifecycle.drain()
        self._ending.set()

    def stop(self) -> None:
        """End without the drain time: somebody at a terminal waits, and no endpoint list has to catch up."""
        self._drain_seconds = 0.0
        self.terminate()

    async def run(self, ready: Callable[[], None] | None = None) -> bool:
        """Serve until told to end; `ready` is called once, when everything is. Returns whether the end was orderly."""
        self.certificate.poll()
        https, health = self._sockets
        serving = [
            asyncio.create_task(self._https.serve([https]), name="https"),
            asyncio.create_task(self._health.serve([health]), name="health"),
        ]
        beside = [
            asyncio.create_task(self._keep_current(), name="inventory"),
            asyncio.create_task(self.certificate.run(), name="certificate"),
            asyncio.create_task(keep_trimmed(), name="memory"),
            asyncio.create_task(self._announce(ready), name="announce"),
        ]
        try:
            await self._end(serving)
        finally:
            tasks = (*serving, *beside)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=HURRY_SECONDS if self._hurry.is_set() else CLOSE_SECONDS)
        failed = [task for task in tasks if task.done() and not task.cancelled() and task.exception()]
        for task in failed:
            LOGGER.error(
                "unexpected end of a task", exc_info=task.exception(), extra={FIELDS: {"task": task.get_name()}}
            )
        return not failed and not self._hurry.is_set()

    async def _end(self, serving: list[asyncio.Task[None]]) -> None:
        """Wait for the word to end, or for a listener that fails, and go through the phases."""
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait([ending, *serving], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        self.lifecycle.drain()
        if not any(task.done() for task in serving):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._drain_seconds)
        self.lifecycle.close()
        hurry: asyncio.Future[Any] = asyncio.create_task(self._hurry.wait())
        self._https.should_exit = self._health.should_exit = True
        ended: asyncio.Future[Any] = asyncio.gather(*serving, return_exceptions=True)
        await asyncio.wait([hurry, ended], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()

    async def _keep_current(self) -> None:
        """Run the source, which ends by itself only where nothing changes. A bug in it must not end the service:
        every replica would meet it at the same moment, and the last inventory is better than none.
        """
        while True:
            try:
                await self._source.run()
            except Exception:
                LOGGER.exception("the inventory is no longer kept current, trying again")
                await asyncio.sleep(RESTART_SECONDS)
            else:
                return

    async def _announce(self, ready: Callable[[], None] | None) -> None:
        # Polled: whether a source or a certificate is there is a question to ask, nothing that either would announce.
        while not (self.listening and all(check().ok for check in self._checks)):  # noqa: ASYNC110
            await asyncio.sleep(READY_POLL_SECONDS)
        # What lives now lives for good: the collector need not look at it again with every full collection.
        gc.collect()
        gc.freeze()
        status = self._source.status()
        fields = {"port": self.port, "healthPort": self.health_port, "nodes": status.nodes, "configs": status.configs}
        LOGGER.info("ready", extra={FIELDS: fields})
        if ready is not None:
            ready()


_COMMON: dict[str, Any] = {
    "lifespan": "off",
    "ws": "none",
    "proxy_headers": False,
    "server_header": False,
    "access_log": False,
    "log_config": None,
    "timeout_graceful_shutdown": CLOSE_SECONDS,
}


class _Server(uvicorn.Server):
    """uvicorn's server, less its signal handlers: signals are the process's, and two servers share it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets; uvicorn's own way to do so bounds neither connections nor handshakes."""
        config, state = self.config, self.server_state

        def connected() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]
            return made

        listeners = [Listener(one, connected, made=state.connections, tls=config.ssl) for one in sockets or ()]
        self.servers = listeners  # type: ignore[assignment] # it closes them, and no more
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything; a client that does not answer the closing of its idle connection is not waited for."""
        patience = asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self._abort_idle)
        try:
            await super().shutdown(sockets)
        finally:
            patience.cancel()

    def _abort_idle(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, GuardedProtocol) and connection.idle:
                connection.transport.abort()


def _fingerprint(settings: WebhookSettings) -> str:
    """Return a short hash of the settings, the same in every replica that runs with the same."""
    found = json.dumps(settings.model_dump(), sort_keys=True, default=_plain)
    return hashlib.sha256(found.encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else str(value)
