"""What holds for every object, whatever its shape."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import jsonpatch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.builders import LIMIT, THREADS
from tests.unit.policy import objects
from tests.unit.policy.judging import admits, names
from webhook.policy import (
    Inventory,
    Verdict,
    judge_pod,
    judge_update,
    judge_workload,
    validate_pod,
)

# The same examples in every run: a failure here is one that everybody sees.
SAME = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
NAMESPACES = st.sampled_from(["team-a", "locked", ""])


def tidy(verdict: Verdict) -> None:
    assert all(f.message.isprintable() and f.message.endswith(f"[{f.code}]") for f in verdict.findings)
    assert len(verdict.denial()) < 1000
    assert verdict.allowed is (verdict.denial() == "")
    assert all(len(w) <= 256 and w.isprintable() for w in verdict.warnings())
    assert sum(map(len, verdict.warnings())) <= 4096
    assert verdict.allowed or (verdict.patch, verdict.grants) == ((), ())
    assert not names(verdict.fit) & names(verdict.unfit)


@SAME
@given(objects.odd_objects, objects.inventories, NAMESPACES)
def test_objects_of_any_shape(raw: dict[str, Any], at: Inventory, namespace: str) -> None:
    before = copy.deepcopy(raw)
    verdict = judge_pod(raw, namespace, at)
    tidy(verdict)
    tidy(validate_pod(raw, namespace, at))
    assert raw == before
    if verdict.allowed:
        after = jsonpatch.apply_patch(raw, list(verdict.patch))
        second = judge_pod(after, namespace, at)
        assert (second.allowed, second.patch) == (True, ())
        assert validate_pod(after, namespace, at).allowed


@SAME
@given(
    objects.odd_objects,
    objects.odd_objects,
    st.sampled_from(["", "resize", "ephemeralcontainers", "status"]),
    NAMESPACES,
)
def test_updates_of_any_shape(old: dict[str, Any], new: dict[str, Any], subresource: str, namespace: str) -> None:
    at = objects._inventory([], "steer")
    verdict = judge_update(old, new, subresource, namespace, at)
    tidy(verdict)
    assert verdict.patch == ()
    assert judge_update(new, new, subresource, namespace, at).findings == ()


TEMPLATES = [("template",), ("spec", "template"), ("spec", "jobTemplate", "spec", "template")]


@SAME
@given(
    objects.odd_objects,
    st.sampled_from(TEMPLATES),
    st.sampled_from(["Deployment", "DaemonSet", "CronJob"]),
    objects.inventories,
)
def test_workloads_of_any_shape(template: Any, steps: tuple[str, ...], kind: str, at: Inventory) -> None:
    inner: Any = template
    for step in reversed(steps):
        inner = {step: inner}
    workload = {"kind": kind, **inner}
    verdict = judge_workload(workload, "team-a", at)
    tidy(verdict)
    if verdict.allowed:
        after = jsonpatch.apply_patch(workload, list(verdict.patch))
        assert judge_workload(after, "team-a", at).patch == ()
    tidy(judge_workload(template, "team-a", at))


@settings(SAME, max_examples=1000)
@given(objects.pods, objects.fleets, objects.placements)
def test_pods_nearly_as_people_write_them(raw: dict[str, Any], nodes: list[dict[str, Any]], placement: str) -> None:
    at = objects._inventory(nodes, placement)
    verdict = judge_pod(raw, "team-a", at)
    tidy(verdict)
    event(f"allowed: {verdict.allowed}, steered: {'steered' in verdict.codes}, patched: {bool(verdict.patch)}")
    if not verdict.allowed:
        return
    after = jsonpatch.apply_patch(raw, list(verdict.patch))
    second = judge_pod(after, "team-a", at)
    assert (second.allowed, second.patch) == (True, ())
    assert second.grants == verdict.grants
    assert validate_pod(after, "team-a", at).allowed
    for was, now in zip(_containers(raw), _containers(after), strict=True):
        _others_stay(was, now)
        _never_above_what_was_asked(raw, was, now)
    if "steered" not in verdict.codes:
        assert after["spec"].get("affinity") == raw["spec"].get("affinity")


@SAME
@given(objects.steerable, st.lists(st.sampled_from(objects.NODES), min_size=2, max_size=9, unique_by=id))
def test_a_steered_pod_can_land_only_where_it_fits(raw: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    at = objects._inventory(nodes, "steer")
    verdict = judge_pod(raw, "team-a", at)
    steered = "steered" in verdict.codes
    event(f"steered: {steered}")
    assert steered is (verdict.allowed and bool(verdict.fit) and bool(verdict.unfit))
    if not verdict.allowed:
        return
    after = jsonpatch.apply_patch(raw, list(verdict.patch))
    second = judge_pod(after, "team-a", at)
    assert (second.allowed, second.unfit, second.patch) == (True, (), ())
    judged = names(verdict.fit) | names(verdict.unfit)
    left = {n["metadata"]["name"] for n in nodes if admits(after, n)}
    assert left & judged == names(verdict.fit) == names(second.fit)
    assert left <= {n["metadata"]["name"] for n in nodes if admits(raw, n)}
    for name in names(verdict.unfit):
        alone = judge_pod({**raw, "spec": {**raw["spec"], "nodeName": name}}, "team-a", at)
        assert not alone.allowed


SEEN = objects._inventory(objects.NODES, "steer")


@settings(SAME, max_examples=600)
@given(objects.pods, NAMESPACES)
def test_what_came_before_changes_no_verdict(raw: dict[str, Any], namespace: str) -> None:
    fresh = objects._inventory(objects.NODES, "steer")
    for ask in (judge_pod, validate_pod):
        first, again, alone = ask(raw, namespace, SEEN), ask(raw, namespace, SEEN), ask(raw, namespace, fresh)
        assert first == again
        assert (first.findings, first.patch, first.grants) == (alone.findings, alone.patch, alone.grants)
        assert (names(first.fit), names(first.unfit)) == (names(alone.fit), names(alone.unfit))


def _containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def _others_stay(was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Other variables are byte for byte as they were and in order; ours that were there keep their places."""
    before, after = was.get("env") or [], now.get("env") or []
    assert [e["name"] for e in after[: len(before)]] == [e["name"] for e in before]
    assert all(b == a for b, a in zip(before, after, strict=False) if b["name"] not in (LIMIT, THREADS))
    assert all(e["name"] in (LIMIT, THREADS) for e in after[len(before) :])
    assert {**was, "env": None} == {**now, "env": None}


