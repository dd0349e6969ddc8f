"""The loop around a controller: every few seconds hold the Lease, reconcile if it is held, look if not."""

from __future__ import annotations

import logging
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from certs.cluster import ClusterError
from certs.rotation import Wait

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from certs.controller import Controller
    from certs.lease import Leadership
    from certs.status import Status

log = logging.getLogger(__name__)

POLL = timedelta(seconds=5)
"""Time between two rounds: how long a caBundle that somebody has overwritten stays wrong. Five small reads each."""

MAX_BACKOFF = timedelta(seconds=30)


def now_utc() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def run(
    controller: Controller,
    leadership: Leadership,
    status: Status,
    stop: threading.Event,
    *,
    poll: timedelta = POLL,
    clock: Callable[[], datetime] = now_utc,
) -> None:
    """Go round until `stop` is set, then give the Lease back.

    Rounds that fail are logged as one line and tried again, later and later up to half a minute; nothing that an API
    server can answer ends the loop.
    """
    failures = 0
    waiting = ""
    while not stop.is_set():
        try:
            pause, wait = _round(controller, leadership, status, poll, clock)
            failures = 0
            if wait.reason != waiting:
                log.info("nothing to do until %s: %s", wait.until.strftime("%Y-%m-%dT%H:%M:%SZ"), wait.reason)
                waiting = wait.reason
        except ClusterError as error:
            failures += 1
            status.failed(leading=leadership.leading)
            log.warning("round failed: %s", error)
            pause = _backoff(failures, poll)
        stop.wait(pause.total_seconds())
    try:
        leadership.release(clock())
    except ClusterError as error:
        log.warning("the Lease could not be given back: %s", error)


def _round(
    controller: Controller,
    leadership: Leadership,
    status: Status,
    poll: timedelta,
    clock: Callable[[], datetime],
) -> tuple[timedelta, Wait]:
    if not leadership.hold(clock()):
        status.looked(controller.look(), leading=False)
        return poll, Wait(clock() + poll, "another process holds the Lease")
    view, wait = controller.reconcile()
    status.looked(view, leading=True)
    until = max(wait.until - clock(), timedelta(seconds=0.05))
    return min(poll, until), wait


def _backoff(failures: int, poll: timedelta) -> timedelta:
    longest = min(poll.total_seconds() * 2.0 ** min(failures - 1, 10), max(MAX_BACKOFF, poll).total_seconds())
    return timedelta(seconds=longest * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, keeps no secret
