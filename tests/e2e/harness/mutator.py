"""Another mutating webhook, as clusters have many: a small HTTPS server in this process and its configuration."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal

from certs.issue import self_signed, write_files
from tests.e2e.harness.api import Object, eventually
from tests.e2e.harness.objects import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.harness.api import Api

Patch = list[Object]
LABEL = "another-webhook"


@contextmanager
def another_webhook(
    api: Api, folder: Path, name: str, patch: Callable[[Object], Patch], reinvocation: Literal["IfNeeded", "Never"]
) -> Iterator[Object]:
    """Register a webhook for pods with the label `another-webhook: <name>`, and give that label.

    `patch` gets the pod and returns the operations. Configurations are called in the order of their names.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operations = patch(review["request"]["object"])
            response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": True}
            if operations:
                response |= {
                    "patchType": "JSONPatch",
                    "patch": base64.b64encode(json.dumps(operations).encode()).decode(),
                }
            body = json.dumps({**{k: review[k] for k in ("apiVersion", "kind")}, "response": response}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    write_files(self_signed(("127.0.0.1",)), folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name=name, daemon=True)
    thread.start()
    labels = {LABEL: name}
    configuration: Object = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{name}.example.com",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{server.server_port}/",
                    "caBundle": base64.b64encode((folder / "ca.crt").read_bytes()).decode(),
                },
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "objectSelector": {"matchLabels": labels},
                "reinvocationPolicy": reinvocation,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    try:
        api.create(configuration)
        canary = plain()
        canary["metadata"]["labels"] = labels
        eventually(lambda: patch(canary) and _patched(api, canary), f"{name} is called")
        yield labels
    finally:
        api.delete("MutatingWebhookConfiguration", name)
        server.shutdown()
        server.server_close()
        thread.join(10.0)


def _patched(api: Api, canary: Object) -> bool:
    """Whether the webhook has changed a pod that is only tried."""
    made = api.create(canary, dry_run=True)
    return bool(made["metadata"].get("annotations", {}).get("touched-by-another-webhook"))
