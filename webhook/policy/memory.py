"""Nothing is decided twice: verdicts on pods that came before, against the same inventory.

A ReplicaSet makes its pods alike, and the API server asks about each of them twice. What a pod is remembered by is all
that any rule looks at, never its name; a new inventory begins with an empty memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

SIZE = 256
"""Verdicts that are kept; at a few KiB each, a megabyte or two. How much a pod may say to be kept is its caller's to
bound."""


class Memory:
    """A bounded table of what was decided; the oldest entry goes first."""

    __slots__ = ("_known", "_size")

    def __init__(self, size: int = SIZE) -> None:
        self._known: dict[Hashable, Any] = {}
        self._size = size

    def recall(self, key: Hashable, decide: Callable[[], T]) -> T:
        """What was decided for an equal key, else what ``decide`` says now. A key that has no hash is not kept."""
        try:
            found: T | None = self._known.get(key)
        except TypeError:
            return decide()
        if found is None:
            found = decide()
            if len(self._known) >= self._size:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found
