"""Faults of the webhook itself, as distinct from decisions.

A decision is always HTTP 200. Everything else leaves as a non-2xx answer whose body is a Kubernetes `Status`: the API
server counts it as a webhook failure, applies `failurePolicy`, and shows the message of the Status to the user.
"""

from __future__ import annotations

import json

_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    431: "BadRequest",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""Reasons of k8s.io/apimachinery/pkg/apis/meta/v1, by HTTP code."""

JSON_TYPE = (b"content-type", b"application/json")
CLOSE = (b"connection", b"close")


class Fault(Exception):  # noqa: N818 - a fault is what it is called everywhere, and what the metric counts
    """What ends a request without a decision.

    `retry_after` (seconds) belongs only to what is over in a second or two: the API server repeats the call until its
    timeout is used up, and the user then reads "context deadline exceeded" in place of `message`. `close` asks the
    client to open a new connection, which a Service may lead to another replica. `counted` names the fault in the
    metric of faults.
    """

    def __init__(
        self, code: int, message: str, *, counted: str, retry_after: int | None = None, close: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.counted = counted
        self.retry_after = retry_after
        self.close = close

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that go with the fault, content type included."""
        headers = [JSON_TYPE]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % self.retry_after))
        if self.close:
            headers.append(CLOSE)
        return headers

    def body(self) -> bytes:
        """Return the fault as a Kubernetes Status."""
        return status_body(self.code, self.message)


def status_body(code: int, message: str) -> bytes:
    """Return a Kubernetes `Status` of a failure as JSON."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"mps-webhook: {message}",
        "reason": _REASONS.get(code, "Unknown"),
        "code": code,
    }
    return json.dumps(status).encode()
