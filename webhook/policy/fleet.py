"""The fleet: many nodes, few profiles.

Nodes that no rule and no selector of the pod can tell apart form one group, so a verdict costs as much at 5,000 nodes
as at ten. The labels that placement steers by always tell groups apart; those that a pod's own selector names are
added for it, and the grouping is kept for the next pod that names the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

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
        self._groupings: dict[frozenset[str], tuple[Group, ...]] = {}
        self._expected = tuple(_expected_group(e, self.configs, settings) for e in settings.expected_profiles)
        self.groups(_STEERING)

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def nodes(self) -> Iterator[tuple[Node, Profile]]:
        """Every node with its profile."""
        return iter(self._nodes.values())

    def groups(self, keys: frozenset[str] = _STEERING) -> tuple[Group, ...]:
        """The GPU nodes, grouped so that nodes of one group agree in the steering labels and in these."""
        keys |= _STEERING
        grouping = self._groupings.get(keys)
        if grouping is None:
            grouping = _group(self._with_gpus, sorted(keys))
            if len(self._groupings) >= _MAX_GROUPINGS:
                del self._groupings[next(k for k in self._groupings if k != _STEERING)]
            self._groupings[keys] = grouping
        return grouping

    def candidates(self, scheduling: Scheduling, request: Mapping[str, int]) -> tuple[Group, ...]:
        """The groups of nodes that the pod can run on: enough GPUs, selected, tolerated."""
        if scheduling.node_name is not None:
            return tuple(g for g in self._named((scheduling.node_name,), frozenset()) if g.holds(request))
        names, keys = self._names(scheduling), scheduling.keys
        groups = self.groups(keys) if names is None else self._named(names, keys)
        return tuple(
            g
            for g in groups
            if g.holds(request)
            and scheduling.tolerates(g.taints, request)
            and scheduling.selects(g.labels, g.names[0] if g.names else "")
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

    def _names(self, scheduling: Scheduling) -> Iterable[str] | None:
        """The nodes to look at one by one, where the pod tells nodes apart by their names; None where it does not."""
        names = scheduling.names
        if names is not None:
            return names
        hosts = scheduling.pinned(HOSTNAME_LABEL, self._by_hostname.__contains__)
        if hosts or scheduling.insists(HOSTNAME_LABEL):
            return [name for host in hosts for name in self._by_hostname[host]]
        return self._nodes if any(r.on_name for term in scheduling.terms or () for r in term) else None

    def _named(self, names: Iterable[str], keys: frozenset[str]) -> tuple[Group, ...]:
        found = (self._nodes.get(name) for name in names)
        return tuple(
            _single(node, profile, keys | _STEERING) for node, profile in filter(None, found) if node.allocatable
        )


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that a decision looks at beside the object: the fleet, the namespaces by name, the settings.

    It never changes; what was decided against it is remembered with it.
    """

    fleet: Fleet
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory, repr=False, compare=False)

    @property
    def settings(self) -> Settings:
        """The settings the fleet was built with."""
        return self.fleet.settings


def _group(nodes: Iterable[tuple[Node, Profile]], keys: list[str]) -> tuple[Group, ...]:
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


def _single(node: Node, profile: Profile, keys: Iterable[str]) -> Group:
    return Group(profile, _only(node.labels, keys), node.taints, node.allocatable, (node.name,))


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
