"""Rules about the annotations themselves: their keys, their values, whom they speak to."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.policy.annotations import (
    HOST_IPC,
    MEMORY_LIMIT,
    PROCESSES,
    Key,
    field_of,
    nearest,
)
from webhook.policy.case import Case, Rule
from webhook.policy.findings import Finding
from webhook.policy.pod import shown

_NAMES_SHOWN = 10


def invalid_value(case: Case) -> Iterator[Finding]:
    """invalid-memory-limit, invalid-thread-percentage, invalid-processes, invalid-host-ipc: a value not of its form."""
    yield from case.annotations.problems


def unknown_annotation(case: Case) -> Iterator[Finding]:
    """A key of the domain that is none of ours."""
    for key in case.annotations.unknown:
        yield Finding(
            "unknown-annotation",
            "deny",
            field_of(key),
            "no such annotation",
            f"did you mean {shown(nearest(key), 100)}?",
        )


def misplaced_label(case: Case) -> Iterator[Finding]:
    """misplaced-annotation: a key of the domain as a label of the pod."""
    for key, _ in case.pod.labels:
        yield Finding(
            "misplaced-annotation",
            "deny",
            f"metadata.labels[{shown(key, 100)}]",
            "a label asks for nothing",
            "write it under metadata.annotations",
        )


def unknown_container(case: Case) -> Iterator[Finding]:
    """A per-container key whose container is absent or has no GPU."""
    names = {c.name for c in case.pod.containers}
    with_gpu = {c.name for c in case.pod.gpu_containers}
    hint = _containers_with_gpu(case)
    for key in case.annotations.values:
        if key.container is not None and key.container not in with_gpu:
            name = shown(key.container)
            problem = f"container {name} requests no GPU" if key.container in names else f"there is no container {name}"
            yield Finding("unknown-container", "deny", field_of(key), problem, hint)


def quota_without_gpu(case: Case) -> Iterator[Finding]:
    """A pod-wide annotation in a pod where no container asks for any kind of GPU."""
    if case.pod.gpu_containers:
        return
    for key in case.annotations.values:
        # A quota beside qGPU is told as qgpu-excluded.
        if key.container is None and (key.name == HOST_IPC or not case.pod.has_qgpu):
            yield Finding(
                "quota-without-gpu",
                "deny",
                field_of(key),
                "no container of the pod requests a GPU",
                "add resources.limits[nvidia.com/gpu]: 1 to the container it is meant for, or drop the annotation",
            )


def processes_without_memory(case: Case) -> Iterator[Finding]:
    """invalid-processes: nothing to divide, since no memory-limit annotation speaks for the container."""
    wanting: dict[Key, list[str]] = {}
    for quota in case.quotas:
        if quota.processes_key and not quota.memory_key:
            wanting.setdefault(quota.processes_key, []).append(quota.container.name)
    for key, names in wanting.items():
        yield Finding(
            "invalid-processes",
            "deny",
            field_of(key),
            f"container {_listed(names)} has no {MEMORY_LIMIT} annotation to divide among its processes",
            f"add {Key(MEMORY_LIMIT)}, or drop {PROCESSES}",
        )


def division_gives_zero(case: Case) -> Iterator[Finding]:
    """invalid-processes: a share of the memory or of the threads that comes to nothing for each process."""
    for quota in case.quotas:
        if quota.processes_key is None:
            continue
        for whole, part, what in (
            (quota.memory_mib, quota.process_mib, f"{quota.memory_source} leaves each less than 1Mi"),
            (quota.threads, quota.process_threads, f"{quota.threads}% of the threads leaves each less than 1%"),
        ):
            if whole and not part:
                yield Finding(
                    "invalid-processes",
                    "deny",
                    quota.container.path,
                    f"among {quota.processes} processes, {what}",
                    f"ask for at most {whole} processes",
                    shown(quota.container.name),
                )


def host_ipc_contradiction(case: Case) -> Iterator[Finding]:
    """env-conflict: the annotation says false, the spec says true."""
    if case.annotations.values.get(Key(HOST_IPC)) is False and case.pod.host_ipc:
        yield Finding(
            "env-conflict",
            "deny",
            field_of(Key(HOST_IPC)),
            'the annotation says "false" and spec.hostIPC is true',
            "drop one of the two",
        )


def _containers_with_gpu(case: Case) -> str:
    names = [c.name for c in case.pod.gpu_containers]
    if not names:
        return "no container of the pod requests a GPU"
    return f"{'the container with a GPU is' if len(names) == 1 else 'containers with a GPU are'} {_listed(names)}"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(map(shown, names[:_NAMES_SHOWN])) + (f" and {more} more" if more > 0 else "")


RULES: tuple[Rule, ...] = (
    invalid_value,
    unknown_annotation,
    misplaced_label,
    unknown_container,
    quota_without_gpu,
    processes_without_memory,
    division_gives_zero,
    host_ipc_contradiction,
)
