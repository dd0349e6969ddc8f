"""The seam between what decides and where nodes, configurations and namespaces come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.policy import Inventory


class InputError(Exception):
    """What was to be read cannot be used; the message is one line for the person who named it."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How far a source can be trusted at this moment.

    ``age_seconds`` is the time since the API server was last heard of, 0.0 for files. ``problems`` has one line each.
    ``configs`` are the names of the configurations in force. ``watch_restarts`` counts, by resource, how often list or
    watch had to be begun anew for another reason than the watch's time being up.
    """

    synced: bool
    age_seconds: float = 0.0
    problems: tuple[str, ...] = ()
    nodes: int = 0
    configs: tuple[str, ...] = ()
    watch_restarts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


class Source(Protocol):
    """Where the inventory comes from."""

    def inventory(self) -> Inventory | None:
        """The current immutable snapshot; None until everything was read once. Costs an attribute read."""

    def status(self) -> SourceStatus:
        """How far the snapshot can be trusted."""

    async def run(self) -> None:
        """Keep the snapshot current until cancelled. Returns at once where nothing can change."""
