"""nodeSelector, required node affinity and taints, as the scheduler reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import expression, pod, where
from webhook.policy.nodes import Taint
from webhook.policy.scheduling import Requirement, read_scheduling, required_affinity

LABELS = {"zone": "a", "memory": "15360", "word": "many", "empty": "", "minus": "-3", "long": "9" * 19}


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ["a"], True),
        ("zone", "In", ["b", "a"], True),
        ("zone", "In", ["A"], False),
        ("zone", "In", [], False),
        ("gone", "In", ["a"], False),
        ("zone", "NotIn", ["b"], True),
        ("zone", "NotIn", ["a"], False),
        ("gone", "NotIn", ["a"], True),
        ("zone", "Exists", [], True),
        ("empty", "Exists", [], True),
        ("gone", "Exists", [], False),
        ("gone", "DoesNotExist", [], True),
        ("empty", "DoesNotExist", [], False),
        ("memory", "Gt", ["15359"], True),
        ("memory", "Gt", ["15360"], False),
        ("memory", "Lt", ["15361"], True),
        ("memory", "Lt", ["15360"], False),
        ("minus", "Gt", ["-4"], True),
        ("minus", "Lt", ["+0"], True),
        ("word", "Gt", ["1"], False),
        ("word", "Lt", ["1"], False),
        ("empty", "Gt", ["0"], False),
        ("gone", "Gt", ["0"], False),
        ("gone", "Lt", ["0"], False),
        ("memory", "Gt", ["20479Mi"], False),
        ("memory", "Lt", ["20479Mi"], False),
        ("memory", "Gt", ["1.5"], False),
        ("memory", "Gt", ["٣"], False),
        ("memory", "Gt", [], False),
        ("memory", "Gt", ["1", "2"], False),
        ("long", "Gt", ["0"], False),
        ("memory", "gt", ["1"], False),
        ("memory", "", ["1"], False),
        ("metadata.name", "In", ["n"], False),
    ],
)
def test_operators(key: str, operator: str, values: list[str], holds: bool) -> None:
    assert Requirement(key, operator, tuple(values)).holds(LABELS, "n") is holds


@pytest.mark.parametrize(
    ("terms", "selected"),
    [
        pytest.param([where(expression("zone", "In", "a"))], True, id="one that holds"),
        pytest.param([where(expression("zone", "In", "b")), where(expression("zone", "In", "a"))], True, id="ORed"),
        pytest.param([where(expression("zone", "In", "a"), expression("gone", "Exists"))], False, id="ANDed"),
        pytest.param([where(names=["n"])], True, id="a field that holds"),
        pytest.param([where(names=["m"])], False, id="a field that does not"),
        pytest.param([where(expression("zone", "In", "b"), names=["n"])], False, id="expression and field"),
        pytest.param([{"matchFields": [expression("metadata.name", "NotIn", "m")]}], True, id="any other name"),
        pytest.param([{"matchFields": [expression("metadata.uid", "In", "n")]}], False, id="another field"),
        pytest.param([], False, id="no term"),
        pytest.param(None, False, id="terms null"),
        pytest.param("text", False, id="terms of no shape"),
        pytest.param([{}], False, id="an empty term"),
        pytest.param([None], False, id="a null term"),
        pytest.param([{"matchExpressions": []}], False, id="a term with empty expressions"),
        pytest.param([{"matchExpressions": None, "matchFields": None}], False, id="a term with nulls"),
        pytest.param([{}, where(expression("zone", "In", "a"))], True, id="an empty term beside one that holds"),
        pytest.param([{"matchExpressions": [None]}], False, id="a null expression"),
        pytest.param([{"matchExpressions": [{"key": 1, "operator": 2, "values": 3}]}], False, id="wrong types"),
        pytest.param([{"matchExpressions": {"key": "zone"}}], False, id="expressions of no shape"),
    ],
)
def test_terms(terms: object, selected: bool) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    scheduling = read_scheduling({"affinity": {"nodeAffinity": required}})
    assert scheduling.selects(LABELS, "n") is selected


@pytest.mark.parametrize(
    ("spec", "selected"),
    [
        pytest.param({}, True, id="nothing said"),
        pytest.param({"nodeSelector": {"zone": "a"}}, True, id="selector holds"),
        pytest.param({"nodeSelector": {"zone": "a", "gone": "x"}}, False, id="selector does not"),
        pytest.param({"nodeSelector": None}, True, id="selector null"),
        pytest.param({"nodeSelector": [1]}, True, id="selector of no shape"),
        pytest.param({"affinity": None}, True, id="affinity null"),
        pytest.param({"affinity": {"nodeAffinity": None}}, True, id="nodeAffinity null"),
        pytest.param(
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}},
            True,
            id="required null",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            False,
            id="required without terms",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
            True,
            id="preferences do not select",
        ),
    ],
)
def test_selects(spec: Mapping[str, Any], selected: bool) -> None:
    assert read_scheduling(spec).selects(LABELS, "n") is selected


def test_selector_and_affinity_are_both_asked() -> None:
    both = pod().select(zone="a").terms(where(expression("memory", "Gt", "20000"))).build()["spec"]
    assert not read_scheduling(both).selects(LABELS, "n")
    assert read_scheduling(both).selects({**LABELS, "memory": "20001"}, "n")
    assert read_scheduling(both).keys == {"zone", "memory"}
    assert required_affinity(both) is not None


DEDICATED = Taint("dedicated", "research", "NoSchedule")


@pytest.mark.parametrize(
    ("taint", "toleration", "tolerated"),
    [
        pytest.param(DEDICATED, None, False, id="none"),
        pytest.param(DEDICATED, {"key": "dedicated", "operator": "Exists"}, True, id="exists"),
        pytest.param(DEDICATED, {"operator": "Exists"}, True, id="any key"),
        pytest.param(DEDICATED, {"key": "other", "operator": "Exists"}, False, id="another key"),
        pytest.param(DEDICATED, {"key": "dedicated", "value": "research"}, True, id="equal by default"),
        pytest.param(DEDICATED, {"key": "dedicated", "operator": "Equal", "value": "research"}, True, id="equal"),
        pytest.param(DEDICATED, {"key": "dedicated", "operator": "Equal", "value": "x"}, False, id="another value"),
        pytest.param(DEDICATED, {"key": "dedicated"}, False, id="no value is the empty one"),
        pytest.param(Taint("k", "", "NoSchedule"), {"key": "k"}, True, id="empty value"),
        pytest.param(DEDICATED, {"operator": "Exists", "effect": "NoSchedule"}, True, id="its effect"),
        pytest.param(DEDICATED, {"operator": "Exists", "effect": ""}, True, id="every effect"),
        pytest.param(DEDICATED, {"operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param(DEDICATED, {"operator": "exists", "key": "dedicated"}, False, id="no such operator"),
        pytest.param(DEDICATED, {"operator": ["Exists"], "effect": {}}, False, id="wrong types"),
        pytest.param(Taint("k", "", "NoExecute"), None, False, id="NoExecute repels"),
        pytest.param(Taint("k", "", "PreferNoSchedule"), None, True, id="a preference does not"),
        pytest.param(Taint("node.kubernetes.io/not-ready", "", "NoExecute"), None, True, id="passes by itself"),
        pytest.param(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"), None, True, id="cordoned"),
        pytest.param(Taint("nvidia.com/gpu", "present", "NoSchedule"), None, True, id="keyed like the resource"),
        pytest.param(Taint("nvidia.com/gpu", "present", "NoExecute"), None, False, id="keyed like it, NoExecute"),
        pytest.param(Taint("nvidia.com/gpu.shared", "", "NoSchedule"), None, False, id="keyed like another resource"),
    ],
)
def test_taints(taint: Taint, toleration: Mapping[str, object] | None, tolerated: bool) -> None:
    scheduling = read_scheduling({"tolerations": [toleration]} if toleration else {"tolerations": None})
    assert scheduling.tolerates([taint], {"nvidia.com/gpu": 1}) is tolerated


def test_every_taint_must_be_tolerated() -> None:
    scheduling = read_scheduling({"tolerations": [{"key": "dedicated", "operator": "Exists"}, "text", None]})
    assert scheduling.tolerates([DEDICATED], ())
    assert not scheduling.tolerates([DEDICATED, Taint("other", "", "NoSchedule")], ())
    assert scheduling.tolerates([], ())


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        pytest.param(pod(), None, id="nothing said"),
        pytest.param(pod().spec(nodeName="a"), {"a"}, id="nodeName"),
        pytest.param(pod().spec(nodeName=""), None, id="nodeName empty"),
        pytest.param(pod().spec(nodeName=7), None, id="nodeName of no shape"),
        pytest.param(pod().terms(where(names=["a", "b"])), {"a", "b"}, id="a field"),
        pytest.param(pod().terms(where(names=["a"]), where(names=["b"])), {"a", "b"}, id="in every term"),
        pytest.param(pod().terms(where(names=["a"]), where(expression("x", "Exists"))), None, id="not in every term"),
        pytest.param(
            pod().terms(
                {"matchFields": [expression("metadata.name", "In", "a"), expression("metadata.name", "In", "b", "a")]}
            ),
            {"a"},
            id="twice in a term",
        ),
        pytest.param(pod().terms(where(expression("metadata.name", "In", "a"))), None, id="a label of that name"),
        pytest.param(pod().terms({"matchFields": [expression("metadata.name", "NotIn", "a")]}), None, id="excluded"),
    ],
)
def test_names(spec: Any, names: set[str] | None) -> None:
    assert read_scheduling(spec.build()["spec"]).names == names


CONFIG = "config"


@pytest.mark.parametrize(
    ("spec", "pinned"),
    [
        pytest.param(pod(), (), id="nothing said"),
        pytest.param(pod().select(config="a"), ("a",), id="selector"),
        pytest.param(pod().select(config="gone"), (), id="unknown"),
        pytest.param(pod().terms(where(expression(CONFIG, "In", "a", "b"))), ("a", "b"), id="affinity"),
        pytest.param(
            pod().terms(where(expression(CONFIG, "In", "b")), where(expression(CONFIG, "In", "b", "gone", "a"))),
            ("b", "a"),
            id="every term pins",
        ),
        pytest.param(
            pod().terms(where(expression(CONFIG, "In", "a")), where(expression("x", "Exists"))), (), id="one does not"
        ),
        pytest.param(pod().terms(where(expression(CONFIG, "NotIn", "a"))), (), id="excluded only"),
        pytest.param(pod().select(config="a").terms(where(expression(CONFIG, "In", "b"))), ("a",), id="selector first"),
    ],
)
def test_pinned(spec: Any, pinned: tuple[str, ...]) -> None:
    assert read_scheduling(spec.build()["spec"]).pinned(CONFIG, {"a", "b"}.__contains__) == pinned
