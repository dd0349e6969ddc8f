"""The JSON Patch (RFC 6902): only what is asked for, nothing else is touched.

Entries that are there stay as they are, byte for byte; parents that are absent or null are created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.policy import mps
from webhook.policy.annotations import HOST_IPC, Key
from webhook.policy.case import Case
from webhook.policy.placement import Steering, combined
from webhook.policy.pod import Container, shown
from webhook.policy.quota import Quota
from webhook.policy.scheduling import required_affinity

Operation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing the patch sets, with how a message names it."""

    field: str
    container: str
    value: str
    operations: tuple[Operation, ...]


def settings_of(case: Case) -> tuple[Setting, ...]:
    """The variables and hostIPC as far as asked for and not yet so."""
    return (*(s for quota in case.quotas for s in _variables(quota)), *_host_ipc(case))


def operations_of(settings: tuple[Setting, ...]) -> tuple[Operation, ...]:
    """All operations, in order."""
    return tuple(operation for setting in settings for operation in setting.operations)


def affinity(spec: Mapping[str, Any], steering: Steering) -> tuple[Operation, ...]:
    """The operation that puts the steering into required node affinity, next to whatever the user has there.

    None where a part is of a wrong type: the API server refuses such a pod, and must not be kept from it.
    """
    required = required_affinity(spec)
    terms = combined(steering, dict(required) if required is not None else None)
    path, value = "/spec/affinity", spec.get("affinity")
    missing: Any = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    for step in ("nodeAffinity", _REQUIRED, "nodeSelectorTerms"):
        if value is None:
            break
        if not isinstance(value, dict):
            return ()
        path, value, missing = f"{path}/{step}", value.get(step), missing[step]
    return ({"op": "add" if value is None else "replace", "path": path, "value": missing},)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _variables(quota: Quota) -> Iterator[Setting]:
    container = quota.container
    wanted = {mps.MEMORY_LIMIT: _memory(quota), mps.THREAD_PERCENTAGE: _threads(quota)}
    missing = []
    for name, value in wanted.items():
        if value is None:
            continue
        entry = container.variable(name)
        if entry is None:
            missing.append((name, value))
        else:
            op = "replace" if entry.has_value_key else "add"
            pointer = f"{container.pointer}/env/{entry.position}/value"
            yield _setting(container, name, value, {"op": op, "path": pointer, "value": value})
    match container.env_form:
        case "list":
            for name, value in missing:
                added = {"op": "add", "path": f"{container.pointer}/env/-", "value": {"name": name, "value": value}}
                yield _setting(container, name, value, added)
        case "absent" if missing:
            env = [{"name": name, "value": value} for name, value in missing]
            created = {"op": "add", "path": f"{container.pointer}/env", "value": env}
            yield _setting(container, missing[0][0], missing[0][1], created)
            for name, value in missing[1:]:
                yield _setting(container, name, value)
        case _:
            pass  # env is no list: the API server refuses the pod


def _memory(quota: Quota) -> str | None:
    """The memory limit to write; None where nothing is to be written or what is there says the same."""
    mib, variable = quota.process_mib, quota.limit_variable
    if not mib or (variable and variable.kind == "enforced"):
        return None
    return mps.write_memory_limit(mib)


def _threads(quota: Quota) -> str | None:
    threads = quota.process_threads
    return str(threads) if threads and quota.thread_variable is None else None


def _host_ipc(case: Case) -> Iterator[Setting]:
    if case.annotations.values.get(Key(HOST_IPC)) is True and case.pod.gpu_containers and not case.pod.host_ipc:
        yield Setting("spec.hostIPC", "", "true", ({"op": "add", "path": "/spec/hostIPC", "value": True},))


def _setting(container: Container, name: str, value: str, *operations: Operation) -> Setting:
    return Setting(f"{container.path}.env[{name}]", shown(container.name), value, operations)
