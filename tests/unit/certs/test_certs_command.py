"""`mps-webhook certs` as a person or a manifest calls it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner, Result

from certs import load_pair
from certs.rotation import Target
from tests.unit.certs.fakes import ApiServer
from webhook.cli.certs import Duration, certs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def call(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(certs, [str(one) for one in arguments], env=variables)


def test_issue(tmp_path: Path) -> None:
    result = call("issue", "--out", tmp_path / "out", "--dns", "hook.system.svc", "--dns", "127.0.0.1", "--days", 3)
    assert result.output == "".join(
        f"{tmp_path / 'out' / name}\n" for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")
    )
    assert result.exit_code == 0
    pair = load_pair(tmp_path / "out", names=["hook.system.svc", "127.0.0.1"])
    assert pair.not_after - pair.not_before == timedelta(days=3, hours=1)


def test_issue_overwrites_only_when_asked(tmp_path: Path) -> None:
    call("issue", "--out", tmp_path, "--dns", "a")
    before = load_pair(tmp_path)
    result = call("issue", "--out", tmp_path, "--dns", "a")
    assert result.exit_code == 2
    assert result.output == f"Error: {tmp_path} has ca.crt, ca.key, tls.crt, tls.key already; nothing was written\n"
    assert load_pair(tmp_path) == before
    assert call("issue", "--out", tmp_path, "--dns", "a", "--force").exit_code == 0
    assert load_pair(tmp_path) != before


def test_issue_with_a_name_that_is_none(tmp_path: Path) -> None:
    result = call("issue", "--out", tmp_path, "--dns", "https://a")
    assert (result.exit_code, result.output) == (2, "Error: 'https://a' is neither a DNS name nor an IP address\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90d", timedelta(days=90)),
        ("36h", timedelta(hours=36)),
        ("15m", timedelta(minutes=15)),
        ("90s", timedelta(seconds=90)),
        ("7", timedelta(seconds=7)),
        (timedelta(seconds=1), timedelta(seconds=1)),
    ],
    ids=str,
)
def test_duration(text: object, expected: timedelta) -> None:
    assert Duration().convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["", "-1s", "1.5h", "1w", "1 d", "٣d", "9999999999d"])
def test_no_duration(text: str) -> None:
    with pytest.raises(click.UsageError):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--poll", "11s"], "Error: --poll has to be between 1s and 10s"),
        (
            ["--leaf-lifetime", "9s"],
            "Error: leaf lifetime 9s is too short: a third of it is left at renewal, and that has to be at least",
        ),
        (["--service", "a_b"], "Error: 'a_b.mps-system.svc' is neither a DNS name nor an IP address"),
        (["--kubeconfig", "/nonexistent"], "Error: no cluster to talk to: Invalid kube-config file."),
        (["--settle", "soon"], "Error: Invalid value for '--settle'"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else None,
)
def test_run_refuses(arguments: list[str], message: str) -> None:
    result = call("run", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_run_takes_variables() -> None:
    result = call("run", MPS_WEBHOOK_CERTS_POLL="0s")
    assert (result.exit_code, result.output) == (2, "Error: --poll has to be between 1s and 10s\n")


class Cluster:
    """The API server in memory, behind HTTP on loopback."""

    def __init__(self) -> None:
        self.api = api = ApiServer()
        self.changed = changed = threading.Condition()
        api.install(Target("mutating", "mps-webhook"), Target("validating", "mps-webhook"))

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
                with changed:
                    status, answer = api.answer(
                        self.command, self.path, body, self.headers.get("Content-Type", "application/json")
                    )
                    changed.notify_all()
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def wait_for(self, what: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(what, timeout=30)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


def test_run_until_sigterm(cluster: Cluster, tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{cluster.server.server_address[1]}"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    secret = "/api/v1/namespaces/gpu/secrets/mps-webhook-tls"
    lease = "/apis/coordination.k8s.io/v1/namespaces/gpu/leases/mps-webhook-certs"
    targets = [Target("mutating", "mps-webhook"), Target("validating", "mps-webhook")]
    api = cluster.api

    def published() -> bool:
        if secret not in api.objects:
            return False
        bundle = base64.b64decode(api.objects[secret]["data"]["ca.crt"])
        return all(api.bundles(target) == [bundle, bundle] for target in targets)

    process = subprocess.Popen(
        [sys.executable, "-c", "from webhook.cli.certs import certs; certs()", "run", "--health-port", "0"],
        env={
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(tmp_path / "config"),
            "MPS_WEBHOOK_CERTS_NAMESPACE": "gpu",
            "MPS_WEBHOOK_CERTS_HEALTH_HOST": "127.0.0.1",
            "MPS_WEBHOOK_CERTS_POLL": "1s",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        cluster.wait_for(published)
        assert api.objects[lease]["spec"]["holderIdentity"] != ""
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert api.objects[lease]["spec"]["holderIdentity"] == ""
    assert all(" INFO certs." in line for line in log.splitlines()), log
    assert "PRIVATE" not in log
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_bytes(base64.b64decode(api.objects[secret]["data"][name]))
    pair = load_pair(tmp_path, names=["mps-webhook.gpu.svc"])
    assert pair.names == (
        "mps-webhook.gpu.svc",
        "mps-webhook.gpu.svc.cluster.local",
        "mps-webhook.gpu",
        "mps-webhook",
    )
