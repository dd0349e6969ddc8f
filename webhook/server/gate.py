"""What stands before the endpoints: whether a request is taken on is said before anything is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from webhook.server.faults import CLOSE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.server.faults import Fault
    from webhook.server.lifecycle import Lifecycle
    from webhook.server.metrics import Metrics


class Gate:
    """Refuses what there is no place for, with bytes that were made once.

    Under overload a refusal is most of what there is to do, and what is taken on waits for it. Through the application
    it costs as much as half a review (measured).
    """

    def __init__(self, lifecycle: Lifecycle, metrics: Metrics, endpoints: Iterable[str]) -> None:
        self._metrics = metrics
        self._endpoints = {endpoint.encode(): endpoint for endpoint in endpoints}
        self.lifecycle = lifecycle
        fault = lifecycle.one_too_many()
        self._fault = fault
        self._refusal = _response(fault)
        self._last = _response(fault, CLOSE)

    def refusal(self, method: bytes, url: bytes, *, close: bool) -> bytes | None:
        """Return the whole response to a request that is refused, None where it is to be taken on.

        Only what an endpoint would answer is refused. `close`: the response says that the connection ends.
        """
        if not self.lifecycle.full() or method != b"POST":
            return None
        endpoint = self._endpoints.get(url.partition(b"?")[0])
        if endpoint is None:
            return None
        self._metrics.request(endpoint, "", self._fault.code, 0.0)
        self._metrics.fault(endpoint, self._fault.counted)
        return self._last if close else self._refusal


def _response(fault: Fault, *more: tuple[bytes, bytes]) -> bytes:
    body = fault.body()
    headers = (*fault.headers(), *more, (b"content-length", b"%d" % len(body)))
    return STATUS_LINE[fault.code] + b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n" + body
