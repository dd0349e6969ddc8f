"""The manifests themselves: applied again they disturb nothing, and each account may do what it needs and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.harness.manifests import NAMESPACE, SERVICE, reachable, render
from tests.e2e.harness.objects import QUOTA, env_of, pod
from tests.e2e.test_certificates import SECRET, bundles

if TYPE_CHECKING:
    from tests.e2e.harness.api import Api
    from tests.e2e.harness.controlplane import Cluster
    from tests.e2e.harness.installation import Installation

pytestmark = pytest.mark.usefixtures("watched")
SERVING = f"system:serviceaccount:{NAMESPACE}:mps-webhook"
CERTS = f"system:serviceaccount:{NAMESPACE}:mps-webhook-certs"
CONFIGURATION = "mutatingwebhookconfigurations.admissionregistration.k8s.io"


@pytest.mark.parametrize("server_side", [True, False], ids=["server-side", "client-side"])
def test_applying_again_leaves_certificates_and_bundles_alone(
    cluster: Cluster, api: Api, installation: Installation, server_side: bool
) -> None:
    before = bundles(api), api.get("Secret", SECRET, NAMESPACE)["data"]
    objects = reachable(installation.objects, installation.service.port)
    options = ["--server-side"] if server_side else []
    done = cluster.kubectl("apply", *options, "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert done.returncode == 0, done.stderr
    assert (bundles(api), api.get("Secret", SECRET, NAMESPACE)["data"]) == before
    assert env_of(api.create(pod(QUOTA), dry_run=True))


@pytest.mark.parametrize("target", ["deploy/mps-runtime", "deploy/overlays/gpu-feature-discovery", "deploy"])
def test_every_kustomization_is_accepted(cluster: Cluster, target: str) -> None:
    """By a real API server, Pod Security's warnings included; nothing is stored."""
    objects = [o for o in render(cluster, target) if (o["kind"], o["metadata"]["name"]) != ("Service", SERVICE)]
    done = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "last-applied-configuration" not in line]
    assert not warnings, warnings


ALLOWED = [
    (SERVING, "list", "nodes", ""),
    (SERVING, "watch", "namespaces", ""),
    (SERVING, "watch", "configmaps/nvidia-device-plugin-configs", "kube-system"),
    (CERTS, "patch", f"secrets/{SECRET}", NAMESPACE),
    (CERTS, "patch", f"{CONFIGURATION}/mps-webhook", ""),
    (CERTS, "patch", "leases.coordination.k8s.io/mps-webhook-certs", NAMESPACE),
]
FORBIDDEN = [
    (SERVING, "list", "configmaps", "kube-system"),
    (SERVING, "get", "configmaps/another", "kube-system"),
    (SERVING, "get", f"secrets/{SECRET}", NAMESPACE),
    (SERVING, "list", "secrets", NAMESPACE),
    (SERVING, "list", "pods", ""),
    (SERVING, "patch", "nodes/x", ""),
    (SERVING, "create", "events", NAMESPACE),
    (SERVING, "get", f"{CONFIGURATION}/mps-webhook", ""),
    (CERTS, "list", "secrets", NAMESPACE),
    (CERTS, "get", "secrets/another", NAMESPACE),
    (CERTS, "patch", f"secrets/{SECRET}", "kube-system"),
    (CERTS, "patch", f"{CONFIGURATION}/another", ""),
    (CERTS, "create", CONFIGURATION, ""),
    (CERTS, "delete", f"{CONFIGURATION}/mps-webhook", ""),
    (CERTS, "list", "nodes", ""),
]


@pytest.mark.parametrize(
    ("account", "verb", "resource", "namespace", "allowed"),
    [(*row, True) for row in ALLOWED] + [(*row, False) for row in FORBIDDEN],
    ids=lambda value: value.rpartition(":")[2] if isinstance(value, str) else None,
)
def test_accounts_may_do_what_they_need_and_no_more(
    cluster: Cluster, account: str, verb: str, resource: str, namespace: str, allowed: bool
) -> None:
    where = ["--namespace", namespace] if namespace else ["--all-namespaces"] if "/" not in resource else []
    done = cluster.kubectl("auth", "can-i", verb, resource, f"--as={account}", *where)
    assert done.stdout.strip() == ("yes" if allowed else "no"), (done.stdout, done.stderr)
