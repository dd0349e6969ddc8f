"""What an administrator can set about the decisions. The file and the variables are read elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Placement = Literal["steer", "deny", "off"]


@dataclass(frozen=True, slots=True)
class ExpectedProfile:
    """A kind of node that an autoscaler can bring although none is there now. Memory in MiB of one card."""

    config: str
    memory_mib: int | None = None
    compute_capability: tuple[int, int] | None = None
    product: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The decision's own settings; memory in MiB.

    ``gpu_memory`` maps a product (``Tesla-T4``) or an instance type to the MiB of one card, for nodes without the label
    ``nvidia.com/gpu.memory``. ``host_ipc_namespaces`` None means every namespace.
    """

    default_config: str = "mps-1x"
    placement: Placement = "steer"
    minimum_memory_mib: int = 256
    gpu_memory: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    host_ipc_namespaces: frozenset[str] | None = None
    no_candidate: Literal["warn", "deny"] = "warn"
    device_bypass: Literal["warn", "deny", "off"] = "warn"
    expected_profiles: tuple[ExpectedProfile, ...] = ()
