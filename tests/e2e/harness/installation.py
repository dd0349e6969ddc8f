"""The webhook as deploy/webhook installs it, its containers run as processes of this machine.

Everything else is the real thing: the objects in the cluster, the ServiceAccounts with their RBAC, the tokens, the
Secret and the way it gets to the serving processes, the API server's calls by the name of the Service.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx

from tests.e2e.harness.api import eventually
from tests.e2e.harness.manifests import NAMESPACE, SERVICE, Container, one, reachable, render
from tests.e2e.harness.metrics import Series, parse, total
from tests.e2e.harness.processes import Process, free_ports
from tests.e2e.harness.service import Backend, Service
from tests.e2e.harness.volumes import SecretVolume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness.controlplane import Cluster

_PRINTED = re.compile(r"^(https|health): https?://[^:]+:([0-9]+)$", re.MULTILINE)


class Replica:
    """One serving process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.port = self.health_port = 0
        self.backend: Backend | None = None

    def start(self) -> None:
        """Start it and learn its ports."""
        self.process.start()
        self.process.wait_until(lambda: len(_PRINTED.findall(self.process.output)) == 2, "listening")
        ports = dict(_PRINTED.findall(self.process.output))
        self.port, self.health_port = int(ports["https"]), int(ports["health"])

    def health(self, path: str) -> httpx.Response:
        """Ask its plain port."""
        return httpx.get(f"http://127.0.0.1:{self.health_port}{path}", timeout=10.0, trust_env=False)

    @property
    def ready(self) -> bool:
        """Whether it says so."""
        return self.process.alive and self.health("/readyz").status_code == 200

    def metrics(self) -> Series:
        """Its own metrics."""
        return parse(self.health("/metrics").text, ("mps_webhook_", "process_"))


