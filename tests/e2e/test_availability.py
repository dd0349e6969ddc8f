"""Replicas that die, leave and come back, an API server that restarts, connections that lie idle; and no webhook."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness.api import eventually
from tests.e2e.harness.load import Dialler, Load, burst, created, review
from tests.e2e.harness.manifests import NAMESPACE, SERVICE, one
from tests.e2e.harness.metrics import OURS, Watched, total
from tests.e2e.harness.objects import CONFIG_LABEL, container, env_of, gpu_node, plain, pod, template, unique, workload
from tests.e2e.test_match_conditions import DO_NOT

if TYPE_CHECKING:
    from tests.e2e.harness.api import Api
    from tests.e2e.harness.controlplane import ControlPlane
    from tests.e2e.harness.installation import Installation

RATE = 50.0


def test_16_a_replica_that_is_killed_costs_its_connections(installation: Installation, api: Api) -> None:
    """`kill -9` of one of two under load: what fails are calls on its connections, and new ones that met it dead
    before its probes noticed. Everything else is answered, and after that nothing fails any more.
    """
    watched = Watched(api)
    victim, service = installation.replicas[0], installation.service
    try:
        with Load(created(api), RATE).running() as load:
            time.sleep(3.0)
            assert victim.backend is not None
            assert victim.backend.accepted, "it never had a connection"
            connections, lost = len(victim.backend.open), service.lost
            killed = time.monotonic()
            victim.process.kill()
            eventually(lambda: victim.backend not in service.ready, "the Service knows")
            noticed = time.monotonic()
            lost = service.lost - lost
            time.sleep(5.0)
    finally:
        installation.forget(victim)
        installation.add_replica()
        installation.wait_ready()
    failures = load.failures
    assert len(failures) <= connections + lost, [f.error for f in failures]
    assert watched.webhook_errors() == len(failures)
    assert all(killed - 1.0 < f.began < noticed + 0.5 for f in failures)
    assert len(load.outcomes) > 300
    assert watched.passed_open() == watched.evaluation_errors() == 0


def test_17_a_rolling_restart_loses_no_call(installation: Installation, api: Api, watched: Watched) -> None:
    """As the Deployment does it: a new one is ready before an old one is told to go; that one drains and exits."""
    old = tuple(installation.replicas)
    with Load(created(api), RATE).running() as load:
        time.sleep(1.0)
        for leaving in old:
            installation.add_replica()
            installation.wait_ready()
            began = time.monotonic()
            assert leaving.process.terminate() == 0
            assert time.monotonic() - began > 4.0, "it left before the Service could know"
            assert leaving.backend not in installation.service.ready
            installation.forget(leaving)
        time.sleep(2.0)
    load.assert_flawless(1000)
    watched.assert_quiet()
    assert len(installation.replicas) == 2


def test_19_the_api_server_restarts(installation: Installation, own: ControlPlane, api: Api) -> None:
    """The replicas keep what they know, say that they hear nothing, and catch up; a watch too old begins anew."""
    restarts = [total(r.metrics(), "mps_webhook_watch_restarts") for r in installation.replicas]
    name = unique("joined")
    # A crash: on SIGTERM it would wait a minute for the watches to end. Of what happened meanwhile it only knows what
    # etcd has kept, and answers 410 to a watch from before.
    own.api_server.kill()
    try:
        assert all(r.ready for r in installation.replicas), "a replica gave up what it knew"
    finally:
        own.start_api_server()
    watched = Watched(api)
    own.compact()
    api.create(gpu_node(name, "mps-2x", 2) | {"status": {}})
    api.patch("Node", name, {"status": gpu_node(name, "mps-2x", 2)["status"]}, subresource="status")
    eventually(
        lambda: all(
            total(r.metrics(), "mps_webhook_inventory_nodes") == 3
            and total(r.metrics(), "mps_webhook_inventory_age_seconds") < 30
            for r in installation.replicas
        ),
        "the replicas have caught up",
        60.0,
    )
    assert all(
        total(r.metrics(), "mps_webhook_watch_restarts") > before
        for r, before in zip(installation.replicas, restarts, strict=True)
    )
    found = api.create(pod({"mps.nvidia.com/memory-limit": "5Gi"}, nodeSelector={"kubernetes.io/hostname": name}))
    assert env_of(found)
    api.delete("Node", name)
    eventually(
        lambda: all(total(r.metrics(), "mps_webhook_inventory_nodes") == 2 for r in installation.replicas), "two nodes"
    )
    watched.assert_quiet()
    eventually(installation.certs_ready, "the certificates' process has caught up", 60.0)


def test_21_without_the_webhook_all_else_starts(installation: Installation, api: Api) -> None:
    """Pods without GPUs, GPUs in other namespaces, the webhook's own pods, workloads, deletions; GPU pods wait."""
    existing = api.create(pod())["metadata"]["name"]
    with installation.down():
        watched = Watched(api)
        for name, made in DO_NOT.items():
            reply = api.try_create(made, dry_run=True)
            assert reply.code in (201, 422), (name, reply)
            assert "webhook" not in reply.body.get("message", ""), (name, reply)
        api.create(plain())
        api.create(pod(namespace="kube-system"))
        spec = one(installation.objects, "Deployment", SERVICE)["spec"]["template"]
        own_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": unique("own"), "namespace": NAMESPACE}}
        api.create(own_pod | {"spec": spec["spec"]})
        api.create(pod(None, container(), namespace=NAMESPACE) | {"spec": _restricted()})
        api.delete("Pod", existing)
        watched.assert_quiet()
        refused = api.try_create(pod())
        assert refused.code == 500
        assert 'failed calling webhook "pods.mps.nvidia.com"' in refused.body["message"]
        assert api.try_create(workload("Deployment", template()), dry_run=True).code == 201
        assert watched.webhook_errors() == 1
        assert watched.passed_open() == 1
    assert env_of(api.create(pod({"mps.nvidia.com/memory-limit": "1Gi"})))


