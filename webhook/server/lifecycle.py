"""Where the process stands between start and exit, and how many requests it takes on at once."""

from __future__ import annotations

from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING

from webhook.server.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Callable


PATIENCE_SECONDS = 0.012
"""How long those before it may keep a request waiting that is taken on. In an overload nearly as long passes before it
is read, and again until its answer is written."""
FEW = 16
"""So many requests are no crowd, however long each takes."""
_WEIGHT = 1 / 32
"""Of the latest answer in the average: a single slow one is no reason to refuse others."""


class Phase(Enum):
    """Serving; draining (serving, but every reply says `Connection: close`); closing (503 for what still comes)."""

    SERVING = "serving"
    DRAINING = "draining"
    CLOSING = "closing"


class Lifecycle:
    """The phase of the process and its in-flight limit, shared by every endpoint.

    The drain has two phases because endpoints are told of a pod's end by the same event that sends SIGTERM: for some
    seconds the API server still comes here, and has to be served.

    A place in flight is held from the moment the body is complete: who sends slowly, or never finishes, holds none.
    """

    def __init__(self, max_in_flight: int = 64, clock: Callable[[], float] = monotonic) -> None:
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._answered: float | None = None
        self._pace = 0.0
        self.phase = Phase.SERVING
        self.in_flight = 0
        """Requests whose body is complete and whose answer is not."""

    @property
    def leaving(self) -> bool:
        """Whether replies ask the client to look for another connection."""
        return self.phase is not Phase.SERVING

    def full(self) -> bool:
        """Whether there is no place for one more: all are taken, or those before it would keep it waiting.

        A number alone does not do. A burst of cheap requests is answered in a moment and is to be taken on whole; of
        expensive ones, or while there is much to refuse besides, a quarter of it may be too many.
        """
        waiting = self.in_flight
        return waiting >= self._max_in_flight or (waiting >= FEW and waiting * self._pace > PATIENCE_SECONDS)

    def enter(self) -> None:
        """Take a place. More may be taken than there are, so `check` is to be asked before the work begins."""
        self.in_flight += 1

    def leave(self, places: int = 1) -> None:
        """Give places back, and learn from one answer to the next how long the ones behind have to wait."""
        now = self._clock()
        if self._answered is not None:
            self._pace += (min(now - self._answered, PATIENCE_SECONDS) - self._pace) * _WEIGHT
        self.in_flight -= places
        self._answered = now if self.in_flight else None

    def check(self) -> None:
        """Look whether a request that has taken its place may be worked on. Raises Fault 503 with `Retry-After: 1`.

        Most that are too many are refused before they are read whole. What is checked here came in pieces, and more of
        them were completed at once than anybody could foresee.
        """
        if self.phase is Phase.CLOSING:
            raise Fault(503, "this replica is shutting down", counted="closing", retry_after=1, close=True)
        if self.in_flight > self._max_in_flight:
            raise self.one_too_many()

    def one_too_many(self) -> Fault:
        """Return the fault for a request that finds no place."""
        return Fault(503, "too many requests at once, try again", counted="in-flight", retry_after=1)

    def drain(self) -> None:
        """Fail readiness and send clients elsewhere, and go on serving."""
        if self.phase is Phase.SERVING:
            self.phase = Phase.DRAINING

    def close(self) -> None:
        """Take no more requests."""
        self.phase = Phase.CLOSING
