"""Nodes and namespaces, projected; the profile that labels and configuration make."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CONFIGS, GPU, mig_node, node
from webhook.policy import Namespace, Profile, Settings, project_namespace, project_node
from webhook.policy.deviceplugin import GPU_SHARED
from webhook.policy.nodes import (
    CONFIG_LABEL,
    MAJOR_LABEL,
    MEMORY_LABEL,
    MINOR_LABEL,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    STRATEGY_LABEL,
    Labels,
    Taint,
    profile_of,
)

MIG = "nvidia.com/mig-1g.10gb"
QGPU = "tke.cloud.tencent.com/qgpu-core"


def profile(raw: dict[str, Any], **settings: Any) -> Profile:
    return profile_of(project_node(raw), CONFIGS, Settings(**settings))


def test_profile_of_a_shared_node() -> None:
    assert profile(node("t4-4x")) == Profile(
        "mps-4x", "mps", 4, GPU, fail_greater_than_one=True, memory_mib=15360, compute_capability=(7, 5),
        product="Tesla-T4",
    )  # fmt: skip


def test_shares_are_floored() -> None:
    share = profile(node("l40s", config="mps-10x", memory=46068))
    assert (share.share_mib, share.share_threads) == (4606, 10)
    assert profile(node("x", memory=None)).share_mib is None


@pytest.mark.parametrize(
    ("labels", "field", "value"),
    [
        pytest.param({CONFIG_LABEL: None}, "config", "mps-1x", id="no label: the default"),
        pytest.param({CONFIG_LABEL: ""}, "config", "mps-1x", id="an empty label too"),
        pytest.param({CONFIG_LABEL: "gone"}, "known_config", False, id="unknown"),
        pytest.param({}, "known_config", True, id="known"),
        pytest.param({MEMORY_LABEL: "many"}, "memory_mib", None, id="memory unreadable"),
        pytest.param({MEMORY_LABEL: "0"}, "memory_mib", None, id="memory zero is unknown"),
        pytest.param({MEMORY_LABEL: "-1"}, "memory_mib", None, id="memory negative"),
        pytest.param({MEMORY_LABEL: "٣"}, "memory_mib", None, id="memory in other digits"),
        pytest.param({MEMORY_LABEL: "9" * 10}, "memory_mib", None, id="memory beyond belief"),
        pytest.param({MAJOR_LABEL: "8", MINOR_LABEL: None}, "compute_capability", (8, 0), id="no minor"),
        pytest.param({MAJOR_LABEL: None}, "compute_capability", None, id="no major"),
        pytest.param({MAJOR_LABEL: "x"}, "compute_capability", None, id="major unreadable"),
        pytest.param({PRODUCT_LABEL: "A10-SHARED"}, "product", "A10", id="the suffix goes"),
        pytest.param({PRODUCT_LABEL: "A10"}, "product", "A10", id="no suffix"),
        pytest.param({PRODUCT_LABEL: None}, "product", None, id="no product"),
        pytest.param({PRODUCT_LABEL: "A100-MIG-1g.10gb"}, "mig", True, id="a MIG product"),
        pytest.param({"nvidia.com/mig.capable": "true"}, "mig", False, id="mig.capable says nothing"),
        pytest.param({REPLICAS_LABEL: "10"}, "replicas", 10, id="drift: more"),
        pytest.param({REPLICAS_LABEL: "2"}, "replicas", 4, id="drift: fewer"),
        pytest.param({STRATEGY_LABEL: "time-slicing"}, "strategy", "mps", id="drift: the label's config"),
    ],
)
def test_profile(labels: dict[str, str | None], field: str, value: object) -> None:
    assert getattr(profile(node("x", labels=labels)), field) == value


@pytest.mark.parametrize(
    ("strategy", "replicas", "allocatable", "judged"),
    [
        pytest.param("mps", "4", {}, ("mps", 4, GPU, True), id="MPS"),
        pytest.param("mps", "2", {}, ("mps", 2, GPU, True), id="two shares"),
        pytest.param("time-slicing", "4", {}, ("time-slicing", 4, GPU, False), id="time-slicing"),
        pytest.param("mps", "4", {GPU_SHARED: "4", GPU: "0"}, ("mps", 4, GPU_SHARED, True), id="renamed"),
        pytest.param("mps", "1", {}, ("none", 1, GPU, False), id="one share is none"),
        pytest.param("mps", None, {}, ("none", 1, GPU, False), id="no replicas"),
        pytest.param("none", "4", {}, ("none", 1, GPU, False), id="not shared"),
        pytest.param(None, "4", {}, ("none", 1, GPU, False), id="no strategy"),
    ],
)
def test_an_unknown_config_is_judged_by_the_labels(
    strategy: str | None, replicas: str | None, allocatable: dict[str, str], judged: tuple[object, ...]
) -> None:
    labels = {CONFIG_LABEL: "gone", STRATEGY_LABEL: strategy, REPLICAS_LABEL: replicas}
    seen = profile(node("x", labels=labels, allocatable=allocatable))
    assert (seen.strategy, seen.replicas, seen.resource, seen.fail_greater_than_one) == judged
    assert (seen.config, seen.known_config, seen.drift) == ("gone", False, None)


def test_mig_and_qgpu_by_resources() -> None:
    cut = profile(mig_node())
    assert (cut.mig, cut.qgpu, cut.drift) == (True, False, None)
    assert not profile(node("x", allocatable={MIG: "0"})).mig
    assert profile(node("x", allocatable={QGPU: "100"})).qgpu
    assert not profile(node("x", allocatable={QGPU: "0"})).qgpu


@pytest.mark.parametrize(
    ("labels", "known", "memory"),
    [
        pytest.param({PRODUCT_LABEL: "A10-SHARED"}, {"A10": 24576}, 24576, id="by product, without the suffix"),
        pytest.param({PRODUCT_LABEL: "A10"}, {"A10": 24576}, 24576, id="by product"),
        pytest.param({PRODUCT_LABEL: "A10-SHARED"}, {"A10": 1, "A10-SHARED": 24576}, 24576, id="the whole label first"),
        pytest.param({"node.kubernetes.io/instance-type": "GN7"}, {"GN7": 24576}, 24576, id="by instance type"),
        pytest.param(
            {PRODUCT_LABEL: "A10", "node.kubernetes.io/instance-type": "GN7"},
            {"A10": 24576, "GN7": 1},
            24576,
            id="the product first",
        ),
        pytest.param({PRODUCT_LABEL: "A10"}, {"A16": 1}, None, id="neither"),
        pytest.param({PRODUCT_LABEL: "A10", MEMORY_LABEL: "15360"}, {"A10": 1}, 15360, id="the label wins"),
    ],
)
def test_memory(labels: dict[str, str], known: dict[str, int], memory: int | None) -> None:
    assert profile(node("x", memory=None, labels=labels), gpu_memory=known).memory_mib == memory


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"kind": "Pod", "metadata": {"name": "x"}},
        {"kind": "Node"},
        {"metadata": None},
        {"metadata": []},
        {"metadata": {"name": 7}},
        {"metadata": {}},
    ],
)
def test_refuses_what_is_no_node(raw: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a Node object with a name"):
        project_node(raw)
    with pytest.raises(ValueError, match="not a Namespace object with a name"):
        project_namespace(raw)


def test_a_node_of_odd_shape_is_bare() -> None:
    raw = {
        "metadata": {"name": "x", "labels": {"a": 1, "b": None, "c": "d"}},
        "spec": {"taints": [None, {"key": "k", "effect": "NoSchedule"}, "text"]},
        "status": {"allocatable": {GPU: "lots", "nvidia.com/gpu.shared": 2, "cpu": "8", MIG: None, QGPU: "1k"}},
    }
    odd = project_node(raw)
    assert dict(odd.labels) == {"a": "1", "c": "d"}
    assert odd.taints == (Taint("k", "", "NoSchedule"),)
    assert odd.allocatable == (("nvidia.com/gpu.shared", 2), (QGPU, 1000))
    for part in ("spec", "status"):
        bare = project_node({"metadata": {"name": "x"}, part: []})
        assert (bare.taints, bare.allocatable, dict(bare.labels)) == ((), (), {})


@pytest.mark.parametrize(
    ("metadata", "level"),
    [
        ({"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}, "baseline"),
        ({"labels": {"pod-security.kubernetes.io/warn": "restricted"}}, None),
        ({"labels": None}, None),
        ({}, None),
    ],
)
def test_namespaces(metadata: dict[str, Any], level: str | None) -> None:
    assert project_namespace({"metadata": {"name": "team-a", **metadata}}) == Namespace("team-a", level)


def test_labels_are_a_mapping() -> None:
    labels = Labels({"b": "2", "a": "1"})
    assert dict(labels) == {"a": "1", "b": "2"}
    assert len(labels) == 2
    assert "a" in labels
    assert "c" not in labels
    assert labels == Labels({"a": "1", "b": "2"})
    assert hash(labels) == hash(Labels({"a": "1", "b": "2"}))
    assert labels != Labels({"a": "2", "b": "1"})
    assert labels != Labels({"x": "1", "y": "2"})
    assert labels != 3
    assert repr(labels) == "Labels({'a': '1', 'b': '2'})"
    with pytest.raises(KeyError):
        labels["c"]