def _restricted() -> dict[str, object]:
    """A GPU pod that Pod Security's level restricted lets in."""
    context = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {"containers": [container(securityContext=context)], "nodeSelector": {CONFIG_LABEL: "mps-4x"}}


@pytest.mark.usefixtures("controllers")
def test_21_the_webhooks_own_pods_were_made_before_it_ran(api: Api) -> None:
    """The controllers made them when nothing answered yet: an installation does not lock itself out."""
    names = [p["metadata"]["name"] for p in api.list("Pod", NAMESPACE)]
    assert len([n for n in names if n.startswith(f"{SERVICE}-certs-")]) == 1
    assert len([n for n in names if n.startswith(f"{SERVICE}-") and "-certs-" not in n]) == 2


def test_22_a_burst_after_95_seconds_of_silence(installation: Installation, api: Api, watched: Watched) -> None:
    """The API server keeps idle connections for 90 s. A server that closed them sooner would lose calls: EOF.

    The API server's own are gone after 95 s, so connections of ours lie idle beside them: the server has to have
    kept those.
    """
    call = created(api)
    dialler = Dialler(api, installation.service.port)
    with ExitStack() as stack:
        kept = [dialler.kept() for _ in range(10)]
        for connection in kept:
            stack.callback(connection.close)
            connection.call(review(pod()))
        assert not [o for o in burst(call, 40) if o.error]
        time.sleep(95.0)
        failed = [o.error for o in burst(call, 40) if o.error]
        assert not failed, failed[0]
        for connection in kept:
            assert connection.call(review(pod()))["allowed"] is True
    watched.assert_quiet()


def test_the_names_that_are_watched_are_those_of_the_manifests(installation: Installation) -> None:
    """A metric of a name that nobody has is 0 for ever."""
    assert {w["name"] for o in installation.objects for w in o.get("webhooks") or ()} == set(OURS)
