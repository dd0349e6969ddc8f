"""Rules that depend on the node, judged per profile.

``NODE_RULES`` deny: a profile that fails one does not fit. Each rule is a function that says whether a container's
quota fails on a profile; the phrases beside it tell why and what would do. ``warn`` collects what is worth saying about
the profiles that remain.
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

_REASONS_SHOWN = 3
_VOLTA = (7, 0)

COMFORTABLE_MIB = 1024
"""Below it a framework's own needs are felt: measured, PyTorch took about 300 MiB before the first tensor."""


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
    context = mps.context_mib(profile.product, quota.threads_on(profile.share_threads))
    return context is not None and quota.process_mib <= context


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
        lambda q: f"{q.memory_source} gives {_each(q)}",
        lambda q, p: f"but the CUDA context alone takes {_context(q, p)} on config {p.config}",
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
    for quota in case.quotas:
        for rule in NODE_RULES:
            groups = [g for g, failed in failing if any(q is quota and r is rule for q, r in failed)]
            if groups:
                reasons = _reasons([(rule.reason(quota, g.profile), g) for g in groups])
                profiles = list(dict.fromkeys(g.profile for g in groups))
                yield Finding(
                    rule.code,
                    "deny",
                    quota.container.path,
                    f"{rule.lead(quota)} {reasons}" if reasons.startswith("×") else f"{rule.lead(quota)}, {reasons}",
                    rule.way_out(quota, profiles, case),
                    shown(quota.container.name),
                )


def warn(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """What is worth saying about the nodes that remain."""
    yield from _threads_capped(case, groups)
    yield from _memory_tight(case, groups)
    yield from _memory_unknown(case, groups)
    yield from _shm_shadowed(case, groups)
    yield from _config_doubts(case, groups)


def _threads_capped(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """threads-over-share for a variable of the user's own: the daemon caps it, nobody is harmed."""
    for quota in case.quotas:
        value = quota.thread_variable
        if value is None or quota.threads_key:
            continue
        capped = [g for g in groups if g.profile.strategy == "mps" and value > g.profile.share_threads]
        if capped:
            reasons = _reasons([(f"config {g.config} gives a share {g.profile.share_threads}%", g) for g in capped])
            yield Finding(
                "threads-over-share",
                "warn",
                f"{quota.container.path}.env[{mps.THREAD_PERCENTAGE}]",
                f"{float(value):g} will be capped, {reasons}",
                f"ask for at most {max(g.profile.share_threads for g in capped)}",
                shown(quota.container.name),
            )


def _memory_tight(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """memory-below-minimum as a warning: a limit that works, but of which little is left for the program."""
    for quota in case.quotas:
        mib = quota.process_mib
        if not mib or not case.settings.minimum_memory_mib <= mib < COMFORTABLE_MIB:
            continue
        shared = [g.profile for g in groups if g.profile.strategy == "mps"]
        worst = max(shared, key=lambda p: quota.threads_on(p.share_threads), default=None)
        takes = _context(quota, worst) if worst else "up to 514Mi"
        yield Finding(
            "memory-below-minimum",
            "warn",
            quota.container.path,
            f"{quota.memory_source} gives {_each(quota)}; the CUDA context takes {takes}, PyTorch about 150Mi more",
            f"ask for {mib_text(COMFORTABLE_MIB * quota.processes)} or more, or measure it",
            shown(quota.container.name),
        )


def _memory_unknown(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    if not any(q.memory_mib for q in case.quotas):
        return
    unknown = [g for g in groups if g.profile.strategy == "mps" and g.profile.memory_mib is None and g.names]
    if unknown:
        reasons = _reasons([(f"config {g.config}", g) for g in unknown])
        yield Finding(
            "memory-unknown",
            "warn",
            "spec",
            f"the card's memory is not known, so the budget was not checked on {reasons}",
            "label the nodes nvidia.com/gpu.memory, or set gpu_memory",
        )


def _shm_shadowed(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    if not any(g.profile.strategy == "mps" for g in groups):
        return
    for container in case.pod.gpu_containers:
        if container.mounts_shm:
            yield Finding(
                "shm-shadowed",
                "warn",
                f"{container.path}.volumeMounts",
                "a volume at /dev/shm hides the one the MPS daemon shares with its clients",
                "mount it elsewhere",
                shown(container.name),
            )


def _config_doubts(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """config-drift and unknown-config, for pods whose verdict hangs on the configuration."""
    if not any(q.asked or q.container.gpus > 1 for q in case.quotas):
        return
    drifted = [(f"config {g.config}: {g.profile.drift}", g) for g in groups if g.profile.drift]
    if drifted:
        yield Finding(
            "config-drift",
            "warn",
            "spec",
            f"labels and configuration disagree on {_reasons(drifted)}",
            "judged by the configuration with the larger number of shares; wait, or look at the node",
        )
    unknown = [(f"config {g.config}", g) for g in groups if not g.profile.known_config and g.names]
    if unknown:
        yield Finding(
            "unknown-config",
            "warn",
            "spec",
            f"the ConfigMap has no {_reasons(unknown)}",
            "judged by the node's other labels; mend the label or add the configuration",
        )


def _reasons(reasons: Sequence[tuple[str, Group]]) -> str:
    """Equal reasons once, each with the nodes it holds for: ``… has 15360Mi (1 node, Tesla-T4)``."""
    by_text: dict[str, list[Group]] = {}
    for text, group in reasons:
        by_text.setdefault(text, []).append(group)
    parts = [f"{text} ({_nodes(groups)})" for text, groups in by_text.items()]
    more = len(parts) - _REASONS_SHOWN
    return ", ".join(parts[:_REASONS_SHOWN]) + (f" and {more} more like it" if more > 0 else "")


def _nodes(groups: Sequence[Group]) -> str:
    count = sum(len(g.names) for g in groups)
    products = list(dict.fromkeys(shown(g.profile.product) for g in groups if g.profile.product))
    listed = products[:2] + (["…"] if len(products) > 2 else [])
    return ", ".join([f"{count} node{'s' * (count != 1)}" if count else "no node now", *listed])


def _each(quota: Quota) -> str:
    text = mib_text(quota.process_mib or 0)
    return f"{text} a process" if quota.processes > 1 else text


def _context(quota: Quota, profile: Profile) -> str:
    """The context's cost as a phrase: measured on this card, else on the reference card."""
    threads = quota.threads_on(profile.share_threads)
    own = mps.context_mib(profile.product, threads)
    cost = mps.context_mib(mps.REFERENCE_PRODUCT, threads) if own is None else own
    return f"{cost}Mi at {threads:g}% of the threads" + (" (measured on an H200)" if own is None else "")


def _version(profile: Profile) -> str:
    return ".".join(map(str, profile.compute_capability or ()))
