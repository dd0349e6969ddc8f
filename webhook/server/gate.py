"""What stands before the endpoints: whether a request is taken on is said before anything is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.server.faults import CLOSE

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        self._fault = fault.counted
        self._refusal = _response(fault.code, fault.headers(), fault.body())
        self._last = _response(fault.code, [*fault.headers(), CLOSE], fault.body())

    def refusal(self, method: bytes, url: bytes, *, close: bool) -> bytes | None:
        """Return the whole response to a request that is refused, None where it is to be taken on.

        Only what an endpoint would answer is refused. `close`: the response says that the connection ends.
        """
        if not self.lifecycle.full() or method != b"POST":
            return None
        endpoint = self._endpoints.get(url.partition(b"?")[0])
        if endpoint is None:
            return None
        self._metrics.request(endpoint, "", 503, 0.0)
        self._metrics.fault(endpoint, self._fault)
        return self._last if close else self._refusal


def _response(code: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d Service Unavailable" % code]
    lines += [b"%s: %s" % header for header in (*headers, (b"content-length", b"%d" % len(body)))]
    return b"\r\n".join((*lines, b"", body))
