"""`/validate-workloads` under each value of the setting, and which updates are looked at."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.support import DENIED, WARNED, Fixed, Running, pod, review, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

DEPLOYMENT = ("apps", "Deployment")


def deployment() -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "annotations": {"deployment.kubernetes.io/revision": "1"}},
        "spec": {"replicas": 1, "template": {"metadata": {}, "spec": pod()["spec"]}},
    }


def test_warn_lets_pass_and_says_why(serve: Callable[..., Running]) -> None:
    running = serve(policy=Fixed(verdict(DENIED, WARNED)))
    assert running.post("/validate-workloads", review(deployment(), kind=DEPLOYMENT)).json()["response"] == {
        "uid": "0f1e2d3c-uid",
        "allowed": True,
        "warnings": [
            "spec.containers[0] (app): 5Gi is too much: ask for less [memory-over-budget]",
            "spec: nobody knows: label the node [memory-unknown]",
        ],
        "auditAnnotations": {"decision": "warned", "codes": "memory-over-budget,memory-unknown"},
    }


def test_deny_rejects(serve: Callable[..., Running]) -> None:
    running = serve(policy=Fixed(verdict(DENIED)), workloads="deny")
    response = running.post("/validate-workloads", review(deployment(), kind=DEPLOYMENT)).json()["response"]
    assert (response["allowed"], response["status"]["code"]) == (False, 403)


def test_off_does_not_look(serve: Callable[..., Running]) -> None:
    policy = Fixed(verdict(DENIED))
    running = serve(policy=policy, workloads="off")
    response = running.post("/validate-workloads", review(deployment(), kind=DEPLOYMENT)).json()["response"]
    assert (response["allowed"], response.get("warnings"), policy.asked) == (True, None, [])


def scaled(new: dict[str, Any]) -> None:
    new["spec"]["replicas"] = 5


def revised(new: dict[str, Any]) -> None:
    new["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    new["status"] = {"replicas": 1}


def deleted(new: dict[str, Any]) -> None:
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new["spec"]["template"]["spec"]["containers"] = []


def new_image(new: dict[str, Any]) -> None:
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/app:2"


def misplaced(new: dict[str, Any]) -> None:
    new["metadata"]["annotations"]["mps.nvidia.com/memory-limit"] = "3Gi"


def labelled(new: dict[str, Any]) -> None:
    new["metadata"]["labels"] = {"MPS.nvidia.com/processes": "2"}


@pytest.mark.parametrize(
    ("change", "judged"),
    [(scaled, False), (revised, False), (deleted, False), (new_image, True), (misplaced, True), (labelled, True)],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_updates(serve: Callable[..., Running], change: Callable[[dict[str, Any]], None], judged: bool) -> None:
    policy = Fixed(verdict(DENIED))
    old, new = deployment(), deployment()
    change(new)
    running = serve(policy=policy, workloads="deny")
    body = review(deepcopy(new), kind=DEPLOYMENT, operation="UPDATE", oldObject=old)
    assert running.post("/validate-workloads", body).json()["response"]["allowed"] is not judged
    assert bool(policy.asked) is judged


def test_cron_jobs_are_compared_by_their_own_template(serve: Callable[..., Running]) -> None:
    policy = Fixed(verdict(DENIED))
    old: dict[str, Any] = {"spec": {"suspend": True, "jobTemplate": {"spec": {"template": {"spec": {}}}}}}
    running = serve(policy=policy, workloads="deny")
    suspended = {"spec": {"suspend": False, "jobTemplate": {"spec": {"template": {"spec": {}}}}}}
    changed = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"hostIPC": True}}}}}}
    for new, allowed in ((suspended, True), (changed, False)):
        body = review(new, kind=("batch", "CronJob"), operation="UPDATE", oldObject=old)
        assert running.post("/validate-workloads", body).json()["response"]["allowed"] is allowed


def test_a_pod_update_is_put_to_the_policy_with_its_subresource(serve: Callable[..., Running]) -> None:
    policy = Fixed(verdict(DENIED))
    running = serve(policy=policy)
    old, new = pod(), pod(labels={"a": "b"})
    for path in ("/mutate", "/validate"):
        body = review(new, operation="UPDATE", oldObject=old, subResource="ephemeralcontainers")
        assert running.post(path, body).json()["response"]["allowed"] is False
    assert policy.asked == [("judge_update", (old, new, "ephemeralcontainers", "team-a"))] * 2
