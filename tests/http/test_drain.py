"""From SIGTERM to the end."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.http.support import Running, read_answer, review

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NODES = """
apiVersion: v1
kind: Node
metadata:
  name: gpu-a
  labels: {nvidia.com/device-plugin.config: mps-2x, nvidia.com/gpu.memory: "15360", nvidia.com/gpu.replicas: "2"}
status: {allocatable: {nvidia.com/gpu: "2"}}
"""
CONFIGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: nvidia-device-plugin-configs, namespace: kube-system}
data:
  mps-2x: |
    version: v1
    sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}
"""


@dataclass
class Process:
    """`mps-webhook serve` as a process of its own."""

    process: subprocess.Popen[str]
    ca: Path
    https: str
    health: str

    def post(self) -> httpx.Response:
        with httpx.Client(verify=ssl.create_default_context(cafile=str(self.ca))) as client:
            return client.post(f"{self.https}/mutate?timeout=10s", json=review())

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.health}{path}")

    def until_draining(self) -> None:
        for _ in range(100):
            if self.get("/readyz").status_code == 503:
                return
            time.sleep(0.02)
        pytest.fail("readiness did not fail")


@contextmanager
def process(folder: Path, drain_seconds: float) -> Iterator[Process]:
    (folder / "nodes.yaml").write_text(NODES)
    (folder / "configs.yaml").write_text(CONFIGS)
    (folder / "settings.yaml").write_text(f"drain_seconds: {drain_seconds}\n")
    command = [sys.executable, "-m", "webhook.cli.main", "serve", "--self-signed", "--host", "127.0.0.1"]
    files = [f"--{name}={folder / name}.yaml" for name in ("nodes", "configs", "settings")]
    ports = ["--port", "0", "--health-port", "0"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen([*command, *files, *ports], stdout=subprocess.PIPE, stderr=log, text=True) as running,
    ):
        try:
            assert running.stdout is not None
            said = dict(running.stdout.readline().strip().split(": ", 1) for _ in range(3))
            assert running.stdout.readline() == "ready\n", (folder / "log").read_text()
            yield Process(running, Path(said["ca"]), said["https"], said["health"])
        finally:
            running.kill()


def test_sigterm_drains_and_exits_with_0(tmp_path: Path) -> None:
    with process(tmp_path, 1.0) as running:
        first = running.post()
        assert (first.status_code, first.json()["response"]["allowed"]) == (200, True)
        assert first.headers.get("connection") != "close"
        running.process.send_signal(signal.SIGTERM)
        running.until_draining()
        assert running.get("/readyz").text == "drain: draining"
        assert running.get("/livez").status_code == 200
        assert "mps_webhook_draining 1.0" in running.get("/metrics").text
        answer = running.post()
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert running.process.wait(10) == 0
        assert not running.ca.exists(), "throwaway certificates are thrown away"
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_second_sigterm_exits_at_once(tmp_path: Path) -> None:
    with process(tmp_path, 600.0) as running:
        running.process.send_signal(signal.SIGTERM)
        running.until_draining()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(10) == 1
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_interrupt_does_not_wait_for_endpoints(tmp_path: Path) -> None:
    with process(tmp_path, 600.0) as running:
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(10) == 0


def test_requests_under_way_are_answered_after_the_drain(serve: Callable[..., Running]) -> None:
    running = serve()
    body = b'{"a": 1}'
    head = b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
        body
    )
    with running.connect() as connection:
        connection.sendall(head + body[:3])
        time.sleep(0.1)
        running.call(running.service.terminate)
        time.sleep(0.3)
        connection.sendall(body[3:])
        answer = read_answer(connection)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in answer
        assert b"connection: close\r\n" in answer
        assert b"mps-webhook: this replica is shutting down" in answer
    running.thread.join(10)
    assert running.ended_well == [True]


def test_a_client_that_does_not_say_goodbye_holds_nothing_up(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.server.service.GOODBYE_SECONDS", 0.2)
    running = serve()
    with running.connect() as silent:
        silent.sendall(b"GET /mutate HTTP/1.1\r\nhost: x\r\n\r\n")
        assert read_answer(silent).startswith(b"HTTP/1.1 405 ")
        running.call(running.service.terminate)
        running.thread.join(5)
        assert not running.thread.is_alive()
    assert running.ended_well == [True]
