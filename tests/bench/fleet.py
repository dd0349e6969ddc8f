"""Fleets of any size, the same on every run: raw Node objects as an API server lists them, and their ConfigMap.

Nodes carry the labels that kubelet, a cloud provider, Node Feature Discovery and GPU Feature Discovery put there, about
forty-five each, two of them different on every node. Profiles are pairs of a configuration and a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.builders import GPU
from webhook.policy import Fleet, Inventory, Namespace, Settings, parse_config_map, project_node
from webhook.policy.nodes import (
    CONFIG_LABEL,
    INSTANCE_TYPE_LABEL,
    MAJOR_LABEL,
    MEMORY_LABEL,
    MINOR_LABEL,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    STRATEGY_LABEL,
)

FEW = 4
MANY = 200
NAMESPACE = "team-a"


class Product(NamedTuple):
    """A card: memory in MiB, compute capability, cards in a node."""

    name: str
    memory: int
    major: int
    minor: int
    cards: int
    family: str


PRODUCTS = (
    Product("Tesla-T4", 15360, 7, 5, 1, "turing"),
    Product("NVIDIA-A10", 23028, 8, 6, 1, "ampere"),
    Product("NVIDIA-A10G", 23028, 8, 6, 4, "ampere"),
    Product("NVIDIA-A16", 15356, 8, 6, 4, "ampere"),
    Product("NVIDIA-A2", 15356, 8, 6, 1, "ampere"),
    Product("NVIDIA-A30", 24576, 8, 0, 2, "ampere"),
    Product("NVIDIA-A40", 46068, 8, 6, 4, "ampere"),
    Product("NVIDIA-A100-SXM4-40GB", 40960, 8, 0, 8, "ampere"),
    Product("NVIDIA-A100-SXM4-80GB", 81920, 8, 0, 8, "ampere"),
    Product("NVIDIA-A100-PCIE-40GB", 40960, 8, 0, 4, "ampere"),
    Product("NVIDIA-L4", 23034, 8, 9, 1, "ada-lovelace"),
    Product("NVIDIA-L40", 46068, 8, 9, 4, "ada-lovelace"),
    Product("NVIDIA-L40S", 46068, 8, 9, 4, "ada-lovelace"),
    Product("NVIDIA-RTX-6000-Ada-Generation", 49140, 8, 9, 2, "ada-lovelace"),
    Product("NVIDIA-H100-80GB-HBM3", 81559, 9, 0, 8, "hopper"),
    Product("NVIDIA-H100-PCIe", 81559, 9, 0, 4, "hopper"),
    Product("NVIDIA-H100-NVL", 95830, 9, 0, 2, "hopper"),
    Product("NVIDIA-H200", 143771, 9, 0, 8, "hopper"),
    Product("NVIDIA-B200", 183359, 10, 0, 8, "blackwell"),
    Product("Quadro-RTX-6000", 24576, 7, 5, 2, "turing"),
)

MPS = (4, 2, 1, 10, 3, 5, 6, 8, 16)
CONFIGS = (*(f"mps-{replicas}x" for replicas in MPS), "ts-4x")
"""The first four are those of the fleet with few profiles: two that fit the benchmark's pod, two that do not."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the nodes of one profile have in common."""

    config: str
    strategy: str
    replicas: int
    product: Product


def config_map() -> dict[str, Any]:
    """The device plugin's ConfigMap with every configuration that a fleet uses."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "nvidia-device-plugin-configs", "namespace": "kube-system"},
        "data": {name: _text(*_sharing(name)) for name in CONFIGS},
    }


def namespaces() -> dict[str, Any]:
    """Fifty namespaces, of which the benchmark's pod lives in one."""
    names = [NAMESPACE, *(f"team-{number}" for number in range(1, 50))]
    label = "pod-security.kubernetes.io/enforce"
    return {
        "apiVersion": "v1",
        "kind": "NamespaceList",
        "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {label: "privileged"}}}
            for name in names
        ],
    }


def nodes(count: int, profiles: int) -> Iterator[dict[str, Any]]:
    """`count` nodes that take turns in `profiles` profiles (4 or 200); fewer nodes than that have a profile each."""
    kinds = list(_kinds(profiles))
    for number in range(count):
        yield _node(number, kinds[number % profiles])


def node_list(count: int, profiles: int) -> dict[str, Any]:
    """The same as `kubectl get nodes -o json` prints them."""
    return {"apiVersion": "v1", "kind": "NodeList", "items": list(nodes(count, profiles))}


def inventory(count: int, profiles: int) -> Inventory:
    """The same as a decision looks at them."""
    fleet = Fleet(map(project_node, nodes(count, profiles)), parse_config_map(config_map()["data"]), Settings())
    return Inventory(fleet, {NAMESPACE: Namespace(NAMESPACE, "privileged")})


