"""Who holds which share: pods bound to nodes, and how much of each card is promised to them.

What counts is what is in force, not what was asked: MPS reads the variables a container was started with, so an
annotation without its variable promises nothing. Which of a node's cards a share lies on only its kubelet knows; the
figures are a node's, over all its cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from webhook.policy import mps
from webhook.policy.annotations import read_annotations
from webhook.policy.deviceplugin import GPU, GPU_SHARED
from webhook.policy.fleet import Fleet
from webhook.policy.nodes import CONFIG_LABEL, PRODUCT_LABEL, Node, Profile
from webhook.policy.pod import Container, Pod, read_pod
from webhook.policy.quota import Quota, read_quotas

COUNT_LABEL = "nvidia.com/gpu.count"
PRESENT_LABEL = "nvidia.com/gpu.present"

_SHARES = (GPU, GPU_SHARED)

Limit = Literal["variable", "share", "ignored", "unknown"]
"""``variable``: its own limit holds. ``share``: none of its own, the daemon's default holds. ``ignored``: its variable
is of a form that MPS does not read, which switches every limit off. ``unknown``: the value is not in the pod."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A container on a node, and the shares it holds.

    ``limit_mib`` is what all its processes may use together, None without a limit of its own; ``threads`` the
    percentage of one process as its variable has it; ``asked_mib`` what an annotation asks for, in force or not.
    """

    node: str
    namespace: str
    pod: str
    container: str
    shares: int
    limit: Limit = "share"
    limit_mib: int | None = None
    threads: str | None = None
    asked_mib: int | None = None

    def promised_mib(self, profile: Profile) -> int | None:
        """GPU memory it may come to use on such a node, MiB; None where nobody can tell.

        A limit is for device 0 (measured), so that further shares of the same container have their default.
        """
        if profile.memory_mib is None or profile.share_mib is None or profile.strategy == "time-slicing":
            return None
        if profile.strategy == "none" or self.limit == "ignored":
            return profile.memory_mib * (self.shares if profile.strategy == "none" else 1)
        first = profile.share_mib if self.limit_mib is None else self.limit_mib
        return first + (self.shares - 1) * profile.share_mib


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A GPU node and its holders; ``holders`` is None where pods could not be seen."""

    node: Node
    profile: Profile
    holders: tuple[Holder, ...] | None

    @property
    def shares(self) -> int:
        """Shares that the node offers, over all cards."""
        return sum(amount for name, amount in self.node.allocatable if name in _SHARES)

    @property
    def used(self) -> int | None:
        """Shares that are held."""
        return None if self.holders is None else sum(h.shares for h in self.holders)

    @property
    def free(self) -> int | None:
        """Shares that are left; none where more are held than offered."""
        return None if self.used is None else max(0, self.shares - self.used)

    @property
    def cards(self) -> int | None:
        """Physical cards: by label, else as many as the shares come to."""
        return labelled_cards(self.node) or self.shares // self.profile.replicas or None

    @property
    def physical_mib(self) -> int | None:
        """Memory of all cards together, MiB."""
        return self.profile.memory_mib * self.cards if self.profile.memory_mib and self.cards else None

    @property
    def promised_mib(self) -> int | None:
        """Memory that the holders may come to use together, MiB; None where nobody can tell."""
        if self.holders is None:
            return None
        promises = [h.promised_mib(self.profile) for h in self.holders]
        known = [p for p in promises if p is not None]
        return sum(known) if len(known) == len(promises) else None

    @property
    def promised_percent(self) -> int | None:
        """The promised part of the cards' memory, rounded down; over 100 where more is promised than there is."""
        if self.promised_mib is None or not self.physical_mib:
            return None
        return self.promised_mib * 100 // self.physical_mib


def occupy(fleet: Fleet, holders: Iterable[Holder] | None) -> tuple[Occupancy, ...]:
    """Every GPU node of a fleet with those who hold shares of it, sorted by name."""
    by_node: dict[str, list[Holder]] = {}
    for holder in holders or ():
        by_node.setdefault(holder.node, []).append(holder)
    return tuple(
        Occupancy(node, profile, None if holders is None else tuple(by_node.get(node.name, ())))
        for node, profile in sorted(fleet.nodes, key=lambda pair: pair[0].name)
        if has_gpus(node)
    )


def holders_of(raw: Mapping[str, Any]) -> tuple[Holder, ...]:
    """The containers of a Pod object that hold shares. Empty for one that is not bound, or finished."""
    metadata, spec, status = (_map(raw.get(k)) for k in ("metadata", "spec", "status"))
    node = spec.get("nodeName")
    if not isinstance(node, str) or not node or status.get("phase") in ("Succeeded", "Failed"):
        return ()
    pod = read_pod(raw)
    quotas = read_quotas(pod, read_annotations(dict(pod.annotations)))
    name, namespace = (str(metadata.get(k) or "") for k in ("name", "namespace"))
    return tuple(
        _holder(quota, shares, (node, namespace or "default", name))
        for quota in quotas
        if (shares := _held(pod, quota.container))
    )


def has_gpus(node: Node) -> bool:
    """Whether a node has GPUs, or is meant to: it offers them, or a label says so."""
    return (
        bool(node.allocatable)
        or node.labels.get(PRESENT_LABEL) == "true"
        or any(key in node.labels for key in (CONFIG_LABEL, COUNT_LABEL, PRODUCT_LABEL))
    )


def labelled_cards(node: Node) -> int | None:
    """Physical cards as GPU feature discovery counts them; None without the label."""
    text = node.labels.get(COUNT_LABEL, "")
    return int(text) or None if text.isascii() and text.isdigit() and len(text) < 6 else None


def _held(pod: Pod, container: Container) -> int:
    """Shares that a container keeps while its pod lives.

    Containers started later take over what init containers had, so of those only what exceeds the rest is held: by the
    first one that asks for the most.
    """
    if container.kind != "init":
        return _asked(container)
    running = sum(_asked(c) for c in pod.gpu_containers if c.kind != "init")
    total = sum(count for resource, count in pod.effective_request().items() if resource in _SHARES)
    largest = max((c for c in pod.gpu_containers if c.kind == "init"), key=_asked)
    return max(0, total - running) if container is largest else 0


def _asked(container: Container) -> int:
    return sum(r.amount for r in container.requests if r.resource in _SHARES)


def _holder(quota: Quota, shares: int, where: tuple[str, str, str]) -> Holder:
    container, variable = quota.container, quota.limit_variable
    entry = container.variable(mps.MEMORY_LIMIT)
    limit: Limit = "share"
    limit_mib = None
    if entry is not None and variable is None:
        limit = "unknown"
    elif variable is not None and variable.kind == "enforced":
        limit, limit_mib = "variable", variable.mib * quota.processes
    elif variable is not None and variable.kind != "unset":
        limit = "ignored"
    threads = container.variable(mps.THREAD_PERCENTAGE)
    return Holder(
        *where,
        container.name,
        shares,
        limit,
        limit_mib,
        threads.value if threads is not None and quota.thread_variable is not None else None,
        quota.memory_mib if quota.memory_key else None,
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def all_holders(pods: Iterable[Mapping[str, Any]]) -> Iterator[Holder]:
    """The holders among many Pod objects; nothing else of them is kept."""
    for pod in pods:
        yield from holders_of(pod)
