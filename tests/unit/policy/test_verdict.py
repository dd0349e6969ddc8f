"""The verdict: both passes over a pod, what was granted, what was undone."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import LIMIT, THREADS, PodBuilder, inventory, node, pod
from tests.unit.policy.judging import codes, judge, names, patched, told
from webhook.policy import ALLOWED, Grant, Verdict, judge_pod, validate_pod

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "admission-reviews"
T4_4X, T4_2X = node("t4-4x"), node("t4-2x", config="mps-2x")
AT = inventory(T4_4X, T4_2X)


def validate(raw: dict[str, Any], *nodes: Any) -> Verdict:
    return validate_pod(raw, "team-a", inventory(*(nodes or (T4_4X,))))


def full() -> PodBuilder:
    return pod().gpu().memory("3Gi").threads("20").host_ipc("true").env("A", "1")


def test_what_mutate_made_is_accepted() -> None:
    subject = full()
    verdict = judge(subject, T4_4X)
    validated = validate(patched(subject, verdict))
    assert (validated.allowed, validated.findings, validated.patch) == (True, (), ())
    assert validated.grants == verdict.grants


def env_of(raw: dict[str, Any]) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = raw["spec"]["containers"][0]["env"]
    return env


def entry(raw: dict[str, Any], name: str) -> dict[str, Any]:
    return next(e for e in env_of(raw) if e["name"] == name)


def drop(*names_: str) -> Callable[[dict[str, Any]], None]:
    return lambda raw: env_of(raw).__setitem__(slice(None), [e for e in env_of(raw) if e["name"] not in names_])


def put(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    return lambda raw: entry(raw, name).update(value=value)


def undone(where: str, value: str) -> str:
    return (
        f"deny: {where}: it was set to {value} and changed afterwards: find the other admission webhook that changes it"
        " [undone]"
    )


VARIABLE = "spec.containers[0].env[{}] (app)"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(drop(LIMIT), [undone(VARIABLE.format(LIMIT), "0=3072M")], id="limit removed"),
        pytest.param(put(LIMIT, ""), [undone(VARIABLE.format(LIMIT), "0=3072M")], id="limit emptied"),
        pytest.param(drop(THREADS), [undone(VARIABLE.format(THREADS), "20")], id="threads removed"),
        pytest.param(
            drop(LIMIT, THREADS, "A"),
            [undone(VARIABLE.format(LIMIT), "0=3072M"), undone(VARIABLE.format(THREADS), "20")],
            id="all removed",
        ),
        pytest.param(
            lambda raw: raw["spec"]["containers"][0].pop("env"),
            [undone(VARIABLE.format(LIMIT), "0=3072M"), undone(VARIABLE.format(THREADS), "20")],
            id="env removed",
        ),
        pytest.param(
            lambda raw: raw["spec"].update(hostIPC=False), [undone("spec.hostIPC", "true")], id="hostIPC reverted"
        ),
        pytest.param(lambda raw: raw["spec"].pop("hostIPC"), [undone("spec.hostIPC", "true")], id="hostIPC removed"),
        pytest.param(put(LIMIT, "0=3G"), [], id="another spelling"),
        pytest.param(put("A", "2"), [], id="another variable"),
        pytest.param(drop("A"), [], id="another variable removed"),
    ],
)
def test_undone(change: Callable[[dict[str, Any]], object], found: list[str]) -> None:
    after = patched(full(), judge(full(), T4_4X))
    change(after)
    verdict = validate(after)
    assert told(verdict.findings) == found
    assert verdict.allowed is not bool(found)
    assert (verdict.grants == ()) is bool(found)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(put(LIMIT, "0=2G"), "env-conflict", id="another limit"),
        pytest.param(put(LIMIT, "garbage"), "invalid-limit-variable", id="an invalid limit"),
        pytest.param(put(THREADS, "25"), "env-conflict", id="other threads"),
        pytest.param(
            lambda raw: env_of(raw).append({"name": "CUDA_MPS_PIPE_DIRECTORY", "value": ""}),
            "daemon-bypass",
            id="bypass",
        ),
        pytest.param(
            lambda raw: raw["metadata"]["annotations"].update({"mps.nvidia.com/x": "1"}), "unknown-annotation", id="key"
        ),
    ],
)
def test_a_changed_object_is_judged_anew(change: Callable[[dict[str, Any]], object], code: str) -> None:
    after = patched(full(), judge(full(), T4_4X))
    change(after)
    assert codes(validate(after), "deny") == {code}


def test_a_container_added_afterwards_lacks_its_limit() -> None:
    after = patched(full(), judge(full(), T4_4X))
    after["spec"]["containers"].append(pod("late").gpu().build()["spec"]["containers"][0])
    verdict = validate(after)
    assert [f.field for f in verdict.findings] == [
        f"spec.containers[1].env[{LIMIT}]",
        f"spec.containers[1].env[{THREADS}]",
    ]
    assert judge_pod(after, "team-a", AT).allowed


def test_an_object_that_was_never_mutated_is_denied() -> None:
    assert codes(validate(full().build()), "deny") == {"undone"}
    assert codes(validate(pod().gpu().env(LIMIT, "4294967296").build(), T4_2X), "deny") == {"undone"}
    assert validate(pod().gpu().build()).allowed


def test_a_node_that_joins_between_the_calls_denies_nobody() -> None:
    subject = pod().gpu().memory("5Gi")
    after = patched(subject, judge(subject, T4_2X))
    verdict = validate(after, T4_2X, T4_4X)
    assert (verdict.allowed, names(verdict.fit), names(verdict.unfit)) == (True, {"t4-2x"}, {"t4-4x"})
    assert "mixed-candidates" not in verdict.codes
    assert not validate(after, T4_4X).allowed


@pytest.mark.parametrize(
    ("subject", "grants"),
    [
        pytest.param(pod().gpu(), [], id="nothing asked"),
        pytest.param(pod().gpu().env(THREADS, "20"), [], id="a thread variable alone is no quota"),
        pytest.param(pod().gpu().memory("3Gi"), [Grant("app", 3072, None, 1)], id="memory"),
        pytest.param(pod().gpu().memory("3Gi").threads("20"), [Grant("app", 3072, "20", 1)], id="both"),
        pytest.param(
            pod().gpu().memory("3Gi").threads("20").processes("2"), [Grant("app", 1536, "10", 2)], id="each process"
        ),
        pytest.param(
            pod().gpu().memory("3Gi").env(THREADS, "12.5"), [Grant("app", 3072, "12.5", 1)], id="threads by variable"
        ),
        pytest.param(pod().gpu().memory("3Gi").env(THREADS, ""), [Grant("app", 3072, None, 1)], id="threads unset"),
        pytest.param(
            pod().gpu().env(LIMIT, "3G").container("b").gpu().threads("5", "b").container("c"),
            [Grant("app", 3072, None, 1), Grant("b", None, "5", 1)],
            id="each container",
        ),
    ],
)
def test_grants(subject: PodBuilder, grants: list[Grant]) -> None:
    verdict = judge(subject, T4_4X)
    assert verdict.allowed, verdict.denial()
    assert list(verdict.grants) == grants
    assert list(validate(patched(subject, verdict)).grants) == grants


def test_a_denied_pod_is_granted_nothing() -> None:
    verdict = judge(pod().gpu().memory("9Gi"), T4_4X)
    assert (verdict.grants, verdict.patch, verdict.allowed) == ((), (), False)
    assert verdict.codes == ("memory-over-budget",)
    assert verdict.denial().startswith("spec.containers[0] (app): memory-limit 9Gi")
    assert verdict.warnings() == []


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param({"annotations": {"kubernetes.io/config.mirror": "", "mps.nvidia.com/x": "1"}}, id="mirror pod"),
        pytest.param({"deletionTimestamp": "2024-01-01T00:00:00Z", "labels": {"mps.nvidia.com/x": "1"}}, id="deleted"),
    ],
)
def test_pods_that_always_pass(mark: dict[str, Any]) -> None:
    raw = pod().gpu(2).env("CUDA_MPS_PIPE_DIRECTORY", "/x").build()
    raw["metadata"].update(mark)
    assert judge_pod(raw, "team-a", AT) == validate_pod(raw, "team-a", AT) == ALLOWED


def test_every_finding_at_once() -> None:
    subject = pod("a").gpu().env("CUDA_MPS_PIPE_DIRECTORY", "/x").memory("9Gi").threads("200")
    subject.container("b").resources(limits={"nvidia.com/gpu": 1}, requests={"nvidia.com/gpu": 2})
    assert codes(judge(subject, T4_4X), "deny") == {
        "memory-over-budget",
        "daemon-bypass",
        "gpu-request-invalid",
        "invalid-thread-percentage",
    }


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": None, "spec": None},
        {"metadata": [], "spec": "text"},
        {"spec": {"containers": None, "initContainers": {}}},
        {"spec": {"containers": [None, 3, "text", [], {}]}},
        {"metadata": {"annotations": [], "labels": 3}, "spec": {"containers": [{"resources": []}]}},
    ],
)
def test_objects_of_no_shape_are_allowed_as_they_are(raw: dict[str, Any]) -> None:
    before = copy.deepcopy(raw)
    assert judge_pod(raw, "", AT) == validate_pod(raw, "", AT) == Verdict()
    assert raw == before


def test_the_pod_is_not_touched() -> None:
    raw = pod().gpu().memory("5Gi").spec(affinity={"nodeAffinity": {}}).build()
    before = copy.deepcopy(raw)
    assert judge_pod(raw, "team-a", AT).patch
    validate_pod(raw, "team-a", AT)
    assert raw == before


@pytest.mark.parametrize("recording", [p.name for p in sorted(RECORDINGS.glob("pod-create-*.json"))])
def test_recorded_pods(recording: str) -> None:
    request = json.loads((RECORDINGS / recording).read_text())["request"]
    raw, namespace = request["object"], request["namespace"]
    verdict = judge_pod(raw, namespace, AT)
    assert verdict.denial() == ""
    after = patched(raw, verdict)
    assert judge_pod(after, namespace, AT).patch == ()
    assert validate_pod(after, namespace, AT).allowed
