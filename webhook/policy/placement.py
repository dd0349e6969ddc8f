"""Placement: when only some of the nodes a pod may land on fit, say so in required node affinity.

The rules become expressions over labels, one term for each configuration that fits. Within a configuration only what
separates fit from unfit is added: the card's memory, its compute capability. Each attempt is simulated against the
fleet; where labels cannot tell fit from unfit there is no steering. Host names are never listed, since nodes come and
go and the pod may wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from webhook.policy.case import Case
from webhook.policy.fleet import Group
from webhook.policy.nodes import (
    CONFIG_LABEL,
    INSTANCE_TYPE_LABEL,
    MAJOR_LABEL,
    MEMORY_LABEL,
    MINOR_LABEL,
    PRODUCT_LABEL,
)
from webhook.policy.rules.nodes import pre_volta, too_many_clients
from webhook.policy.scheduling import Requirement, Term

MAX_TERMS = 128
"""More terms than this after the cross product with the user's own is no affinity anybody can read."""

Alternatives = tuple[Term, ...]
"""Terms of which one must hold."""

_ANY: Alternatives = ((),)


@dataclass(frozen=True, slots=True)
class Steering:
    """Terms that admit the nodes that fit and no other, and the configurations that remain."""

    terms: tuple[Term, ...]
    configs: tuple[str, ...]

    def remaining(self) -> str:
        """What remains, as a phrase: ``mps-2x, mps-4x (cards from 20480Mi)``."""
        phrases = dict.fromkeys(self.configs, "")
        for term in self.terms:
            memory = next((r.values[0] for r in term if r.key == MEMORY_LABEL and r.operator == "Gt"), None)
            newer = any(r.key in (MAJOR_LABEL, MINOR_LABEL) and r.operator == "Gt" for r in term)
            named = next((r.values for r in term if r.key == CONFIG_LABEL), ())
            limits = [f"cards from {int(memory) + 1}Mi"] if memory else []
            limits += ["newer cards"] * newer
            phrases.update((c, f" ({', '.join(limits)})") for c in named if c in phrases and limits)
        return ", ".join(config + phrase for config, phrase in phrases.items())


def steer(case: Case, fit: Sequence[Group], unfit: Sequence[Group]) -> Steering | None:
    """Node affinity that leaves the fitting groups, None where labels cannot say it. Both sides have members."""
    slots: dict[str | None, Alternatives] = {}
    for label in dict.fromkeys(g.labels.get(CONFIG_LABEL) for g in fit):
        separated = _separate(case, _at(fit, label), _at(unfit, label))
        if separated is None:
            return None
        slots[label] = separated
    default = case.settings.default_config
    # A node without the label runs the default, one with it may lose it: each stands for the other where it is absent.
    for label, other in ((None, default), (default, None)):
        if other in slots and label not in slots and not _at(unfit, label):
            slots[label] = slots[other]
    terms = tuple(_terms(slots))
    configs = tuple(sorted({g.config for g in fit}))
    crossed = len(terms) * max(1, len(case.pod.scheduling.terms or ()))
    return Steering(terms, configs) if crossed <= MAX_TERMS and _tells_apart(terms, fit, unfit) else None