UNITS = {"Gi": 1 << 30, "Mi": 1 << 20, "G": 10**9, "M": 10**6, "000000": 10**6}


def _asked(pod: Mapping[str, Any], container: str, name: str) -> str | None:
    annotations = pod["metadata"]["annotations"]
    own, wide = annotations.get(f"{name}.mps.nvidia.com/{container}"), annotations.get(f"mps.nvidia.com/{name}")
    text: str | None = own or wide
    return text


def _never_above_what_was_asked(pod: Mapping[str, Any], was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if not any(was["resources"]["limits"].values()):
        return
    text = _asked(pod, was["name"], "memory-limit")
    (value,) = [e.get("value") for e in now.get("env") or [] if e["name"] == LIMIT] or [None]
    processes = int(_asked(pod, was["name"], "processes") or 1)
    if text is not None:
        number, unit = re.fullmatch(r"([0-9]+?)(Gi|Mi|G|M|000000)", text).groups()  # type: ignore[union-attr]
        assert value is not None
        each = re.fullmatch(r"0=([0-9]+)([MG])(?:i?B)?", value)
        assert each is not None
        mib = int(each[1]) * (1024 if each[2] == "G" else 1)
        assert 0 < mib * (1 << 20) * processes <= int(number) * UNITS[unit]
        assert (mib + 1) * (1 << 20) * processes > int(number) * UNITS[unit] - (processes << 20)
    elif value:
        assert re.fullmatch(r"0=[1-9][0-9]*(?:M|G|GiB)", value)
    percent = _asked(pod, was["name"], "active-thread-percentage")
    if percent is not None:
        (threads,) = [e.get("value") for e in now.get("env") or [] if e["name"] == THREADS]
        assert 0 < float(threads) * processes <= int(percent)


@SAME
@given(objects.sizes, objects.sizes)
def test_a_larger_limit_never_fits_where_a_smaller_does_not(one: str, other: str) -> None:
    at = objects._inventory(objects.NODES, "steer")

    def fitting(text: str) -> set[str]:
        limits = {"limits": {"nvidia.com/gpu": 1}}
        subject = {
            "metadata": {"annotations": {"mps.nvidia.com/memory-limit": text}},
            "spec": {"containers": [{"name": "a", "resources": limits}]},
        }
        return names(judge_pod(subject, "team-a", at).fit)

    def size(text: str) -> int:
        number, unit = re.fullmatch(r"([0-9]+?)(Gi|Mi|G|M|000000)", text).groups()  # type: ignore[union-attr]
        return int(number) * UNITS[unit]

    small, large = sorted((one, other), key=size)
    assert fitting(large) <= fitting(small)
