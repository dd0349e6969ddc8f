"""What the running rotation tells others: `/livez`, `/readyz` and `/metrics` on a plain port."""

from __future__ import annotations

import errno
import socket
import threading
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

from certs.rotation import Bootstrap, Publish, RenewLeaf, SwitchLeaf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from certs.controller import View
    from certs.rotation import Action, Target


class Status:
    """Health and metrics of one process; written by its loop, read by the threads of the HTTP server.

    `patience` is how old the last look at the cluster may be before this process counts as not ready, and four times
    that how long its loop may stand still before it counts as dead.
    """

    def __init__(self, targets: Sequence[Target], clock: Callable[[], datetime], patience: timedelta) -> None:
        self._clock = clock
        self._patience = patience
        self._lock = threading.Lock()
        self._turned = clock()
        self._looked: datetime | None = None
        self._faults: tuple[str, ...] = ()
        self.registry = CollectorRegistry()
        self._not_after = Gauge(
            "certs_not_after_timestamp_seconds",
            "End of the certificate in use, seconds since the epoch; 0 where there is none",
            ["certificate"],
            registry=self.registry,
        )
        self._in_step = Gauge(
            "certs_bundle_in_step",
            "1 where every caBundle of the webhook configuration is the published one",
            ["kind", "name"],
            registry=self.registry,
        )
        self._authorities = Gauge("certs_bundle_authorities", "Authorities in the bundle", registry=self.registry)
        self._rotations = Counter(
            "certs_rotations", "Certificates made by this process", ["certificate"], registry=self.registry
        )
        self._publications = Counter(
            "certs_publications", "caBundles written by this process, repairs included", registry=self.registry
        )
        self._errors = Counter("certs_errors", "Rounds of this process that failed", registry=self.registry)
        self._leader = Gauge("certs_leader", "1 where this process holds the Lease", registry=self.registry)
        self._seen = Gauge(
            "certs_last_look_timestamp_seconds", "When the cluster was last read in full", registry=self.registry
        )
        for certificate in ("authority", "leaf"):
            self._rotations.labels(certificate)
            self._not_after.labels(certificate).set(0)
        for target in targets:
            self._in_step.labels(target.kind, target.name).set(0)

    def acted(self, action: Action) -> None:
        """Count an action that was carried out."""
        match action:
            case Publish(targets):
                self._publications.inc(len(targets))
            case Bootstrap() | SwitchLeaf():
                self._rotations.labels("authority").inc()
                self._rotations.labels("leaf").inc()
            case RenewLeaf():
                self._rotations.labels("leaf").inc()
            case _:
                pass

    def looked(self, view: View, *, leading: bool) -> None:
        """Take over what was read at the end of a round."""
        state = view.state
        self._not_after.labels("leaf").set(state.leaf.not_after.timestamp() if state.leaf else 0)
        self._not_after.labels("authority").set(state.active.not_after.timestamp() if state.active else 0)
        self._authorities.set(len(state.authorities))
        wrong = set(view.out_of_step) | {target for target, found in view.configurations.items() if found is None}
        for target in view.configurations:
            self._in_step.labels(target.kind, target.name).set(target not in wrong)
        self._leader.set(leading)
        self._seen.set(view.at.timestamp())
        with self._lock:
            self._turned = self._looked = self._clock()
            self._faults = view.faults

    def failed(self, *, leading: bool) -> None:
        """Note a round that failed; the loop is alive all the same."""
        self._errors.inc()
        self._leader.set(leading)
        with self._lock:
            self._turned = self._clock()

    def alive(self) -> tuple[bool, str]:
        """Return whether the loop turns, and a line that says so."""
        with self._lock:
            age = self._clock() - self._turned
        return age <= 4 * self._patience, f"the loop turned {age.total_seconds():.0f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Return whether the certificates are in order as of a recent look, and a line for each thing that is not."""
        with self._lock:
            looked, faults = self._looked, self._faults
        if looked is None:
            return False, "the cluster has not been read yet"
        age = self._clock() - looked
        if age > self._patience:
            return False, f"the cluster was last read {age.total_seconds():.0f} s ago"
        return not faults, "\n".join(faults) or "ok"


def serve(status: Status, port: int, host: str = "") -> ThreadingHTTPServer:
    """Serve the three paths in threads of their own until `shutdown` and `server_close` of what is returned.

    An empty `host` is every address, IPv6 included where there is one. Raises `OSError` for a port that is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0
        server_version = "certs"
        sys_version = ""

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/livez":
                    self._answer(*status.alive())
                case "/readyz":
                    self._answer(*status.ready())
                case "/metrics":
                    self._send(200, generate_latest(status.registry), CONTENT_TYPE_LATEST)
                case _:
                    self._send(404, b"not found\n")

        def _answer(self, good: bool, text: str) -> None:
            self._send(200 if good else 503, f"{text}\n".encode())

        def _send(self, code: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes every few seconds are nothing for a log."""

    server = _bind(host, port, Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="health", daemon=True).start()
    return server


class _DualStackServer(ThreadingHTTPServer):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _bind(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    if not host and socket.has_dualstack_ipv6():
        try:
            return _DualStackServer(("::", port), handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            # IPv6 is compiled in but switched off.
    return ThreadingHTTPServer((host, port), handler)
