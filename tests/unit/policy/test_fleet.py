"""The fleet: many nodes, few groups; who is a candidate."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CONFIGS, GPU, HOSTNAME, PodBuilder, expression, inventory, mig_node, node, pod, where
from tests.unit.policy.judging import judge, names
from webhook.policy import Fleet, Settings, project_node
from webhook.policy.fleet import STEERING_LABELS
from webhook.policy.pod import read_pod


def fleet(*nodes: Any, **settings: Any) -> Fleet:
    return Fleet(map(project_node, nodes), CONFIGS, Settings(**settings))


def candidates(subject: PodBuilder, at: Fleet) -> set[str]:
    read = read_pod(subject.build())
    return names(at.candidates(read.scheduling, read.effective_request()))


@pytest.mark.parametrize("count", [1, 10, 500])
def test_nodes_of_one_profile_are_one_group(count: int) -> None:
    at = fleet(*(node(f"t4-{i}") for i in range(count)), *(node(f"big-{i}", memory=40960) for i in range(count)))
    assert len(at) == 2 * count
    assert len(at.groups) == len(at.profiles) == 2
    assert [len(g.names) for g in at.groups] == [count, count]


def test_nodes_without_gpus_are_in_no_group() -> None:
    bare = {"metadata": {"name": "cpu-only"}, "status": {"allocatable": {"cpu": "8", GPU: "0"}}}
    at = fleet(bare, node("t4"))
    assert names(at.groups) == {"t4"}
    assert {n.name for n, _ in at.nodes} == {"cpu-only", "t4"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(node("b", config="mps-2x"), id="config"),
        pytest.param(node("b", memory=40960), id="memory"),
        pytest.param(node("b", capability="8.0"), id="capability"),
        pytest.param(node("b", product="A10"), id="product"),
        pytest.param(node("b", cards=2), id="allocatable"),
        pytest.param(node("b", taints=[{"key": "k", "effect": "NoSchedule"}]), id="taints"),
        pytest.param(node("b", labels={"node.kubernetes.io/instance-type": "GN7"}), id="instance type"),
    ],
)
def test_what_tells_groups_apart(other: Any) -> None:
    assert len(fleet(node("a"), other).groups) == 2


def test_labels_that_nobody_asks_for_do_not() -> None:
    at = fleet(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}))
    assert len(at.groups) == 1
    assert len(at.grouped(frozenset({"zone"})) or ()) == 2
    assert len(at.grouped(frozenset({HOSTNAME})) or ()) == 2
    assert len(at.grouped(frozenset({"gone"})) or ()) == 1
    assert len(at.grouped(frozenset(STEERING_LABELS)) or ()) == 1


def test_a_grouping_is_kept_and_their_number_is_bounded() -> None:
    keys = [f"key-{i}" for i in range(100)]
    at = fleet(*(node(f"n-{i}", labels={"zone": str(i % 3)} | dict.fromkeys(keys, "x")) for i in range(9)))
    zones, plain = frozenset({"zone"}), at.groups
    assert at.grouped(zones) is at.grouped(zones)
    for key in keys:
        at.grouped(frozenset({key}))
    assert len(at._groupings) <= 64
    assert at.groups is plain
    assert len(at.grouped(zones) or ()) == 3


def test_a_label_that_no_node_has_is_no_reason_to_group_anew() -> None:
    at = fleet(node("a"))
    assert at.grouped(frozenset({"gone"})) is at.groups
    assert not at._groupings


def test_nodes_that_a_label_tells_apart_one_by_one_are_not_grouped_by_it() -> None:
    nodes = [node(f"n-{i}", config="mps-4x" if i % 2 else "mps-2x", labels={"serial": str(i)}) for i in range(300)]
    at = fleet(*nodes)
    assert at.grouped(frozenset({"serial"})) is None
    subject = pod().gpu().terms(where(expression("serial", "NotIn", "7", "8")), where(expression("serial", "In", "7")))
    read = read_pod(subject.build())
    found = at.candidates(read.scheduling, read.effective_request())
    assert [(g.config, len(g.names)) for g in found] == [("mps-2x", 149), ("mps-4x", 150)]
    assert names(found) == {f"n-{i}" for i in range(300)} - {"n-8"}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(pod().gpu(), {"a", "b", "big", "excl"}, id="one GPU"),
        pytest.param(pod().gpu(4), {"a", "b", "big", "excl"}, id="all shares of a card"),
        pytest.param(pod().gpu(5), {"big", "excl"}, id="more than a card"),
        pytest.param(pod().gpu(9), set(), id="more than any"),
        pytest.param(pod().gpu(3).container("x").gpu(3), {"big", "excl"}, id="containers add up"),
        pytest.param(pod().gpu(3).init("x").gpu(3), {"a", "b", "big", "excl"}, id="an init container does not"),
        pytest.param(pod().gpu(1).init("x").gpu(5), {"big", "excl"}, id="the largest init container"),
        pytest.param(pod().gpu(3).sidecar("x").gpu(3), {"big", "excl"}, id="a sidecar does"),
        pytest.param(pod().gpu(1).sidecar("s").gpu(3).init("x").gpu(3), {"big", "excl"}, id="init beside a sidecar"),
        pytest.param(pod().gpu(1).init("x").gpu(3).sidecar("s").gpu(3), {"a", "b", "big", "excl"}, id="init before it"),
        pytest.param(pod().gpu(1, "nvidia.com/gpu.shared"), {"renamed"}, id="renamed"),
        pytest.param(pod().gpu(1, "nvidia.com/mig-1g.10gb"), {"mig"}, id="MIG"),
        pytest.param(pod().gpu().container("x").gpu(1, "nvidia.com/gpu.shared"), set(), id="two resources"),
        pytest.param(pod().gpu().select(zone="a"), {"a"}, id="selector"),
        pytest.param(pod().gpu().terms(where(expression("zone", "In", "a", "b"))), {"a", "b"}, id="affinity"),
        pytest.param(pod().gpu().terms(where(names=["a", "big", "gone"])), {"a", "big"}, id="matchFields"),
        pytest.param(pod().gpu().terms(where(expression("zone", "In", "b"), names=["a", "b"])), {"b"}, id="both"),
        pytest.param(
            pod().gpu().terms({"matchFields": [expression("metadata.name", "NotIn", "a")]}),
            {"b", "big", "excl"},
            id="any other name",
        ),
        pytest.param(
            pod().gpu().terms(where(names=["a"]), where(expression("zone", "In", "b"))),
            {"a", "b"},
            id="names or labels",
        ),
        pytest.param(pod().gpu().terms({}), set(), id="an empty term"),
        pytest.param(pod().gpu().select(**{HOSTNAME: "host-a"}), {"a"}, id="host name"),
        pytest.param(pod().gpu().select(**{HOSTNAME: "a"}), set(), id="no such host name"),
        pytest.param(pod().gpu().select(**{HOSTNAME: ""}), set(), id="an empty host name"),
        pytest.param(pod().gpu().select(**{HOSTNAME: "host-a"}, zone="b"), set(), id="host name and another label"),
        pytest.param(pod().gpu(5).select(**{HOSTNAME: "host-a"}), set(), id="host name with too few"),
        pytest.param(pod().gpu().select(**{HOSTNAME: "host-tainted"}), set(), id="host name with taints"),
        pytest.param(
            pod().gpu().terms(where(expression(HOSTNAME, "In", "host-a", "host-big", "gone"))),
            {"a", "big"},
            id="host names by affinity",
        ),
        pytest.param(
            pod().gpu().terms(where(expression(HOSTNAME, "In", "host-a")), where(expression("zone", "In", "b"))),
            {"a", "b"},
            id="host name or label",
        ),
        pytest.param(
            pod().gpu().terms(where(expression(HOSTNAME, "In", "host-a", "host-b"), expression("zone", "In", "b"))),
            {"b"},
            id="host name by affinity and label",
        ),
        pytest.param(
            pod().gpu().terms(where(expression(HOSTNAME, "NotIn", "host-a"))), {"b", "big", "excl"}, id="any other host"
        ),
        pytest.param(
            pod().gpu().select(**{HOSTNAME: "host-a"}).terms(where(names=["a", "b"])),
            {"a"},
            id="host name and node name",
        ),
        pytest.param(pod().gpu().spec(nodeName="b").select(zone="a"), {"b"}, id="nodeName alone counts"),
        pytest.param(pod().gpu(5).spec(nodeName="b"), set(), id="nodeName with too few"),
        pytest.param(pod().gpu().spec(nodeName="tainted"), {"tainted"}, id="nodeName in spite of taints"),
        pytest.param(
            pod().gpu().tolerate(key="dedicated", operator="Exists"),
            {"a", "b", "big", "excl", "tainted"},
            id="tolerated",
        ),
    ],
)
def test_candidates(subject: PodBuilder, expected: set[str]) -> None:
    at = fleet(
        node("a", labels={"zone": "a"}),
        node("b", labels={"zone": "b"}),
        node("big", cards=2, memory=40960),
        node("excl", config="mps-1x", cards=8),
        node("renamed", config="mps-4x-renamed"),
        node("tainted", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]),
        mig_node(),
        {"metadata": {"name": "cpu-only", "labels": {"zone": "a"}}},
    )
    assert candidates(subject, at) == expected


def test_a_verdict_does_not_grow_with_the_nodes_of_a_profile() -> None:
    nodes = [node(f"{config}-{i}", config=config) for config in ("mps-4x", "mps-2x") for i in range(200)]
    verdict = judge(pod().gpu().memory("5Gi"), *nodes)
    assert (len(verdict.fit), len(verdict.unfit)) == (1, 1)
    assert len(names(verdict.fit)) == len(names(verdict.unfit)) == 200
    assert verdict.patch == judge(pod().gpu().memory("5Gi"), nodes[0], nodes[-1]).patch


def test_pinning_names_looks_at_these_nodes_alone() -> None:
    nodes = [node(f"t4-{i}") for i in range(50)]
    verdict = judge(pod().gpu().memory("1Gi").terms(where(names=["t4-7", "t4-8"])), *nodes)
    assert [g.names for g in verdict.fit] == [("t4-7", "t4-8")]


def test_settings_come_with_the_fleet() -> None:
    assert inventory(placement="off").settings.placement == "off"