def combined(steering: Steering, required: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steering terms ANDed into each of the user's own ``nodeSelectorTerms``, as raw objects.

    Terms without expressions match nothing and are dropped first; ``matchFields`` stay where they are.
    """
    raw = (required or {}).get("nodeSelectorTerms")
    own = [
        t for t in raw or () if isinstance(t, dict) and (_entries(t, "matchExpressions") or _entries(t, "matchFields"))
    ]
    return [
        {**term, "matchExpressions": [*_entries(term, "matchExpressions"), *map(_raw, added)]}
        for term in (own if raw else [{}])
        for added in steering.terms
    ]


def _entries(term: Mapping[str, Any], key: str) -> list[Any]:
    """Read like the scheduling does: what is no list selects nothing."""
    entries = term.get(key)
    return entries if isinstance(entries, list) else []


def _at(groups: Sequence[Group], label: str | None) -> list[Group]:
    return [g for g in groups if g.labels.get(CONFIG_LABEL) == label]


def _separate(case: Case, fit: Sequence[Group], unfit: Sequence[Group]) -> Alternatives | None:
    """The least that tells fit from unfit among nodes of one configuration."""
    if not unfit:
        return _ANY
    memory = list(_by_memory(case, fit, unfit))
    capability = list(_by_capability(case, fit, unfit))
    both = [_and(m, c) for m in memory for c in capability]
    return next((a for a in (*memory, *capability, *both) if _tells_apart(a, fit, unfit)), None)


def _by_memory(case: Case, fit: Sequence[Group], unfit: Sequence[Group]) -> Iterator[Alternatives]:
    limit = max((q.memory_mib or 0 for q in case.quotas), default=0)
    if not limit:
        return
    unlabelled = [g for g in fit if MEMORY_LABEL not in g.labels]
    for replicas in sorted({g.profile.replicas for g in (*fit, *unfit)}):
        enough = (Requirement(MEMORY_LABEL, "Gt", (str(limit * replicas - 1),)),)
        if not unlabelled:
            yield (enough,)
            continue
        absent = Requirement(MEMORY_LABEL, "DoesNotExist")
        yield (enough, (absent,))
        for key in (PRODUCT_LABEL, INSTANCE_TYPE_LABEL):
            values = tuple(sorted({g.labels[key] for g in unlabelled if key in g.labels}))
            if values:
                yield (enough, (absent, Requirement(key, "In", values)))


def _by_capability(case: Case, fit: Sequence[Group], unfit: Sequence[Group]) -> Iterator[Alternatives]:
    unlabelled: Alternatives = (
        ((Requirement(MAJOR_LABEL, "DoesNotExist"),),) if any(MAJOR_LABEL not in g.labels for g in fit) else ()
    )
    profiles = [g.profile for g in unfit]
    if any(pre_volta(q, p) for q in case.quotas for p in profiles):
        yield ((Requirement(MAJOR_LABEL, "Gt", ("6",)),), *unlabelled)
    if any(too_many_clients(q, p) for q in case.quotas for p in profiles):
        turing = (Requirement(MAJOR_LABEL, "In", ("7",)), Requirement(MINOR_LABEL, "Gt", ("4",)))
        yield ((Requirement(MAJOR_LABEL, "Gt", ("7",)),), turing, *unlabelled)


def _and(left: Alternatives, right: Alternatives) -> Alternatives:
    return tuple(a + b for a, b in product(left, right))


def _terms(slots: dict[str | None, Alternatives]) -> Iterator[Term]:
    labels_by_alternatives: dict[Alternatives, list[str | None]] = {}
    for label, alternatives in slots.items():
        labels_by_alternatives.setdefault(alternatives, []).append(label)
    for alternatives, labels in labels_by_alternatives.items():
        named = tuple(sorted(label for label in labels if label is not None))
        heads = [Requirement(CONFIG_LABEL, "In", named)] if named else []
        if None in labels:
            heads.append(Requirement(CONFIG_LABEL, "DoesNotExist"))
        for head in heads:
            for alternative in alternatives:
                yield (head, *alternative)


def _tells_apart(terms: Sequence[Term], fit: Sequence[Group], unfit: Sequence[Group]) -> bool:
    # Only labels are asked for, and every group carries all labels that steering uses.
    def admits(group: Group) -> bool:
        return any(all(r.holds(group.labels, "") for r in term) for term in terms)

    return all(map(admits, fit)) and not any(map(admits, unfit))


def _raw(requirement: Requirement) -> dict[str, Any]:
    raw: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator}
    if requirement.values:
        raw["values"] = list(requirement.values)
    return raw
