"""Rules that depend on the node, judged per profile.

A profile that fails one of the ``NODE_RULES`` does not fit. Each rule is a function that says whether a container's
quota fails on a profile; the phrases beside it tell why and what would do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from webhook.policy import mps
from webhook.policy.annotations import THREAD_PERCENTAGE
from webhook.policy.case import Case
from webhook.policy.deviceplugin import GPU, GPU_SHARED, MIG_PREFIX
from webhook.policy.findings import Finding
from webhook.policy.fleet import Group
from webhook.policy.nodes import CONFIG_LABEL, Profile
from webhook.policy.pod import shown
from webhook.policy.quantity import mib_text
from webhook.policy.quota import Quota
from webhook.policy.rules.phrases import COMFORTABLE_MIB, context, each, reasons

_VOLTA = (7, 0)


@dataclass(frozen=True, slots=True)
class NodeRule:
    """One rule: whether it fails, how a message begins, the reason for one profile, the way out over all that fail."""

    code: str
    fails: Callable[[Quota, Profile], bool]
    lead: Callable[[Quota], str]
    reason: Callable[[Quota, Profile], str]
    way_out: Callable[[Quota, Sequence[Profile], Case], str]


def memory_over_budget(quota: Quota, profile: Profile) -> bool:
    """Memory limit × replicas is more than the card has."""
    if not quota.memory_mib or not profile.memory_mib or profile.strategy != "mps" or _other_stack(profile):
        return False
    return quota.memory_mib * profile.replicas > profile.memory_mib


def limit_below_context(quota: Quota, profile: Profile) -> bool:
    """memory-below-minimum: a limit that the CUDA context alone uses up, on a card where that was measured."""
    if not quota.process_mib or profile.strategy != "mps":
        return False
    taken = mps.context_mib(profile.product, quota.threads_on(profile.share_threads))
    return taken is not None and quota.process_mib <= taken


def threads_over_share(quota: Quota, profile: Profile) -> bool:
    """An annotation asks for more threads than a share has; the daemon would cap it without a word."""
    return bool(quota.threads) and profile.strategy == "mps" and (quota.threads or 0) > profile.share_threads


def gpu_count_over_share(quota: Quota, profile: Profile) -> bool:
    """More than one GPU in a container where shares are handed out singly; the kubelet would fail the pod."""
    return (
        profile.strategy != "none"
        and profile.fail_greater_than_one
        and any(r.amount > 1 and r.resource in (GPU, GPU_SHARED) for r in quota.container.requests)
    )


def too_many_clients(quota: Quota, profile: Profile) -> bool:
    """Replicas × processes is more than one daemon serves."""
    if not quota.asked or profile.strategy != "mps" or _other_stack(profile):
        return False
    return profile.replicas * quota.processes > mps.max_clients(profile.compute_capability)


def not_shared(quota: Quota, profile: Profile) -> bool:
    """A quota where MPS does not run."""
    return quota.asked and profile.strategy != "mps" and not _other_stack(profile)


def pre_volta(quota: Quota, profile: Profile) -> bool:
    """A quota on a card whose MPS knows no limits."""
    return quota.asked and profile.compute_capability is not None and profile.compute_capability < _VOLTA


def mig_excluded(quota: Quota, profile: Profile) -> bool:
    """A quota on a MIG node."""
    return quota.asked and profile.mig


def qgpu_excluded(quota: Quota, profile: Profile) -> bool:
    """A quota on a node that offers qGPU."""
    return quota.asked and profile.qgpu


def _other_stack(profile: Profile) -> bool:
    return profile.mig or profile.qgpu


def _memory_way_out(quota: Quota, failing: Sequence[Profile], case: Case) -> str:
    best = max(failing, key=lambda p: p.share_mib or 0)
    where = f" (config {best.config})" if len({p.config for p in failing}) > 1 else ""
    others = [p for p in _fitting(quota, failing, case) if p.strategy == "mps" and p.memory_mib]
    # The config with the most shares that still fits wastes least of a card.
    other = max(others, key=lambda p: p.replicas, default=None)
    elsewhere = f", or use {other.config}" if other else _waiting(case, _fewest(failing))
    return f"ask for at most {mib_text(best.share_mib or 0)}{where}{elsewhere}"


def _context_way_out(quota: Quota, _failing: Sequence[Profile], _case: Case) -> str:
    return f"ask for at least {mib_text(COMFORTABLE_MIB * quota.processes)}"


def _threads_way_out(quota: Quota, failing: Sequence[Profile], case: Case) -> str:
    most = max(p.share_threads for p in failing)
    return f"ask for at most {most}{_elsewhere(quota, failing, case, _fewest(failing))}"


def _count_way_out(quota: Quota, failing: Sequence[Profile], case: Case) -> str:
    names = sorted({p.config for p in _fitting(quota, failing, case)})
    return "ask for 1" + (f", or use {names[0]}" if names else "")


def _clients_way_out(_quota: Quota, failing: Sequence[Profile], _case: Case) -> str:
    most = max(mps.max_clients(p.compute_capability) // p.replicas for p in failing)
    return f"run at most {most} processes a container" if most else "use a config with fewer shares"


def _shared_way_out(quota: Quota, failing: Sequence[Profile], case: Case) -> str:
    names = sorted({p.config for p in _fitting(quota, failing, case)})
    if names:
        return f"use {names[0]} ({CONFIG_LABEL}), or drop the quota"
    return f"drop the quota{_waiting(case)}"


def _volta_way_out(_quota: Quota, _failing: Sequence[Profile], _case: Case) -> str:
    return "use a card of compute capability 7.0 or newer, or drop the quota"


def _stack_way_out(_quota: Quota, _failing: Sequence[Profile], _case: Case) -> str:
    return "use nodes that share with MPS, or drop the quota"


def _elsewhere(quota: Quota, failing: Sequence[Profile], case: Case, below: int) -> str:
    names = sorted({p.config for p in _fitting(quota, failing, case) if p.strategy == "mps"})
    return f", or use {names[0]}" if names else _waiting(case, below)


def _fitting(quota: Quota, failing: Sequence[Profile], case: Case) -> list[Profile]:
    """Profiles of the fleet that the pod cannot land on as it is, but would fit."""
    return [
        p
        for p in case.inventory.fleet.profiles
        if p not in failing
        and any(r.resource == p.resource for r in quota.container.requests)
        and not p.mig
        and not any(rule.fails(quota, p) for rule in NODE_RULES)
    ]


def _fewest(failing: Sequence[Profile]) -> int:
    return min(p.replicas for p in failing)


def _waiting(case: Case, below: int = sys.maxsize) -> str:
    """A config with fewer shares than ``below`` that no node has now: a pod that pins it waits for its pool."""
    fleet, scheduling = case.inventory.fleet, case.pod.scheduling
    if scheduling.node_name is not None or scheduling.pinned(CONFIG_LABEL, lambda _: True):
        return ""
    present = {p.config for p in fleet.profiles}
    idle = [(c.replicas, n) for n, c in fleet.configs.items() if c.strategy == "mps" and c.replicas < below]
    name = min((item for item in idle if item[1] not in present), default=(0, ""))[1]
    return f"; pin {CONFIG_LABEL}: {name} to wait for such a pool" if name else ""


def _asks_for_quota(_quota: Quota) -> str:
    return "an MPS quota"


NODE_RULES: tuple[NodeRule, ...] = (
    NodeRule(
        "memory-over-budget",
        memory_over_budget,
        lambda q: q.memory_source,
        lambda q, p: (
            f"× {p.replicas} shares = {(q.memory_mib or 0) * p.replicas}Mi, "
            f"but a card of config {p.config} has {p.memory_mib}Mi"
        ),
        _memory_way_out,
    ),
    NodeRule(
        "memory-below-minimum",
        limit_below_context,
        lambda q: f"{q.memory_source} gives {each(q)}",
        lambda q, p: f"but the CUDA context alone takes {context(q, p)} on config {p.config}",
        _context_way_out,
    ),
    NodeRule(
        "threads-over-share",
        threads_over_share,
        lambda q: f"{THREAD_PERCENTAGE} {q.threads}",
        lambda _q, p: (
            f"but a share of config {p.config} has {p.share_threads}%, where the daemon would cap it silently"
        ),
        _threads_way_out,
    ),
    NodeRule(
        "gpu-count-over-share",
        gpu_count_over_share,
        lambda q: f"{q.container.gpus} GPUs",
        lambda _q, p: f"but config {p.config} hands out one share a container",
        _count_way_out,
    ),
    NodeRule(
        "too-many-clients",
        too_many_clients,
        lambda q: f"{q.processes} process{'es' if q.processes > 1 else ''}",
        lambda q, p: (
            f"× {p.replicas} shares = {q.processes * p.replicas} MPS clients, "
            f"but a card of config {p.config} serves {mps.max_clients(p.compute_capability)}"
        ),
        _clients_way_out,
    ),
    NodeRule(
        "not-shared",
        not_shared,
        _asks_for_quota,
        lambda _q, p: (
            f"but config {p.config} shares by {p.strategy}, the limit would do nothing"
            if p.strategy != "none"
            else f"but config {p.config} does not share cards, the limit would do nothing"
        ),
        _shared_way_out,
    ),
    NodeRule(
        "pre-volta",
        pre_volta,
        _asks_for_quota,
        lambda _q, p: (
            f"but compute capability {_version(p)} of config {p.config} is below 7.0, where MPS knows no limits"
        ),
        _volta_way_out,
    ),
    NodeRule(
        "mig-excluded",
        mig_excluded,
        _asks_for_quota,
        lambda _q, p: f"but nodes of config {p.config} are cut with MIG, where MPS does not run",
        _stack_way_out,
    ),
    NodeRule(
        "qgpu-excluded",
        qgpu_excluded,
        _asks_for_quota,
        lambda _q, p: f"but nodes of config {p.config} offer qGPU, which excludes MPS",
        _stack_way_out,
    ),
)


def failures(case: Case, profile: Profile) -> tuple[tuple[Quota, NodeRule], ...]:
    """Every rule that a container of the pod fails on a profile; empty where the pod fits."""
    return tuple(
        (quota, rule)
        for quota in case.quotas
        if not any(r.resource.startswith(MIG_PREFIX) for r in quota.container.requests)
        for rule in NODE_RULES
        if rule.fails(quota, profile)
    )


def deny(case: Case, failing: Sequence[tuple[Group, tuple[tuple[Quota, NodeRule], ...]]]) -> Iterator[Finding]:
    """One finding for each container and rule, with the reason of every profile that fails it."""
    failed: dict[tuple[int, str], list[Group]] = {}
    for group, pairs in failing:
        for quota, rule in pairs:
            failed.setdefault((id(quota), rule.code), []).append(group)
    for quota in case.quotas:
        for rule in NODE_RULES:
            groups = failed.get((id(quota), rule.code))
            if groups:
                why = reasons([(rule.reason(quota, g.profile), g) for g in groups])
                profiles = list(dict.fromkeys(g.profile for g in groups))
                yield Finding(
                    rule.code,
                    "deny",
                    quota.container.path,
                    f"{rule.lead(quota)} {why}" if why.startswith("×") else f"{rule.lead(quota)}, {why}",
                    rule.way_out(quota, profiles, case),
                    shown(quota.container.name),
                )


def _version(profile: Profile) -> str:
    return ".".join(map(str, profile.compute_capability or ()))
