"""Nodes, projected to what decides: labels, taints, GPU resources; and the profile that many of them share."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from webhook.policy.deviceplugin import GPU, GPU_SHARED, MIG_PREFIX, DeviceConfig, Strategy
from webhook.policy.quantity import parse_quantity
from webhook.policy.settings import Settings

CONFIG_LABEL = "nvidia.com/device-plugin.config"
MEMORY_LABEL = "nvidia.com/gpu.memory"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MAJOR_LABEL = "nvidia.com/gpu.compute.major"
MINOR_LABEL = "nvidia.com/gpu.compute.minor"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
HOSTNAME_LABEL = "kubernetes.io/hostname"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"

PROFILE_LABELS = (
    CONFIG_LABEL,
    MEMORY_LABEL,
    PRODUCT_LABEL,
    MAJOR_LABEL,
    MINOR_LABEL,
    REPLICAS_LABEL,
    STRATEGY_LABEL,
    INSTANCE_TYPE_LABEL,
)
"""All labels that ``profile_of`` looks at."""

QGPU_PREFIX = "tke.cloud.tencent.com/qgpu-"
_SHARED_SUFFIX = "-SHARED"
_POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"


class Labels(Mapping[str, str]):
    """An immutable map of labels that costs eight bytes an entry.

    Nodes of one pool have the same label keys, so the key index is shared between them; the strings are interned.
    """

    __slots__ = ("_index", "_values")

    def __init__(self, labels: Mapping[str, str]) -> None:
        keys = tuple(sorted(labels))
        self._index = _key_index(tuple(map(sys.intern, keys)))
        self._values = tuple(sys.intern(labels[k]) for k in keys)

    def __getitem__(self, key: str) -> str:
        return self._values[self._index[key]]

    def get(self, key: str, default: Any = None) -> Any:
        """As of any mapping, but without an exception for what is not there: selecting among 5,000 nodes asks a lot."""
        at = self._index.get(key)
        return default if at is None else self._values[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels):
            return self._values == other._values and self._index == other._index
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return f"Labels({dict(self)!r})"


@lru_cache(maxsize=4096)
def _key_index(keys: tuple[str, ...]) -> dict[str, int]:
    return {key: i for i, key in enumerate(keys)}


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node; ``allocatable`` holds its GPU resources alone, sorted by name."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace; ``pod_security_enforce`` is the level Pod Security enforces there, None where it is not labelled."""

    name: str
    pod_security_enforce: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """What matters of a node. Memory is MiB of one physical card; ``replicas`` are shares per card."""

    config: str
    strategy: Strategy
    replicas: int = 1
    resource: str = GPU
    fail_greater_than_one: bool = False
    memory_mib: int | None = None
    compute_capability: tuple[int, int] | None = None
    product: str | None = None
    mig: bool = False
    qgpu: bool = False
    drift: str | None = None
    """What the node's labels say against its configuration; None where they agree."""
    known_config: bool = True
    """Whether the configuration is a key of the ConfigMap."""

    @property
    def share_mib(self) -> int | None:
        """GPU memory of one share, MiB."""
        return None if self.memory_mib is None else self.memory_mib // self.replicas

    @property
    def share_threads(self) -> int:
        """Thread percentage of one share, as the control daemon sets it."""
        return 100 // self.replicas


def project_node(raw: Mapping[str, Any]) -> Node:
    """A Node object reduced to what is needed. Raises ValueError on an object that is none."""
    metadata = raw.get("metadata")
    if raw.get("kind", "Node") != "Node" or not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ValueError("not a Node object with a name")
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    taints = (spec.get("taints") if isinstance(spec, dict) else None) or []
    allocatable = (status.get("allocatable") if isinstance(status, dict) else None) or {}
    return Node(
        name=sys.intern(metadata["name"]),
        labels=Labels(_strings(metadata.get("labels"))),
        taints=tuple(
            Taint(*(sys.intern(str(t.get(k) or "")) for k in ("key", "value", "effect")))
            for t in taints
            if isinstance(t, dict)
        ),
        allocatable=tuple(
            sorted(
                (sys.intern(k), amount)
                for k, v in _strings(allocatable).items()
                if _is_gpu(k) and (amount := _amount(v))
            )
        ),
    )


