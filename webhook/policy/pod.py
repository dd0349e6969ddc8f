"""A pod, read once into what the rules look at.

The object comes before schema validation: any part may be absent, null or of a wrong type. Whatever cannot be read is
left out, since the API server refuses such a pod right after us; nothing here raises. Values are named tuples, which
are made, hashed and compared several times faster than frozen dataclasses: every review makes a dozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from webhook.policy import mps
from webhook.policy.deviceplugin import GPU, GPU_SHARED, MIG_PREFIX
from webhook.policy.domain import keys_of
from webhook.policy.nodes import QGPU_PREFIX
from webhook.policy.quantity import parse_quantity
from webhook.policy.scheduling import Scheduling, read_scheduling

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

_WATCHED = frozenset(
    (
        mps.MEMORY_LIMIT,
        mps.THREAD_PERCENTAGE,
        mps.MAX_CONNECTIONS,
        VISIBLE_DEVICES,
        CUDA_VISIBLE_DEVICES,
        *mps.DAEMON_BYPASS,
    )
)

Entries = tuple[tuple[str, Any], ...]
"""Keys with their values, in the object's order; values are texts unless the object is malformed."""

Kind = Literal["container", "init", "sidecar", "ephemeral"]

_GROUPS: tuple[tuple[str, Kind], ...] = (("initContainers", "init"), ("containers", "container"))


class Variable(NamedTuple):
    """One entry of a container's env; ``value`` is None where it comes from elsewhere or refers to another variable."""

    position: int
    value: str | None
    has_value_key: bool


class GpuRequest(NamedTuple):
    """What a container asks of one GPU resource; ``problem`` says what is wrong, and then ``amount`` is 1."""

    resource: str
    amount: int
    problem: str | None = None


class Container(NamedTuple):
    """A container of any kind. ``path`` is how messages name it, ``pointer`` how a JSON Patch does."""

    path: str
    pointer: str
    name: str
    kind: Kind
    requests: tuple[GpuRequest, ...]
    qgpu: bool
    env: tuple[tuple[str, tuple[Variable, ...]], ...]
    env_form: Literal["list", "absent", "unreadable"]
    mounts_shm: bool
    privileged: bool

    @property
    def gpus(self) -> int:
        """GPUs asked for, over all GPU resources."""
        return sum(r.amount for r in self.requests)

    def variable(self, name: str) -> Variable | None:
        """The variable that is in force, the last of its name; None where it is not set."""
        entries = self.variables(name)
        return entries[-1] if entries else None

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Every entry of that name, of those names that any rule looks at."""
        for own, entries in self.env:
            if own == name:
                return entries
        return ()


class Pod(NamedTuple):
    """A pod as the rules see it; of two pods that are equal here, every rule says the same.

    ``annotations`` and ``labels`` are those of the domain ``mps.nvidia.com``. ``containers`` are init containers,
    sidecars and containers, in the spec's order; ``gpu_containers`` are those among them that ask for at least one GPU.
    """

    annotations: Entries
    labels: Entries
    containers: tuple[Container, ...]
    gpu_containers: tuple[Container, ...]
    host_ipc: bool
    scheduling: Scheduling

    @property
    def has_qgpu(self) -> bool:
        """Whether any container asks for a qGPU resource."""
        return any(c.qgpu for c in self.containers)

    def effective_request(self) -> dict[str, int]:
        """GPUs by resource that a node must have to take the pod, as the scheduler counts them.

        Containers and sidecars add up; an init container runs beside the sidecars that were started before it.
        """
        total: dict[str, int] = {}
        sidecars: dict[str, int] = {}
        peak: dict[str, int] = {}
        for container in self.containers:
            for request in container.requests:
                resource, count = request.resource, request.amount
                if container.kind == "init":
                    peak[resource] = max(peak.get(resource, 0), sidecars.get(resource, 0) + count)
                else:
                    total[resource] = total.get(resource, 0) + count
                if container.kind == "sidecar":
                    sidecars[resource] = sidecars.get(resource, 0) + count
        return {r: max(total.get(r, 0), peak.get(r, 0)) for r in total | peak}


def read_pod(raw: Mapping[str, Any]) -> Pod:
    """Read a Pod object, or a pod template, of any shape."""
    metadata, spec = _map(raw.get("metadata")), _map(raw.get("spec"))
    containers = tuple(
        read_container(entry, f"spec.{group}[{i}]", f"/spec/{group}/{i}", kind)
        for group, kind in _GROUPS
        for i, entry in enumerate(_list(spec.get(group)))
        if isinstance(entry, dict)
    )
    return Pod(
        annotations=_own(metadata.get("annotations")),
        labels=_own(metadata.get("labels")),
        containers=containers,
        gpu_containers=tuple(c for c in containers if c.requests),
        host_ipc=spec.get("hostIPC") is True,
        scheduling=read_scheduling(spec),
    )


def passes_untouched(raw: Mapping[str, Any]) -> bool:
    """Whether a pod is none of our business: a static pod's mirror, or one that is being deleted."""
    metadata = _map(raw.get("metadata"))
    return MIRROR_ANNOTATION in _map(metadata.get("annotations")) or bool(metadata.get("deletionTimestamp"))


