"""20: what changes in the cluster counts for the next pod; what is broken there does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness.api import Reply, eventually
from tests.e2e.harness.load import Dialler
from tests.e2e.harness.metrics import total
from tests.e2e.harness.objects import (
    CONFIG_LABEL,
    CONFIG_MAP,
    MEMORY,
    QUOTA,
    THREADS,
    add_configs,
    env_of,
    gpu_node,
    pod,
    unique,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness.api import Api
    from tests.e2e.harness.controlplane import Cluster
    from tests.e2e.harness.installation import Installation

pytestmark = pytest.mark.usefixtures("watched")


@pytest.fixture
def node(api: Api) -> Iterator[str]:
    """A node of config mps-4x with a label of its own, `pool`."""
    name = unique("pool")
    made = gpu_node(name, "mps-4x", 4)
    made["metadata"]["labels"]["pool"] = name
    api.create(made)
    api.patch("Node", name, {"status": made["status"]}, subresource="status")
    eventually(lambda: not tried(api, name, "1Gi").warnings, "the webhook knows the node")
    yield name
    api.delete("Node", name)


@pytest.fixture
def configs(cluster: Cluster, installation: Installation) -> Iterator[None]:
    """Puts the ConfigMap right at the end."""
    yield
    cluster.api.delete("ConfigMap", CONFIG_MAP, "kube-system")
    add_configs(cluster)
    eventually(lambda: not problems(installation), "the configurations are in order again")


def tried(api: Api, pool: str, memory: str) -> Reply:
    """Try a pod with a memory limit on the nodes of a pool."""
    annotations = {"mps.nvidia.com/memory-limit": memory}
    return api.try_create(pod(annotations, nodeSelector={"pool": pool}), dry_run=True)


def problems(installation: Installation) -> list[str]:
    """What the replicas' readiness says against the input."""
    return [
        r.health("/readyz?verbose").text
        for r in installation.replicas
        if total(r.metrics(), "mps_webhook_inventory_problems")
    ]


def test_20_a_node_that_changes_its_config(api: Api, node: str) -> None:
    assert tried(api, node, "5Gi").code == 403
    labels = {CONFIG_LABEL: "mps-2x", "nvidia.com/gpu.replicas": "2"}
    api.patch("Node", node, {"metadata": {"labels": labels}})
    found = eventually(lambda: (r := tried(api, node, "5Gi")).code == 201 and r, "5Gi fits now").checked()
    assert env_of(found) == {MEMORY: "0=5120M"}
    assert tried(api, node, "8Gi").code == 403


def test_20_an_older_pod_is_not_judged_by_what_has_changed(api: Api, node: str) -> None:
    """8: it was granted 3Gi of four shares, and its labels may change although eight are too many."""
    name = api.create(pod(QUOTA, nodeSelector={"pool": node}))["metadata"]["name"]
    api.patch("Node", node, {"metadata": {"labels": {CONFIG_LABEL: "mps-1x", "nvidia.com/gpu.replicas": "1"}}})
    eventually(lambda: "not-shared" in tried(api, node, "3Gi").body.get("message", ""), "the node shares no more")
    found = api.patch("Pod", name, {"metadata": {"labels": {"team": "a"}, "finalizers": ["example.com/f"]}})
    found = api.patch("Pod", name, {"metadata": {"annotations": {"example.com/a": "b"}, "finalizers": []}})
    assert env_of(found) == {MEMORY: "0=3072M", THREADS: "25"}


@pytest.mark.usefixtures("configs")
def test_20_a_config_that_changes(api: Api, node: str) -> None:
    text = api.get("ConfigMap", CONFIG_MAP, "kube-system")["data"]["mps-4x"]
    api.patch("Node", node, {"metadata": {"labels": {"nvidia.com/gpu.replicas": "8"}}})
    api.patch("ConfigMap", CONFIG_MAP, {"data": {"mps-4x": text.replace("replicas: 4", "replicas: 8")}}, "kube-system")
    reply = eventually(lambda: (r := tried(api, node, "3Gi")).code == 403 and r, "eight shares are known")
    assert "memory-limit 3Gi × 8 shares = 24576Mi" in reply.body["message"]


@pytest.mark.usefixtures("configs")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"mps-4x": "version: v1\nsharing: [broken"}, "config mps-4x does not parse, keeping the last good one: "),
        (
            {"mps-4x": "version: v1\nsharing: {mps: {resources: 5}}"},
            "config mps-4x does not parse, keeping the last good",
        ),
        (None, f"ConfigMap kube-system/{CONFIG_MAP} is gone, keeping the last good one"),
    ],
    ids=["no YAML", "no configuration", "gone"],
)
def test_20_a_bad_config_map_keeps_the_last_good_one(
    api: Api, installation: Installation, node: str, change: dict[str, str] | None, problem: str
) -> None:
    before = tried(api, node, "5Gi").body["message"]
    if change is None:
        api.delete("ConfigMap", CONFIG_MAP, "kube-system")
    else:
        api.patch("ConfigMap", CONFIG_MAP, {"data": change}, "kube-system")
    found = eventually(
        lambda: (texts := problems(installation)) and len(texts) == len(installation.replicas) and texts, "it is told"
    )
    assert all(problem in text for text in found), found
    assert all(r.ready for r in installation.replicas)
    assert tried(api, node, "5Gi").body["message"] == before
    assert tried(api, node, "3Gi").code == 201


def test_20_a_node_that_leaves(api: Api, installation: Installation, node: str) -> None:
    count = total(installation.replicas[0].metrics(), "mps_webhook_inventory_nodes")
    api.delete("Node", node)
    reply = eventually(lambda: (r := tried(api, node, "1Gi")).warnings and r, "it is forgotten")
    assert "no GPU node can take it now" in reply.warnings[0]
    assert total(installation.replicas[0].metrics(), "mps_webhook_inventory_nodes") == count - 1


def test_a_replica_that_may_not_read_the_cluster_is_not_ready(
    cluster: Cluster, api: Api, installation: Installation
) -> None:
    """It answers 503 with a Status that says so, and says what it lacks."""
    stranger = cluster.account("default", "default")
    replica = installation.start_replica(KUBECONFIG=str(stranger))
    try:
        eventually(lambda: "forbidden" in replica.health("/readyz?verbose").text, "it has tried")
        answer = replica.health("/readyz")
        assert answer.status_code == 503
        assert "inventory: nodes and configurations have not been read yet" in answer.text
        with pytest.raises(AssertionError) as caught:
            Dialler(api, replica.port).new_connection()
        assert "503" in str(caught.value)
        assert "nodes and GPU configurations have not been read yet; try again in a few seconds" in str(caught.value)
    finally:
        replica.process.kill()
