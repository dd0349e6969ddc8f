"""The five shapes of an answer, over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.http.support import DENIED, WARNED, Fixed, Running, patch_of, pod, review, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

ADD = {"op": "add", "path": "/spec/hostIPC", "value": True}


def test_allow(serve: Callable[..., Running]) -> None:
    answer = serve().post("/mutate?timeout=10s", review())
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert "server" not in answer.headers
    assert answer.json() == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "0f1e2d3c-uid", "allowed": True, "auditAnnotations": {"decision": "allowed"}},
    }


def test_allow_with_a_patch(serve: Callable[..., Running]) -> None:
    answer = serve(policy=Fixed(verdict(patch=(ADD,)))).post("/mutate", review()).json()
    assert patch_of(answer) == [ADD]
    assert {key: answer["response"][key] for key in ("allowed", "patchType", "auditAnnotations")} == {
        "allowed": True,
        "patchType": "JSONPatch",
        "auditAnnotations": {"decision": "patched"},
    }


def test_allow_with_warnings(serve: Callable[..., Running]) -> None:
    answer = serve(policy=Fixed(verdict(WARNED))).post("/validate", review()).json()
    assert answer["response"] == {
        "uid": "0f1e2d3c-uid",
        "allowed": True,
        "warnings": ["spec: nobody knows: label the node [memory-unknown]"],
        "auditAnnotations": {"decision": "allowed", "codes": "memory-unknown"},
    }


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_deny(serve: Callable[..., Running], path: str) -> None:
    answer = serve(policy=Fixed(verdict(DENIED, WARNED))).post(path, review())
    message = "spec.containers[0] (app): 5Gi is too much: ask for less [memory-over-budget]"
    assert answer.status_code == 200
    assert answer.json()["response"] == {
        "uid": "0f1e2d3c-uid",
        "allowed": False,
        "status": {
            "status": "Failure",
            "message": message,
            "reason": "Forbidden",
            "code": 403,
            "details": {
                "causes": [{"reason": "memory-over-budget", "message": message, "field": "spec.containers[0]"}]
            },
        },
        "warnings": ["spec: nobody knows: label the node [memory-unknown]"],
        "auditAnnotations": {"decision": "denied", "codes": "memory-over-budget,memory-unknown"},
    }


def test_fault(serve: Callable[..., Running]) -> None:
    running = serve(policy=Fixed(raises=KeyError("4Gi of a secret")))
    answer = running.post("/mutate", review())
    assert answer.status_code == 500
    assert answer.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "mps-webhook: internal error, see the log of the webhook",
        "reason": "InternalError",
        "code": 500,
    }
    assert running.metric("mps_webhook_panics_total") == 1
    assert running.post("/validate", review({}, operation="DELETE")).status_code == 200, "the service goes on"


def test_patch_that_does_not_apply_is_never_sent(serve: Callable[..., Running]) -> None:
    bad = {"op": "replace", "path": "/spec/nowhere/hostIPC", "value": True}
    running = serve(policy=Fixed(verdict(patch=(ADD, bad))))
    answer = running.post("/mutate", review())
    assert (answer.status_code, answer.json()["kind"]) == (500, "Status")
    assert answer.json()["message"] == "mps-webhook: the patch does not apply to the object"
    assert running.metric('mps_webhook_faults_total{endpoint="/mutate",fault="bad-patch"}') == 1
    assert running.metric("mps_webhook_panics_total") == 0


def test_a_patch_whose_operations_build_on_each_other_is_sent_as_it_was_made(serve: Callable[..., Running]) -> None:
    patch = (
        {"op": "add", "path": "/spec/containers/0/env", "value": []},
        {"op": "add", "path": "/spec/containers/0/env/-", "value": {"name": "A", "value": "1"}},
    )
    assert patch_of(serve(policy=Fixed(verdict(patch=patch))).post("/mutate", review()).json()) == list(patch)


def test_a_denial_carries_no_patch(serve: Callable[..., Running]) -> None:
    response = serve(policy=Fixed(verdict(DENIED, patch=(ADD,)))).post("/mutate", review()).json()["response"]
    assert "patch" not in response
    assert "patchType" not in response


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/validate-workloads"])
@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "DELETE", "object": None, "oldObject": pod()},
        {"operation": "CONNECT", "kind": {"group": "", "version": "v1", "kind": "PodExecOptions"}},
        {"kind": {"group": "", "version": "v1", "kind": "Binding"}, "subResource": "binding"},
        {"kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "operation": "UPDATE"},
        {"operation": "ENCHANT"},
    ],
    ids=["delete", "connect", "binding", "scale", "unknown operation"],
)
def test_what_is_no_pod_to_come_passes_untouched(denying: Running, path: str, request_: dict[str, Any]) -> None:
    answer = denying.post(path, review() | {"request": review()["request"] | request_})
    assert answer.json()["response"] == {
        "uid": "0f1e2d3c-uid",
        "allowed": True,
        "auditAnnotations": {"decision": "untouched"},
    }


def test_uid_comes_back_whatever_it_is_made_of(serve: Callable[..., Running]) -> None:
    running = serve()
    for uid in ("a", "ü✓", "x" * 5000, '"}\n'):
        body = review(uid=uid)
        assert running.post("/mutate", body).json()["response"]["uid"] == uid


def test_other_paths_and_methods_are_a_status(serve: Callable[..., Running]) -> None:
    running = serve()
    hint = "; the paths are /mutate, /validate, /validate-workloads, all of them for POST"
    answer = running.post("/mutation", review())
    assert (answer.status_code, answer.json()["message"]) == (404, f"mps-webhook: Not Found{hint}")
    answer = running.client.get(f"{running.https}/mutate")
    assert (answer.status_code, answer.json()["message"]) == (405, f"mps-webhook: Method Not Allowed{hint}")
    assert running.client.get(f"{running.https}/metrics").status_code == 404, "metrics have a port of their own"
