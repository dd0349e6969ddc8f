"""A sound cluster as files show it, out of the shipped manifests, to be broken one thing at a time."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from certs import self_signed
from tests.builders import PodBuilder, node
from webhook.cli.kubectl import main

Object = dict[str, Any]

ROOT = Path(__file__).parents[3]
ISSUED = self_signed(["mps-webhook.mps-system.svc"])
OTHER = self_signed(["mps-webhook.mps-system.svc"])


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def gpu_node(name: str, *, config: str | None = "mps-4x", cards: int = 1, **more: Any) -> Object:
    """A T4 node as GPU feature discovery and the device plugin leave it."""
    shares = config not in (None, "mps-1x")
    labels = {"nvidia.com/gpu.count": str(cards), "nvidia.com/mps.capable": str(shares).lower()} | more.pop(
        "labels", {}
    )
    return node(name, config=config, cards=cards, labels=labels, **more)


def bound(pod: PodBuilder, node_name: str, name: str, phase: str = "Running") -> Object:
    """A pod as it runs on a node."""
    made = pod.spec(nodeName=node_name).build()
    made["metadata"]["name"] = name
    made["status"] = {"phase": phase}
    return made


class Sound:
    """All objects of a sound installation. ``find`` one and change it; ``run`` asks a command about them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.objects: list[Object] = [
            *_manifests("mps-runtime/device-plugin.yaml"),
            *_manifests("mps-runtime/mps-control-daemon.yaml"),
            *_manifests("webhook/serving/mutating.yaml"),
            *_manifests("webhook/serving/validating.yaml"),
            *_manifests("webhook/serving/deployment.yaml"),
            *_manifests("webhook/certs/deployment.yaml"),
            _config_map(),
            settings((ROOT / "deploy/webhook/serving/settings.yaml").read_text()),
            _secret(),
            gpu_node("t4-a"),
            gpu_node("t4-b", config="mps-2x", cards=2),
        ]
        for found in self.objects:
            _complete(found)

    def find(self, kind: str, name: str) -> Object:
        (found,) = [o for o in self.objects if o["kind"] == kind and o["metadata"]["name"] == name]
        return found

    def remove(self, kind: str, name: str) -> None:
        self.objects.remove(self.find(kind, name))

    def add(self, *objects: Object) -> None:
        self.objects += objects

    def settings(self, text: str) -> None:
        """Give the webhook other settings."""
        self.find("ConfigMap", "mps-webhook-settings")["data"]["settings.yaml"] = text

    def webhook(self, kind: str, name: str = "pods.mps.nvidia.com") -> Object:
        """One webhook of a configuration."""
        webhooks: list[Object] = self.find(kind, "mps-webhook")["webhooks"]
        (found,) = [w for w in webhooks if w["name"] == name]
        return found

    def set_default(self, kind: str, name: str, value: str) -> None:
        """The default config, in every container of a workload."""
        for entry in _defaults(self.find(kind, name)):
            entry["value"] = value

    def file(self) -> Path:
        path = self._folder / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": self.objects}))
        return path

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "-f", str(self.file())])

    def doctor(self) -> list[dict[str, str]]:
        """What doctor says, without what is in order."""
        return [r for r in json.loads(self.run("doctor", "-o", "json").stdout) if r["status"] not in ("ok", "skipped")]


def _manifests(path: str) -> list[Object]:
    return copy.deepcopy(_read(path))


@lru_cache
def _read(path: str) -> list[Object]:
    return list(yaml.safe_load_all((ROOT / "deploy" / path).read_text()))


def _config_map() -> Object:
    data = {p.stem: p.read_text() for p in sorted((ROOT / "deploy/mps-runtime/configs").glob("*.yaml"))}
    name = {"name": "nvidia-device-plugin-configs", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}


def settings(text: str) -> Object:
    """The webhook's ConfigMap of settings."""
    metadata = {"name": "mps-webhook-settings", "namespace": "mps-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"settings.yaml": text}}


def _secret() -> Object:
    pair = ISSUED.pair
    parts = {"tls.crt": pair.certificate, "tls.key": pair.private_key, "ca.crt": pair.authorities}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "mps-webhook-tls", "namespace": "mps-system"},
        "data": {name: encoded(pem) for name, pem in parts.items()},
    }


def _complete(found: Object) -> None:
    """What the cluster's own components add."""
    match found["kind"]:
        case "DaemonSet":
            found["status"] = {"desiredNumberScheduled": 2, "numberReady": 2, "updatedNumberScheduled": 2}
        case "Deployment":
            found["status"] = {"readyReplicas": found["spec"]["replicas"]}
        case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
            for webhook in found["webhooks"]:
                webhook["clientConfig"]["caBundle"] = encoded(ISSUED.pair.authorities)
    for entry in _defaults(found):
        entry["value"] = "mps-1x"


def _defaults(found: Object) -> Iterator[Object]:
    spec = found.get("spec", {}).get("template", {}).get("spec", {})
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        for entry in container.get("env", ()):
            if entry["name"] in ("DEFAULT_CONFIG", "MPS_WEBHOOK_DEFAULT_CONFIG"):
                yield entry
