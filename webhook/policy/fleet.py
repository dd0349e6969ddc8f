"""The fleet: many nodes, few profiles.

Nodes that no rule and no selector of the pod can tell apart form one group, so a verdict costs as much at 5,000 nodes
as at ten. The labels that placement steers by always tell groups apart; those that a pod's own selector names are
added for it, and the grouping is kept for the next pod that names the same. Where that would leave hardly two nodes
together, as the host name does, nodes are selected one by one, and those that remain are still in their groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from webhook.policy.deviceplugin import DeviceConfig
from webhook.policy.memory import Memory
from webhook.policy.nodes import (
    CONFIG_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    MAJOR_LABEL,
    MEMORY_LABEL,
    MINOR_LABEL,
    PRODUCT_LABEL,
    PROFILE_LABELS,
    Labels,
    Namespace,
    Node,
    Profile,
    Taint,
    profile_of,
)
from webhook.policy.scheduling import Scheduling
from webhook.policy.settings import ExpectedProfile, Settings

STEERING_LABELS = (CONFIG_LABEL, MEMORY_LABEL, MAJOR_LABEL, MINOR_LABEL, PRODUCT_LABEL, INSTANCE_TYPE_LABEL)
_STEERING = frozenset(STEERING_LABELS)

_MAX_GROUPINGS = 64
"""Different sets of label keys whose grouping is kept; the oldest goes first."""
_MAX_GROUPS = 256
"""Of one grouping. A finer one is no gain, and hundreds of MiB where many pods ask for many of them (measured)."""
_MAX_SELECTIONS = 64
"""Different ways to select nodes whose candidates are remembered."""

MAX_EFFORT = 500_000
"""Comparisons to find the candidates of one pod, a quarter of a second: 100 expressions tell 5,000 nodes apart."""

NO_LABELS = Labels({})


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are alike: one profile, the same labels as far as anything looks at them.

    Without names it stands for a pool that has no node at the moment.
    """

    profile: Profile
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()
    names: tuple[str, ...] = ()

    @property
    def config(self) -> str:
        """The configuration the nodes run."""
        return self.profile.config

    def holds(self, request: Mapping[str, int]) -> bool:
        """Whether a node has at least these amounts of the GPU resources."""
        for resource, count in request.items():
            if not any(name == resource and amount >= count for name, amount in self.allocatable):
                return False
        return True


