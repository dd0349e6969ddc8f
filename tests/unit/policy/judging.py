"""What a test asks of a verdict or of one rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jsonpatch

from tests.builders import PodBuilder, inventory
from webhook.policy import Finding, Inventory, Verdict, judge_pod
from webhook.policy.case import Case, open_case
from webhook.policy.pod import read_pod

Raw = Mapping[str, Any]


def judge(pod: PodBuilder | Raw, *nodes: Raw, namespace: str = "team-a", **settings: Any) -> Verdict:
    """The verdict on a pod, with these nodes and these settings."""
    return judge_pod(raw(pod), namespace, inventory(*nodes, **settings))


def case_of(pod: PodBuilder | Raw, at: Inventory | None = None, namespace: str = "team-a") -> Case:
    """A pod opened for a single rule."""
    return open_case(read_pod(raw(pod)), namespace, at or inventory())


def lines(rule: Callable[[Case], Iterator[Finding]], pod: PodBuilder | Raw, at: Inventory | None = None) -> list[str]:
    """What one rule finds, each as ``severity: message``."""
    return told(rule(case_of(pod, at)))


def told(findings: Iterable[Finding], code: str | None = None) -> list[str]:
    """Findings, all or those of one code, each as ``severity: message``; the message leads with its field."""
    kept = [f for f in findings if code in (None, f.code)]
    for finding in kept:
        assert finding.message.startswith(finding.field)
        assert finding.message.endswith(f" [{finding.code}]")
    return [f"{f.severity}: {f.message}" for f in kept]


def codes(verdict: Verdict, severity: str) -> set[str]:
    """The codes of one severity."""
    return {f.code for f in verdict.findings if f.severity == severity}


def patched(pod: PodBuilder | Raw, verdict: Verdict) -> dict[str, Any]:
    """The pod with the verdict's patch applied by another library."""
    return jsonpatch.apply_patch(raw(pod), list(verdict.patch))  # type: ignore[no-any-return]


def admits(pod: Raw, node: Raw) -> bool:
    """Whether nodeName, else node selector and required affinity, let a node through; written apart from the product.

    Taints and resources are not looked at.
    """
    spec, name, labels = pod["spec"], node["metadata"]["name"], node["metadata"].get("labels") or {}
    if spec.get("nodeName"):
        return bool(spec["nodeName"] == name)
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    of_nodes = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term_admits(t, labels, name) for t in required["nodeSelectorTerms"])


def _term_admits(term: Raw, labels: Raw, name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    asked = [*((e, labels) for e in expressions), *((f, {"metadata.name": name}) for f in fields)]
    return bool(asked) and all(_expression_admits(e, have) for e, have in asked)


def _expression_admits(expression: Raw, have: Raw) -> bool:
    value, wanted = have.get(expression["key"]), expression.get("values") or []
    operator = expression["operator"]
    if operator in ("Gt", "Lt"):
        if value is None or not re.fullmatch("[+-]?[0-9]+", value) or not re.fullmatch("[+-]?[0-9]+", wanted[0]):
            return False
        return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
    held = {"In": value in wanted, "NotIn": value not in wanted, "Exists": value is not None}
    return held.get(operator, value is None)


def names(groups: Iterable[Any]) -> set[str]:
    """The nodes of some groups."""
    return {name for group in groups for name in group.names}


def raw(pod: PodBuilder | Raw) -> dict[str, Any]:
    """A pod as the policy takes it."""
    return pod.build() if isinstance(pod, PodBuilder) else dict(pod)
