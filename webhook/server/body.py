"""Reading a request's body without trusting its sender: type, size and time are all bounded."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from webhook.server.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Receive

MAX_BODY_BYTES = 7 * 1024 * 1024
"""Two objects of 3 MiB, the API server's own limit, and the envelope around them."""
SMALL_BODY_BYTES = 32 * 1024
"""Up to here a body needs no share of the budget. A recorded review has 1 to 23 KiB."""
BUDGET_BYTES = 32 * 1024 * 1024
"""What all large bodies that are being read may hold together."""
READ_SECONDS = 10.0
"""A body comes from the API server in one go; who takes longer is not it."""


class BodyReader:
    """Reads bodies; one for all endpoints, since the budget for large ones is the process's.

    The budget keeps many slow senders of large bodies from filling the memory. Small bodies are outside it, so that
    these senders cannot keep ordinary requests out either.
    """

    def __init__(
        self, *, max_bytes: int = MAX_BODY_BYTES, budget: int = BUDGET_BYTES, read_seconds: float = READ_SECONDS
    ) -> None:
        self._max_bytes = max_bytes
        self._budget = budget
        self._read_seconds = read_seconds
        self.held = 0
        """Bytes of the budget in use."""

    async def read(self, headers: Iterable[tuple[bytes, bytes]], receive: Receive, deadline: float) -> bytes:
        """Return the whole body; `deadline` is of `time.monotonic`. Raises Fault 400, 408, 413, 415, 503, 504.

        The type and the announced length are looked at before a byte of the body is, and no more is ever buffered
        than the limit and one chunk of the server's.
        """
        self._check_headers(headers)
        granted = deadline - monotonic()
        try:
            async with asyncio.timeout(min(granted, self._read_seconds)):
                return await self._collect(receive)
        except TimeoutError:
            if granted <= self._read_seconds:
                raise late(close=True) from None
            text = f"the request body did not arrive within {self._read_seconds:g} seconds"
            raise Fault(408, text, counted="slow-body", close=True) from None

    def _check_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        content_type = encoding = b""
        for name, value in headers:
            if name == b"content-type":
                content_type = value
            elif name == b"content-encoding":
                encoding = value
            elif name == b"content-length" and int(value) > self._max_bytes:
                raise self._too_large()
        if content_type.partition(b";")[0].strip().lower() != b"application/json":
            raise Fault(415, "the content type has to be application/json", counted="content-type")
        if encoding.lower() not in (b"", b"identity"):
            raise Fault(415, "a content encoding is not supported", counted="content-type")

    async def _collect(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        size = charged = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Fault(400, "the connection was closed before the body was complete", counted="disconnected")
                chunk: bytes = message.get("body", b"")
                size += len(chunk)
                if size > self._max_bytes:
                    raise self._too_large()
                if not message.get("more_body", False):
                    return b"".join((*chunks, chunk)) if chunks else chunk
                chunks.append(chunk)
                if size > SMALL_BODY_BYTES:
                    charged = self._charge(size, charged)
        finally:
            self.held -= charged

    def _charge(self, size: int, charged: int) -> int:
        if self.held - charged + size > self._budget:
            raise Fault(503, "too many large requests at once, try again", counted="body-budget", retry_after=1)
        self.held += size - charged
        return size

    def _too_large(self) -> Fault:
        text = f"the request body is larger than {self._max_bytes} bytes"
        return Fault(413, text, counted="too-large")


def late(*, close: bool = False) -> Fault:
    """Return the fault for an answer that would come after the caller has given up; `close` where its body is not
    complete, since nothing else can follow on that connection.
    """
    return Fault(504, "the request could not be answered within its timeout", counted="deadline", close=close)
