"""Where the process stands between start and exit, and how many requests it takes on at once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING

from webhook.server.faults import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Phase(Enum):
    """Serving; draining (serving, but every reply says `Connection: close`); closing (503 for what still comes)."""

    SERVING = "serving"
    DRAINING = "draining"
    CLOSING = "closing"


class Lifecycle:
    """The phase of the process and its in-flight limit, shared by every endpoint.

    The drain has two phases because endpoints are told of a pod's end by the same event that sends SIGTERM: for some
    seconds the API server still comes here, and has to be served.
    """

    def __init__(self, max_in_flight: int = 64) -> None:
        self._max_in_flight = max_in_flight
        self.phase = Phase.SERVING
        self.in_flight = 0
        """Requests whose body is complete and whose answer is not."""

    @property
    def leaving(self) -> bool:
        """Whether replies ask the client to look for another connection."""
        return self.phase is not Phase.SERVING

    def drain(self) -> None:
        """Fail readiness and send clients elsewhere, and go on serving."""
        if self.phase is Phase.SERVING:
            self.phase = Phase.DRAINING

    def close(self) -> None:
        """Take no more requests."""
        self.phase = Phase.CLOSING

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold one of the places in flight. Raises Fault 503 with `Retry-After: 1` where none is left, or at the end.

        A place is held from the moment the body is complete: who sends slowly, or never finishes, holds none. The
        event loop is given one turn in between, for all that has arrived meanwhile is to be counted before the first
        of it is worked on; without that the work, which never waits, would be counted one by one and the limit would
        see no crowd.
        """
        if self.phase is Phase.CLOSING:
            raise Fault(503, "this replica is shutting down", counted="closing", retry_after=1, close=True)
        if self.in_flight >= self._max_in_flight:
            text = f"more than {self._max_in_flight} requests at once, try again"
            raise Fault(503, text, counted="in-flight", retry_after=1)
        self.in_flight += 1
        try:
            await asyncio.sleep(0)
            yield
        finally:
            self.in_flight -= 1
