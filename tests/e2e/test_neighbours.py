"""15: the API server's own admission around the webhook: Pod Security, ResourceQuota, LimitRange, tolerations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness.api import eventually
from tests.e2e.harness.objects import MEMORY, QUOTA, THREADS, container, env_of, gpu_node, pod, unique

if TYPE_CHECKING:
    from tests.e2e.harness.api import Api
    from tests.e2e.harness.controlplane import Cluster, ControlPlane

pytestmark = pytest.mark.usefixtures("watched")
ENFORCE = "pod-security.kubernetes.io/enforce"
HOST_IPC = {"mps.nvidia.com/host-ipc": "true"}
LIMITED = {MEMORY: "0=3072M", THREADS: "25"}


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_15_host_ipc_is_denied_where_pod_security_forbids_it(cluster: Cluster, api: Api, level: str) -> None:
    """By us, with the annotation's name: Pod Security would refuse a field that the user never wrote."""
    namespace = cluster.namespace(unique(level), {ENFORCE: level})

    def denied() -> bool:
        reply = api.try_create(pod(HOST_IPC, namespace=namespace))
        return reply.code == 403 and reply.body["message"].endswith("[host-ipc-forbidden]")

    # The webhook learns of a namespace a moment after it is made.
    eventually(denied, "host-ipc-forbidden")
    reply = api.try_create(pod(HOST_IPC, namespace=namespace))
    assert "metadata.annotations[mps.nvidia.com/host-ipc]" in reply.body["message"]
    assert f"namespace {namespace}" in reply.body["message"]
    assert level in reply.body["message"]


def test_15_host_ipc_follows_the_namespaces_label(cluster: Cluster, api: Api) -> None:
    namespace = cluster.namespace(unique("changing"), {ENFORCE: "privileged"})
    assert api.create(pod(HOST_IPC, namespace=namespace))["spec"]["hostIPC"] is True
    api.patch("Namespace", namespace, {"metadata": {"labels": {ENFORCE: "baseline"}}})
    eventually(
        lambda: "host-ipc-forbidden" in api.try_create(pod(HOST_IPC, namespace=namespace)).body.get("message", ""),
        "the new level is known",
    )


def test_15_a_restricted_pod_is_limited_all_the_same(cluster: Cluster, api: Api) -> None:
    namespace = cluster.namespace(unique("restricted"), {ENFORCE: "restricted"})
    context = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert env_of(api.create(pod(QUOTA, container(securityContext=context), namespace=namespace))) == LIMITED


def test_15_resource_quota_counts_shares(cluster: Cluster, api: Api) -> None:
    """Quota comes after every webhook: what it refuses was judged, and what is denied was not counted."""
    namespace = cluster.namespace(unique("quota"))
    api.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "shares", "namespace": namespace},
            "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
            "status": {"hard": {"requests.nvidia.com/gpu": "1"}, "used": {"requests.nvidia.com/gpu": "0"}},
        }
    )
    if not cluster.controllers:
        pytest.skip("nobody fills the quota's status")
    eventually(lambda: api.get("ResourceQuota", "shares", namespace).get("status", {}).get("hard"), "the quota")
    over = {"mps.nvidia.com/memory-limit": "5Gi"}
    assert api.try_create(pod(over, namespace=namespace)).code == 403
    assert env_of(api.create(pod(QUOTA, namespace=namespace))) == LIMITED
    second = api.try_create(pod(QUOTA, namespace=namespace))
    assert second.code == 403
    assert "exceeded quota: shares" in second.body["message"]


def test_15_a_share_that_a_limit_range_adds_is_judged(cluster: Cluster, api: Api) -> None:
    """Defaults are filled in before webhooks: the pod as written asks for no GPU."""
    namespace = cluster.namespace(unique("range"))
    share = {"nvidia.com/gpu": "1"}
    api.create(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "one-share", "namespace": namespace},
            "spec": {"limits": [{"type": "Container", "default": share, "defaultRequest": share}]},
        }
    )
    sent = pod(QUOTA, container(resources=None), namespace=namespace)

    def limited() -> Any:
        reply = api.try_create(sent, dry_run=True)
        return reply.code == 201 and reply.body

    found = eventually(limited, "the LimitRange is in force")
    assert found["spec"]["containers"][0]["resources"]["limits"] == share
    assert env_of(found) == LIMITED


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_15_a_taint_named_like_the_resource(cluster: Cluster, own: ControlPlane, api: Api, effect: str) -> None:
    """ExtendedResourceToleration, switched on here, tolerates NoSchedule and nothing else; so does the webhook."""
    assert "--enable-admission-plugins=ExtendedResourceToleration" in own.api_server.argv
    name = unique("tainted")
    node = gpu_node(name, "mps-4x", 4)
    node["metadata"]["labels"]["pool"] = name
    node["spec"] = {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": effect}]}
    api.create(node)
    api.patch("Node", name, {"status": node["status"]}, subresource="status")
    try:
        pinned = {"pool": name}
        over = pod({"mps.nvidia.com/memory-limit": "5Gi"}, nodeSelector=pinned)

        def judged() -> str:
            reply = api.try_create(over, dry_run=True)
            return str(reply.body.get("message", "")) + "".join(reply.warnings)

        nothing = "no GPU node can take it now (it asks for 1 nvidia.com/gpu)"
        eventually(lambda: nothing not in judged() if effect == "NoSchedule" else nothing in judged(), "it is known")
        assert ("[memory-over-budget]" in judged()) is (effect == "NoSchedule")
        found = api.create(pod(QUOTA, nodeSelector=pinned))
    finally:
        api.delete("Node", name)
    added = [t for t in found["spec"]["tolerations"] if t["key"] == "nvidia.com/gpu"]
    assert added == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
