"""Requests to an API server over loopback: what is sent, and what each answer means."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from certs.cluster import ClusterError, ConflictError
from certs.transport import KubernetesTransport, service_account_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Recorder:
    """Answers every request with `status` and `content` and keeps what was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.content = b"{}"
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                recorder.asked.append((self.command, self.path, dict(self.headers), body))
                self.send_response(recorder.status)
                self.send_header("Content-Length", str(len(recorder.content)))
                self.end_headers()
                self.wfile.write(recorder.content)

            do_GET = do_POST = do_PATCH = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


def kubeconfig(directory: Path, port: int) -> str:
    path = directory / "config"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {"token": "t0ken"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


@pytest.fixture
def transport(recorder: Recorder, tmp_path: Path) -> Iterator[KubernetesTransport]:
    transport = KubernetesTransport(kubeconfig(tmp_path, recorder.server.server_address[1]))
    yield transport
    transport.close()


def test_what_is_sent(recorder: Recorder, transport: KubernetesTransport) -> None:
    recorder.content = b'{"kind": "Secret"}'
    assert transport.request("GET", "/api/v1/x") == {"kind": "Secret"}
    transport.request("PATCH", "/api/v1/y", {"a": None}, "application/merge-patch+json")

    (_, path, headers, _), (method, _, patched, body) = recorder.asked
    assert path == "/api/v1/x"
    assert headers["authorization"] == "Bearer t0ken"
    assert "Content-Type" not in headers
    assert (method, patched["Content-Type"], body) == ("PATCH", "application/merge-patch+json", b'{"a": null}')


@pytest.mark.parametrize(
    ("method", "status", "content", "expected"),
    [
        pytest.param("GET", 404, b"{}", None, id="nothing there"),
        pytest.param("PATCH", 404, b"{}", None, id="gone meanwhile"),
        pytest.param(
            "POST",
            404,
            b'{"message": "namespaces \\"x\\" not found"}',
            ClusterError('POST /x: HTTP 404: namespaces "x" not found'),
            id="no namespace",
        ),
        pytest.param(
            "PATCH",
            409,
            b'{"message": "the object has been\\nmodified"}',
            ConflictError("PATCH /x: HTTP 409: the object has been modified"),
            id="conflict",
        ),
        pytest.param("GET", 403, b'{"message": "no"}', ClusterError("GET /x: HTTP 403: no"), id="forbidden"),
        pytest.param("GET", 503, b"<html>", ClusterError("GET /x: HTTP 503"), id="a proxy answers"),
        pytest.param("GET", 200, b"<html>", ClusterError("GET /x: HTTP 200"), id="no JSON"),
        pytest.param("GET", 200, b"[]", ClusterError("GET /x: HTTP 200"), id="no object"),
        pytest.param("GET", 302, b"{}", ClusterError("GET /x: HTTP 302"), id="redirect"),
    ],
)
def test_answers(
    recorder: Recorder,
    transport: KubernetesTransport,
    method: str,
    status: int,
    content: bytes,
    expected: ClusterError | None,
) -> None:
    recorder.status, recorder.content = status, content
    body: Any = None if method == "GET" else {}
    if expected is None:
        assert transport.request(method, "/x", body) is None
    else:
        with pytest.raises(type(expected)) as caught:
            transport.request(method, "/x", body)
        assert type(caught.value) is type(expected)
        assert str(caught.value) == str(expected)


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    transport = KubernetesTransport(kubeconfig(tmp_path, port))
    with pytest.raises(ClusterError, match=r"^GET /x: .*Connection refused"):
        transport.request("GET", "/x")
    transport.close()


def test_nobody_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = KubernetesTransport(kubeconfig(tmp_path, listener.getsockname()[1]), timeout=0.1)
        with pytest.raises(ClusterError, match=r"^GET /x: .*timed out"):
            transport.request("GET", "/x")
        transport.close()


def test_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a: [")
    for name in ("config", "absent"):
        with pytest.raises(ClusterError, match=r"^no cluster to talk to: "):
            KubernetesTransport(str(tmp_path / name))


def test_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certs.transport._SERVICE_ACCOUNT", tmp_path)
    assert service_account_namespace() is None
    (tmp_path / "namespace").write_text("system\n")
    assert service_account_namespace() == "system"
