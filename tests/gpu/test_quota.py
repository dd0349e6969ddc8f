"""What the webhook writes is what MPS enforces: pods through the policy core, their variables to real clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.gpu.daemon import Card, Daemon
from tests.gpu.pods import variables

Start = Callable[[int], Daemon]

CONTEXT_MIB = 600
"""No context took more on any card measured; below the limit by at most this and one block."""


@pytest.mark.parametrize(
    ("replicas", "annotations", "limit_mib"),
    [
        pytest.param(4, {"memory-limit": "3Gi"}, 3072, id="quarter-3Gi"),
        pytest.param(4, {"memory-limit": "3G"}, 2861, id="quarter-3G-decimal"),
        pytest.param(2, {"memory-limit": "8Gi"}, 8192, id="half-8Gi"),
        pytest.param(4, {"memory-limit": "4Gi", "processes": "2"}, 2048, id="two-processes-share-4Gi"),
    ],
)
def test_memory_limit_holds(
    node_daemon: Start, card: Card, replicas: int, annotations: dict[str, str], limit_mib: int
) -> None:
    found = node_daemon(replicas).client(variables(card, replicas, annotations), cap_mib=16384)
    assert found["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert limit_mib - CONTEXT_MIB - 16 <= found["allocated_mib"] < limit_mib


@pytest.mark.parametrize(
    ("value", "limit_mib"),
    [
        pytest.param("4294967296", 4096, id="bare-bytes"),
        pytest.param("4G", 4096, id="no-device"),
        pytest.param("4096MB", 4096, id="no-device-MB"),
        pytest.param("0=3G", 3072, id="as-it-is"),
    ],
)
def test_a_variable_that_would_remove_the_limit_is_made_to_hold(
    node_daemon: Start, card: Card, value: str, limit_mib: int
) -> None:
    patched = variables(card, 4, {}, {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": value})
    found = node_daemon(4).client(patched, cap_mib=16384)
    assert limit_mib - CONTEXT_MIB - 16 <= found["allocated_mib"] < limit_mib


def test_the_quota_is_not_needed_for_the_share_itself(node_daemon: Start, card: Card) -> None:
    """Without a quota the daemon's default holds, a quarter of the card."""
    share = card.memory_mib // 4
    found = node_daemon(4).client(variables(card, 4, {}), cap_mib=card.memory_mib)
    assert share - CONTEXT_MIB - 16 <= found["allocated_mib"] < share


@pytest.mark.parametrize("percentage", [25, 20, 12])
def test_thread_percentage_shows_in_the_processors(node_daemon: Start, card: Card, percentage: int) -> None:
    daemon = node_daemon(4)
    share = daemon.client({}, cap_mib=0)["processors"]
    annotations = {"active-thread-percentage": str(percentage)}
    found = daemon.client(variables(card, 4, annotations), cap_mib=0)["processors"]
    assert found <= share
    assert abs(found - share * percentage / 25) <= 4


def test_shares_at_their_limits_fit_together_and_one_more_does_not(
    node_daemon: Start, card: Card, results: dict[str, Any]
) -> None:
    """Four clients at their limits fit; a fifth of the same, which the budget would refuse, does not.

    The driver keeps a part of the card to itself, so a limit is taken that leaves it that part; what four whole shares
    get is recorded beside it.
    """
    daemon = node_daemon(4)
    limit_mib = card.memory_mib // 4 // 1024 * 1024 - 1024
    patched = variables(card, 4, {"memory-limit": f"{limit_mib}Mi"})
    with ExitStack() as stack:
        shares = [stack.enter_context(daemon.holding(patched, card.memory_mib)) for _ in range(4)]
        for share in shares:
            assert limit_mib - CONTEXT_MIB - 16 <= share["allocated_mib"] < limit_mib
        fifth = daemon.client(patched, cap_mib=card.memory_mib)
        assert fifth.get("allocated_mib", 0) < limit_mib - CONTEXT_MIB - 16
    whole = variables(card, 4, {"memory-limit": f"{card.memory_mib // 4}Mi"})
    with ExitStack() as stack:
        full = [stack.enter_context(daemon.holding(whole, card.memory_mib)) for _ in range(4)]
    results["shares"] = {
        "limit_mib": limit_mib,
        "four_at_the_limit_mib": [s["allocated_mib"] for s in shares],
        "a_fifth_mib": fifth.get("allocated_mib", 0),
        "whole_share_mib": card.memory_mib // 4,
        "four_whole_shares_mib": [s.get("allocated_mib", 0) for s in full],
    }
