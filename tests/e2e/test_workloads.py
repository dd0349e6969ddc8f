"""10: pods that controllers make, that are bound by the scheduler or sent to a node by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness.api import Object, eventually
from tests.e2e.harness.objects import CONFIG_LABEL, MEMORY, QUOTA, THREADS, env_of, pod, template, unique, workload

if TYPE_CHECKING:
    from tests.e2e.harness.api import Api
    from tests.e2e.harness.controlplane import Cluster

pytestmark = pytest.mark.usefixtures("watched")
LIMITED = {MEMORY: "0=3072M", THREADS: "25"}
OVER = {"mps.nvidia.com/memory-limit": "5Gi"}
DENIED = (
    "spec.containers[0] (app): memory-limit 5Gi × 4 shares = 20480Mi, but a card of config mps-4x has 15360Mi "
    "(1 node, Tesla-T4): ask for at most 3840Mi, or use mps-2x [memory-over-budget]"
)
WARNING = f"spec.template.{DENIED}"


def pods_of(api: Api, namespace: str, node: str = "") -> list[Object]:
    """The pods of a namespace, or those of them that are bound to a node."""
    return [p for p in api.list("Pod", namespace) if not node or p["spec"].get("nodeName") == node]


@pytest.mark.usefixtures("controllers")
@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"])
def test_10_pods_of_owners_are_limited_and_bound(cluster: Cluster, api: Api, kind: str) -> None:
    namespace = cluster.namespace(unique("owner"))
    name = unique("w")
    api.create(workload(kind, template(QUOTA), name=name, namespace=namespace))
    (found,) = eventually(lambda: pods_of(api, namespace, "t4-quarter"), "a pod bound to its node")
    assert env_of(found) == LIMITED
    assert found["metadata"]["ownerReferences"][0]["controller"] is True
    api.delete(kind, name, namespace)


@pytest.mark.usefixtures("controllers")
def test_10_a_cron_jobs_pod_is_limited(cluster: Cluster, api: Api) -> None:
    namespace = cluster.namespace(unique("owner"))
    api.create(workload("CronJob", template(QUOTA), name="nightly", namespace=namespace))
    done = cluster.kubectl("create", "job", "now", "--from=cronjob/nightly", "-n", namespace)
    assert done.returncode == 0, done.stderr
    (found,) = eventually(lambda: pods_of(api, namespace), "its pod")
    assert env_of(found) == LIMITED
    api.delete("CronJob", "nightly", namespace)


@pytest.mark.usefixtures("controllers")
def test_10_a_steered_pod_is_bound_where_its_quota_holds(cluster: Cluster, api: Api) -> None:
    """Both nodes have room; the scheduler spreads pods, and would use both without the affinity."""
    namespace = cluster.namespace(unique("steered"))
    made = template(OVER)
    del made["spec"]["nodeSelector"]
    deployment = workload("Deployment", made, namespace=namespace)
    deployment["spec"]["replicas"] = 4
    api.create(deployment)
    eventually(lambda: len(pods_of(api, namespace, "t4-half")) == 4, "four bound pods")
    assert not pods_of(api, namespace, "t4-quarter")
    api.delete("Deployment", deployment["metadata"]["name"], namespace)


@pytest.mark.parametrize(
    ("node", "annotations", "denied"),
    [("t4-quarter", QUOTA, False), ("t4-half", OVER, False), ("t4-quarter", OVER, True)],
    ids=["fits", "fits the half", "does not fit"],
)
def test_10_a_pod_with_a_node_name_is_judged_by_that_node(
    api: Api, node: str, annotations: Object, denied: bool
) -> None:
    found = pod(annotations, nodeName=node)
    del found["spec"]["nodeSelector"]
    reply = api.try_create(found)
    assert (reply.code == 403) is denied
    if denied:
        assert reply.body["message"].endswith(DENIED)
    else:
        assert "affinity" not in reply.checked()["spec"]
        api.delete("Pod", found["metadata"]["name"])


@pytest.mark.usefixtures("controllers")
def test_10_a_workload_over_budget_is_warned_of_and_its_owner_is_told(cluster: Cluster, api: Api) -> None:
    """The person at `kubectl apply` reads the warning; whoever looks later, the event and the condition."""
    namespace = cluster.namespace(unique("over"))
    reply = api.try_create(workload("Deployment", template(OVER), name="over", namespace=namespace))
    assert reply.code == 201
    assert reply.warnings == [WARNING]
    text = f'admission webhook "pods.mps.nvidia.com" denied the request: {DENIED}'

    def failure() -> str:
        conditions = api.get("Deployment", "over", namespace).get("status", {}).get("conditions", [])
        return next((str(c["message"]) for c in conditions if c["type"] == "ReplicaFailure"), "")

    assert eventually(failure, "ReplicaFailure").endswith(text)
    events = eventually(lambda: api.list("Event", namespace, fieldSelector="reason=FailedCreate"), "an event")
    assert events[0]["message"] == f"Error creating: {text}"
    api.delete("Deployment", "over", namespace)


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        ("Deployment", "spec.template."),
        ("StatefulSet", "spec.template."),
        ("Job", "spec.template."),
        ("CronJob", "spec.jobTemplate.spec.template."),
    ],
)
def test_workloads_are_warned_of_with_their_own_field(api: Api, kind: str, prefix: str) -> None:
    reply = api.try_create(workload(kind, template(OVER)), dry_run=True)
    assert reply.code == 201
    # A warning has at most 256 characters; what is cut is never the code.
    (warning,) = reply.warnings
    assert warning == f"{prefix}{DENIED}" or (
        len(warning) == 256 and f"{prefix}{DENIED}".startswith(warning.partition("…")[0]) and DENIED[-20:] in warning
    )


def test_a_daemon_set_for_mixed_nodes_is_warned_of(api: Api) -> None:
    made = template(OVER)
    del made["spec"]["nodeSelector"]
    reply = api.try_create(workload("DaemonSet", made), dry_run=True)
    (warning,) = reply.warnings
    assert warning == (
        "spec.template.spec.nodeSelector: its pods fit config mps-2x, but on config mps-4x they would be denied for "
        f"ever: add a nodeSelector: {CONFIG_LABEL}: mps-2x [mixed-candidates]"
    )


def test_misplaced_annotations_are_warned_of(api: Api) -> None:
    reply = api.try_create(workload("Deployment", template(), annotations=QUOTA), dry_run=True)
    assert [w.rpartition(" ")[2] for w in reply.warnings] == ["[misplaced-annotation]"] * 2
    assert reply.warnings[0].startswith("metadata.annotations[mps.nvidia.com/")


def test_updates_of_a_workload_are_judged_only_where_its_pods_change(api: Api) -> None:
    """Scaling it, or what a controller writes, warns nobody again."""
    name = unique("update")
    created = api.try_create(workload("Deployment", template(OVER), name=name))
    assert len(created.warnings) == 1
    assert api.try_patch("Deployment", name, {"spec": {"replicas": 0}}).warnings == []
    assert api.try_patch("Deployment", name, {"spec": {"replicas": 0}}, subresource="scale").warnings == []
    annotations = {"mps.nvidia.com/memory-limit": "6Gi"}
    changed = api.try_patch("Deployment", name, {"spec": {"template": {"metadata": {"annotations": annotations}}}})
    assert [w.rpartition(" ")[2] for w in changed.warnings] == ["[memory-over-budget]"]
    api.delete("Deployment", name)
