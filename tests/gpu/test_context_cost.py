"""What the CUDA context itself takes from the limit, by thread percentage: measured, and written down."""

from __future__ import annotations

from typing import Any

from tests.gpu.daemon import Card, Daemon
from webhook.policy.mps import MEMORY_LIMIT, THREAD_PERCENTAGE

DEFAULTS = (None, None)
LIMIT_MIB = 4096
PERCENTAGES = (100, 50, 33, 25, 20, 16, 12, 10, 8, 6, 4, 2)


def test_context_cost_grows_with_the_threads(daemon: Daemon, card: Card, results: dict[str, Any]) -> None:
    rows = []
    for percentage in PERCENTAGES:
        variables = {MEMORY_LIMIT: f"0={LIMIT_MIB}M", THREAD_PERCENTAGE: str(percentage)}
        found = daemon.client(variables, cap_mib=0)
        rows.append(
            {
                "threads": percentage,
                "processors": found["processors"],
                "context_mib": LIMIT_MIB - found["free_mib"],
            }
        )
    results["context_cost"] = rows
    costs = [row["context_mib"] for row in rows]
    assert costs == sorted(costs, reverse=True)
    assert 0 < costs[-1] < costs[0] < 1024


def test_a_limit_below_the_context_fails_at_the_context(daemon: Daemon, results: dict[str, Any]) -> None:
    cost = next(row["context_mib"] for row in results["context_cost"] if row["threads"] == 25)
    below = {MEMORY_LIMIT: f"0={cost // 2}M", THREAD_PERCENTAGE: "25"}
    assert daemon.client(below)["stage"] == "context"
