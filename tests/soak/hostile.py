"""Slow, endless, half-open and idle clients beside ordinary ones."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from tests.bench.load import Cold
from tests.e2e.harness.metrics import total
from tests.soak import replica
from tests.soak.ground import BODIES, LIMIT_MS, Ground
from tests.soak.outcome import Outcome
from tests.soak.paced import Offered, offered, offering
from tests.soak.strangers import Strangers

WAVE = (
    (1000, Strangers.idle),
    (200, Strangers.silent),
    (200, Strangers.half_handshake),
    (50, Strangers.slow_headers),
    (50, Strangers.slow_body),
    (400, Strangers.middling_body),
    (20, Strangers.large_body),
    (4, Strangers.flood),
)
SHARE = 0.25
"""Of what it can answer, asked by others meanwhile: there is room for them, so that what they wait for is the
strangers."""
CONNECTIONS = 8
NEW = 20
"""Ordinary clients that connect in the midst of it."""
BEFORE_SECONDS = 3.0
SECONDS = 58.0
TIME_LIMIT_SECONDS = 10.0
SLACK_SECONDS = 3.0
"""Timers of a busy event loop, and the pace at which strangers look."""
TRIM_SECONDS = 33.0
"""So often the service gives memory back, and a little more."""
MEMORY_MIB = 512.0
"""The limit of the container as shipped."""
KEPT_MIB = 16.0
"""What may stay: the holes between what lives on are given back by whole pages only, and threads, caches and pools that
an idle process has not needed yet stay for good. Without giving back it was 190 MiB."""
_ERROR = re.compile(r'"level": ?"error"')


class _Memory:
    """The highest resident memory while the block lasts, looked at ten times a second."""

    def __init__(self, service: replica.Replica) -> None:
        self._service = service
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory")
        self.most = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ending.wait(0.1):
            self.most = max(self.most, self._service.resident_mib())


def run(ground: Ground) -> list[Outcome]:
    """All strangers at once, while others are answered at a quarter of what is possible."""
    outcome = Outcome("hostile")
    with replica.serving(ground.files) as service:
        rate = SHARE * ground.capacity(service)
        job = ground.job(service.port, BODIES, rate=rate, connections=CONNECTIONS, seconds=SECONDS)
        with offering(job) as process, _Memory(service) as memory:
            time.sleep(BEFORE_SECONDS)
            before, descriptors = service.resident_mib(), _descriptors(service)
            ground.said("hostile clients beside others")
            newcomers, strangers = _wave(ground, service)
            left = _descriptors(service) - descriptors
            ground.said("hostile clients are gone, the others go on")
            time.sleep(TRIM_SECONDS)
            after = service.resident_mib()
            found = offered(process, SECONDS)
        errors = len(_ERROR.findall(service.process.output))
    _judge_strangers(outcome, newcomers, strangers)
    _judge_others(outcome, rate, found)
    outcome.say(f"resident {before:.0f} MiB before, {memory.most:.0f} at most, {after:.0f} after")
    outcome.expect(memory.most < MEMORY_MIB, f"more than {MEMORY_MIB:g} MiB resident")
    outcome.expect(after - before < KEPT_MIB, f"{after - before:.0f} MiB did not come back")
    outcome.expect(left <= CONNECTIONS, f"{left} file descriptors did not come back")
    outcome.expect(not errors, f"{errors} errors in the log")
    return [outcome]


def _wave(ground: Ground, service: replica.Replica) -> tuple[Cold, Strangers]:
    """Let all of them come, have ordinary clients connect while they are there, and wait until the last is ended."""
    strangers = Strangers(service.port, ground.ca)
    try:
        for count, kind in WAVE:
            for _ in range(count):
                kind(strangers)
        latest = time.monotonic() + TIME_LIMIT_SECONDS + SLACK_SECONDS
        with ThreadPoolExecutor(1, "newcomers") as pool:
            job = ground.closed(service, BODIES, connections=NEW, seconds=0.0, kind="cold")
            newcomers = pool.submit(ground.client.cold, job)
            strangers.drive(lambda: time.monotonic() > latest)
            return newcomers.result(), strangers
    finally:
        strangers.close()


def _judge_strangers(outcome: Outcome, newcomers: Cold, strangers: Strangers) -> None:
    for kind, ages in strangers.ages().items():
        outcome.say(f"{len(ages)} × {kind} ended after {ages[0]:.1f} to {ages[-1]:.1f} s")
        outcome.expect(ages[-1] < TIME_LIMIT_SECONDS + SLACK_SECONDS, f"{kind} ended after {ages[-1]:.0f} s only")
    for kind, count in strangers.left().items():
        outcome.expect(False, f"{count} × {kind} not ended after {TIME_LIMIT_SECONDS + SLACK_SECONDS:g} s")
    p50, p95 = newcomers.answer_p50_ms, newcomers.answer_p95_ms
    outcome.say(f"{newcomers.requests} newcomers connected and were answered, p50 {p50:.0f} ms, p95 {p95:.0f} ms")
    outcome.expect(p50 < LIMIT_MS, f"newcomers wait {p50:.0f} ms")


def _judge_others(outcome: Outcome, rate: float, found: Offered) -> None:
    outcome.say(f"others: {found.accepted:,} at {rate:,.0f}/s, p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms")
    outcome.expect(not found.wrong, f"others got neither 200 nor 503: {found.reasons}")
    outcome.expect(not found.shed, f"{found.shed} of the others were shed")
    outcome.expect(found.p99_ms < LIMIT_MS, f"p99 of the others not under {LIMIT_MS:g} ms")
    outcome.expect(found.accepted > 0.9 * rate * SECONDS, "others could not send at their pace")


def _descriptors(service: replica.Replica) -> int:
    return int(total(service.metrics(), "process_open_fds"))