def _kinds(profiles: int) -> Iterator[_Kind]:
    names = CONFIGS[:FEW] if profiles == FEW else CONFIGS
    products, rest = divmod(profiles, len(names))
    if rest or products > len(PRODUCTS):
        raise ValueError(f"there are fleets of {FEW} and of {MANY} profiles, not of {profiles}")
    for product in PRODUCTS[:products]:
        for name in names:
            yield _Kind(name, *_sharing(name), product)


def _sharing(config: str) -> tuple[str, int]:
    replicas = int(config.partition("-")[2].removesuffix("x"))
    if config.startswith("ts-"):
        return "time-slicing", replicas
    return "mps" if replicas > 1 else "none", replicas


def _text(strategy: str, replicas: int) -> str:
    if strategy == "none":
        return "version: v1\n"
    key = "mps" if strategy == "mps" else "timeSlicing"
    return f"version: v1\nsharing: {{{key}: {{resources: [{{name: {GPU}, replicas: {replicas}}}]}}}}\n"


def _node(number: int, kind: _Kind) -> dict[str, Any]:
    name = f"gpu-{number:05d}.example.com"
    gpus = str(kind.product.cards * kind.replicas)
    amounts = {"cpu": "32", "ephemeral-storage": "1843269236Ki", "memory": "129886400Ki", "pods": "110", GPU: gpus}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"5d5bd6c4-0000-4000-8000-{number:012d}",
            "resourceVersion": str(880000 + number),
            "creationTimestamp": "2026-11-01T08:00:00Z",
            "labels": {**_COMMON, **_kind_labels(kind), **_own_labels(number, name)},
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.example.com":"i-{number:017x}"}}',
                "nfd.node.kubernetes.io/feature-labels": ",".join(k for k in _COMMON if k.startswith("feature.")),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {
            "podCIDR": f"10.{number // 256}.{number % 256}.0/24",
            "providerID": f"example:///zone-{number % 3}/i-{number:017x}",
            "taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}],
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": f"10.{number // 256}.{number % 256}.1"}],
            "allocatable": dict(amounts),
            "capacity": dict(amounts),
            "conditions": [
                {
                    "type": condition,
                    "status": "True" if condition == "Ready" else "False",
                    "lastHeartbeatTime": "2026-11-30T22:55:12Z",
                    "lastTransitionTime": "2026-11-01T08:00:30Z",
                    "reason": f"Kubelet{condition}",
                    "message": "as the kubelet reports it",
                }
                for condition in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.36.0", "operatingSystem": "linux"},
        },
    }


def _own_labels(number: int, name: str) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": name,
        "nvidia.com/gfd.timestamp": str(1764500000 + number),
        "topology.kubernetes.io/zone": f"region-1{'abc'[number % 3]}",
    }


def _kind_labels(kind: _Kind) -> dict[str, str]:
    product = kind.product
    machine = f"gpu.{product.name.lower()}.{product.cards}"
    return {
        CONFIG_LABEL: kind.config,
        MEMORY_LABEL: str(product.memory),
        MAJOR_LABEL: str(product.major),
        MINOR_LABEL: str(product.minor),
        PRODUCT_LABEL: product.name + ("-SHARED" if kind.strategy != "none" else ""),
        REPLICAS_LABEL: str(kind.replicas),
        STRATEGY_LABEL: kind.strategy,
        INSTANCE_TYPE_LABEL: machine,
        "nvidia.com/gpu.count": str(product.cards),
        "nvidia.com/gpu.family": product.family,
        "nvidia.com/gpu.machine": machine,
        "nvidia.com/mps.capable": str(kind.strategy == "mps").lower(),
    }


_COMMON: Mapping[str, str] = {
    "beta.kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "topology.kubernetes.io/region": "region-1",
    "example.com/node-pool": "gpu",
    "feature.node.kubernetes.io/cpu-cpuid.AVX512F": "true",
    "feature.node.kubernetes.io/cpu-hardware_multithreading": "true",
    "feature.node.kubernetes.io/cpu-model.family": "6",
    "feature.node.kubernetes.io/cpu-model.vendor_id": "Intel",
    "feature.node.kubernetes.io/kernel-version.major": "6",
    "feature.node.kubernetes.io/kernel-version.minor": "8",
    "feature.node.kubernetes.io/memory-numa": "true",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    "nvidia.com/cuda.driver-version.full": "580.159.03",
    "nvidia.com/cuda.driver-version.major": "580",
    "nvidia.com/cuda.driver-version.minor": "159",
    "nvidia.com/cuda.runtime-version.full": "13.0",
    "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/gpu.deploy.gpu-feature-discovery": "true",
    "nvidia.com/gpu.deploy.operator-validator": "true",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/mig.capable": "false",
    "nvidia.com/vgpu.present": "false",
}
