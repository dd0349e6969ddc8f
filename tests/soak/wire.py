"""A review as the API server sends it, as bytes on the wire."""

from __future__ import annotations

TIMEOUT = "5s"
"""How long the API server waits, with the webhook configuration as shipped."""


def head(port: int, *more: str, timeout: str = TIMEOUT) -> bytes:
    """The request line and the headers, `more` of them at the end; without the empty line that completes them."""
    lines = [
        f"POST /mutate?timeout={timeout} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "User-Agent: kube-apiserver-admission",
        "Accept: application/json, */*",
        "Content-Type: application/json",
        "Accept-Encoding: gzip",
        *more,
    ]
    return "".join(f"{line}\r\n" for line in lines).encode()


def request(port: int, body: bytes) -> bytes:
    """A whole request."""
    return head(port, f"Content-Length: {len(body)}") + b"\r\n" + body
