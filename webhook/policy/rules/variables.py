"""Rules about the MPS variables, the limit's and the threads', where a pod carries them already."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.policy import mps
from webhook.policy.case import Case, Rule
from webhook.policy.findings import Finding
from webhook.policy.pod import Container, Variable, shown
from webhook.policy.quantity import mib_text
from webhook.policy.quota import Quota


def invalid_limit_variable(case: Case) -> Iterator[Finding]:
    """A memory limit that MPS ignores or misreads; ignored, it takes the daemon's own limit with it."""
    for quota in case.quotas:
        if quota.limit_variable and quota.limit_variable.kind == "invalid":
            entry = quota.container.variable(mps.MEMORY_LIMIT)
            value = shown(entry.value or "") if entry else ""
            yield _about(
                quota.container,
                mps.MEMORY_LIMIT,
                "invalid-limit-variable",
                f'"{value}" is not a form that MPS enforces; it would remove or shrink every limit',
                "write 0=<whole number>M, such as 0=3072M, or use the annotation mps.nvidia.com/memory-limit",
            )


def limit_rewritten(case: Case) -> Iterator[Finding]:
    """A plain size in a form that would switch every limit off: rewritten, and said so."""
    for quota in case.quotas:
        variable = quota.limit_variable
        if variable and variable.kind == "rewritable" and not _conflicts(quota):
            entry = quota.container.variable(mps.MEMORY_LIMIT)
            value = shown(entry.value or "") if entry else ""
            yield _about(
                quota.container,
                mps.MEMORY_LIMIT,
                "limit-rewritten",
                f'"{value}" names no device, so MPS would drop every limit; it becomes 0={variable.mib}M',
                "write it that way yourself",
                severity="warn",
            )


def invalid_thread_variable(case: Case) -> Iterator[Finding]:
    """A thread percentage that is no plain number above 0 and up to 100."""
    for container in case.pod.gpu_containers:
        entry = container.variable(mps.THREAD_PERCENTAGE)
        if entry and entry.value and mps.read_thread_percentage(entry.value) is None:
            yield _about(
                container,
                mps.THREAD_PERCENTAGE,
                "invalid-thread-variable",
                f'"{shown(entry.value)}" is no plain number above 0 and up to 100',
                "write a number such as 25",
            )


def env_conflict(case: Case) -> Iterator[Finding]:
    """Annotation and variable differ in value; a different spelling of the same value is none."""
    for quota in case.quotas:
        variable, mib = quota.limit_variable, quota.process_mib
        if _conflicts(quota) and variable and mib:
            yield _about(
                quota.container,
                mps.MEMORY_LIMIT,
                "env-conflict",
                f"{mib_text(variable.mib)} here, but {quota.memory_source}{_divided(quota)} asks for {mib_text(mib)}",
                "drop one of the two",
            )
        threads = quota.process_threads
        if quota.thread_variable is not None and threads and quota.thread_variable != threads:
            yield _about(
                quota.container,
                mps.THREAD_PERCENTAGE,
                "env-conflict",
                f"{float(quota.thread_variable):g} here, but the annotation{_divided(quota)} asks for {threads}",
                "drop one of the two",
            )


def env_duplicate(case: Case) -> Iterator[Finding]:
    """The same MPS variable twice in one container."""
    for container, name, entries in _mps_variables(case):
        if len(entries) > 1:
            yield _about(
                container,
                name,
                "env-duplicate",
                f"set {len(entries)} times, and which one holds depends",
                "keep one of them",
            )


def env_unverifiable(case: Case) -> Iterator[Finding]:
    """An MPS variable whose value cannot be seen at admission."""
    for container, name, entries in _mps_variables(case):
        if any(e.value is None for e in entries):
            yield _about(
                container,
                name,
                "env-unverifiable",
                "its value comes from elsewhere (valueFrom or $(...)) and cannot be checked",
                "write the value itself as a string, or use the annotations of mps.nvidia.com",
            )


def limit_without_gpu(case: Case) -> Iterator[Finding]:
    """A memory limit on a container that asks for no GPU: it reaches nobody."""
    for container in case.pod.containers:
        if not container.requests and container.variables(mps.MEMORY_LIMIT):
            yield _about(
                container,
                mps.MEMORY_LIMIT,
                "limit-without-gpu",
                "the container requests no GPU, so the limit limits nothing",
                "move it to the container with the GPU, or drop it",
                severity="warn",
            )


def memory_below_minimum(case: Case) -> Iterator[Finding]:
    """A process's limit below the setting ``minimum_memory``."""
    minimum = case.settings.minimum_memory_mib
    for quota in case.quotas:
        mib = quota.process_mib
        if mib and mib < minimum:
            each = f"{mib_text(mib)} a process" if quota.processes > 1 else mib_text(mib)
            yield Finding(
                "memory-below-minimum",
                "deny",
                quota.container.path,
                f"{quota.memory_source} gives {each}, but the minimum is {mib_text(minimum)}",
                f"ask for at least {mib_text(minimum * quota.processes)}, the CUDA context comes off it",
                shown(quota.container.name),
            )


def _conflicts(quota: Quota) -> bool:
    variable, mib = quota.limit_variable, quota.process_mib
    return bool(variable and variable.mib and quota.memory_key and mib and variable.mib != mib)


def _divided(quota: Quota) -> str:
    return f" over {quota.processes} processes" if quota.processes > 1 else ""


def _mps_variables(case: Case) -> Iterator[tuple[Container, str, tuple[Variable, ...]]]:
    for container in case.pod.gpu_containers:
        for name in (mps.MEMORY_LIMIT, mps.THREAD_PERCENTAGE):
            if entries := container.variables(name):
                yield container, name, entries


def _about(container: Container, name: str, code: str, problem: str, hint: str, severity: str = "deny") -> Finding:
    return Finding(
        code,
        "deny" if severity == "deny" else "warn",
        f"{container.path}.env[{name}]",
        problem,
        hint,
        shown(container.name),
    )


RULES: tuple[Rule, ...] = (
    invalid_limit_variable,
    limit_rewritten,
    invalid_thread_variable,
    env_conflict,
    env_duplicate,
    env_unverifiable,
    limit_without_gpu,
    memory_below_minimum,
)