class Fleet:
    """An immutable picture of the nodes, with their configurations. Building it costs time in the number of nodes."""

    def __init__(self, nodes: Iterable[Node], configs: Mapping[str, DeviceConfig], settings: Settings) -> None:
        self.configs = dict(configs)
        self.settings = settings
        alike: dict[tuple[object, ...], Profile] = {}
        interned: dict[Profile, Profile] = {}
        self._nodes: dict[str, tuple[Node, Profile]] = {}
        for node in nodes:
            # All that a profile is made of: most nodes are like one that was looked at already.
            like = (node.allocatable, *map(node.labels.get, PROFILE_LABELS))
            profile = alike.get(like)
            if profile is None:
                profile = profile_of(node, self.configs, settings)
                profile = alike[like] = interned.setdefault(profile, profile)
            self._nodes[node.name] = (node, profile)
        self.profiles = tuple(interned)
        self._by_hostname: dict[str, list[str]] = {}
        for node, _ in self._nodes.values():
            self._by_hostname.setdefault(node.labels.get(HOSTNAME_LABEL, ""), []).append(node.name)
        self._with_gpus = [(n, p) for n, p in self._nodes.values() if n.allocatable]
        self._label_keys = frozenset(key for node, _ in self._with_gpus for key in node.labels)
        self._groupings: dict[frozenset[str], tuple[Group, ...] | None] = {}
        self._expected = tuple(_expected_group(e, self.configs, settings) for e in settings.expected_profiles)
        self.groups = _group(self._with_gpus, STEERING_LABELS)
        self._group_of = {name: group for group in self.groups for name in group.names}

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def nodes(self) -> Iterator[tuple[Node, Profile]]:
        """Every node with its profile."""
        return iter(self._nodes.values())

    def grouped(self, keys: frozenset[str]) -> tuple[Group, ...] | None:
        """The GPU nodes, grouped so that nodes of one group agree in these labels too; None for too many groups."""
        keys = (keys & self._label_keys) - _STEERING
        if not keys:
            return self.groups
        if keys not in self._groupings:
            if len(self._groupings) >= _MAX_GROUPINGS:
                del self._groupings[next(iter(self._groupings))]
            grouping = _group(self._with_gpus, (*STEERING_LABELS, *sorted(keys)))
            self._groupings[keys] = grouping if len(grouping) <= max(_MAX_GROUPS, 2 * len(self.groups)) else None
        return self._groupings[keys]

    def candidates(self, scheduling: Scheduling, request: Mapping[str, int]) -> tuple[Group, ...]:
        """The groups of nodes that the pod can run on: enough GPUs, selected, tolerated.

        Where finding that out would take seconds, which takes a pod that was made for it, the pod is judged as one that
        selects and tolerates every node. That one it could have been as well, so nothing is gained by it.
        """
        if scheduling.node_name is not None:
            group = self._group_of.get(scheduling.node_name)
            return (replace(group, names=(scheduling.node_name,)),) if group and group.holds(request) else ()
        names = self._names(scheduling)
        groups = self.grouped(scheduling.keys) if names is None else None
        if names is None and groups is None:
            names = self._group_of
        if scheduling.effort * len(groups or names or ()) > MAX_EFFORT:
            return tuple(g for g in self.groups if g.holds(request))
        if groups is None:
            return self._one_by_one(names or (), scheduling, request)
        return tuple(g for g in groups if _takes(g, scheduling, request) and scheduling.selects(g.labels, ""))

    def _one_by_one(
        self, names: Iterable[str], scheduling: Scheduling, request: Mapping[str, int]
    ) -> tuple[Group, ...]:
        selected: dict[int, tuple[Group, list[str]]] = {}
        for name in names:
            group = self._group_of.get(name)
            if group is not None and scheduling.selects(self._nodes[name][0].labels, name):
                selected.setdefault(id(group), (group, []))[1].append(name)
        return tuple(
            replace(group, names=tuple(found))
            for group, found in selected.values()
            if _takes(group, scheduling, request)
        )

    def expected(self, scheduling: Scheduling, request: Mapping[str, int]) -> tuple[Group, ...]:
        """Groups without nodes, for the settings' expected profiles whose configuration no node has at the moment.

        Labels that an expected profile says nothing about are taken to match.
        """
        if scheduling.node_name is not None or not self._expected:
            return ()
        present = {p.config for p in self.profiles}
        return tuple(
            g
            for g in self._expected
            if g.config not in present
            and all(r == g.profile.resource for r in request)
            and _admits(scheduling, g.labels)
        )

    def pinned(self, scheduling: Scheduling, request: Mapping[str, int]) -> tuple[Group, ...]:
        """Groups without nodes, one for each known configuration that the pod insists on."""
        return tuple(
            Group(_bare_profile(name, self.configs[name]), NO_LABELS)
            for name in scheduling.pinned(CONFIG_LABEL, self.configs.__contains__)
            if all(r == self.configs[name].resource for r in request)
        )

    def _names(self, scheduling: Scheduling) -> Collection[str] | None:
        """The nodes to look at one by one, where the pod tells nodes apart by their names; None where it does not."""
        names = scheduling.names
        if names is not None:
            return sorted(names)
        hosts = scheduling.pinned(HOSTNAME_LABEL, self._by_hostname.__contains__)
        if hosts or scheduling.insists(HOSTNAME_LABEL):
            return [name for host in hosts for name in self._by_hostname[host]]
        return self._group_of if any(r.on_name for term in scheduling.terms or () for r in term) else None


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that a decision looks at beside the object: the fleet, the namespaces by name, the settings.

    It never changes; what was decided against it is remembered with it.
    """

    fleet: Fleet
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory, repr=False, compare=False)
    _selections: Memory = field(default_factory=lambda: Memory(_MAX_SELECTIONS), init=False, repr=False, compare=False)

    @property
    def settings(self) -> Settings:
        """The settings the fleet was built with."""
        return self.fleet.settings

    def unremembering(self) -> Inventory:
        """The same without a memory, for objects too large to be kept."""
        return Inventory(self.fleet, self.namespaces)

    def candidates(self, scheduling: Scheduling, request: Mapping[str, int]) -> tuple[Group, ...]:
        """The fleet's, remembered by what a pod asks of a node: pods of other quotas look for the same ones."""
        asked = (scheduling, tuple(request.items()))
        return self._selections.recall(asked, lambda: self.fleet.candidates(scheduling, request))


def _takes(group: Group, scheduling: Scheduling, request: Mapping[str, int]) -> bool:
    return group.holds(request) and scheduling.tolerates(group.taints, request)


def _group(nodes: Iterable[tuple[Node, Profile]], keys: Sequence[str]) -> tuple[Group, ...]:
    members: dict[tuple[object, ...], tuple[Node, Profile, list[str]]] = {}
    for node, profile in nodes:
        # Profiles are interned, so their identity tells them apart and spares hashing them for every node.
        like = (id(profile), node.taints, node.allocatable, *map(node.labels.get, keys))
        member = members.get(like)
        if member is None:
            members[like] = (node, profile, [node.name])
        else:
            member[2].append(node.name)
    return tuple(
        Group(profile, _only(node.labels, keys), node.taints, node.allocatable, tuple(names))
        for node, profile, names in members.values()
    )


def _only(labels: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {k: labels[k] for k in keys if k in labels}


def _bare_profile(name: str, config: DeviceConfig) -> Profile:
    return Profile(name, config.strategy, config.replicas, config.resource, config.fail_greater_than_one)


def _expected_group(expected: ExpectedProfile, configs: Mapping[str, DeviceConfig], settings: Settings) -> Group:
    labels = {CONFIG_LABEL: expected.config}
    if expected.memory_mib is not None:
        labels[MEMORY_LABEL] = str(expected.memory_mib)
    if expected.compute_capability is not None:
        labels[MAJOR_LABEL], labels[MINOR_LABEL] = map(str, expected.compute_capability)
    if expected.product is not None:
        labels[PRODUCT_LABEL] = expected.product
    node = Node("", Labels(labels))
    return Group(profile_of(node, configs, settings), labels)


def _admits(scheduling: Scheduling, labels: Mapping[str, str]) -> bool:
    if any(key in labels and labels[key] != value for key, value in scheduling.selector):
        return False
    return scheduling.terms is None or any(
        term and all(r.on_name or r.key not in labels or r.holds(labels, "") for r in term) for term in scheduling.terms
    )
