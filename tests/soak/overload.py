"""Twice as many requests as it can answer, from clients that do not wait as they are told.

The slowest hundredth of what is accepted is looked at from both sides, and has to be quick on both. The client's is the
fair one: an API server waits as well while its request lies in a socket and the event loop is busy, and in an overload
most of the queue is there. It says so only where the client has time to spare, so how busy that was is checked; and
where neighbours take the cores it tells of them, so for how long the service had none is part of the line. The
service's own histogram begins when a request's headers have been read: it is blind to that queue, and to neighbours for
the most part.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.bench.figures import median
from tests.soak import histogram, replica
from tests.soak.ground import BODIES, LIMIT_MS, NEW_BODIES, Ground
from tests.soak.outcome import Outcome
from tests.soak.paced import Offered, offer

CONNECTIONS = 256
"""Four times as many as it takes on at once."""
SECONDS = 5.0
ROUNDS = 3
TWICE = 2.0
MAX_BUSY = 0.8
RECOVERY_SECONDS = 1.0
RECOVERED = 2.0
"""The median at one connection may be so many times what it was before. It is one or two milliseconds either way; what
is to be seen is a queue, or a pause of the collector, that outlives the overload."""


@dataclass(frozen=True, slots=True)
class _Round:
    """`waited`: seconds in which the service could have run and had no core."""

    offered: Offered
    histogram: histogram.Histogram
    waited: float

    @property
    def server_ms(self) -> float:
        return self.histogram.slowest_but(self.offered.accepted / 100) * 1000


def run(ground: Ground) -> list[Outcome]:
    """Pods that are alike, then ones that are all different, which it answers less of."""
    return [_overload(ground, BODIES, "alike pods"), _overload(ground, NEW_BODIES, "new pods")]


def _overload(ground: Ground, bodies: str, pods: str) -> Outcome:
    outcome = Outcome(f"overload, {pods}")
    with replica.serving(ground.files) as service:
        capacity = ground.capacity(service, bodies)
        before = _at_one(ground, service, bodies)
        job = ground.job(service.port, bodies, rate=TWICE * capacity, connections=CONNECTIONS, seconds=SECONDS)
        rounds, after = [], []
        for number in range(ROUNDS):
            ground.said(f"overload of {pods}, round {number + 1} of {ROUNDS}")
            earlier = histogram.of(service.metrics())
            waited = service.waited_seconds()
            offered = offer(job)
            waited = service.waited_seconds() - waited
            time.sleep(max(0.0, offered.ended + RECOVERY_SECONDS - time.monotonic()))
            after.append(_at_one(ground, service, bodies))
            rounds.append(_Round(offered, histogram.of(service.metrics()) - earlier, waited))
    _judge(outcome, capacity, rounds, before, after)
    return outcome


def _at_one(ground: Ground, service: replica.Replica, bodies: str) -> float:
    """Milliseconds of a request at one connection: the median of some rounds' medians."""
    return median([one.p50_ms for one in ground.rounds(service, bodies, connections=1, seconds=0.2)])


def _judge(outcome: Outcome, capacity: float, rounds: list[_Round], before: float, after: list[float]) -> None:
    offered = [one.offered for one in rounds]
    sent, accepted, shed, wrong = (
        sum(getattr(one, name) for one in offered) for name in ("sent", "accepted", "shed", "wrong")
    )
    seconds = sum(one.seconds for one in offered)
    client_ms, server_ms = median([one.p99_ms for one in offered]), median([one.server_ms for one in rounds])
    p50 = median([one.p50_ms for one in offered])
    busy, recovered = max(one.busy for one in offered), median(after)
    outcome.say(f"{capacity:,.0f}/s can be answered, {sent / seconds:,.0f}/s sent on {CONNECTIONS} connections")
    outcome.say(f"{accepted / seconds:,.0f}/s accepted, {shed / seconds:,.0f}/s shed, {wrong} else")
    outcome.say(f"of the accepted p50 {p50:.0f} ms, p99 {client_ms:.0f} ms at the client (busy {busy:.0%})")
    outcome.say(f"p99 <= {server_ms:g} ms at the server")
    outcome.say(f"the service waited for a core {sum(one.waited for one in rounds) / seconds:.0%} of the time")
    outcome.say(f"at 1 connection p50 {before:.2f} ms before, {recovered:.2f} ms a second after")
    outcome.expect(shed > 0, "nothing was shed")
    outcome.expect(accepted > 0, "nothing was accepted")
    outcome.expect(not wrong, f"neither 200 nor 503 with Retry-After: 1: {[one.reasons for one in offered]}")
    outcome.expect(client_ms < LIMIT_MS, f"p99 at the client not under {LIMIT_MS:g} ms")
    outcome.expect(server_ms <= LIMIT_MS, f"p99 at the server over {LIMIT_MS:g} ms")
    outcome.expect(busy < MAX_BUSY, "the client was too busy to tell")
    outcome.expect(recovered < RECOVERED * before + 1.0, "not recovered within a second")
