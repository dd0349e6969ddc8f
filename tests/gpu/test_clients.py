"""How many clients one daemon serves."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tests.gpu.daemon import Card, Daemon
from webhook.policy.mps import max_clients

DEFAULTS = (None, 2)


def test_as_many_clients_as_the_policy_counts_and_no_more(daemon: Daemon, card: Card, results: dict[str, Any]) -> None:
    most = max_clients(card.compute_capability)
    with ExitStack() as stack:
        found = [stack.enter_context(daemon.holding({}, cap_mib=0)) for _ in range(most + 1)]
    results["clients"] = sum(f["stage"] == "done" for f in found)
    assert [f["stage"] for f in found[:most]] == ["done"] * most
    assert found[most]["stage"] == "context"
