"""What is wrong with a request itself is an HTTP error with a Status, and no decision."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.support import Fixed, Fleetless, Running, cut_off, pod, read_answer, review

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JSON = {"content-type": "application/json"}


def changed(**request: Any) -> bytes:
    return json.dumps(review(**request)).encode()


def envelope(**fields: Any) -> bytes:
    return json.dumps(review() | fields).encode()


@pytest.fixture
def running(denying: Running) -> Running:
    return denying


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/validate-workloads"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "the body is not JSON in UTF-8", id="empty"),
        pytest.param(b"{", "the body is not JSON in UTF-8", id="cut off"),
        pytest.param(b"[" * 100_000, "the body is not JSON in UTF-8", id="deep"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}", "the body is not JSON in UTF-8", id="endless number"),
        pytest.param(b'"\xff"', "the body is not JSON in UTF-8", id="no UTF-8"),
        pytest.param("{}".encode("utf-16"), "the body is not JSON in UTF-8", id="UTF-16"),
        pytest.param(b'{"a": "\\ud800"}', "the body is not JSON in UTF-8", id="half a surrogate pair"),
        pytest.param(b'{"a": NaN}', "the body is not JSON in UTF-8", id="NaN"),
        pytest.param(b"[]", "the body is not an AdmissionReview but no object at all", id="list"),
        pytest.param(b"{}", "apiVersion has to be admission.k8s.io/v1", id="nothing in it"),
        pytest.param(
            envelope(apiVersion="admission.k8s.io/v1beta1"), "apiVersion has to be admission.k8s.io/v1", id="v1beta1"
        ),
        pytest.param(envelope(kind="Pod"), "kind has to be AdmissionReview", id="kind"),
        pytest.param(envelope(request=None), "request has to be an object", id="no request"),
        pytest.param(changed(uid=None), "request.uid has to be a string that is not empty", id="no uid"),
        pytest.param(changed(uid=7), "request.uid has to be a string", id="number as uid"),
        pytest.param(changed(operation=""), "request.operation has to be a string that is not empty", id="operation"),
        pytest.param(changed(namespace=[]), "request.namespace has to be a string", id="ns"),
        pytest.param(changed(name={}), "request.name has to be a string", id="name"),
        pytest.param(changed(subResource=1), "request.subResource has to be a string", id="subResource"),
        pytest.param(changed(dryRun="no"), "request.dryRun has to be true or false", id="dryRun"),
    ],
)
def test_malformed(running: Running, path: str, body: bytes, message: str) -> None:
    answer = running.client.post(f"{running.https}{path}", content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["message"] == f"mps-webhook: malformed AdmissionReview: {message}"
    assert (answer.json()["kind"], answer.json()["reason"]) == ("Status", "BadRequest")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Pod", "request.kind has to be an object"),
        ({"group": 1, "kind": "Pod"}, "request.kind.group and request.kind.kind have to be strings"),
        ({"group": ""}, "request.kind.group and request.kind.kind have to be strings"),
    ],
)
def test_malformed_kind(running: Running, kind: Any, message: str) -> None:
    body = review()
    body["request"]["kind"] = kind
    answer = running.post("/mutate", body)
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        f"mps-webhook: malformed AdmissionReview: {message}",
    )


@pytest.mark.parametrize(
    ("path", "request_", "field"),
    [
        ("/mutate", {"object": None}, "request.object"),
        ("/validate", {"object": []}, "request.object"),
        ("/mutate", {"operation": "UPDATE", "oldObject": None}, "request.oldObject"),
        ("/validate", {"operation": "UPDATE", "oldObject": pod(), "object": "x"}, "request.object"),
        (
            "/validate-workloads",
            {"object": None, "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
            "request.object",
        ),
    ],
)
def test_review_without_what_it_is_about(running: Running, path: str, request_: Any, field: str) -> None:
    body = review()
    body["request"] |= request_
    answer = running.post(path, body)
    assert answer.status_code == 400
    assert answer.json()["message"] == f"mps-webhook: malformed AdmissionReview: {field} has to be an object"


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "application/json-patch+json", ""])
def test_wrong_type(running: Running, content_type: str) -> None:
    answer = running.client.post(f"{running.https}/mutate", content=changed(), headers={"content-type": content_type})
    assert answer.status_code == 415
    assert answer.json()["message"] == "mps-webhook: the content type has to be application/json"


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_right_type(running: Running, content_type: str) -> None:
    answer = running.client.post(f"{running.https}/mutate", content=changed(), headers={"content-type": content_type})
    assert answer.status_code == 200


def test_compressed_bodies_are_refused_before_they_are_read(running: Running) -> None:
    answer = running.client.post(
        f"{running.https}/mutate", content=changed(), headers={**JSON, "content-encoding": "gzip"}
    )
    assert (answer.status_code, answer.json()["message"]) == (415, "mps-webhook: a content encoding is not supported")


def test_body_at_the_limit_is_taken(running: Running) -> None:
    body = changed()
    body += b" " * (7 * 1024 * 1024 - len(body))
    answer = running.client.post(f"{running.https}/mutate", content=body, headers=JSON)
    assert answer.status_code == 200


def test_announced_body_that_is_too_large_is_refused_unread(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(
            b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 7340033\r\n\r\n"
        )
        head = read_answer(connection)
    assert head.startswith(b"HTTP/1.1 413 ")


def test_streamed_body_that_is_too_large_is_cut(running: Running) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(30):
            sent += 256 * 1024
            yield b" " * 256 * 1024

    answer = running.client.post(f"{running.https}/mutate", content=chunks(), headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["message"] == "mps-webhook: the request body is larger than 7340032 bytes"
    assert running.post("/mutate", review()).status_code == 200, "and the connection is good for another"


def test_a_body_that_never_stops_ends_the_connection(running: Running) -> None:
    head = b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    with running.connect() as connection:
        assert cut_off(connection, head, b"10000\r\n" + b" " * 65536 + b"\r\n")


@pytest.mark.parametrize("query", ["", "?timeout=soon", "?timeout=0s", "?timeout=-1s", "?timeout=", "?other=1"])
def test_timeout_that_is_none_counts_as_the_default(running: Running, query: str) -> None:
    assert running.post(f"/mutate{query}", review()).status_code == 200


def test_answer_that_comes_too_late_is_a_fault(serve: Callable[..., Running]) -> None:
    running = serve(policy=Fixed(pause=0.05))
    answer = running.post("/mutate?timeout=20ms", review())
    assert answer.status_code == 504
    assert answer.json()["message"] == "mps-webhook: the request could not be answered within its timeout"
    assert running.metric('mps_webhook_faults_total{endpoint="/mutate",fault="deadline"}') == 1
    assert running.metric('mps_webhook_decisions_total{decision="allowed",endpoint="/mutate"}') == 0


def test_body_that_does_not_come_in_time(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(
            b"POST /mutate?timeout=100ms HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: 100\r\n\r\n{"
        )
        assert read_answer(connection).startswith(b"HTTP/1.1 504 ")


def test_not_synced(serve: Callable[..., Running]) -> None:
    source = Fleetless(synced=False)
    running = serve(source)
    answer = running.post("/mutate", review())
    assert answer.status_code == 503
    assert answer.json()["message"] == (
        "mps-webhook: the cluster's nodes and GPU configurations have not been read yet; try again in a few seconds"
    )
    assert "retry-after" not in answer.headers, "with it the text would never reach the user"
    source.synced = True
    assert running.post("/mutate", review()).status_code == 200
