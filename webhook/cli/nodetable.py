"""GPU nodes as a table and as JSON: shares, what a share has, how much of the cards is promised, to whom."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from webhook.policy import mps
from webhook.policy.occupancy import Holder, Occupancy
from webhook.policy.quantity import mib_text

_BAR = 10
_UNKNOWN = "?"
_PLAIN_WIDTH = 4096
"""Columns where the output is no terminal: whoever reads it wants whole names and one line a node."""


def print_nodes(found: Sequence[Occupancy], *, pods: bool) -> None:
    """Print the table; with ``pods`` a second one of who holds what. In colour and as wide as a terminal is."""
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    console = Console(width=width, highlight=False, emoji=False, markup=False)
    if not found:
        console.print("No GPU nodes.")
        return
    console.print(_nodes(found, ascii_only=not console.encoding.lower().startswith("utf")))
    for occupancy in found:
        for remark in remarks(occupancy):
            console.print(Text("! ", "yellow").append(f"{occupancy.node.name}: {remark}"), soft_wrap=True)
    if pods:
        console.print()
        console.print(_holders(found))


def report(occupancy: Occupancy) -> dict[str, Any]:
    """A node as ``-o json`` prints it; memory in MiB, null where it is not known."""
    profile = occupancy.profile
    shared = profile.strategy == "mps"
    return {
        "name": occupancy.node.name,
        "config": profile.config,
        "known_config": profile.known_config,
        "strategy": profile.strategy,
        "resource": profile.resource,
        "product": profile.product,
        "cards": occupancy.cards,
        "card_memory_mib": profile.memory_mib,
        "shares": {"total": occupancy.shares, "used": occupancy.used, "free": occupancy.free},
        "share": {
            "memory_mib": profile.share_mib if shared else None,
            "thread_percentage": profile.share_threads if shared else None,
        },
        "promised": {"memory_mib": occupancy.promised_mib, "percent": occupancy.promised_percent},
        "drift": profile.drift,
        "mig": profile.mig,
        "qgpu": profile.qgpu,
        "holders": None if occupancy.holders is None else [_holder(h) for h in occupancy.holders],
    }


def remarks(occupancy: Occupancy) -> Iterator[str]:
    """What is worth knowing beside the figures, one line each."""
    profile = occupancy.profile
    if not profile.known_config:
        yield f"config {profile.config} is not in the ConfigMap, shown is what its labels say"
    if profile.drift:
        yield f"{profile.drift}: it is switching, or a component is stuck"
    if profile.mig:
        yield "its cards are cut by MIG, MPS does not run there"
    if profile.qgpu:
        yield "it offers qGPU, which excludes MPS"
    for holder in occupancy.holders or ():
        if holder.limit == "ignored" and profile.strategy == "mps":
            yield f"{_name(holder)} has a {mps.MEMORY_LIMIT} that MPS ignores: no limit holds, the bar counts a card"


def bar(percent: int | None, *, ascii_only: bool = False) -> Text:
    """A bar of ten cells and the figure; full and red over 100."""
    if percent is None:
        return Text(_UNKNOWN, "dim")
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    # Something promised shows, and only a whole card shows as full.
    cells = min(_BAR, max(percent * _BAR // 100, 1 if percent else 0))
    style = "bold red" if percent > 100 else "yellow" if percent > 80 else "green"
    return Text(full * cells, style).append(empty * (_BAR - cells), "dim").append(f" {percent}%")


def _nodes(found: Sequence[Occupancy], *, ascii_only: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("NODE", overflow="fold", min_width=8)
    table.add_column("CONFIG", overflow="fold", min_width=6)
    table.add_column("STRATEGY", no_wrap=True)
    for name in ("SHARES", "USED", "FREE"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("A SHARE", "PROMISED"):
        table.add_column(name, no_wrap=True)
    for occupancy in found:
        profile = occupancy.profile
        config = Text(profile.config)
        if profile.drift or not profile.known_config:
            config.append(" !", "bold yellow")
        table.add_row(
            occupancy.node.name,
            config,
            profile.strategy,
            str(occupancy.shares),
            _count(occupancy.used),
            _count(occupancy.free),
            _share(occupancy),
            bar(occupancy.promised_percent, ascii_only=ascii_only),
        )
    return table


def _holders(found: Sequence[Occupancy]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("NODE", overflow="fold", min_width=8)
    table.add_column("NAMESPACE/POD/CONTAINER", overflow="fold", min_width=20)
    table.add_column("SHARES", justify="right", no_wrap=True)
    table.add_column("LIMIT", no_wrap=True)
    table.add_column("THREADS", no_wrap=True)
    for occupancy in found:
        name = occupancy.node.name
        if occupancy.holders is None:
            table.add_row(name, Text(_UNKNOWN, "dim"))
            continue
        for holder in occupancy.holders:
            table.add_row(
                name, _name(holder), str(holder.shares), _limit(holder, occupancy), _threads(holder, occupancy)
            )
        if occupancy.free:
            table.add_row(name, Text("(free)", "dim"), str(occupancy.free))
    return table


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "namespace": holder.namespace,
        "pod": holder.pod,
        "container": holder.container,
        "shares": holder.shares,
        "limit": holder.limit,
        "limit_mib": holder.limit_mib,
        "thread_percentage": holder.threads,
    }


def _name(holder: Holder) -> str:
    return f"{holder.namespace}/{holder.pod}/{holder.container}"


def _limit(holder: Holder, occupancy: Occupancy) -> str:
    """The limit in force; in brackets where it is not the container's own."""
    profile = occupancy.profile
    if profile.strategy != "mps":
        return "(no MPS)"
    if holder.limit == "ignored":
        return "none!"
    if holder.limit_mib is not None:
        return mib_text(holder.limit_mib)
    if holder.limit == "unknown":
        return _UNKNOWN
    return "(share)" if profile.share_mib is None else f"({mib_text(profile.share_mib)})"


def _threads(holder: Holder, occupancy: Occupancy) -> str:
    profile = occupancy.profile
    if profile.strategy != "mps":
        return ""
    return f"{holder.threads}%" if holder.threads else f"({profile.share_threads}%)"


def _share(occupancy: Occupancy) -> str:
    profile = occupancy.profile
    if profile.strategy != "mps":
        return "a card" if profile.strategy == "none" else "no limit"
    memory = _UNKNOWN if profile.share_mib is None else mib_text(profile.share_mib)
    return f"{memory} {profile.share_threads}%"


def _count(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)
