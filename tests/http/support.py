"""A running service for tests, with stand-ins for the inventory and the policy where a test needs to choose them."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import uvloop

from certs.issue import self_signed, write_files
from tests.builders import inventory
from webhook.cluster.source import SourceStatus
from webhook.policy import Verdict
from webhook.policy.findings import Finding
from webhook.server import Service
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAMES = ("localhost", "127.0.0.1")
DENIED = Finding("memory-over-budget", "deny", "spec.containers[0]", "5Gi is too much", "ask for less", "app")
WARNED = Finding("memory-unknown", "warn", "spec", "nobody knows", "label the node")


def verdict(*findings: Finding, patch: tuple[dict[str, Any], ...] = (), **more: Any) -> Verdict:
    return Verdict(findings=findings, patch=patch, **{"fit": (), "unfit": (), "grants": ()} | more)


@dataclass
class Fleetless:
    """A source without a cluster: synced at once unless told otherwise."""

    synced: bool = True
    problems: tuple[str, ...] = ()
    age_seconds: float = 0.0

    def inventory(self) -> Any:
        return inventory() if self.synced else None

    def status(self) -> SourceStatus:
        return SourceStatus(
            synced=self.synced,
            age_seconds=self.age_seconds,
            problems=self.problems,
            nodes=3,
            configs=("mps-2x", "mps-4x"),
            watch_restarts={"nodes": 2},
        )

    async def run(self) -> None:
        return


@dataclass
class Fixed:
    """A policy that always finds the same, and remembers what it was asked."""

    finds: Verdict = field(default_factory=verdict)
    raises: Exception | None = None
    pause: float = 0.0
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def _answer(self, question: str, *about: Any) -> Verdict:
        self.asked.append((question, about))
        time.sleep(self.pause)
        if self.raises:
            raise self.raises
        return self.finds

    def judge_pod(self, pod: dict[str, Any], namespace: str, inventory: Any) -> Verdict:
        return self._answer("judge_pod", pod, namespace)

    def validate_pod(self, pod: dict[str, Any], namespace: str, inventory: Any) -> Verdict:
        return self._answer("validate_pod", pod, namespace)

    def judge_update(
        self, old: dict[str, Any], new: dict[str, Any], subresource: str, namespace: str, inventory: Any
    ) -> Verdict:
        return self._answer("judge_update", old, new, subresource, namespace)

    def judge_workload(self, obj: dict[str, Any], namespace: str, inventory: Any) -> Verdict:
        return self._answer("judge_workload", obj, namespace)


def pod(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team-a", **metadata},
        "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}]},
    }


def review(obj: Any = None, *, kind: tuple[str, str] = ("", "Pod"), **request: Any) -> dict[str, Any]:
    """An AdmissionReview; keyword arguments replace fields of its request."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0f1e2d3c-uid",
            "kind": {"group": kind[0], "version": "v1", "kind": kind[1]},
            "operation": "CREATE",
            "namespace": "team-a",
            "name": "p",
            "object": pod() if obj is None else obj,
            "oldObject": None,
            "dryRun": False,
            **request,
        },
    }


def patch_of(answer: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(answer["response"]["patch"]))


@dataclass
class Running:
    """A service in a thread, and how to reach it."""

    service: Service
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    tls_dir: Path
    client: httpx.Client
    ended_well: list[bool]

    @property
    def https(self) -> str:
        return f"https://localhost:{self.service.port}"

    @property
    def health(self) -> str:
        return f"http://localhost:{self.service.health_port}"

    def post(self, path: str, body: Any) -> httpx.Response:
        content = json.dumps(body).encode()
        return self.client.post(f"{self.https}{path}", content=content, headers={"content-type": "application/json"})

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.client.get(f"{self.health}{path}", **more)

    def metric(self, name: str) -> float:
        """The value of one series, written with its labels as in the exposition; 0 where it is absent."""
        for line in self.get("/metrics").text.splitlines():
            series, _, value = line.rpartition(" ")
            if series == name:
                return float(value)
        return 0.0

    def call(self, function: Callable[[], object]) -> None:
        """Run something on the service's own loop."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(function)
        self.loop.call_soon_threadsafe(done.set)
        assert done.wait(5)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.tls_dir / "ca.crt"))

    def connect(self, *, server_name: str | None = "localhost") -> ssl.SSLSocket:
        """A bare TLS connection, without SNI where `server_name` is None."""
        context = self.context()
        context.check_hostname = server_name is not None
        raw = socket.create_connection(("127.0.0.1", self.service.port), timeout=5)
        return context.wrap_socket(raw, server_hostname=server_name)


def read_answer(connection: socket.socket) -> bytes:
    """One whole answer, head and body; what there was of it where the connection ends before."""
    answer = b""
    while True:
        head, end, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if end and length and len(body) >= int(length[1]):
            return answer
        received = connection.recv(65536)
        if not received:
            return answer
        answer += received


def closed(connection: socket.socket) -> bool:
    """Whether the service ends the connection; it has to say nothing more."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def cut_off(connection: socket.socket, head: bytes, again: bytes, times: int = 1000) -> bool:
    """Whether the service ends the connection while `again` is sent over and over."""
    try:
        connection.sendall(head)
        for _ in range(times):
            connection.sendall(again)
    except OSError:  # reset or broken pipe, as it happens
        return True
    return False


def issue(folder: Path, *, names: tuple[str, ...] = NAMES) -> Path:
    write_files(self_signed(names), folder, overwrite=True)
    return folder


@contextmanager
def serving(
    tls_dir: Path, source: Any = None, policy: Any = None, *, certificate: bool = True, **settings: Any
) -> Iterator[Running]:
    if certificate:
        issue(tls_dir)
    chosen: dict[str, Any] = {"port": 0, "health_port": 0, "tls_dir": tls_dir, "drain_seconds": 0} | settings
    service = Service(WebhookSettings(**chosen), source or Fleetless(), policy or Fixed(), host="127.0.0.1")
    loops: list[asyncio.AbstractEventLoop] = []
    ended: list[bool] = []
    listening = threading.Event()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        task = asyncio.create_task(service.run())
        while not service.listening:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
        listening.set()
        ended.append(await task)

    def work() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=work, name="service")
    thread.start()
    assert listening.wait(10)
    verify: Any = ssl.create_default_context(cafile=str(tls_dir / "ca.crt")) if certificate else False
    with httpx.Client(verify=verify, timeout=10) as client:
        running = Running(service, loops[0], thread, tls_dir, client, ended)
        try:
            yield running
        finally:
            if thread.is_alive():
                loops[0].call_soon_threadsafe(service.stop)
            client.close()
            thread.join(15)
            assert not thread.is_alive()
