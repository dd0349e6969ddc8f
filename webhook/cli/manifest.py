"""One object of a file, with what the webhook would say to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from webhook.policy import Verdict


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file. ``verdict`` is None for kinds that make no pods."""

    source: str
    object: dict[str, Any]
    namespace: str
    verdict: Verdict | None

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.object.get("kind"))

    @property
    def name(self) -> str:
        """The object's name, or what its name will begin with."""
        metadata = self.object.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        return str(metadata.get("name") or metadata.get("generateName") or "")

    def patched(self) -> dict[str, Any]:
        """The object as the webhook would leave it."""
        if self.verdict is None or not self.verdict.patch:
            return self.object
        import jsonpatch

        patched: dict[str, Any] = jsonpatch.apply_patch(self.object, list(self.verdict.patch))
        return patched

    def report(self, verdict: Verdict) -> dict[str, Any]:
        """The verdict as ``-o json`` prints it."""
        return {
            "source": self.source,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "allowed": verdict.allowed,
            "findings": [
                {"code": f.code, "severity": f.severity, "field": f.field, "message": f.message, "hint": f.hint}
                for f in verdict.findings
            ],
            "warnings": verdict.warnings(),
            "patch": list(verdict.patch),
            "candidates": {
                "fit": [name for group in verdict.fit for name in group.names],
                "unfit": [name for group in verdict.unfit for name in group.names],
            },
        }
