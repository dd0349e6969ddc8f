"""A control plane on the loopback address: etcd and kube-apiserver, and the controllers where they are at hand.

Found by the convention of envtest: `KUBEBUILDER_ASSETS` names a folder with the binaries, or `USE_EXISTING_CLUSTER`
is true and KUBECONFIG names a cluster whose API server runs on this machine (it has to reach this process).
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.e2e.harness.api import Api, ApiError, Object, eventually
from tests.e2e.harness.processes import Process, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

HOW_TO_GET_THEM = (
    "no control plane: set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl "
    '(e.g. KUBEBUILDER_ASSETS="$(setup-envtest use -p path)"), or USE_EXISTING_CLUSTER=true and KUBECONFIG'
)
NEEDED = ("etcd", "kube-apiserver", "kubectl")
DEFAULT_ASSETS = Path("/usr/local/kubebuilder/bin")


def assets() -> Path | None:
    """Return the folder with the binaries of a control plane, None where there is none."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or DEFAULT_ASSETS)
    return folder if all(os.access(folder / name, os.X_OK) for name in NEEDED) else None


def existing() -> Path | None:
    """Return the kubeconfig of a cluster that is to be used as it is, None where none is named."""
    wanted = os.environ.get("USE_EXISTING_CLUSTER", "").lower() in ("true", "1", "yes")
    path = os.environ.get("KUBECONFIG", "")
    return Path(path) if wanted and path and Path(path).is_file() else None


