"""The patch, operation by operation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import LIMIT, THREADS, PodBuilder, node, pod
from tests.unit.policy.judging import judge, patched

NODE = node("t4-4x")
PLAIN = {"name": "A", "value": "1"}
ENV = "/spec/containers/0/env"


def add(path: str, value: object) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: object) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def limit(value: str = "0=3072M") -> dict[str, str]:
    return {"name": LIMIT, "value": value}


def threads(value: str = "20") -> dict[str, str]:
    return {"name": THREADS, "value": value}


def memory() -> PodBuilder:
    return pod().gpu().memory("3Gi")


def both() -> PodBuilder:
    return memory().threads("20")


@pytest.mark.parametrize(
    ("subject", "operations"),
    [
        pytest.param(memory(), [add(ENV, [limit()])], id="env absent"),
        pytest.param(memory().put(env=None), [add(ENV, [limit()])], id="env null"),
        pytest.param(memory().put(env=[]), [add(f"{ENV}/-", limit())], id="env empty"),
        pytest.param(memory().entry(PLAIN), [add(f"{ENV}/-", limit())], id="env with others"),
        pytest.param(memory().put(env="text"), [], id="env of no shape"),
        pytest.param(both(), [add(ENV, [limit(), threads()])], id="both, env absent"),
        pytest.param(both().put(env=[]), [add(f"{ENV}/-", limit()), add(f"{ENV}/-", threads())], id="both, env empty"),
        pytest.param(
            both().entry(PLAIN).env(THREADS, "20").entry(PLAIN),
            [add(f"{ENV}/-", limit())],
            id="threads are there already",
        ),
        pytest.param(both().env(LIMIT, "0=3072M").env(THREADS, "20.0"), [], id="both are there already"),
        pytest.param(memory().env(LIMIT, "0=3G"), [], id="the same, spelled otherwise"),
        pytest.param(
            memory().entry(PLAIN).env(LIMIT, ""),
            [replace(f"{ENV}/1/value", "0=3072M")],
            id="empty is replaced in place",
        ),
        pytest.param(memory().entry({"name": LIMIT}), [add(f"{ENV}/0/value", "0=3072M")], id="value missing"),
        pytest.param(
            memory().entry({"name": LIMIT, "value": None}), [replace(f"{ENV}/0/value", "0=3072M")], id="value null"
        ),
        pytest.param(
            memory().entry({"name": LIMIT, "valueFrom": None}), [add(f"{ENV}/0/value", "0=3072M")], id="valueFrom null"
        ),
        pytest.param(
            both().entry({"name": THREADS}).env(LIMIT, ""),
            [replace(f"{ENV}/1/value", "0=3072M"), add(f"{ENV}/0/value", "20")],
            id="both in place",
        ),
        pytest.param(
            both().env(LIMIT, ""),
            [replace(f"{ENV}/0/value", "0=3072M"), add(f"{ENV}/-", threads())],
            id="one in place, one new",
        ),
        pytest.param(
            pod().gpu().entry(None).entry(PLAIN).env(LIMIT, "3221225472"),
            [replace(f"{ENV}/2/value", "0=3072M")],
            id="rewritten in place, whatever is before it",
        ),
        pytest.param(pod().gpu().env(LIMIT, "3Gi"), [replace(f"{ENV}/0/value", "0=3072M")], id="rewritten"),
        pytest.param(pod().gpu().env(LIMIT, ""), [], id="empty, nothing asked"),
        pytest.param(pod().gpu().env(LIMIT, "0=3G"), [], id="accepted as it is"),
        pytest.param(pod().gpu(), [], id="nothing asked"),
        pytest.param(pod().gpu().threads("20"), [add(ENV, [threads()])], id="threads alone"),
        pytest.param(
            pod().gpu().memory("3G").threads("20").processes("3"),
            [add(ENV, [limit("0=953M"), threads("6")])],
            id="divided and floored",
        ),
        pytest.param(pod().gpu().memory("3221225473"), [add(ENV, [limit()])], id="floored to whole MiB"),
        pytest.param(
            pod("serve").init("load").gpu().memory("3Gi"), [add("/spec/initContainers/0/env", [limit()])], id="init"
        ),
        pytest.param(
            pod("serve").gpu().init("a").sidecar("b").gpu().memory("3Gi"),
            [add("/spec/initContainers/1/env", [limit()]), add(ENV, [limit()])],
            id="a sidecar and a container",
        ),
        pytest.param(
            pod("a").gpu().container("b").gpu().container("c").memory("3Gi").memory("1Gi", "b").threads("10", "a"),
            [add(ENV, [limit(), threads("10")]), add("/spec/containers/1/env", [limit("0=1024M")])],
            id="each container its own",
        ),
        pytest.param(pod().gpu().host_ipc("true"), [add("/spec/hostIPC", True)], id="hostIPC"),
        pytest.param(
            pod().gpu().host_ipc("true").spec(hostIPC=False), [add("/spec/hostIPC", True)], id="hostIPC false"
        ),
        pytest.param(pod().gpu().host_ipc("true").spec(hostIPC=True), [], id="hostIPC is there already"),
        pytest.param(pod().gpu().host_ipc("false"), [], id="hostIPC not wanted"),
        pytest.param(
            memory().host_ipc("true"), [add(ENV, [limit()]), add("/spec/hostIPC", True)], id="a limit and hostIPC"
        ),
    ],
)
def test_operations(subject: PodBuilder, operations: list[dict[str, Any]]) -> None:
    verdict = judge(subject, NODE)
    assert verdict.allowed, verdict.denial()
    assert list(verdict.patch) == operations
    after = patched(subject, verdict)
    assert judge(after, NODE).patch == ()


def test_steering_comes_last() -> None:
    verdict = judge(pod().gpu().memory("5Gi").host_ipc("true"), NODE, node("t4-2x", config="mps-2x"))
    assert [op["path"] for op in verdict.patch] == [ENV, "/spec/hostIPC", "/spec/affinity"]


def test_a_container_beside_one_of_no_shape_keeps_its_place() -> None:
    subject = pod().gpu().memory("3Gi").build()
    subject["spec"]["containers"].insert(0, "text")
    assert [op["path"] for op in judge(subject, NODE).patch] == ["/spec/containers/1/env"]


def test_denied_objects_have_no_patch() -> None:
    assert judge(memory().env("CUDA_MPS_PIPE_DIRECTORY", "/x"), NODE).patch == ()