def project_namespace(raw: Mapping[str, Any]) -> Namespace:
    """A Namespace object reduced to what is needed. Raises ValueError on an object that is none."""
    metadata = raw.get("metadata")
    kind = raw.get("kind", "Namespace")
    if kind != "Namespace" or not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ValueError("not a Namespace object with a name")
    return Namespace(metadata["name"], _strings(metadata.get("labels")).get(_POD_SECURITY_LABEL))


def profile_of(node: Node, configs: Mapping[str, DeviceConfig], settings: Settings) -> Profile:
    """What a node's labels and its configuration make of it.

    The label's configuration decides; where GPU feature discovery disagrees, the node is switching or a component is
    stuck, and the larger number of replicas is the safe one. Without such a configuration the labels decide alone.
    """
    labels = node.labels
    name = labels.get(CONFIG_LABEL) or settings.default_config
    config = configs.get(name)
    seen_strategy, seen_replicas = labels.get(STRATEGY_LABEL), _whole(labels.get(REPLICAS_LABEL))
    product = labels.get(PRODUCT_LABEL)
    mig = "-MIG-" in (product or "") or any(k.startswith(MIG_PREFIX) for k, _ in node.allocatable)
    drift = None
    if config is None:
        config = _from_labels(node, seen_strategy, seen_replicas)
        known = False
    else:
        known = True
        # GFD reports no replicas at all on a MIG node; that is no disagreement.
        drift = None if mig else _drift(config, seen_strategy, seen_replicas)
    return Profile(
        config=name,
        strategy=config.strategy,
        replicas=max(config.replicas, seen_replicas or 1) if drift else config.replicas,
        resource=config.resource,
        fail_greater_than_one=config.fail_greater_than_one,
        memory_mib=_memory(labels, settings),
        compute_capability=_compute_capability(labels),
        product=plain_product(product),
        mig=mig,
        qgpu=any(k.startswith(QGPU_PREFIX) for k, _ in node.allocatable),
        drift=drift,
        known_config=known,
    )


def plain_product(product: str | None) -> str | None:
    """The product without the suffix that GPU feature discovery adds on shared nodes."""
    return product.removesuffix(_SHARED_SUFFIX) if product else None


def _from_labels(node: Node, strategy: str | None, replicas: int | None) -> DeviceConfig:
    shared = strategy in ("mps", "time-slicing") and (replicas or 0) > 1
    if not shared or replicas is None:
        return DeviceConfig()
    resource = GPU_SHARED if any(k == GPU_SHARED for k, _ in node.allocatable) else GPU
    if strategy == "mps":
        return DeviceConfig("mps", replicas, resource, fail_greater_than_one=True)
    return DeviceConfig("time-slicing", replicas, resource, fail_greater_than_one=False)


def _drift(config: DeviceConfig, strategy: str | None, replicas: int | None) -> str | None:
    if strategy is not None and strategy != config.strategy:
        return f"{STRATEGY_LABEL} is {strategy}, the configuration says {config.strategy}"
    if replicas is not None and replicas != config.replicas:
        return f"{REPLICAS_LABEL} is {replicas}, the configuration says {config.replicas}"
    return None


def _memory(labels: Mapping[str, str], settings: Settings) -> int | None:
    labelled = _whole(labels.get(MEMORY_LABEL))
    if labelled:
        return labelled
    product = labels.get(PRODUCT_LABEL)
    for key in (product, plain_product(product), labels.get(INSTANCE_TYPE_LABEL)):
        if key is not None and key in settings.gpu_memory:
            return settings.gpu_memory[key]
    return None


def _compute_capability(labels: Mapping[str, str]) -> tuple[int, int] | None:
    major, minor = _whole(labels.get(MAJOR_LABEL)), _whole(labels.get(MINOR_LABEL))
    return None if major is None else (major, minor or 0)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def _amount(text: str) -> int:
    try:
        return int(parse_quantity(text))
    except ValueError:
        return 0


def _is_gpu(resource: str) -> bool:
    return resource in (GPU, GPU_SHARED) or resource.startswith((MIG_PREFIX, QGPU_PREFIX))


def _strings(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {k: v if isinstance(v, str) else str(v) for k, v in value.items() if isinstance(k, str) and v is not None}