class Cluster:
    """An API server with kubectl to talk to it. `controllers`: whether kube-controller-manager runs."""

    def __init__(self, folder: Path, kubeconfig: Path, kubectl: str, *, controllers: bool) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.controllers = controllers
        self._kubectl = kubectl
        self.api = Api.of_kubeconfig(kubeconfig)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, with whatever result."""
        env = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            [self._kubectl, *arguments], env=env, input=stdin, capture_output=True, text=True, check=False, timeout=60
        )

    def applied(self, objects: list[Object]) -> None:
        """`kubectl apply --server-side` objects; raises AssertionError with what kubectl says."""
        done = self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
        assert done.returncode == 0, done.stderr

    def removed(self, objects: list[Object]) -> None:
        """`kubectl delete` objects, as far as they are there."""
        options = ("--ignore-not-found", "--wait=false", "-f", "-")
        done = self.kubectl("delete", *options, stdin=yaml.safe_dump_all(objects))
        assert done.returncode == 0, done.stderr

    def account(self, name: str, namespace: str) -> Path:
        """Return a kubeconfig of a ServiceAccount, with a token as its pods would get."""
        done = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", "4h")
        assert done.returncode == 0, done.stderr
        found: Any = yaml.safe_load(self.kubeconfig.read_text())
        current = next(c["context"]["cluster"] for c in found["contexts"] if c["name"] == found["current-context"])
        cluster = next(c["cluster"] for c in found["clusters"] if c["name"] == current)
        token = self.folder / f"{namespace}-{name}.token"
        token.write_text(done.stdout.strip())
        path = self.folder / f"{namespace}-{name}.kubeconfig"
        path.write_text(kubeconfig_of(cluster, {"tokenFile": str(token)}))
        return path

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """Make a namespace in which pods can be created at once, and return its name."""
        self.api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        )
        self.account_ready(name)
        return name

    def account_ready(self, namespace: str) -> None:
        """See to it that the namespace has its default ServiceAccount, without which no pod is accepted."""
        if self.controllers:
            eventually(lambda: self.api.find("ServiceAccount", "default", namespace), f"ServiceAccount in {namespace}")
            return
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace},
        }
        if self.api.find("ServiceAccount", "default", namespace) is None:
            self.api.create(account)

    def stop(self) -> None:
        """Give it back; an existing cluster stays as it is."""
        self.api.close()


class ControlPlane(Cluster):
    """A control plane of our own, made in `folder` and gone with it.

    With `controllers`, kube-controller-manager and kube-scheduler run too where they are among the binaries: owners
    make pods then, and pods are bound to nodes. There are no kubelets, so nothing runs: nodes are plain objects.
    """

    def __init__(self, folder: Path, binaries: Path, *, controllers: bool = True) -> None:
        self._binaries = binaries
        both = all(os.access(binaries / name, os.X_OK) for name in ("kube-controller-manager", "kube-scheduler"))
        self._etcd_port, peer, self._port, manager, scheduler = free_ports(5)
        token = secrets.token_hex(16)
        (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        _write_key(folder / "sa.key", folder / "sa.pub")
        self._authority = folder / "certs" / "apiserver.crt"
        kubeconfig = folder / "kubeconfig"
        self.url = f"https://127.0.0.1:{self._port}"
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        self.etcd = Process(
            "etcd",
            [
                str(binaries / "etcd"),
                f"--data-dir={folder / 'etcd'}",
                "--unsafe-no-fsync",
                "--log-level=warn",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster=default=http://127.0.0.1:{peer}",
            ],
            folder / "etcd.log",
        )
        self.api_server = Process(
            "kube-apiserver",
            [
                str(binaries / "kube-apiserver"),
                f"--etcd-servers={etcd}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={self._port}",
                f"--cert-dir={folder / 'certs'}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                f"--service-account-key-file={folder / 'sa.pub'}",
                f"--service-account-signing-key-file={folder / 'sa.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--authorization-mode=RBAC",
                "--endpoint-reconciler-type=none",
                "--allow-privileged=true",
                # Several providers switch it on; it touches tolerations, which placement reads.
                "--enable-admission-plugins=ExtendedResourceToleration",
            ],
            folder / "kube-apiserver.log",
        )
        self._controllers = [
            Process(
                "kube-controller-manager",
                [
                    str(binaries / "kube-controller-manager"),
                    f"--kubeconfig={kubeconfig}",
                    "--leader-elect=false",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={manager}",
                    f"--cert-dir={folder / 'manager-certs'}",
                    f"--service-account-private-key-file={folder / 'sa.key'}",
                    f"--root-ca-file={self._authority}",
                    f"--flex-volume-plugin-dir={folder / 'flex'}",
                    # Nobody sends the heartbeats of these nodes.
                    "--node-monitor-grace-period=24h",
                ],
                folder / "kube-controller-manager.log",
            ),
            Process(
                "kube-scheduler",
                [
                    str(binaries / "kube-scheduler"),
                    f"--kubeconfig={kubeconfig}",
                    "--leader-elect=false",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={scheduler}",
                    f"--cert-dir={folder / 'scheduler-certs'}",
                ],
                folder / "kube-scheduler.log",
            ),
        ]
        try:
            self._start_etcd()
            self.api_server.start()
            self.api_server.wait_until(self._authority.exists, "serving")
            cluster = {"server": self.url, "certificate-authority": str(self._authority)}
            kubeconfig.write_text(kubeconfig_of(cluster, {"token": token}))
            super().__init__(folder, kubeconfig, str(binaries / "kubectl"), controllers=controllers and both)
            self._await_api_server()
            if self.controllers:
                for process in self._controllers:
                    process.start()
            self.account_ready("default")
        except BaseException:
            self._end()
            raise

    def start_api_server(self) -> None:
        """Start the API server again, on the same port and data."""
        self.api_server.start()
        self._await_api_server()

    def compact(self) -> None:
        """Make etcd forget all versions but the last, so that watches from before are answered 410."""
        with httpx.Client(base_url=f"http://127.0.0.1:{self._etcd_port}", trust_env=False) as http:
            revision = http.post("/v3/kv/range", json={"key": "AA=="}).json()["header"]["revision"]
            answer = http.post("/v3/kv/compaction", json={"revision": revision, "physical": True})
            assert answer.status_code == 200, answer.text

    def stop(self) -> None:
        """End all of it."""
        super().stop()
        self._end()

    def _start_etcd(self) -> None:
        self.etcd.start()
        with httpx.Client(trust_env=False) as http:

            def healthy() -> bool:
                try:
                    return http.get(f"http://127.0.0.1:{self._etcd_port}/health").status_code == 200
                except httpx.HTTPError:
                    return False

            self.etcd.wait_until(healthy, "healthy")

    def _await_api_server(self) -> None:
        def ready() -> bool:
            try:
                # The roles are written after the start; without them no account may do anything.
                return self.api.text("/readyz") == "ok"
            except (httpx.HTTPError, ApiError):
                return False

        self.api_server.wait_until(ready, "ready", timeout=60.0)

    def _end(self) -> None:
        for process in reversed(self._controllers):
            process.send(signal.SIGTERM)
        for process in self._controllers:
            process.stop()
        # The API server first: without etcd it would not end by itself.
        self.api_server.stop()
        self.etcd.stop()


def kubeconfig_of(cluster: Object, user: Object) -> str:
    """Return the text of a kubeconfig with one context."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "e2e", "user": user}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
            "current-context": "e2e",
        }
    )


def _write_key(private: Path, public: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
