"""The manifests of deploy/ as kustomize renders them, and what of them has to be different without a network."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from tests.e2e.harness.api import Object
    from tests.e2e.harness.controlplane import Cluster

ROOT = Path(__file__).parents[3]
NAMESPACE = "mps-system"
SERVICE = "mps-webhook"


def render(cluster: Cluster, target: str) -> list[Object]:
    """Return the objects of a kustomization below the repository's root."""
    done = cluster.kubectl("kustomize", str(ROOT / target))
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def one(objects: list[Object], kind: str, name: str) -> Object:
    """Return the one object of a kind and name."""
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


def reachable(objects: list[Object], port: int) -> list[Object]:
    """Return the objects with the webhooks' Service leading to a port of this machine.

    Nothing routes a ClusterIP here, and the API server would dial out for it; so no such Service may ever stand behind
    a webhook configuration. An ExternalName is dialled with the port that the configuration names, hence that too.
    """
    found = copy.deepcopy(objects)
    for obj in found:
        if obj["kind"] == "Service" and obj["metadata"]["name"] == SERVICE:
            obj["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        for webhook in obj.get("webhooks") or ():
            webhook["clientConfig"]["service"]["port"] = port
    return found


class Container:
    """A container of a Deployment, to be run as a process: its arguments, environment, mounts and probe."""

    def __init__(self, objects: list[Object], deployment: str) -> None:
        pod = one(objects, "Deployment", deployment)["spec"]["template"]["spec"]
        (self._container,) = pod["containers"]
        self._volumes = {volume["name"]: volume for volume in pod["volumes"]}
        self.account: str = pod["serviceAccountName"]

    def command(self, mounts: dict[str, Path]) -> list[str]:
        """Return its arguments with its mount paths replaced by folders and files of this machine."""
        return [str(mounts.get(argument, argument)) for argument in self._container["args"]]

    @property
    def env(self) -> dict[str, str]:
        """The variables it is given as plain values."""
        return {e["name"]: e["value"] for e in self._container.get("env") or () if e.get("value")}

    def mount_path(self, volume: str) -> str:
        """Where a volume is mounted."""
        (path,) = (m["mountPath"] for m in self._container["volumeMounts"] if m["name"] == volume)
        return str(path)

    def secret_items(self, volume: str) -> tuple[str, list[str]]:
        """Return the Secret behind a volume and the files it brings."""
        secret: Any = self._volumes[volume]["secret"]
        return secret["secretName"], [item["path"] for item in secret["items"]]

    def readiness(self) -> tuple[float, int]:
        """Return the readiness probe's period in seconds and its failure threshold."""
        probe = self._container["readinessProbe"]
        return float(probe["periodSeconds"]), int(probe["failureThreshold"])
