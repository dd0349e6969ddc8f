"""What MPS does with the values of its variables, measured on a GPU.

Measured on an NVIDIA H200 with driver 580.159 (``docs/measurements.md``). The one fact everything here serves: a
memory limit that MPS cannot read does not fail, it removes every limit, the daemon's own default included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from webhook.policy.quantity import MIB

MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREAD_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MAX_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"

DAEMON_BYPASS = {
    "CUDA_MPS_PIPE_DIRECTORY": "it leads away from the MPS daemon, so no limit holds",
    "CUDA_MPS_LOG_DIRECTORY": "the device plugin sets the daemon's directories",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING": "it switches the share's thread limit off",
}
"""Variables that leave the daemon or its thread limit, and what each does (measured: the first and the last)."""

# G and M are binary and only the first letter after the digits counts (measured), so these all mean the same.
_SIZE = r"(?P<number>[0-9]{1,20})(?P<unit>[mMgG])[iI]?[bB]?"
_ENFORCED = re.compile(rf"0={_SIZE}")
_NO_DEVICE = re.compile(_SIZE)
_BARE = re.compile(r"[0-9]{1,20}")
_PERCENTAGE = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.[0-9]{1,18})?")

_MAX_MIB = (1 << 43) - 1
"""Beyond it the byte count leaves a signed 64-bit integer, and what MPS makes of it nobody knows."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A memory-limit variable as MPS reads it; ``mib`` is 0 unless it names a size.

    ``enforced``: holds as it is. ``rewritable``: the size is plain, but as written it switches every limit off.
    ``unset``: empty, the daemon's default holds. ``invalid``: anything else; it is ignored or misread.
    """

    kind: Literal["enforced", "rewritable", "unset", "invalid"]
    mib: int = 0


def read_memory_limit(value: str) -> MemoryLimit:
    """Classify a value of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in a container with one GPU."""
    if value == "":
        return MemoryLimit("unset")
    if match := _ENFORCED.fullmatch(value):
        return _limit("enforced", _mib(match))
    if match := _NO_DEVICE.fullmatch(value):
        return _limit("rewritable", _mib(match))
    if _BARE.fullmatch(value):
        return _limit("rewritable", int(value) // MIB)
    return MemoryLimit("invalid")


def write_memory_limit(mib: int) -> str:
    """The one form the webhook writes: device 0, whole MiB."""
    if not 0 < mib <= _MAX_MIB:
        raise ValueError(f"{mib} MiB would remove the limit instead of setting one")
    return f"0={mib}M"


def read_thread_percentage(value: str) -> Fraction | None:
    """A percentage above 0 and up to 100 as a plain decimal number, else None.

    MPS itself takes ``25%``, `` 25`` and ``0x19`` for numbers and everything else for 100; none of these is plain.
    """
    if _PERCENTAGE.fullmatch(value) is None:
        return None
    percentage = Fraction(value)
    return percentage if 0 < percentage <= 100 else None


def max_clients(compute_capability: tuple[int, int] | None) -> int:
    """Clients one daemon serves at once: 48 from compute capability 7.5 on, 16 below; 48 where it is not known."""
    return 16 if compute_capability is not None and compute_capability < (7, 5) else 48


CONTEXT_MIB = {
    "NVIDIA-H200": (
        (2, 58),
        (4, 58),
        (6, 58),
        (8, 65),
        (10, 72),
        (12, 80),
        (16, 101),
        (20, 123),
        (25, 145),
        (33, 182),
        (50, 271),
        (100, 514),
    ),
}
"""MiB that a CUDA context takes off the limit, by product and thread percentage (measured: tests/gpu/results)."""

REFERENCE_PRODUCT = "NVIDIA-H200"
"""The card whose figures are quoted where a card of its own was not measured."""


def context_mib(product: str | None, percentage: float) -> int | None:
    """What a context is known to take at a thread percentage, MiB; None where the card was not measured.

    Between two measured percentages it is the lower one's figure, so it never says more than is sure.
    """
    rows = CONTEXT_MIB.get(product or "")
    if rows is None:
        return None
    return max((mib for measured, mib in rows if measured <= percentage), default=rows[0][1])


_CLIENTS_BY_CONNECTIONS = ((32, 3), (16, 7), (8, 15), (4, 31))


def clients_at(connections: int) -> str:
    """How many clients fit on a card when each raises CUDA_DEVICE_MAX_CONNECTIONS so far, as a phrase.

    Measured at 4, 8, 16 and 32 on an H200; between two measured points the phrase gives the bound that is known.
    """
    for measured, clients in _CLIENTS_BY_CONNECTIONS:
        if connections == measured:
            return f"{clients} clients"
        if connections > measured:
            return f"fewer than {clients} clients"
    return "fewer than 48 clients"


def _limit(kind: Literal["enforced", "rewritable"], mib: int) -> MemoryLimit:
    return MemoryLimit(kind, mib) if 0 < mib <= _MAX_MIB else MemoryLimit("invalid")


def _mib(match: re.Match[str]) -> int:
    number = int(match["number"])
    return number * 1024 if match["unit"] in "gG" else number
