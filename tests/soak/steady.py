"""Minutes at 80 % of what it can answer: memory stays flat, latency stable, nothing fails."""

from __future__ import annotations

import time

from tests.bench.figures import median
from tests.soak import replica
from tests.soak.ground import LIMIT_MS, NEW_BODIES, Ground
from tests.soak.outcome import Outcome
from tests.soak.paced import Offered, offered, offering

SHARE = 0.8
"""Of what is measured right before. Where neighbours take the cores meanwhile, this may become all that is left."""
CONNECTIONS = 16
"""No more than it takes on at once in an overload, so that nothing has to be shed. Where neighbours take the cores
for a while, requests are sent late. How late says nothing of the service, so latency counts from sending."""
WINDOW = 10.0
MINUTE = 60.0
GROWN_MIB = 4.0
"""What resident memory may grow by after the first minute. Caches are full after 256 reviews and pools after a second;
the rest is the allocator's. A leak shows: at a thousand requests a second nine minutes are half a million, so that one
forgotten object of 56 bytes a request comes to 30 MiB. A run of two minutes is too short to tell."""
WORSE = 2.0
"""The last third's p99 may be so many times the first third's, each the median of windows of 10 s: a queue or a
structure that grows shows as more, a neighbour on the same cores does not last for a third of the time."""
NOISE_MS = 2.0


def run(ground: Ground) -> list[Outcome]:
    """Ask about new pods all the time, for they are what could be kept by mistake."""
    outcome = Outcome("steady")
    seconds = ground.minutes * MINUTE
    with replica.serving(ground.files) as service:
        rate = SHARE * ground.capacity(service, NEW_BODIES)
        job = ground.job(service.port, NEW_BODIES, rate=rate, connections=CONNECTIONS, seconds=seconds, window=WINDOW)
        resident: list[float] = []
        with offering(job) as process:
            began = time.monotonic()
            while process.poll() is None and (passed := time.monotonic() - began) < seconds:
                ground.said(f"{rate:,.0f} requests a second, {passed / MINUTE:.1f} of {ground.minutes:g} minutes")
                time.sleep(min(WINDOW, seconds - passed))
                resident.append(service.resident_mib())
                service.forget_log()
            found = offered(process, seconds)
    _judge(outcome, rate, resident, found, seconds)
    return [outcome]


def _judge(outcome: Outcome, rate: float, resident: list[float], found: Offered, seconds: float) -> None:
    settled = resident[min(len(resident) - 1, round(MINUTE / WINDOW) - 1)]
    grown = resident[-1] - settled
    p99s = [window.p99_ms for window in found.windows if window.accepted]
    third = max(1, len(p99s) // 3)
    first, last = median(p99s[:third]), median(p99s[-third:])
    outcome.say(f"{found.accepted:,} answered at {rate:,.0f}/s in {seconds / MINUTE:g} min, {found.shed} shed")
    outcome.say(f"{found.wrong} else, p50 {found.p50_ms:.1f} ms, p99 {median(p99s):.1f} ms at the client")
    outcome.say(f"p99 {first:.1f} ms in the first third, {last:.1f} ms in the last")
    outcome.say(f"resident {settled:.1f} MiB after a minute, {resident[-1]:.1f} at the end")
    outcome.expect(not found.wrong, f"neither 200 nor 503: {found.reasons}")
    outcome.expect(not found.shed, f"{found.shed} were shed")
    outcome.expect(found.accepted > 0.9 * rate * seconds, "fell behind the pace")
    outcome.expect(grown < GROWN_MIB, f"grown by {grown:.1f} MiB after the first minute")
    outcome.expect(last < WORSE * first + NOISE_MS, f"p99 went from {first:.1f} to {last:.1f} ms")
    outcome.expect(median(p99s) < LIMIT_MS, f"p99 not under {LIMIT_MS:g} ms")
