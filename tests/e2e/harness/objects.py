"""Pods, nodes and workloads to send, and what is compared of what comes back."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

from tests.e2e.harness.api import Object, eventually
from tests.e2e.harness.manifests import one, render

if TYPE_CHECKING:
    from tests.e2e.harness.controlplane import Cluster

MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
CONFIG_MAP = "nvidia-device-plugin-configs"
GPU = {"limits": {"nvidia.com/gpu": "1"}}
QUOTA = {"mps.nvidia.com/memory-limit": "3Gi", "mps.nvidia.com/active-thread-percentage": "25"}

_numbers = itertools.count(1)


def unique(prefix: str) -> str:
    """Return a name that no other object of this run has."""
    return f"{prefix}-{next(_numbers)}"


def container(name: str = "app", **fields: Any) -> Object:
    """A container that asks for one share; `resources=None` leaves that out."""
    found = {"name": name, "image": "example.com/app:1", "resources": copy.deepcopy(GPU), **fields}
    return {key: value for key, value in found.items() if value is not None}


def pod(
    annotations: Object | None = None,
    *containers: Object,
    name: str = "",
    namespace: str = "default",
    labels: Object | None = None,
    **spec: Any,
) -> Object:
    """A pod for a node of mps-4x, of one container that asks for a share unless told otherwise."""
    metadata: Object = {"name": name or unique("pod"), "namespace": namespace}
    if annotations is not None:
        metadata["annotations"] = annotations
    if labels is not None:
        metadata["labels"] = labels
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers) or [container()], "nodeSelector": {CONFIG_LABEL: "mps-4x"}, **spec},
    }


def plain(*, namespace: str = "default", **fields: Any) -> Object:
    """A pod that has nothing to do with GPUs."""
    found = pod(None, container(resources=None, **fields), namespace=namespace)
    del found["spec"]["nodeSelector"]
    return found


def template(annotations: Object | None = None, **spec: Any) -> Object:
    """The same as a pod template."""
    made = pod(annotations, **spec)
    return {"metadata": {"labels": {"app": "w"}, "annotations": annotations or {}}, "spec": made["spec"]}


def workload(kind: str, made: Object, *, name: str = "", namespace: str = "default", **metadata: Any) -> Object:
    """A workload of a kind, with a pod template."""
    selector = {"matchLabels": {"app": "w"}}
    job_template = copy.deepcopy(made)
    job_template["spec"]["restartPolicy"] = "Never"
    specs: dict[str, Object] = {
        "Deployment": {"replicas": 1, "selector": selector, "template": made},
        "ReplicaSet": {"replicas": 1, "selector": selector, "template": made},
        "StatefulSet": {"replicas": 1, "selector": selector, "serviceName": "w", "template": made},
        "DaemonSet": {"selector": selector, "template": made},
        "Job": {"template": job_template},
        "CronJob": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": job_template}}},
    }
    return {
        "apiVersion": "batch/v1" if kind in ("Job", "CronJob") else "apps/v1",
        "kind": kind,
        "metadata": {"name": name or unique(kind.lower()), "namespace": namespace, **metadata},
        "spec": specs[kind],
    }


def env_of(found: Object, index: int = 0, kind: str = "containers") -> dict[str, str]:
    """The plain variables of one container as the API server has stored them."""
    return {e["name"]: e.get("value", "") for e in found["spec"][kind][index].get("env") or ()}


def stored_spec(found: Object) -> Object:
    """A pod's spec without what differs between any two pods: the token's volume has a random name."""
    spec = copy.deepcopy(found["spec"])
    spec["volumes"] = [v for v in spec.get("volumes") or () if not v["name"].startswith("kube-api-access-")]
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for one_container in spec.get(kind) or ():
            one_container["volumeMounts"] = [
                m for m in one_container.get("volumeMounts") or () if not m["name"].startswith("kube-api-access-")
            ]
    spec.pop("nodeName", None)
    result: Object = spec
    return result


def gpu_node(name: str, config: str, replicas: int, *, cards: int = 8, memory: int = 15360) -> Object:
    """A node with Tesla T4 cards, as GPU feature discovery labels it and the device plugin reports it."""
    shared = replicas > 1
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                CONFIG_LABEL: config,
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.count": str(cards),
                "nvidia.com/gpu.memory": str(memory),
                "nvidia.com/gpu.product": "Tesla-T4-SHARED" if shared else "Tesla-T4",
                "nvidia.com/gpu.replicas": str(replicas),
                "nvidia.com/gpu.sharing-strategy": "mps" if shared else "none",
                "nvidia.com/gpu.compute.major": "7",
                "nvidia.com/gpu.compute.minor": "5",
                "nvidia.com/mig.capable": "false",
                "nvidia.com/mps.capable": str(shared).lower(),
            },
        },
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500", "nvidia.com/gpu": str(cards * replicas)},
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "500", "nvidia.com/gpu": str(cards * replicas)},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def add_node(cluster: Cluster, node: Object) -> None:
    """Create a node that counts as ready: where controllers run, wait until they have seen it."""
    cluster.api.create(node)
    name = node["metadata"]["name"]
    cluster.api.patch("Node", name, {"status": node["status"]}, subresource="status")
    if cluster.controllers:
        eventually(lambda: not cluster.api.get("Node", name)["spec"].get("taints"), f"{name} without taints", 60.0)


def configs(cluster: Cluster) -> Object:
    """The ConfigMap of device-plugin configurations as deploy/mps-runtime brings it."""
    return one(render(cluster, "deploy/mps-runtime"), "ConfigMap", CONFIG_MAP)


def add_configs(cluster: Cluster) -> None:
    """Apply that ConfigMap."""
    cluster.applied([configs(cluster)])
