"""The serving certificate: read from a directory, checked, and exchanged for new handshakes; connections live on."""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from certs.pair import Pair, PairError, load_pair, server_context
from webhook.server.health import Check
from webhook.server.logs import FIELDS, LOGGER

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.server.metrics import Metrics

POLL_SECONDS = 2.0
"""kubelet brings a changed Secret within a minute or two; polling adds little to that and costs two small reads."""
MAX_CA_BYTES = 1024 * 1024


class ServingCertificate:
    """Keeps the pair of a directory in service.

    `context` is the one that the listener holds for good. It has no certificate of its own: for each handshake its
    `sni_callback`, which OpenSSL calls for clients that send no server name as well, puts the current context in its
    place. A new pair is a whole new context; `load_cert_chain` on the context in use would break every handshake from
    the moment the certificate is replaced until its key is, and for good if they do not fit.
    """

    def __init__(self, directory: Path, metrics: Metrics, *, client_ca: Path | None = None) -> None:
        self._directory = directory
        self._client_ca = client_ca
        self._metrics = metrics
        self._current: ssl.SSLContext | None = None
        self._pair: Pair | None = None
        self._authorities = ""
        self._problem = "no certificate has been read yet"
        self.context = self._prepared(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self.context.sni_callback = self._choose

    def poll(self) -> None:
        """Look once; on a bad pair keep the last good one, and say what is wrong once."""
        try:
            pair = load_pair(self._directory)
            authorities = self._read_client_ca()
            if self._current is None or (pair, authorities) != (self._pair, self._authorities):
                self._current = self._prepared(server_context(pair), authorities)
                self._pair, self._authorities = pair, authorities
                self._taken(pair)
        except (PairError, ssl.SSLError, OSError, ValueError) as error:
            self._refused(str(error))
        else:
            self._problem = ""

    async def run(self, seconds: float = POLL_SECONDS) -> None:
        """Look every few seconds until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            # In a thread: reading and checking take a millisecond or two, which no request should wait for.
            await asyncio.to_thread(self.poll)

    def check(self) -> Check:
        """Whether there is a certificate to serve; a newer one that is bad shows in the detail and does not fail it."""
        if self._pair is None:
            return Check("certificate", False, self._problem)
        days = (self._pair.not_after - datetime.now(UTC)).total_seconds() / 86400
        detail = f"{', '.join(self._pair.names)} until {self._pair.not_after:%Y-%m-%dT%H:%M:%SZ} ({days:.1f} days)"
        if self._problem:
            detail += f"; keeping it, since what came after cannot be used: {self._problem}"
        return Check("certificate", True, detail)

    def _choose(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._current is not None:
            handshake.context = self._current

    def _prepared(self, context: ssl.SSLContext, authorities: str = "") -> ssl.SSLContext:
        """Apply what both kinds of context need.

        OpenSSL copies the verify mode, options and lowest version from the listener's context, and takes certificate
        and trusted authorities from the one that is put in its place. No session tickets: a resumed session would
        skip the certificate, and the API server keeps none.
        """
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            if authorities:
                context.load_verify_locations(cadata=authorities)
        return context

    def _read_client_ca(self) -> str:
        if self._client_ca is None:
            return ""
        with self._client_ca.open("rb") as file:
            content = file.read(MAX_CA_BYTES + 1)
        if len(content) > MAX_CA_BYTES or not content.strip():
            raise ValueError(f"{self._client_ca} is empty or larger than {MAX_CA_BYTES // 1024} KiB")
        return content.decode("ascii", errors="replace")

    def _taken(self, pair: Pair) -> None:
        self._metrics.tls_reloads.labels("ok").inc()
        self._metrics.certificate_expiry.set(pair.not_after.timestamp())
        fields = {
            "fingerprint": pair.fingerprint,
            "names": pair.names,
            "notAfter": pair.not_after.isoformat(),
        }
        LOGGER.info("serving a new certificate", extra={FIELDS: fields})

    def _refused(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self._metrics.tls_reloads.labels("failed").inc()
        kept = self._pair.fingerprint if self._pair else ""
        LOGGER.log(logging.ERROR, "bad certificate", extra={FIELDS: {"problem": problem, "kept": kept}})


def peer_names(certificate: object) -> frozenset[str]:
    """Return the common name and the DNS names of a client's certificate, as `SSLSocket.getpeercert` describes it."""
    if not isinstance(certificate, dict):
        return frozenset()
    names = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    for relative in certificate.get("subject", ()):
        names |= {value for key, value in relative if key == "commonName"}
    return frozenset(names)
