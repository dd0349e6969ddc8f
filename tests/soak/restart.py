"""A rolling restart under load, as a Deployment does it: a new replica is ready before an old one has to go."""

from __future__ import annotations

import time
from contextlib import ExitStack

from tests.e2e.harness.service import Backend, Service
from tests.soak.ground import BODIES, LIMIT_MS, Ground
from tests.soak.outcome import Outcome
from tests.soak.paced import offered, offering
from tests.soak.replica import Replica

RATE = 400.0
"""Requests a second. The forwarder is no load balancer: it is to carry them, and not to be what is measured."""
CONNECTIONS = 16
SECONDS = 50.0
BEFORE_SECONDS = 2.0
READY_SECONDS = 10.0
DRAIN_SECONDS = 15.0
"""As by default; then the process has a few seconds to end in."""
END_SECONDS = 10.0


def run(ground: Ground) -> list[Outcome]:
    """Exchange both of two replicas, one after the other, behind the forwarder that stands for a Service."""
    outcome = Outcome("restart")
    with ExitStack() as stack:
        service = Service()
        stack.callback(service.stop)
        replicas = [_replica(ground, stack, number) for number in range(2)]
        backends = [service.add(one.port, one.health_port) for one in replicas]
        _wait_ready(backends)
        job = ground.job(service.port, BODIES, rate=RATE, connections=CONNECTIONS, seconds=SECONDS)
        with offering(job) as process:
            time.sleep(BEFORE_SECONDS)
            took = []
            for number, (old, backend) in enumerate(zip(replicas, backends, strict=True)):
                ground.said(f"restarting replica {number + 1} of 2 under load")
                new = _replica(ground, stack, number + 2)
                _wait_ready([service.add(new.port, new.health_port)])
                status, seconds = _end(old)
                took.append(seconds)
                outcome.expect(status == 0, f"replica {number + 1} exited with {status}")
                outcome.expect(backend.accepted > 0, f"replica {number + 1} never had a connection")
                outcome.expect(not backend.ready, f"replica {number + 1} still got connections at its end")
                service.remove(backend)
            ground.said("both replicas are new, the load goes on")
            outcome.expect(process.poll() is None, "the load ended before the restarts did")
            found = offered(process, SECONDS)
        lost = service.lost
    outcome.say(f"{found.sent:,} requests at {RATE:g}/s on {CONNECTIONS} connections, {found.wrong} lost")
    outcome.say(f"{found.replaced} connections led elsewhere, {lost} of them in vain")
    outcome.say(f"replicas drained and ended in {' and '.join(f'{seconds:.1f} s' for seconds in took)}")
    outcome.say(f"p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms through the forwarder")
    outcome.expect(not found.wrong, f"lost: {found.reasons}")
    outcome.expect(not found.shed, f"{found.shed} were shed")
    outcome.expect(not lost, f"{lost} connections found no replica")
    outcome.expect(found.replaced >= CONNECTIONS, "no connection was led elsewhere: what was tested?")
    outcome.expect(found.p99_ms < LIMIT_MS, f"p99 not under {LIMIT_MS:g} ms")
    outcome.expect(max(took) < DRAIN_SECONDS + END_SECONDS, f"a replica took {max(took):.0f} s to end")
    return [outcome]


def _replica(ground: Ground, stack: ExitStack, number: int) -> Replica:
    replica = Replica(ground.files, f"replica-{number}")
    stack.callback(replica.stop)
    replica.start()
    return replica


def _end(replica: Replica) -> tuple[int, float]:
    """Send SIGTERM; the exit status, and the seconds until then."""
    began = time.monotonic()
    status = replica.process.terminate(DRAIN_SECONDS + 2 * END_SECONDS)
    return status, time.monotonic() - began


def _wait_ready(backends: list[Backend]) -> None:
    latest = time.monotonic() + READY_SECONDS
    while not all(backend.ready for backend in backends):
        if time.monotonic() > latest:
            raise RuntimeError(f"the forwarder finds no readiness within {READY_SECONDS:g} s")
        time.sleep(0.05)
