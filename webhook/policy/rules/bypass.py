"""Rules about what leads past MPS or past the device plugin: variables, host IPC, privileges."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.policy import mps
from webhook.policy.annotations import HOST_IPC, Key, field_of
from webhook.policy.case import Case, Rule
from webhook.policy.deviceplugin import MIG_PREFIX
from webhook.policy.findings import Finding, Severity
from webhook.policy.pod import CUDA_VISIBLE_DEVICES, VISIBLE_DEVICES, Container, shown

_NO_DEVICES = frozenset(("", "none", "void"))
_FORBIDDING_LEVELS = frozenset(("baseline", "restricted"))
_PLAIN_CONNECTIONS = 2
"""Up to this many connections a client counts once (measured)."""


def cuda_devices_hidden(case: Case) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES other than 0 on a container with one GPU: CUDA then finds no device (measured)."""
    for container in case.pod.gpu_containers:
        entry = container.variable(CUDA_VISIBLE_DEVICES)
        one = container.gpus == 1 and not container.requests[0].resource.startswith(MIG_PREFIX)
        if entry and one and entry.value != "0":
            yield _about(
                container,
                CUDA_VISIBLE_DEVICES,
                "cuda-devices-hidden",
                "the only device in a container with one GPU is 0, so CUDA would find none",
                "drop it or write 0",
            )


def daemon_bypass(case: Case) -> Iterator[Finding]:
    """Variables that lead a GPU container away from its MPS daemon or its thread limit."""
    for container in case.pod.gpu_containers:
        yield from daemon_bypass_of(container)


def daemon_bypass_of(container: Container) -> Iterator[Finding]:
    """The same for one container, whatever it asks for."""
    for name, effect in mps.DAEMON_BYPASS.items():
        if container.variables(name):
            yield _about(container, name, "daemon-bypass", f"not to be set: {effect}", "drop it")


def device_bypass(case: Case) -> Iterator[Finding]:
    """NVIDIA_VISIBLE_DEVICES that opens cards the device plugin never handed out."""
    for container in case.pod.containers:
        yield from device_bypass_of(container, "deny" if container.requests else case.settings.device_bypass)


def device_bypass_of(container: Container, severity: str) -> Iterator[Finding]:
    """The same for one container, with the severity that applies to it; ``off`` finds nothing."""
    entries = container.variables(VISIBLE_DEVICES)
    if severity != "off" and any(e.value is None or e.value not in _NO_DEVICES for e in entries):
        yield _about(
            container,
            VISIBLE_DEVICES,
            "device-bypass",
            "it opens cards past the device plugin, other pods' shares too",
            "drop it and request nvidia.com/gpu, or write none",
            "deny" if severity == "deny" else "warn",
        )


def connections_raised(case: Case) -> Iterator[Finding]:
    """CUDA_DEVICE_MAX_CONNECTIONS above 2: fewer clients fit on the shared server, the neighbours' too."""
    for container in case.pod.gpu_containers:
        entry = container.variable(mps.MAX_CONNECTIONS)
        value = entry.value if entry else None
        digits = value.lstrip("0") if value and value.isascii() and value.isdigit() else ""
        connections = int(digits[:9] or 0)  # more digits than that change nothing, and int() has its bounds
        if connections > _PLAIN_CONNECTIONS:
            yield _about(
                container,
                mps.MAX_CONNECTIONS,
                "connections-raised",
                f"at {connections}, {mps.clients_at(connections)} fit on a card instead of 48 (measured on an H200)",
                "leave it at 2 or unset",
                "warn",
            )


def host_ipc_forbidden(case: Case) -> Iterator[Finding]:
    """host-ipc asked for where Pod Security would refuse the patched pod, or where the settings leave it out."""
    key = Key(HOST_IPC)
    if case.annotations.values.get(key) is not True:
        return
    allowed = case.settings.host_ipc_namespaces
    namespace = case.inventory.namespaces.get(case.namespace)
    level = namespace.pod_security_enforce if namespace else None
    if level in _FORBIDDING_LEVELS:
        yield Finding(
            "host-ipc-forbidden",
            "deny",
            field_of(key),
            f"Pod Security enforces {level} in namespace {shown(case.namespace)}, which forbids hostIPC",
            "drop the annotation, MPS works without hostIPC",
        )
    elif allowed is not None and case.namespace not in allowed:
        yield Finding(
            "host-ipc-forbidden",
            "deny",
            field_of(key),
            f"namespace {shown(case.namespace)} is not among those that may use it (setting host_ipc_namespaces)",
            "drop the annotation, MPS works without hostIPC",
        )


def host_ipc_not_needed(case: Case) -> Iterator[Finding]:
    """``hostIPC: true`` by habit: the device plugin's MPS works without it (measured)."""
    if case.pod.host_ipc and case.pod.gpu_containers and Key(HOST_IPC) not in case.annotations.values:
        yield Finding("host-ipc-not-needed", "warn", "spec.hostIPC", "MPS works without it", "drop it")


def privileged_container(case: Case) -> Iterator[Finding]:
    """A privileged container in a pod with a quota sees every card of the node."""
    if case.has_quota:
        for container in case.pod.containers:
            if container.privileged:
                yield Finding(
                    "privileged-container",
                    "warn",
                    f"{container.path}.securityContext",
                    "a privileged container reaches every card of the node, past any quota",
                    "drop privileged",
                    shown(container.name),
                )


def _about(container: Container, name: str, code: str, problem: str, hint: str, severity: Severity = "deny") -> Finding:
    return Finding(code, severity, f"{container.path}.env[{name}]", problem, hint, shown(container.name))


RULES: tuple[Rule, ...] = (
    cuda_devices_hidden,
    daemon_bypass,
    device_bypass,
    connections_raised,
    host_ipc_forbidden,
    host_ipc_not_needed,
    privileged_container,
)
