"""Workloads: where the pod template sits in each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.policy.domain import keys_of
from webhook.policy.findings import Finding
from webhook.policy.pod import shown

_STEPS = (("spec", "jobTemplate", "spec", "template"), ("spec", "template"), ("template",))
"""CronJob; Deployment, StatefulSet, DaemonSet, ReplicaSet, Job and their like; PodTemplate."""


@dataclass(frozen=True, slots=True)
class Template:
    """A workload's pod template. ``path`` (``spec.template.``) and ``pointer`` (``/spec/template``) lead to it."""

    kind: str
    pod: Mapping[str, Any]
    path: str
    pointer: str


def read_template(workload: Mapping[str, Any]) -> Template | None:
    """The pod template of an object, None where it has none."""
    for steps in _STEPS:
        at: Any = workload
        for step in steps:
            at = at.get(step) if isinstance(at, dict) else None
        if isinstance(at, dict):
            kind = workload.get("kind")
            return Template(kind if isinstance(kind, str) else "", at, ".".join(steps) + ".", "/" + "/".join(steps))
    return None


def misplaced(workload: Mapping[str, Any]) -> Iterator[Finding]:
    """misplaced-annotation: a key of the domain on the workload itself instead of on its pod template."""
    template = read_template(workload)
    target = f"{template.path}metadata.annotations" if template else "the pod's metadata.annotations"
    metadata = workload.get("metadata")
    for kind in ("annotations", "labels"):
        entries = metadata.get(kind) if isinstance(metadata, dict) else None
        for key in keys_of(entries) if isinstance(entries, dict) else ():
            yield Finding(
                "misplaced-annotation",
                "deny",
                f"metadata.{kind}[{shown(key, 100)}]",
                "it does not reach the pods from here",
                f"write it under {target}",
            )
