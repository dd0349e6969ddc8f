"""What every scenario stands on: the files, and what one replica can answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.figures import median
from tests.bench.load import Job as Closed
from tests.bench.load import Steady
from tests.bench.processes import Client, Files
from tests.soak.paced import Job
from tests.soak.replica import Replica

LIMIT_MS = 50.0
"""What the slowest hundredth of the accepted may take."""
CLOSED = 16
"""Connections of the closed loop: enough to keep a replica busy, and too few for it to refuse anything; in an overload
it takes on a quarter of 64 at once."""
ROUNDS = 5
BODIES = "mutate"
"""Pods made alike, as those of a Deployment are."""
NEW_BODIES = "mutate-new"
"""More kinds of pods than the service remembers verdicts."""


@dataclass(frozen=True, slots=True)
class Ground:
    """`said` is told what is going on."""

    files: Files
    client: Client
    minutes: float
    said: Callable[[str], None]

    @property
    def ca(self) -> str:
        return str(self.files.folder / "tls" / "ca.crt")

    def bodies(self, name: str) -> str:
        return str(self.files.folder / f"{name}.json")

    def closed(
        self, replica: Replica, bodies: str, *, connections: int, seconds: float, kind: str = "steady"
    ) -> Closed:
        """A job for the benchmark's client, which sends the next request once the last one is answered."""
        return Closed(kind, "127.0.0.1", replica.port, "/mutate", self.bodies(bodies), self.ca, connections, seconds)

    def rounds(self, replica: Replica, bodies: str, *, connections: int, seconds: float) -> list[Steady]:
        """Some rounds of one."""
        job = self.closed(replica, bodies, connections=connections, seconds=seconds)
        return [self.client.steady(job) for _ in range(ROUNDS)]

    def capacity(self, replica: Replica, bodies: str = BODIES) -> float:
        """Requests a second that a replica answers when it is kept busy, the middle one of some rounds."""
        self.said("measuring what it can answer")
        found = self.rounds(replica, bodies, connections=CLOSED, seconds=1.0)
        return median([one.per_second for one in found])

    def job(self, port: int, bodies: str, *, rate: float, connections: int, seconds: float, window: float = 1.0) -> Job:
        """A job for the client that keeps its pace."""
        return Job(port, self.ca, self.bodies(bodies), connections, rate, seconds, window)
