"""Quotas: what each GPU container asks for, from annotations or from the MPS variables it carries."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from webhook.policy import mps
from webhook.policy.annotations import MEMORY_LIMIT, PROCESSES, THREAD_PERCENTAGE, Annotations, Key
from webhook.policy.pod import Container, Pod, shown


@dataclass(frozen=True, slots=True)
class Quota:
    """What one GPU container asks for. Memory in MiB and threads in percent are the container's, undivided.

    MPS limits each process, so what is written into the variables is divided by ``processes``, rounded down.
    """

    container: Container
    asked: bool = False
    """Whether a quota is asked for at all, readable or not. A thread variable alone is none."""
    memory_mib: int | None = None
    memory_key: Key | None = None
    threads: int | None = None
    threads_key: Key | None = None
    processes: int = 1
    processes_key: Key | None = None
    limit_variable: mps.MemoryLimit | None = None
    """The memory-limit variable where its value is plain to see; None where unset or not."""
    thread_variable: Fraction | None = None
    memory_source: str = ""
    """How a message names where the memory limit comes from: ``memory-limit 5Gi``."""

    @property
    def process_mib(self) -> int | None:
        """The limit of one process, MiB; what the variable is to say."""
        return None if self.memory_mib is None else self.memory_mib // self.processes

    @property
    def process_threads(self) -> int | None:
        """The thread percentage of one process, where an annotation asks for one."""
        return None if self.threads is None else self.threads // self.processes

    def threads_on(self, share_threads: int) -> float:
        """The thread percentage one process has on a share of so many: its own where that is less."""
        own = self.process_threads or self.thread_variable or share_threads
        return float(min(own, share_threads))


def read_quotas(pod: Pod, annotations: Annotations) -> tuple[Quota, ...]:
    """One quota for each GPU container, in the spec's order."""
    return tuple(_quota(container, annotations) for container in pod.gpu_containers)


def _quota(container: Container, annotations: Annotations) -> Quota:
    keys = {n: annotations.key(n, container.name) for n in (MEMORY_LIMIT, THREAD_PERCENTAGE, PROCESSES)}
    memory_key, threads_key, processes_key = keys.values()
    variable = _limit_variable(container)
    by_annotation = annotations.values[memory_key] if memory_key else None
    by_variable = variable.mib or None if variable else None
    threads = annotations.values[threads_key] if threads_key else None
    # Nothing is divided but what an annotation asks for as a whole: a variable already speaks of one process.
    processes = (annotations.values[processes_key] if processes_key and memory_key else None) or 1
    memory_mib = by_annotation if memory_key else by_variable
    if memory_key:
        source = f"{MEMORY_LIMIT} {annotations.texts[memory_key]}"
    else:
        entry = container.variable(mps.MEMORY_LIMIT)
        source = f"{mps.MEMORY_LIMIT} {shown(entry.value or '')}" if entry else ""
    return Quota(
        container=container,
        asked=any(keys.values()) or (variable is not None and variable.kind != "unset"),
        memory_mib=memory_mib,
        memory_key=memory_key,
        threads=threads,
        threads_key=threads_key,
        processes=processes,
        processes_key=processes_key,
        limit_variable=variable,
        thread_variable=_thread_variable(container),
        memory_source=source,
    )


def _limit_variable(container: Container) -> mps.MemoryLimit | None:
    entry = container.variable(mps.MEMORY_LIMIT)
    return None if entry is None or entry.value is None else mps.read_memory_limit(entry.value)


def _thread_variable(container: Container) -> Fraction | None:
    entry = container.variable(mps.THREAD_PERCENTAGE)
    return None if entry is None or entry.value is None else mps.read_thread_percentage(entry.value)
