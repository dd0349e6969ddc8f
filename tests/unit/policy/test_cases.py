"""Pods as people write them, against the fleet of the fixtures: the whole decision, both passes."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders import LIMIT, THREADS
from tests.unit.policy.judging import admits, codes, names, patched
from webhook import kubeyaml
from webhook.policy import (
    Fleet,
    Inventory,
    Settings,
    Verdict,
    judge_pod,
    judge_workload,
    parse_config_map,
    project_namespace,
    project_node,
    validate_pod,
)
from webhook.policy.scheduling import required_affinity

FIXTURES = Path(__file__).parents[2] / "fixtures" / "cases"
CASES: list[dict[str, Any]] = kubeyaml.load((FIXTURES / "open.yaml").read_text())
NODES: dict[str, dict[str, Any]] = {
    n["metadata"]["name"]: n for n in json.loads((FIXTURES / "nodes.json").read_text())["items"]
}
CONFIGS = parse_config_map(kubeyaml.load((FIXTURES / "configs.yaml").read_text())["data"])
NAMESPACES = {
    n.name: n for n in map(project_namespace, kubeyaml.load((FIXTURES / "namespaces.yaml").read_text())["items"])
}


@pytest.fixture(params=CASES, ids=[c["id"] for c in CASES])
def case(request: pytest.FixtureRequest) -> Any:
    return copy.deepcopy(request.param)


def test_every_case_is_here() -> None:
    assert len({c["id"] for c in CASES}) == len(CASES) == 165


def test_case(case: dict[str, Any]) -> None:
    expect, namespace = case["expect"], case.get("namespace", "team-a")
    at = cluster(case["nodes"])
    is_pod = "pod" in case
    subject = {"apiVersion": "v1", "kind": "Pod", **case["pod"]} if is_pod else case["object"]
    verdict = (judge_pod if is_pod else judge_workload)(copy.deepcopy(subject), namespace, at)

    assert verdict.allowed is expect["allowed"], verdict.denial()
    if "deny" in expect:
        assert codes(verdict, "deny") == set(expect["deny"])
    assert set(expect.get("warn", ())) <= codes(verdict, "warn")
    assert not set(expect.get("not_codes", ())) & set(verdict.codes)
    well_formed(verdict)
    if verdict.allowed and is_pod:
        after = patched(subject, verdict)
        as_wanted(subject, after, verdict, expect, [*case["nodes"], *case.get("later", ())])
        only_ours_touched(subject, after)
        second = judge_pod(after, namespace, at)
        assert (second.allowed, second.patch) == (True, ())
        assert validate_pod(after, namespace, at).allowed


def cluster(nodes: list[str]) -> Inventory:
    return Inventory(Fleet((project_node(NODES[n]) for n in nodes), CONFIGS, Settings()), NAMESPACES)


def well_formed(verdict: Verdict) -> None:
    for finding in verdict.findings:
        assert finding.field
        assert finding.message.endswith(f"[{finding.code}]")
        assert finding.message.isprintable()
    warned = verdict.warnings()
    assert all(len(w) <= 256 for w in warned)
    assert sum(map(len, warned)) <= 4096
    assert len(verdict.denial()) < 1000
    assert not names(verdict.fit) & names(verdict.unfit)


def as_wanted(
    before: Mapping[str, Any], after: Mapping[str, Any], verdict: Verdict, expect: Mapping[str, Any], nodes: list[str]
) -> None:
    by_name = {c["name"]: c for c in containers(after)}
    for container, variables in expect.get("env", {}).items():
        env = by_name[container].get("env") or []
        for name, value in variables.items():
            assert [e.get("value") for e in env if e["name"] == name] == ([] if value is None else [value])
    if "host_ipc" in expect:
        assert after["spec"].get("hostIPC", False) is expect["host_ipc"]
    if expect.get("no_patch"):
        assert verdict.patch == ()
    if "steered" in expect:
        assert (required_affinity(after["spec"]) != required_affinity(before["spec"])) is expect["steered"]
    if "fit" in expect:
        assert sorted(n for n in nodes if admits(after, NODES[n])) == sorted(expect["fit"])


def only_ours_touched(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    assert bare(after) == bare(before)
    for was, now in zip(containers(before), containers(after), strict=True):
        assert others(now) == others(was)


def bare(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Without env, hostIPC and required node affinity; parents that are then empty go too."""
    rest = copy.deepcopy(dict(pod))
    rest["spec"].pop("hostIPC", None)
    affinity = rest["spec"].get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    of_nodes.pop("requiredDuringSchedulingIgnoredDuringExecution", None)
    if not of_nodes:
        affinity.pop("nodeAffinity", None)
    if not affinity:
        rest["spec"].pop("affinity", None)
    for container in containers(rest):
        container.pop("env", None)
    return rest


def others(container: Mapping[str, Any]) -> list[Any]:
    return [e for e in container.get("env") or [] if e["name"] not in (LIMIT, THREADS)]


def containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
