"""Updates of pods: what was granted at creation stays, and a debug container brings no way around it.

Nothing else is judged: an old pod whose labels, annotations or finalizers are edited always passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.policy.annotations import field_of
from webhook.policy.domain import keys_of
from webhook.policy.findings import Finding
from webhook.policy.pod import read_container, read_pod
from webhook.policy.rules.bypass import daemon_bypass_of, device_bypass_of
from webhook.policy.settings import Settings


def update_findings(
    old: Mapping[str, Any], new: Mapping[str, Any], subresource: str, settings: Settings
) -> Iterator[Finding]:
    """Findings on an UPDATE of a pod or of one of its subresources."""
    if subresource == "ephemeralcontainers":
        yield from _debug_containers(old, new, settings)
    elif subresource in ("", "resize"):
        yield from quota_immutable(old, new)


def quota_immutable(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Finding]:
    """A key of the domain was added, changed or removed."""
    before, after = (keys_of(_annotations(pod)) for pod in (old, new))
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) != after.get(key):
            change = "added" if key not in before else "removed" if key not in after else "changed"
            yield Finding(
                "quota-immutable",
                "deny",
                field_of(key),
                f"{change} on a pod that exists, whose variables are set already",
                "delete the pod and create it anew",
            )


def _debug_containers(old: Mapping[str, Any], new: Mapping[str, Any], settings: Settings) -> Iterator[Finding]:
    known = {name for c in _ephemeral(old) if (name := _name(c)) is not None}
    beside_gpu = bool(read_pod(new).gpu_containers)
    for i, raw in enumerate(_ephemeral(new)):
        if not isinstance(raw, dict) or _name(raw) in known:
            continue
        path = f"ephemeralContainers[{i}]"
        container = read_container(raw, f"spec.{path}", f"/spec/ephemeralContainers/{i}", "ephemeral")
        if beside_gpu:
            yield from daemon_bypass_of(container)
        yield from device_bypass_of(container, "deny" if beside_gpu else settings.device_bypass)


def _ephemeral(pod: Mapping[str, Any]) -> list[Any]:
    spec = pod.get("spec")
    containers = spec.get("ephemeralContainers") if isinstance(spec, dict) else None
    return containers if isinstance(containers, list) else []


def _name(container: object) -> str | None:
    name = container.get("name") if isinstance(container, dict) else None
    return name if isinstance(name, str) else None


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = pod.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}
