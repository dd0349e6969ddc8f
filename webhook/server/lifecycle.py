"""Where the process stands between start and exit, and how many requests it takes on at once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING

from webhook.server.faults import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


BURST_SECONDS = 0.1
"""A crowd that lasts longer is no burst, and one this long ago is over."""
CROWD_PART = 4
"""The part of the places that is left in an overload, and from which on there is a crowd."""


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

    def __init__(self, max_in_flight: int = 64, clock: Callable[[], float] = monotonic) -> None:
        self._max_in_flight = max_in_flight
        self._crowd = max(1, max_in_flight // CROWD_PART)
        self._clock = clock
        self._crowded_since = self._crowded_last = -BURST_SECONDS
        self.phase = Phase.SERVING
        self.in_flight = 0
        """Requests whose body is complete and whose answer is not."""

    @property
    def leaving(self) -> bool:
        """Whether replies ask the client to look for another connection."""
        return self.phase is not Phase.SERVING

    def full(self) -> bool:
        """Whether no place is left for one more.

        A burst may fill every place: all of it is answered in a moment. A crowd that lasts is an overload, in which
        whoever is taken on waits for everybody else's turn: then a part of the places has to do, so that those in them
        are answered in time.
        """
        if self.in_flight < self._crowd:
            return False
        now = self._clock()
        if now - self._crowded_last > BURST_SECONDS:
            self._crowded_since = now
        self._crowded_last = now
        return self.in_flight >= (self._max_in_flight if now - self._crowded_since < BURST_SECONDS else self._crowd)

    def one_too_many(self) -> Fault:
        """Return the fault for a request that finds no place."""
        text = f"more than {self._max_in_flight} requests at once, try again"
        return Fault(503, text, counted="in-flight", retry_after=1)

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
        if self.full():
            raise self.one_too_many()
        self.in_flight += 1
        try:
            await asyncio.sleep(0)
            yield
        finally:
            self.in_flight -= 1
