"""The verdict: all findings on an object, what it is patched with, where it can run.

Four questions, one answer type: a pod about to be created (``judge_pod``), the same pod after everybody's mutations
(``validate_pod``), an update (``judge_update``), a workload by the pod it makes (``judge_workload``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from webhook.policy import findings as texts
from webhook.policy import mps, patch
from webhook.policy.case import Case, open_case
from webhook.policy.findings import Finding
from webhook.policy.fleet import Group, Inventory
from webhook.policy.nodes import CONFIG_LABEL
from webhook.policy.placement import Steering, steer
from webhook.policy.pod import Pod, passes_untouched, read_pod, shown
from webhook.policy.quota import Quota
from webhook.policy.rules import ALWAYS, node_warnings
from webhook.policy.rules import nodes as node_rules
from webhook.policy.rules.nodes import NodeRule
from webhook.policy.updates import update_findings
from webhook.policy.workloads import Template, misplaced, read_template

Failures = tuple[tuple[Quota, NodeRule], ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """What one GPU container with a quota gets: MiB and percent for each of its processes, None where not limited."""

    container: str
    memory_mib: int | None
    threads: str | None
    processes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. ``fit`` and ``unfit`` are the candidates; other nodes are neither. A denied object has no patch."""

    findings: tuple[Finding, ...] = ()
    patch: tuple[patch.Operation, ...] = ()
    fit: tuple[Group, ...] = ()
    unfit: tuple[Group, ...] = ()
    grants: tuple[Grant, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether no finding denies."""
        return not any(f.severity == "deny" for f in self.findings)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all findings, each once, sorted."""
        return tuple(sorted({f.code for f in self.findings}))

    def denial(self) -> str:
        """The deny findings in one line of under 1,000 characters; empty where nothing denies."""
        return texts.denial(self.findings)

    def warnings(self) -> list[str]:
        """The warnings, as long as the API server passes them on."""
        return texts.warnings(self.findings)


ALLOWED = Verdict()


def judge_pod(pod: Mapping[str, Any], namespace: str, inventory: Inventory) -> Verdict:
    """A pod about to be created, as the mutating webhook answers it. Never raises, whatever the object's shape."""
    if passes_untouched(pod):
        return ALLOWED
    seen = read_pod(pod)
    verdict, steering = inventory.memory.recall(
        ("create", namespace, seen, _types(seen)), lambda: _created(open_case(seen, namespace, inventory))
    )
    if steering is None:
        return verdict
    # The user's own affinity is kept as it was written, which is more than the rules look at.
    return replace(verdict, patch=(*verdict.patch, *patch.affinity(pod.get("spec") or {}, steering)))


def _types(seen: Pod) -> tuple[type, ...]:
    """Tells a malformed annotation of 1 from one of true, which are equal to Python and not to the person told."""
    return tuple(type(value) for _, value in seen.annotations)


def _created(case: Case) -> tuple[Verdict, Steering | None]:
    judged = _judge(case)
    found = (*_always(case), *judged.findings)
    placed, steering = _place(case, judged, found, case.settings.placement)
    verdict = Verdict((*found, *placed), (), judged.fit, judged.unfit)
    if not verdict.allowed:
        return verdict, None
    operations = patch.operations_of(patch.settings_of(case))
    return replace(verdict, patch=operations, grants=_grants(case)), steering


def validate_pod(pod: Mapping[str, Any], namespace: str, inventory: Inventory) -> Verdict:
    """The pod as it will be stored: the same rules, and ``undone`` where somebody changed what the patch had set.

    Placement is not recomputed: a node that joined between the two calls denies nobody.
    """
    if passes_untouched(pod):
        return ALLOWED
    seen = read_pod(pod)
    return inventory.memory.recall(
        ("validate", namespace, seen, _types(seen)), lambda: _stored(open_case(seen, namespace, inventory))
    )


def _stored(case: Case) -> Verdict:
    judged = _judge(case)
    found = (*_always(case), *judged.findings)
    denied = any(f.severity == "deny" for f in found)
    undone = () if denied else tuple(_undone(case))
    grants = () if denied or undone else _grants(case)
    return Verdict((*found, *undone), (), judged.fit, judged.unfit, grants)


def judge_update(
    old: Mapping[str, Any], new: Mapping[str, Any], subresource: str, _namespace: str, inventory: Inventory
) -> Verdict:
    """An update of a pod: its quota stays as it is, and a debug container brings no way around it."""
    if passes_untouched(new):
        return ALLOWED
    return Verdict(tuple(update_findings(old, new, subresource, inventory.settings)))


def judge_workload(workload: Mapping[str, Any], namespace: str, inventory: Inventory) -> Verdict:
    """A workload, judged as the pod it makes. The patch is what its pods get, in the workload's own paths."""
    template = read_template(workload)
    if template is None:
        return ALLOWED
    verdict = judge_pod(template.pod, namespace, inventory)
    findings = [f.below(template.path) for f in _for_kind(verdict, template)]
    found = (*misplaced(workload), *findings)
    allowed = not any(f.severity == "deny" for f in found)
    operations = tuple({**op, "path": template.pointer + op["path"]} for op in verdict.patch) if allowed else ()
    return replace(verdict, findings=found, patch=operations, grants=verdict.grants if allowed else ())


@dataclass(frozen=True, slots=True)
class _Judged:
    """What the nodes say: the candidates, apart, and why the unfit ones are."""

    findings: tuple[Finding, ...] = ()
    fit: tuple[Group, ...] = ()
    unfit: tuple[Group, ...] = ()
    why: tuple[Failures, ...] = ()


def _always(case: Case) -> Iterable[Finding]:
    return [finding for rule in ALWAYS for finding in islice(rule(case), texts.MAX_OF_ONE_RULE)]


def _judge(case: Case) -> _Judged:
    request = case.pod.effective_request()
    if not request:
        return _Judged()
    fleet, scheduling = case.inventory.fleet, case.pod.scheduling
    present = case.inventory.candidates(scheduling, request)
    candidates = present + fleet.expected(scheduling, request)
    found: list[Finding] = []
    if not present:
        found.append(_no_candidate(case, request, waits=bool(candidates)))
    judged = candidates or fleet.pinned(scheduling, request)
    fit, unfit, why = _split(case, judged)
    if judged and not fit:
        found += islice(node_rules.deny(case, list(zip(unfit, why, strict=True))), texts.MAX_OF_ONE_RULE)
    found += islice(node_warnings.warn(case, fit or unfit), texts.MAX_OF_ONE_RULE)
    return _Judged(tuple(found), *((fit, unfit, why) if candidates else ((), (), ())))


def _split(case: Case, groups: Sequence[Group]) -> tuple[tuple[Group, ...], tuple[Group, ...], tuple[Failures, ...]]:
    by_profile: dict[int, Failures] = {}
    fit, unfit, why = [], [], []
    for group in groups:
        failed = by_profile.get(id(group.profile))
        if failed is None:
            failed = by_profile[id(group.profile)] = node_rules.failures(case, group.profile)
        if failed:
            unfit.append(group)
            why.append(failed)
        else:
            fit.append(group)
    return tuple(fit), tuple(unfit), tuple(why)


def _place(
    case: Case, judged: _Judged, found: Iterable[Finding], placement: Literal["steer", "deny", "off"]
) -> tuple[tuple[Finding, ...], Steering | None]:
    """What mixed candidates come to under the setting ``placement``."""
    if not judged.fit or not judged.unfit:
        return (), None
    if placement == "off":
        return (_mixed(judged, "warn"),), None
    steering = steer(case, judged.fit, judged.unfit) if placement == "steer" else None
    if steering is None:
        return (_mixed(judged, "deny"),), None
    if any(f.severity == "deny" for f in found):
        return (), None
    return (_steered(judged, steering),), steering


def _steered(judged: _Judged, steering: Steering) -> Finding:
    return Finding(
        "steered",
        "warn",
        "spec.affinity",
        f"restricted to nodes of config {steering.remaining()}; elsewhere it fails {_codes(judged)}",
        f"pin {CONFIG_LABEL} to choose yourself",
    )


def _mixed(judged: _Judged, severity: Literal["deny", "warn"]) -> Finding:
    fit, unfit, pin = _apart(judged)
    return Finding(
        "mixed-candidates",
        severity,
        "spec.nodeSelector",
        f"it fits nodes of config {fit}, but may land on config {unfit}, where it fails {_codes(judged)}",
        f"pin a config: {pin}" if pin else "pin nodes that fit by another label",
    )


def _apart(judged: _Judged) -> tuple[str, str, str]:
    """The configurations that fit, those that do not, and the label of one that only fits, empty where none does."""
    fit, unfit = _configs(judged.fit), _configs(judged.unfit)
    pin = next((f"{CONFIG_LABEL}: {config}" for config in fit if config not in unfit), "")
    return ", ".join(fit), ", ".join(unfit), pin


def _configs(groups: Sequence[Group]) -> list[str]:
    return sorted({g.config for g in groups})


def _codes(judged: _Judged) -> str:
    return ", ".join(dict.fromkeys(rule.code for failed in judged.why for _, rule in failed))


def _no_candidate(case: Case, request: Mapping[str, int], *, waits: bool) -> Finding:
    asked = ", ".join(f"{count} {shown(resource)}" for resource, count in request.items())
    scheduling = case.pod.scheduling
    pinned = [value for key, value in scheduling.selector if key == CONFIG_LABEL]
    known = case.inventory.fleet.configs
    if scheduling.node_name is not None:
        hint = "check spec.nodeName"
    elif pinned and pinned[0] not in known:
        hint = f"there is no config {shown(pinned[0])}; there are {', '.join(sorted(known)) or 'none'}"
    else:
        hint = "it stays Pending until one joins; check nodeSelector, affinity and tolerations"
    severity: Literal["deny", "warn"] = "warn" if waits else case.settings.no_candidate
    return Finding("no-candidate-node", severity, "spec", f"no GPU node can take it now (it asks for {asked})", hint)


def _undone(case: Case) -> Iterable[Finding]:
    for setting in patch.settings_of(case):
        yield Finding(
            "undone",
            "deny",
            setting.field,
            f"it was set to {setting.value} and changed afterwards",
            "find the other admission webhook that changes it",
            setting.container,
        )


def _grants(case: Case) -> tuple[Grant, ...]:
    grants = []
    for quota in case.quotas:
        if quota.asked:
            entry = quota.container.variable(mps.THREAD_PERCENTAGE)
            threads = str(quota.process_threads) if quota.process_threads else (entry.value or None) if entry else None
            grants.append(Grant(quota.container.name, quota.process_mib, threads, quota.processes))
    return tuple(grants)


def _for_kind(verdict: Verdict, template: Template) -> Iterable[Finding]:
    """A DaemonSet makes a pod for every node: one that fits on some is denied for ever on the others."""
    if template.kind != "DaemonSet" or not (verdict.fit and verdict.unfit):
        return verdict.findings
    others = [f for f in verdict.findings if f.code not in ("steered", "mixed-candidates")]
    judged = _Judged((), verdict.fit, verdict.unfit)
    return [*others, _daemonset_mixed(judged)]


def _daemonset_mixed(judged: _Judged) -> Finding:
    fit, unfit, pin = _apart(judged)
    return Finding(
        "mixed-candidates",
        "deny",
        "spec.nodeSelector",
        f"its pods fit config {fit}, but on config {unfit} they would be denied for ever",
        f"add a nodeSelector: {pin}" if pin else "add a nodeSelector that only fitting nodes meet",
    )
