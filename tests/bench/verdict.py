"""What a decision costs, by nodes and profiles.

An inventory remembers what was decided against it, so two costs are told apart: a pod decided anew, by an inventory
that has seen none, and the same pod again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, perf_counter_ns
from typing import Any

from tests.bench import fleet, pods
from tests.bench.figures import percentile
from webhook.policy import Inventory, judge_pod

BLOCK = 20
"""Runs of one case in a row; then it is the next one's turn, so that a noisy second hits all of them."""
MAX_BLOCKS = 500
PODS = {"pinned": pods.pinned, "free": pods.free}


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of `judge_pod` with one fleet; `profiles` are those that the nodes really have."""

    pod: str
    again: bool
    profiles: int
    nodes: int
    runs: int
    median_us: float
    p95_us: float


@dataclass(slots=True)
class _Case:
    pod: str
    again: bool
    nodes: int
    body: dict[str, Any]
    inventory: Inventory
    took: list[int] = field(default_factory=list)

    def block(self) -> None:
        body, inventory, took = self.body, self.inventory, self.took
        for _ in range(BLOCK):
            asked = inventory if self.again else Inventory(inventory.fleet, inventory.namespaces)
            begin = perf_counter_ns()
            judge_pod(body, fleet.NAMESPACE, asked)
            took.append(perf_counter_ns() - begin)


def measure(seconds: float, sizes: tuple[int, ...]) -> list[Cost]:
    """Judge the pod over and over for `seconds` in all, with fleets of these sizes in few and in many profiles."""
    fleets = [(size, fleet.inventory(size, profiles)) for profiles in (fleet.FEW, fleet.MANY) for size in sizes]
    cases = [_Case(pod, False, size, PODS[pod](), inventory) for pod in PODS for size, inventory in fleets]
    cases += [
        _Case(pod, True, size, PODS[pod](), inventory)
        for pod in PODS
        for size, inventory in fleets
        if size == max(sizes)
    ]
    for case in cases:
        _check(case)
        case.block()
        case.took.clear()
    with _settled():
        end = perf_counter() + seconds
        for _ in range(MAX_BLOCKS):
            for case in cases:
                case.block()
            if perf_counter() > end:
                break
    return [_cost(case) for case in cases]


def _check(case: _Case) -> None:
    """What is measured has to be what is meant: a patch, with steering where nothing pins the pod."""
    verdict = judge_pod(case.body, fleet.NAMESPACE, case.inventory)
    if not verdict.patch or ("steered" in verdict.codes) != (case.pod == "free"):
        raise RuntimeError(f"the {case.pod} pod gets {verdict.codes} with {case.nodes} nodes")


def _cost(case: _Case) -> Cost:
    took = sorted(case.took)
    return Cost(
        pod=case.pod,
        again=case.again,
        profiles=len(case.inventory.fleet.profiles),
        nodes=case.nodes,
        runs=len(took),
        median_us=percentile(took, 50) / 1000,
        p95_us=percentile(took, 95) / 1000,
    )


@contextmanager
def _settled() -> Iterator[None]:
    """The collector as in a server that has started: it runs, and leaves alone what lived before."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
