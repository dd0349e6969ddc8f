"""Calls at a steady rate, and in bursts; what became of each is kept."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.e2e.harness.manifests import NAMESPACE, SERVICE
from tests.e2e.harness.objects import QUOTA, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.harness.api import Api, Object

HOST = f"{SERVICE}.{NAMESPACE}.svc"
"""The name by which the API server calls."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call: when it began (`time.monotonic`), how long it took in seconds, and why it failed if it did."""

    began: float
    seconds: float
    error: str = ""


class Load:
    """Calls `call` at `rate` a second from `workers` threads while it runs. `call` raises where it fails."""

    def __init__(self, call: Callable[[], object], rate: float, workers: int = 8) -> None:
        self._call = call
        self._rate = rate
        self._workers = workers
        self._next = 0
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._outcomes: list[Outcome] = []

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Call until the block ends."""
        began = time.monotonic()
        with ThreadPoolExecutor(self._workers, "load") as pool:
            for _ in range(self._workers):
                pool.submit(self._work, began)
            try:
                yield self
            finally:
                self._ending.set()

    @property
    def outcomes(self) -> list[Outcome]:
        """All calls so far."""
        with self._lock:
            return list(self._outcomes)

    @property
    def failures(self) -> list[Outcome]:
        """Those that failed."""
        return [one for one in self.outcomes if one.error]

    def assert_flawless(self, least: int) -> None:
        """No call failed, and there were at least so many."""
        outcomes, failures = self.outcomes, self.failures
        assert not failures, f"{len(failures)} of {len(outcomes)} failed, the first: {failures[0].error}"
        assert len(outcomes) >= least, f"only {len(outcomes)} calls: the machine was too slow for this test"

    def _work(self, began: float) -> None:
        while not self._ending.is_set():
            with self._lock:
                due = began + self._next / self._rate
                self._next += 1
            # Whoever is late goes on at once, and does not add to a burst that the rate never meant.
            self._ending.wait(max(0.0, due - time.monotonic()))
            if self._ending.is_set():
                return
            self._keep(attempt(self._call))

    def _keep(self, outcome: Outcome) -> None:
        with self._lock:
            self._outcomes.append(outcome)


def attempt(call: Callable[[], object]) -> Outcome:
    """Make one call."""
    began = time.monotonic()
    error = ""
    try:
        call()
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    return Outcome(began, time.monotonic() - began, error)


def burst(call: Callable[[], object], count: int) -> list[Outcome]:
    """Make so many calls at the same moment."""
    together = threading.Barrier(count)

    def one() -> Outcome:
        together.wait(30.0)
        return attempt(call)

    with ThreadPoolExecutor(count, "burst") as pool:
        return [future.result() for future in [pool.submit(one) for _ in range(count)]]


def created(api: Api) -> Callable[[], object]:
    """Return a call that has the API server ask both webhooks about a pod, and checks that it was patched."""
    sent = pod(QUOTA)

    def call() -> None:
        found = api.create(sent, dry_run=True)
        assert found["spec"]["containers"][0].get("env"), "the pod came through without its limits"

    return call


def review(made: Object, namespace: str = "default") -> bytes:
    """Return a review as the API server sends it."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "requestKind": kind,
        "resource": resource,
        "requestResource": resource,
        "name": made["metadata"]["name"],
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "load"},
        "object": made,
        "oldObject": None,
        "dryRun": True,
        "options": None,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


class Dialler:
    """Calls the webhook as the API server does, by the Service's name and trusting what its configuration says."""

    def __init__(self, api: Api, port: int) -> None:
        self._api = api
        self._port = port
        self._body = review(pod(QUOTA))

    def trusting(self) -> ssl.SSLContext:
        """Return a context that trusts the caBundle of this moment, and nothing else."""
        found = self._api.get("MutatingWebhookConfiguration", SERVICE)["webhooks"][0]["clientConfig"]
        return ssl.create_default_context(cadata=base64.b64decode(found["caBundle"]).decode())

    def kept(self) -> Connection:
        """Return a connection of its own, not dialled yet."""
        return Connection(self._port, self.trusting())

    def new_connection(self) -> None:
        """Make one call on a connection of its own. Raises on whatever goes wrong."""
        connection = self.kept()
        try:
            connection.call(self._body)
        finally:
            connection.close()


class Connection:
    """One TLS connection to the webhook, kept open."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._http = _ByName(port, context)

    def call(self, body: bytes, path: str = "/mutate?timeout=5s") -> Object:
        """Send a review and return the response. Raises on whatever goes wrong."""
        self._http.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        content = answer.read()
        assert answer.status == 200, (answer.status, content)
        response: Object = json.loads(content)["response"]
        return response

    def close(self) -> None:
        """Close it."""
        self._http.close()


class _ByName(http.client.HTTPSConnection):
    """Dials this machine and asks for the Service."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__("127.0.0.1", port, context=context, timeout=10.0)
        self._trusting = context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._trusting.wrap_socket(self.sock, server_hostname=HOST)