class Installation:
    """The webhook in one cluster: two replicas behind a Service, and the process that rotates the certificates."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.folder = cluster.folder
        self.objects = render(cluster, "deploy/webhook")
        self._serving = Container(self.objects, SERVICE)
        self._rotating = Container(self.objects, f"{SERVICE}-certs")
        period, threshold = self._serving.readiness()
        self.service = Service(probe_period=period, failure_threshold=threshold)
        self.replicas: list[Replica] = []
        self._made = 0
        self.certs: Process | None = None
        self._certs_health_port = 0
        self.volume: SecretVolume | None = None

    def start(self) -> None:
        """Apply the manifests and bring everything up, in an order in which nothing is dialled that is not there."""
        self.apply()
        self.start_certs()
        secret, items = self._serving.secret_items("tls")
        self.volume = SecretVolume(self.cluster.api, NAMESPACE, secret, items, self.folder / "tls")
        settings = self.folder / "settings.yaml"
        settings.write_text(one(self.objects, "ConfigMap", "mps-webhook-settings")["data"]["settings.yaml"])
        eventually(lambda: self.volume and self.volume.ready, "the Secret of the serving certificate")
        for _ in range(2):
            self.add_replica()
        self.wait_ready()

    def apply(self) -> None:
        """`kubectl apply` the manifests, the Service of type ExternalName before anything else."""
        objects = reachable(self.objects, self.service.port)
        first = [o for o in objects if o["kind"] in ("Namespace", "Service")]
        self.cluster.applied(first)
        self.cluster.applied([o for o in objects if o not in first])

    def add_replica(self) -> Replica:
        """Start one more replica and put it behind the Service."""
        replica = self.start_replica()
        replica.backend = self.service.add(replica.port, replica.health_port)
        self.replicas.append(replica)
        return replica

    def start_replica(self, **env: str) -> Replica:
        """Start a replica that stands behind no Service. `env`: variables on top of the Deployment's own."""
        self._made += 1
        mounts = {
            self._serving.mount_path("settings"): self.folder / "settings.yaml",
            self._serving.mount_path("tls"): self.folder / "tls",
        }
        argv = [
            *_COMMAND,
            *self._serving.command(mounts),
            *("--host", "127.0.0.1", "--port", "0", "--health-port", "0", "--tls-dir", str(self.folder / "tls")),
        ]
        account = {"KUBECONFIG": str(self.cluster.account(self._serving.account, NAMESPACE))}
        name = f"replica-{self._made}"
        replica = Replica(Process(name, argv, self.folder / f"{name}.log", {**self._serving.env, **account, **env}))
        replica.start()
        return replica

    def forget(self, replica: Replica) -> None:
        """Take a replica out of the Service; its process has ended, or is ended now."""
        if replica.backend is not None:
            self.service.remove(replica.backend)
        self.replicas = [one for one in self.replicas if one is not replica]
        replica.process.stop()

    def wait_ready(self) -> None:
        """Wait until every replica gets connections and the API server trusts them."""

        def ready() -> bool:
            return all(r.backend is not None and r.backend.ready for r in self.replicas)

        eventually(ready, "all replicas ready", 30.0)
        eventually(self.answers, "the API server gets answers", 30.0)

    def answers(self) -> bool:
        """Whether a pod that is sent to the webhook comes back."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "canary", "labels": {"mps.nvidia.com/canary": "true"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        # A label of the domain is sent, and is no key of a quota.
        return self.cluster.api.try_create(pod, dry_run=True).code < 500

    def start_certs(self, *options: str) -> Process:
        """Start the process that keeps the certificates; options beat those of the manifests."""
        (self._certs_health_port,) = free_ports(1)
        argv = [
            *_COMMAND,
            *self._rotating.command({}),
            *("--health-host", "127.0.0.1", "--health-port", str(self._certs_health_port)),
            # As quick as the volume here, which a kubelet refreshes every minute or two.
            *("--poll", "1s", "--settle", "3s", *options),
        ]
        env = {**self._rotating.env, "KUBECONFIG": str(self.cluster.account(self._rotating.account, NAMESPACE))}
        self.certs = process = Process("certs", argv, self.folder / "certs.log", env)
        process.start()
        process.wait_until(self.certs_ready, "ready", 60.0)
        return process

    def stop_certs(self) -> None:
        """Stop it; nobody keeps the certificates in order then."""
        if self.certs is not None:
            self.certs.stop()

    def certs_health(self, path: str) -> httpx.Response:
        """Ask its plain port."""
        return httpx.get(f"http://127.0.0.1:{self._certs_health_port}{path}", timeout=10.0, trust_env=False)

    def certs_ready(self) -> bool:
        """Whether it says that the certificates are in order."""
        try:
            return self.certs_health("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def certs_metrics(self) -> Series:
        """Its metrics."""
        return parse(self.certs_health("/metrics").text, ("certs_",))

    def calls(self, endpoint: str, **labels: str) -> int:
        """Return how many reviews an endpoint has answered, over all replicas."""
        return round(
            sum(total(r.metrics(), "mps_webhook_requests", endpoint=endpoint, **labels) for r in self.replicas)
        )

    @contextmanager
    def down(self) -> Iterator[None]:
        """Stop all replicas, and start as many again at the end."""
        stopped = len(self.replicas)
        for replica in tuple(self.replicas):
            replica.process.kill()
            self.forget(replica)
        try:
            yield
        finally:
            for _ in range(stopped):
                self.add_replica()
            self.wait_ready()

    def remove(self) -> None:
        """Take the objects out of the cluster, the configurations first: without the processes they refuse GPU pods."""
        hooks = [o for o in self.objects if o.get("webhooks")]
        for objects in (hooks, [o for o in self.objects if o not in hooks]):
            self.cluster.removed(objects)

    def stop(self) -> None:
        """End all processes."""
        for replica in tuple(self.replicas):
            replica.process.kill()
            self.forget(replica)
        self.stop_certs()
        if self.volume is not None:
            self.volume.stop()
        self.service.stop()


_COMMAND = (sys.executable, "-m", "webhook.cli.main")
