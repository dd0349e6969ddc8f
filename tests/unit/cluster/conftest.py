"""A small API server on loopback that does what real ones do on bad days, and what is asked of it here."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.client import Configuration

from webhook.cluster.client import ApiClient

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


class ApiServer:
    """Lists in pages, watches with bookmarks on demand; every way to fail is one method or attribute."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.compacted = 0
        """Watches from before this version are expired."""
        self.expired_in_stream = True
        """Whether an expired watch is told so by an event, or by HTTP status 410."""
        self.objects: dict[str, dict[str, Any]] = {NODES: {}, NAMESPACES: {}, CONFIG_MAPS: {}}
        self.log: list[tuple[int, str, bytes]] = []
        self.refusals: dict[str, tuple[int, dict[str, str]]] = {}
        """Path, or path and ``?watch``, to the status and headers that every request there gets."""
        self.words = "no"
        """The message of refusals but 403."""
        self.bodies: dict[str, bytes] = {}
        """Path to what is sent there instead of a list."""
        self.token: str | None = None
        self.scheme = "Bearer"
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.generation = 0
        """Watches of an older generation end: cleanly, or with the bytes of ``last_words`` and a lost connection."""
        self.last_words: bytes | None = None
        self.mute = False
        """Watches stay open and say nothing, as on a half-open connection."""
        self.server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    # What happens in the cluster

    def put(self, path: str, name: str, **fields: Any) -> None:
        with self.changed:
            kind = "MODIFIED" if name in self.objects[path] else "ADDED"
            self.objects[path][name] = self._event(path, kind, {"metadata": {"name": name}, **fields})
            self.changed.notify_all()

    def delete(self, path: str, name: str) -> None:
        with self.changed:
            self._event(path, "DELETED", self.objects[path].pop(name))
            self.changed.notify_all()

    def bookmark(self, path: str) -> None:
        with self.changed:
            self._event(path, "BOOKMARK", {"metadata": {}})
            self.changed.notify_all()

    def raw(self, path: str, line: bytes) -> None:
        """A line that no API server would write."""
        with self.changed:
            self.version += 1
            self.log.append((self.version, path, line))
            self.changed.notify_all()

    def _event(self, path: str, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self.log.append((self.version, path, json.dumps({"type": kind, "object": obj}).encode() + b"\n"))
        return obj

    # What happens to the server

    def compact(self) -> None:
        """Forget the past: only lists and watches from now on are answered."""
        with self.changed:
            self.version += 1
            self.compacted = self.version
            self.log.clear()

    def end_watches(self, last_words: bytes | None = None) -> None:
        with self.changed:
            self.generation += 1
            self.last_words = last_words
            self.changed.notify_all()

    def start(self) -> None:
        api = self

        class Handler(_Handler):
            server_api = api

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        assert self.server is not None
        self.end_watches(b"")
        self.server.shutdown()
        self.server.server_close()
        self.server = None

    # What the tests ask

    def count(self, path: str, *, watch: bool) -> int:
        return sum(p == path and ("watch" in q) is watch for p, q in list(self.requests))

    def versions_watched(self, path: str) -> list[str]:
        return [q["resourceVersion"] for p, q in list(self.requests) if p == path and "watch" in q]

    def client(self, load: Callable[[], Configuration] | None = None) -> ApiClient:
        return ApiClient(load or (lambda: Configuration(host=f"http://127.0.0.1:{self.port}")))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_api: ApiServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        api, url = self.server_api, urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        api.requests.append((url.path, query))
        watch = "watch" in query
        refusal = api.refusals.get(f"{url.path}?watch" if watch else url.path)
        if api.token is not None and self.headers.get("authorization") != f"{api.scheme} {api.token}":
            refusal = 401, {}
        if refusal is not None:
            message = f"{url.path.rpartition('/')[2]} is forbidden" if refusal[0] == 403 else api.words
            self._send(refusal[0], {"kind": "Status", "code": refusal[0], "message": message}, refusal[1])
        elif url.path in api.bodies:
            self._send(200, api.bodies[url.path])
        elif watch:
            self._watch(url.path, int(query["resourceVersion"]))
        else:
            self._list(url.path, query)

    def _list(self, path: str, query: dict[str, str]) -> None:
        api = self.server_api
        with api.changed:
            objects = list(api.objects[path].values())
            version = api.version
        if "fieldSelector" in query:
            name = query["fieldSelector"].removeprefix("metadata.name=")
            objects = [o for o in objects if o["metadata"]["name"] == name]
        begin = int(query.get("continue", "0"))
        end = begin + int(query["limit"])
        metadata = {"resourceVersion": str(version)}
        if end < len(objects):
            metadata["continue"] = str(end)
        self._send(200, {"kind": "List", "metadata": metadata, "items": objects[begin:end] or None})

    def _send(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, path: str, version: int) -> None:
        api = self.server_api
        if version < api.compacted and not api.expired_in_stream:
            self._send(410, {"kind": "Status", "code": 410, "message": "too old resource version"})
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        generation = api.generation
        if version < api.compacted:
            status = {"kind": "Status", "code": 410, "message": "too old resource version"}
            self._chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            self._chunk(b"")
            return
        while True:
            with api.changed:
                api.changed.wait_for(
                    lambda seen=version: (  # type: ignore[misc]
                        api.generation != generation or (not api.mute and any(v > seen for v, _, _ in api.log))
                    ),
                    60,
                )
                ended, last_words = api.generation != generation, api.last_words
                due = [] if ended else [(v, p, line) for v, p, line in api.log if v > version]
            for event_version, event_path, line in due:
                version = event_version
                if event_path == path:
                    self._chunk(line)
            if ended:
                if last_words is None:
                    self._chunk(b"")
                else:
                    if last_words:
                        self._chunk(last_words)
                    self.close_connection = True
                return

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    yield server
    if server.server is not None:
        server.stop()


@pytest.fixture
def until() -> Callable[..., None]:
    def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not come to pass"
            time.sleep(0.005)

    return until


@pytest.fixture
def threads() -> Iterator[Counter[str]]:
    """Fails a test that leaves a watching thread behind."""
    yield Counter()
    deadline = time.monotonic() + 5.0
    while left := [t.name for t in threading.enumerate() if t.name.startswith(("watch-", "inventory"))]:
        assert time.monotonic() < deadline, left
        time.sleep(0.005)
