"""Objects as people write them, in few words: ``pod().gpu(1).memory("3Gi").build()``, ``node("t4", config="mps-4x")``.

Everything built is raw, as the API server would send it; ``inventory`` projects nodes the way the product does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Self

from webhook.policy import DeviceConfig, Fleet, Inventory, Namespace, Settings, parse_config_map, project_node
from webhook.policy.nodes import (
    CONFIG_LABEL,
    MAJOR_LABEL,
    MEMORY_LABEL,
    MINOR_LABEL,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    STRATEGY_LABEL,
)

GPU = "nvidia.com/gpu"
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
HOSTNAME = "kubernetes.io/hostname"


def _mps(replicas: int, extra: str = "") -> str:
    return f"version: v1\nsharing: {{mps: {{{extra}resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"


CONFIGS: Mapping[str, DeviceConfig] = parse_config_map(
    {
        "mps-1x": "version: v1\n",
        "mps-2x": _mps(2),
        "mps-4x": _mps(4),
        "mps-10x": _mps(10),
        "mps-2x-multi": _mps(2, "failRequestsGreaterThanOne: false, "),
        "mps-4x-renamed": _mps(4, "renameByDefault: true, "),
        "ts-4x": _mps(4).replace("mps:", "timeSlicing:"),
    }
)


class PodBuilder:
    """A pod that grows call by call; what speaks of a container speaks of the one named last."""

    def __init__(self, container: str = "app") -> None:
        self._pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "team-a"},
            "spec": {"containers": []},
        }
        self._current: dict[str, Any] = {}
        self.container(container)

    def build(self) -> dict[str, Any]:
        """The pod as a dict of its own."""
        return copy.deepcopy(self._pod)

    def container(self, name: str) -> Self:
        return self._add("containers", {"name": name, "image": "example.com/app:1"})

    def init(self, name: str) -> Self:
        return self._add("initContainers", {"name": name, "image": "example.com/app:1"})

    def sidecar(self, name: str) -> Self:
        return self._add("initContainers", {"name": name, "image": "example.com/app:1", "restartPolicy": "Always"})

    def gpu(self, count: object = 1, resource: str = GPU) -> Self:
        return self.resources(limits={resource: count})

    def resources(self, **amounts: Mapping[str, object]) -> Self:
        """``limits`` and ``requests``, each added to what is there."""
        resources = self._current.setdefault("resources", {})
        for kind, values in amounts.items():
            resources.setdefault(kind, {}).update(values)
        return self

    def env(self, name: str, value: str) -> Self:
        return self.entry({"name": name, "value": value})

    def entry(self, entry: object) -> Self:
        """One raw entry of env."""
        self._current.setdefault("env", []).append(entry)
        return self

    def put(self, **fields: object) -> Self:
        """Raw fields of the container."""
        self._current.update(fields)
        return self

    def annotate(self, key: str, value: object) -> Self:
        self._pod["metadata"].setdefault("annotations", {})[key] = value
        return self

    def label(self, key: str, value: str) -> Self:
        self._pod["metadata"].setdefault("labels", {})[key] = value
        return self

    def memory(self, value: str, container: str | None = None) -> Self:
        return self._quota("memory-limit", value, container)

    def threads(self, value: str, container: str | None = None) -> Self:
        return self._quota("active-thread-percentage", value, container)

    def processes(self, value: str, container: str | None = None) -> Self:
        return self._quota("processes", value, container)

    def host_ipc(self, value: str) -> Self:
        return self._quota("host-ipc", value, None)

    def spec(self, **fields: object) -> Self:
        """Raw fields of the pod's spec."""
        self._pod["spec"].update(fields)
        return self

    def config(self, name: str) -> Self:
        return self.select(**{CONFIG_LABEL: name})

    def select(self, **labels: str) -> Self:
        self._pod["spec"].setdefault("nodeSelector", {}).update(labels)
        return self

    def terms(self, *terms: object) -> Self:
        """Required node affinity with these terms."""
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return self.spec(affinity={"nodeAffinity": required})

    def tolerate(self, **toleration: str) -> Self:
        self._pod["spec"].setdefault("tolerations", []).append(toleration)
        return self

    def _quota(self, name: str, value: str, container: str | None) -> Self:
        key = f"mps.nvidia.com/{name}" if container is None else f"{name}.mps.nvidia.com/{container}"
        return self.annotate(key, value)

    def _add(self, group: str, container: dict[str, Any]) -> Self:
        self._pod["spec"].setdefault(group, []).append(container)
        self._current = container
        return self


def pod(container: str = "app") -> PodBuilder:
    """A pod with one container and nothing asked."""
    return PodBuilder(container)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """One expression of a node selector term."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def where(*expressions: dict[str, Any], names: Iterable[str] = ()) -> dict[str, Any]:
    """A node selector term; ``names`` become its matchFields."""
    term: dict[str, Any] = {"matchExpressions": list(expressions)} if expressions else {}
    fields = [expression("metadata.name", "In", *names)] if names else []
    return {**term, **({"matchFields": fields} if fields else {})}


def node(
    name: str,
    *,
    config: str | None = "mps-4x",
    memory: int | None = 15360,
    cards: int = 1,
    capability: str | None = "7.5",
    product: str | None = "Tesla-T4",
    labels: Mapping[str, str | None] | None = None,
    allocatable: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """A GPU node as GPU feature discovery labels it and the device plugin fills it; ``labels`` None removes one."""
    shared = CONFIGS.get(config or "mps-1x", DeviceConfig())
    own: dict[str, str | None] = {
        HOSTNAME: f"host-{name}",
        CONFIG_LABEL: config,
        MEMORY_LABEL: None if memory is None else str(memory),
        PRODUCT_LABEL: None if product is None else product + ("-SHARED" if _suffixed(shared) else ""),
        REPLICAS_LABEL: str(shared.replicas),
        STRATEGY_LABEL: shared.strategy,
    }
    if capability is not None:
        own[MAJOR_LABEL], own[MINOR_LABEL] = capability.split(".")
    own.update(labels or {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {k: v for k, v in own.items() if v is not None}},
        "spec": {"taints": [dict(t) for t in taints]},
        "status": {
            "allocatable": {"cpu": "16", shared.resource: str(cards * shared.replicas), **(allocatable or {})},
        },
    }


def mig_node(name: str = "mig") -> dict[str, Any]:
    """A node whose card is cut with MIG, strategy mixed."""
    return node(
        name,
        config="mps-1x",
        memory=9984,
        capability="8.0",
        product="NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        labels={REPLICAS_LABEL: "0"},
        allocatable={GPU: "0", "nvidia.com/mig-1g.10gb": "7"},
    )


def inventory(
    *nodes: Mapping[str, Any],
    configs: Mapping[str, DeviceConfig] = CONFIGS,
    namespaces: Mapping[str, str | None] | None = None,
    **settings: Any,
) -> Inventory:
    """Nodes, configurations, namespaces (name → enforced Pod Security level) and settings as a decision takes them."""
    fleet = Fleet(map(project_node, nodes), configs, Settings(**settings))
    return Inventory(fleet, {name: Namespace(name, level) for name, level in (namespaces or {}).items()})


def _suffixed(config: DeviceConfig) -> bool:
    return config.strategy != "none" and config.resource == GPU
