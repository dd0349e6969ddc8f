"""nodeSelector, required node affinity, taints: read as the scheduler reads them.

The pod arrives before it was validated, so every part may be absent, null or of a wrong type; what the API server
would refuse anyway matches nothing here. Values are named tuples: each review makes, hashes and compares a dozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from webhook.policy.nodes import Taint

_PASSING_TAINTS = "node.kubernetes.io/"
"""Taints that the node controller sets and lifts by itself: not ready, cordoned, under pressure."""

NAME_FIELD = "metadata.name"

_INTEGER_DIGITS = 18


class Requirement(NamedTuple):
    """One expression over a label, or over the node's name where ``on_name``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    on_name: bool = False

    def holds(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node with these labels and this name meets it; Gt and Lt never hold on what is no integer."""
        value = name if self.on_name and self.key == NAME_FIELD else labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                have, bound = _integer(value), _integer(self.values[0] if len(self.values) == 1 else None)
                if have is None or bound is None:
                    return False
                return have > bound if self.operator == "Gt" else have < bound
            case _:
                return False


Term = tuple[Requirement, ...]


class Toleration(NamedTuple):
    """One toleration; an empty effect stands for every effect, an empty key with Exists for every taint."""

    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        """Whether it tolerates a taint."""
        if self.effect not in ("", taint.effect):
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.operator == "Equal" and self.key == taint.key and self.value == taint.value


class Scheduling(NamedTuple):
    """Where a pod may run. ``terms`` None means no required node affinity; an empty term matches nothing."""

    node_name: str | None
    selector: tuple[tuple[str, str], ...]
    terms: tuple[Term, ...] | None
    tolerations: tuple[Toleration, ...]

    @property
    def keys(self) -> frozenset[str]:
        """The label keys that the selector and the affinity look at."""
        named = {r.key for term in self.terms or () for r in term if not r.on_name}
        return frozenset(named.union(key for key, _ in self.selector))

    @property
    def names(self) -> frozenset[str] | None:
        """The only nodes it can run on, where it names them (nodeName, matchFields); None where it does not."""
        if self.node_name is not None:
            return frozenset((self.node_name,))
        if not self.terms:
            return None
        names: set[str] = set()
        for term in self.terms:
            pinned = [set(r.values) for r in term if r.on_name and r.operator == "In"]
            if not pinned:
                return None
            names |= set.intersection(*pinned)
        return frozenset(names)

    @property
    def effort(self) -> int:
        """What it takes to look at one node, in comparisons of about half a microsecond; of 32 values for one."""
        terms = sum(1 + len(r.values) // 32 for term in self.terms or () for r in term)
        return 1 + len(self.terms or ()) + terms + len(self.tolerations)

    def selects(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether the node selector and the required node affinity admit a node; nodeName is not looked at."""
        for key, value in self.selector:
            if labels.get(key) != value:
                return False
        return self.terms is None or any(term and all(r.holds(labels, name) for r in term) for term in self.terms)

    def tolerates(self, taints: Sequence[Taint], resources: Iterable[str]) -> bool:
        """Whether it may be placed in spite of the taints.

        The admission plugin ExtendedResourceToleration tolerates ``NoSchedule`` taints that are keyed like a resource
        the pod asks for, so these count as tolerated.
        """
        return not taints or all(
            taint.effect not in ("NoSchedule", "NoExecute")
            or taint.key.startswith(_PASSING_TAINTS)
            or (taint.effect == "NoSchedule" and taint.key in resources)
            or any(toleration.covers(taint) for toleration in self.tolerations)
            for taint in taints
        )

    def insists(self, key: str) -> bool:
        """Whether the pod names the values of a label that it may run at, known or not."""
        if any(selected == key for selected, _ in self.selector):
            return True
        named = (any(r.key == key and r.operator == "In" and not r.on_name for r in term) for term in self.terms or ())
        return bool(self.terms) and all(named)

    def pinned(self, key: str, known: Callable[[str], bool]) -> tuple[str, ...]:
        """The values of a label that the pod insists on, as far as selector and ``In`` expressions say it."""
        for selected, value in self.selector:
            if selected == key:
                return (value,) if known(value) else ()
        values: dict[str, None] = {}
        for term in self.terms or ():
            wanted = next((r.values for r in term if r.key == key and r.operator == "In" and not r.on_name), None)
            if wanted is None:
                return ()
            values.update(dict.fromkeys(v for v in wanted if known(v)))
        return tuple(values)


def read_scheduling(spec: Mapping[str, Any]) -> Scheduling:
    """The scheduling part of a pod's spec."""
    node_name, selector, tolerations = spec.get("nodeName"), spec.get("nodeSelector"), spec.get("tolerations")
    return Scheduling(
        node_name=node_name if isinstance(node_name, str) and node_name else None,
        selector=tuple((k, v) for k, v in selector.items() if isinstance(v, str)) if isinstance(selector, dict) else (),
        terms=_terms(required_affinity(spec)),
        tolerations=tuple(_toleration(t) for t in tolerations if isinstance(t, dict))
        if isinstance(tolerations, list)
        else (),
    )


def required_affinity(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """``spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution``, None where there is none."""
    at: Any = spec
    for step in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        at = at.get(step)
        if not isinstance(at, dict):
            return None
    return at  # type: ignore[no-any-return]


def _terms(required: Mapping[str, Any] | None) -> tuple[Term, ...] | None:
    if required is None:
        return None
    terms = required.get("nodeSelectorTerms")
    return tuple(_term(t) for t in terms) if isinstance(terms, list) else ()


def _term(raw: object) -> Term:
    if not isinstance(raw, dict):
        return ()
    expressions, fields = raw.get("matchExpressions"), raw.get("matchFields")
    return tuple(
        _requirement(entry, on_name=on_name)
        for entries, on_name in ((expressions, False), (fields, True))
        for entry in (entries if isinstance(entries, list) else ())
    )


def _requirement(raw: object, *, on_name: bool) -> Requirement:
    if not isinstance(raw, dict):
        return Requirement("", "")
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values")
    return Requirement(
        key if isinstance(key, str) else "",
        operator if isinstance(operator, str) else "",
        tuple(v for v in values if isinstance(v, str)) if isinstance(values, list) else (),
        on_name,
    )


def _toleration(raw: Mapping[str, Any]) -> Toleration:
    # What is no text matches no taint: the API server refuses the pod.
    key, operator, value, effect = (raw.get(k) or "" for k in ("key", "operator", "value", "effect"))
    readable = all(isinstance(part, str) for part in (key, operator, value, effect))
    return Toleration(key, operator or "Equal", value, effect) if readable else Toleration("", "", "", "")


def _integer(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= _INTEGER_DIGITS else None
