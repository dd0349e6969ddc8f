"""Pods through the policy core: the variables that a container of a node with this card ends up with."""

from __future__ import annotations

from typing import Any

from tests.gpu.daemon import Card
from webhook.policy import Fleet, Inventory, Settings, judge_pod, parse_config, project_node

CONFIG = "version: v1\nsharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {}}}]}}}}\n"


def variables(
    card: Card, replicas: int, annotations: dict[str, str], env: dict[str, str] | None = None
) -> dict[str, str]:
    """The environment of the one container of a pod with these annotations and variables, once patched.

    Raises AssertionError with the denial where the webhook denies the pod.
    """
    pod: dict[str, Any] = {
        "metadata": {"annotations": {f"mps.nvidia.com/{k}": v for k, v in annotations.items()}},
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    "env": [{"name": k, "value": v} for k, v in (env or {}).items()],
                }
            ]
        },
    }
    verdict = judge_pod(pod, "default", inventory(card, replicas))
    assert verdict.allowed, verdict.denial()
    entries = pod["spec"]["containers"][0]["env"]
    for operation in verdict.patch:
        if operation["op"] == "add":
            entries.append(operation["value"])
        else:
            entries[int(operation["path"].split("/")[-2])]["value"] = operation["value"]
    return {entry["name"]: entry["value"] for entry in entries}


def inventory(card: Card, replicas: int) -> Inventory:
    """One node with this card, cut into so many shares."""
    major, minor = card.compute_capability
    config = f"mps-{replicas}x"
    node = {
        "metadata": {
            "name": "gpu",
            "labels": {
                "nvidia.com/device-plugin.config": config,
                "nvidia.com/gpu.memory": str(card.memory_mib),
                "nvidia.com/gpu.product": card.name.replace(" ", "-"),
                "nvidia.com/gpu.compute.major": str(major),
                "nvidia.com/gpu.compute.minor": str(minor),
            },
        },
        "status": {"allocatable": {"nvidia.com/gpu": str(replicas)}},
    }
    return Inventory(Fleet([project_node(node)], {config: parse_config(CONFIG.format(replicas))}, Settings()))
