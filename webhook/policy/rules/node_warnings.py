"""Warnings that depend on the node, about the profiles a pod may land on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from webhook.policy import mps
from webhook.policy.case import Case
from webhook.policy.findings import Finding
from webhook.policy.fleet import Group
from webhook.policy.pod import shown
from webhook.policy.quantity import mib_text
from webhook.policy.rules.phrases import COMFORTABLE_MIB, context, each, reasons


def threads_capped(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """threads-over-share for a variable of the user's own: the daemon caps it, nobody is harmed."""
    for quota in case.quotas:
        value = quota.thread_variable
        if value is None or quota.threads_key:
            continue
        capped = [g for g in groups if g.profile.strategy == "mps" and value > g.profile.share_threads]
        if capped:
            why = reasons([(f"config {g.config} gives a share {g.profile.share_threads}%", g) for g in capped])
            yield Finding(
                "threads-over-share",
                "warn",
                f"{quota.container.path}.env[{mps.THREAD_PERCENTAGE}]",
                f"{float(value):g} will be capped, {why}",
                f"ask for at most {max(g.profile.share_threads for g in capped)}",
                shown(quota.container.name),
            )


def memory_tight(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """memory-below-minimum as a warning: a limit that works, but of which little is left for the program."""
    for quota in case.quotas:
        mib = quota.process_mib
        if not mib or not case.settings.minimum_memory_mib <= mib < COMFORTABLE_MIB:
            continue
        shared = [g.profile for g in groups if g.profile.strategy == "mps"]
        worst = max(shared, key=lambda p: quota.threads_on(p.share_threads), default=None)
        takes = context(quota, worst) if worst else "up to 514Mi"
        yield Finding(
            "memory-below-minimum",
            "warn",
            quota.container.path,
            f"{quota.memory_source} gives {each(quota)}; the CUDA context takes {takes}, PyTorch about 150Mi more",
            f"ask for {mib_text(COMFORTABLE_MIB * quota.processes)} or more, or measure it",
            shown(quota.container.name),
        )


def memory_unknown(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """A limit that could not be compared with the card, whose memory nobody has told."""
    if not any(q.memory_mib for q in case.quotas):
        return
    unknown = [g for g in groups if g.profile.strategy == "mps" and g.profile.memory_mib is None and g.names]
    if unknown:
        why = reasons([(f"config {g.config}", g) for g in unknown])
        yield Finding(
            "memory-unknown",
            "warn",
            "spec",
            f"the card's memory is not known, so the budget was not checked on {why}",
            "label the nodes nvidia.com/gpu.memory, or set gpu_memory",
        )


def shm_shadowed(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """A volume of the user's own where the MPS daemon's shared memory would be mounted."""
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


def config_doubts(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """config-drift and unknown-config, for pods whose verdict hangs on the configuration."""
    if not any(q.asked or q.container.gpus > 1 for q in case.quotas):
        return
    drifted = [(f"config {g.config}: {g.profile.drift}", g) for g in groups if g.profile.drift]
    if drifted:
        yield Finding(
            "config-drift",
            "warn",
            "spec",
            f"labels and configuration disagree on {reasons(drifted)}",
            "judged by the configuration with the larger number of shares; wait, or look at the node",
        )
    unknown = [(f"config {g.config}", g) for g in groups if not g.profile.known_config and g.names]
    if unknown:
        yield Finding(
            "unknown-config",
            "warn",
            "spec",
            f"the ConfigMap has no {reasons(unknown)}",
            "judged by the node's other labels; mend the label or add the configuration",
        )


NODE_WARNINGS: tuple[Callable[[Case, Sequence[Group]], Iterator[Finding]], ...] = (
    threads_capped,
    memory_tight,
    memory_unknown,
    shm_shadowed,
    config_doubts,
)


def warn(case: Case, groups: Sequence[Group]) -> Iterator[Finding]:
    """All that is worth saying about them."""
    for rule in NODE_WARNINGS:
        yield from rule(case, groups)
