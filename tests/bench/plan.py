"""What is measured, how much of it, and in which order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.bench import machine, startup, traffic, verdict
from tests.bench.processes import Files, client
from tests.bench.report import Report
from tests.bench.traffic import Reference

Part = Literal["verdict", "http", "memory", "start"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much: seconds of all verdicts together, seconds and rounds of each endpoint at each number of connections."""

    verdict_seconds: float = 15.0
    seconds: float = 1.0
    rounds: int = 5
    cold_rounds: int = 5
    starts: int = 5
    nodes: tuple[int, ...] = (10, 500, 5000)
    connections: tuple[int, ...] = (1, 8, 32, 128)


FULL = Scale()
QUICK = Scale(verdict_seconds=3.0, seconds=0.25, rounds=3, cold_rounds=2, starts=1)


def measure(
    scale: Scale, parts: Collection[Part], said: Callable[[str], None], *, reference: Reference | None, pin: bool
) -> Report:
    """Measure these parts. Raises ValueError on a reference that is not on this machine."""
    report = Report(machine=machine.described())
    with tempfile.TemporaryDirectory(prefix="mps-webhook-bench-") as folder:
        files = Files(Path(folder))
        if reference is not None:
            traffic.reference_target(files, reference)
        if "verdict" in parts:
            said("verdicts")
            report.verdict = verdict.measure(scale.verdict_seconds, scale.nodes)
        if {"http", "memory", "start"}.intersection(parts):
            files.write(max(scale.nodes))
        if {"memory", "start"}.intersection(parts):
            report.starts = startup.measure(files, max(scale.nodes), rounds=scale.starts, said=said)
        if "http" in parts:
            _traffic(report, files, scale, said, reference, pin)
    return report


def _traffic(
    report: Report,
    files: Files,
    scale: Scale,
    said: Callable[[str], None],
    reference: Reference | None,
    pin: bool,
) -> None:
    with ExitStack() as stack:
        said("starting the servers")
        service = stack.enter_context(files.service())
        empty = stack.enter_context(files.empty(beside=service))
        asking = stack.enter_context(client())
        report.notes.append(traffic.pin(asking, service, empty) if pin else "nothing pinned to a CPU")
        targets = traffic.own_targets(files, service, empty)
        if reference is not None:
            targets.append(traffic.reference_target(files, reference))
        report.traffic = list(
            traffic.steady(
                asking,
                targets,
                connections=scale.connections,
                rounds=scale.rounds,
                seconds=scale.seconds,
                said=said,
            )
        )
        report.cold = list(traffic.cold(asking, targets, rounds=scale.cold_rounds, said=said))
        report.notes.append(f"after all requests the service has {service.memory_mib()[0]:.1f} MiB resident")
    busiest = max(found.figures.client_busy for found in report.traffic)
    report.notes.append(f"the client was busy for at most {busiest:.0%} of a measurement")
