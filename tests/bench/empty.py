"""What the service is measured beside: an ASGI endpoint that reads the body and decides nothing, under uvicorn.

Run as a process with the directory of the serving pair as its argument. Everything below the application is as the
service has it: event loop, parser, TLS context, settings.
"""

from __future__ import annotations

import gc
import signal
import socket
import ssl
import sys
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from certs.pair import load_pair, server_context

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

BODY = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"","allowed":true}}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def app(_scope: Scope, receive: Receive, send: Send) -> None:
    """Read all, say yes."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


def main(directory: str) -> None:
    """Listen on any free port of 127.0.0.1, print it as the service does, serve until SIGTERM."""
    context = server_context(load_pair(directory))
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=60,
        ssl_context_factory=lambda _config, _default: context,
    )
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = uvicorn.Server(config)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print(f"https: https://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    print("ready", flush=True)
    gc.collect()
    gc.freeze()
    uvloop.run(server.serve([listener]))


if __name__ == "__main__":
    main(sys.argv[1])
