"""Requests over TLS on loopback: ours, an empty endpoint and a reference, in turns, so that noise hits them alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.bench.figures import counted
from tests.bench.load import Cold, Job, Steady
from tests.bench.processes import Client, Files, Server

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HANDSHAKES = 20
"""New connections of one target in each round of the cold ones."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Another webhook on this machine; without the file of a CA its certificate is not checked."""

    url: str
    ca: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint to be measured; `pids` are the processes whose CPU time is counted as its own."""

    name: str
    host: str
    port: int
    path: str
    bodies: str
    ca: str
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement of one target; `round` counts from 0, and what has the same number ran one after the other."""

    target: str
    connections: int
    round: int
    figures: Steady


@dataclass(frozen=True, slots=True)
class ColdRound:
    """The same on new connections."""

    target: str
    round: int
    figures: Cold


def own_targets(files: Files, service: Server, empty: Server) -> list[Target]:
    """Both of our endpoints for pods, asked about pods made alike and about new ones, and the empty endpoint."""
    mutate, new, validate = (str(files.folder / f"{name}.json") for name in ("mutate", "mutate-new", "validate"))
    return [
        Target("/mutate", "127.0.0.1", service.port, "/mutate", mutate, service.ca, service.pids),
        Target("/mutate, new pods", "127.0.0.1", service.port, "/mutate", new, service.ca, service.pids),
        Target("/validate", "127.0.0.1", service.port, "/validate", validate, service.ca, service.pids),
        Target("empty", "127.0.0.1", empty.port, "/", mutate, empty.ca, empty.pids),
    ]


def reference_target(files: Files, reference: Reference) -> Target:
    """Somebody else's webhook. Raises ValueError on a URL that is not of this machine or not HTTPS."""
    parts = urlsplit(reference.url)
    if parts.scheme != "https" or parts.hostname not in LOOPBACK:
        raise ValueError(f"{reference.url}: a reference is https:// and on this machine ({', '.join(LOOPBACK)})")
    return Target(
        "reference",
        parts.hostname,
        parts.port or 443,
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        str(files.folder / "mutate.json"),
        reference.ca,
        () if reference.pid is None else (reference.pid,),
    )


def steady(
    client: Client,
    targets: list[Target],
    *,
    connections: tuple[int, ...],
    rounds: int,
    seconds: float,
    said: Callable[[str], None],
) -> Iterator[Round]:
    """Every target in turn, round by round; every other round backwards, so that none always comes first."""
    for count in connections:
        for number in range(rounds):
            for target in targets[:: -1 if number % 2 else 1]:
                said(f"{target.name}, {counted(count)}, round {number + 1} of {rounds}")
                job = _job(target, kind="steady", connections=count, seconds=seconds)
                yield Round(target.name, count, number, client.steady(job))


def cold(client: Client, targets: list[Target], *, rounds: int, said: Callable[[str], None]) -> Iterator[ColdRound]:
    """New connections, target by target, round by round. To one port they are all alike, so it is asked once."""
    ports = {target.port: target for target in reversed(targets)}
    for number in range(rounds):
        for target in targets:
            if target is ports[target.port]:
                said(f"new connections to {target.name}, round {number + 1} of {rounds}")
                yield ColdRound(target.name, number, client.cold(_job(target, kind="cold", connections=HANDSHAKES)))


def pin(client: Client, *servers: Server) -> str:
    """Give the client a CPU of its own and the servers another, where there are two; say what was done."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        return "not pinned, there is one CPU"
    os.sched_setaffinity(client.pid, {available[0]})
    for server in servers:
        server.pin({available[1]})
    return f"client pinned to CPU {available[0]}, our servers to CPU {available[1]}, a reference free"


def _job(target: Target, **more: Any) -> Job:
    return Job(
        host=target.host,
        port=target.port,
        path=target.path,
        bodies=target.bodies,
        ca=target.ca,
        pids=target.pids,
        **{"seconds": 0.0, **more},
    )
