"""What a server costs before its first request: memory, and time until it is ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.processes import Files


@dataclass(frozen=True, slots=True)
class Start:
    """One start: MiB resident once ready and at the highest point so far, seconds from process start to ready."""

    nodes: int
    round: int
    rss_mib: float
    peak_mib: float
    ready_seconds: float


def measure(files: Files, nodes: int, *, rounds: int, said: Callable[[str], None]) -> list[Start]:
    """Start the service with no node and with `nodes`, in turns."""
    found = []
    for number in range(rounds):
        for count, name in ((0, "no-nodes.json"), (nodes, "nodes.json")):
            said(f"start with {count:,} nodes, round {number + 1} of {rounds}")
            with files.service(name) as server:
                found.append(Start(count, number, *server.memory_mib(), server.ready_seconds))
    return found