def read_container(raw: Mapping[str, Any], path: str, pointer: str, kind: Kind) -> Container:
    """Read one container of any shape."""
    if kind == "init" and raw.get("restartPolicy") == "Always":
        kind = "sidecar"
    env, name = raw.get("env"), raw.get("name")
    requests, qgpu = _resources(raw.get("resources"))
    return Container(
        path=path,
        pointer=pointer,
        name=name if isinstance(name, str) else "",
        kind=kind,
        requests=requests,
        qgpu=qgpu,
        env=_watched(env) if env and isinstance(env, list) else (),
        env_form="list" if isinstance(env, list) else "absent" if env is None else "unreadable",
        mounts_shm=_mounts_shm(raw.get("volumeMounts")),
        privileged=_map(raw.get("securityContext")).get("privileged") is True,
    )


def _mounts_shm(mounts: object) -> bool:
    for mount in _list(mounts):
        path = mount.get("mountPath") if isinstance(mount, dict) else None
        if isinstance(path, str) and path.rstrip("/") == "/dev/shm":  # noqa: S108 - a container's path
            return True
    return False


def _watched(env: list[Any]) -> tuple[tuple[str, tuple[Variable, ...]], ...]:
    found: dict[str, list[Variable]] = {}
    for i, entry in enumerate(env):
        if isinstance(entry, dict) and isinstance(name := entry.get("name"), str) and name in _WATCHED:
            found.setdefault(name, []).append(Variable(i, _literal(entry), "value" in entry))
    return tuple((name, tuple(entries)) for name, entries in found.items()) if found else ()


def _literal(entry: Mapping[str, Any]) -> str | None:
    value = entry.get("value")
    if entry.get("valueFrom") is not None or not isinstance(value, str | None):
        return None
    return None if value is not None and "$(" in value else value or ""


def _resources(raw: object) -> tuple[tuple[GpuRequest, ...], bool]:
    """The GPU requests, and whether qGPU is asked for."""
    resources = _map(raw)
    limits, requests = _map(resources.get("limits")), _map(resources.get("requests"))
    found: list[GpuRequest] = []
    qgpu = False
    for name in dict.fromkeys((*limits, *requests)):
        if name.startswith(_GPU_PREFIXES) and (name in (GPU, GPU_SHARED) or not name.startswith(GPU)):
            request = _gpu_request(name, _asked(limits, name), _asked(requests, name))
            if request.amount and name.startswith(QGPU_PREFIX):
                qgpu = True
            elif request.amount:
                found.append(request)
    return tuple(found), qgpu


_GPU_PREFIXES = (GPU, MIG_PREFIX, QGPU_PREFIX)


def _asked(amounts: Mapping[str, Any], name: str) -> object:
    """The amount, None where there is none; a null is zero to the API server."""
    amount = amounts.get(name)
    return 0 if amount is None and name in amounts else amount


def _gpu_request(resource: str, limit: object, request: object) -> GpuRequest:
    if limit is None:
        return GpuRequest(resource, 1, f"requests ask for {shown(request)}, but limits say nothing")
    for value in (limit, request):
        if value is not None and (problem := _amount_problem(value)):
            return GpuRequest(resource, 1, problem)
    if request is not None and _amount(request) != _amount(limit):
        return GpuRequest(resource, 1, f"requests say {shown(request)} and limits say {shown(limit)}")
    return GpuRequest(resource, _amount(limit))


def _amount_problem(value: object) -> str | None:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    try:
        amount = parse_quantity(str(value) if plain else "")
    except ValueError:
        return f"{shown(value)} is no number"
    if amount < 0:
        return f"{shown(value)} is negative"
    return None if amount.denominator == 1 else f"{shown(value)} is a fraction, and GPUs are handed out whole"


def _amount(value: object) -> int:
    return int(parse_quantity(str(value)))


def shown(value: object, limit: int = 48) -> str:
    """A value of the user's own, fit to be quoted in a message: one line, printable, short, spelled as in JSON."""
    match value:
        case str():
            if len(value) <= limit and value.isprintable():
                return value
            text = value
        case None | bool():
            text = {None: "null", True: "true", False: "false"}[value]
        case dict() | list():
            text = "a map" if isinstance(value, dict) else "a list"
        case _:
            text = repr(value)
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _own(metadata: object) -> Entries:
    return tuple(keys_of(metadata).items()) if isinstance(metadata, dict) else ()


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
