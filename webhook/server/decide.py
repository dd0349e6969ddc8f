"""Which question each review puts to the policy, and what its verdict means at each endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import jsonpatch
import orjson

from webhook.policy.domain import keys_of
from webhook.policy.findings import warnings
from webhook.policy.workloads import read_template
from webhook.server.faults import Fault
from webhook.server.review import is_object, require_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.policy import Inventory, Verdict
    from webhook.policy.findings import Severity
    from webhook.policy.workloads import Template
    from webhook.server.review import Review

Endpoint = Literal["/mutate", "/validate", "/validate-workloads"]
Workloads = Literal["warn", "deny", "off"]
Outcome = Literal["untouched", "allowed", "patched", "warned", "denied"]

MAX_KEPT = 4096
"""Bytes of a patch whose operations are kept."""

_ALL: frozenset[Severity] = frozenset(("deny", "warn"))

POD = ("", "Pod")


class Policy(Protocol):
    """The policy as this package calls it; the module `webhook.policy` is one.

    A seam, because what must happen when the policy fails can only be shown with one that does.
    """

    def judge_pod(self, pod: dict[str, Any], namespace: str, inventory: Inventory, /) -> Verdict:
        """Judge a pod that is being created, with the patch that it needs."""

    def validate_pod(self, pod: dict[str, Any], namespace: str, inventory: Inventory, /) -> Verdict:
        """Judge the pod that all mutating webhooks have left."""

    def judge_update(
        self, old: dict[str, Any], new: dict[str, Any], subresource: str, namespace: str, inventory: Inventory, /
    ) -> Verdict:
        """Judge a change of a pod."""

    def judge_workload(self, obj: dict[str, Any], namespace: str, inventory: Inventory, /) -> Verdict:
        """Judge the pods that a workload will make."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to answer. `verdict` is None where there was nothing to judge; `patch` is a JSON patch as JSON, or empty."""

    allowed: bool = True
    verdict: Verdict | None = None
    patch: bytes = b""
    warnings: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """One word for logs, metrics and audit annotations; `warned` is what the setting `workloads` let pass."""
        if self.verdict is None:
            return "untouched"
        if not self.allowed:
            return "denied"
        if not self.verdict.allowed:
            return "warned"
        return "patched" if self.patch else "allowed"


UNTOUCHED = Decision()


class Decide:
    """Turns reviews into decisions. Pure: what it needs comes in, and it keeps nothing."""

    def __init__(self, policy: Policy, workloads: Workloads = "warn") -> None:
        self._policy = policy
        self._workloads = workloads

    def at(self, endpoint: Endpoint) -> Callable[[Review, Inventory], Decision]:
        """Return what decides at an endpoint; it raises Fault (400: no object, 500: bad patch)."""
        return {"/mutate": self.mutate, "/validate": self.validate, "/validate-workloads": self.workload}[endpoint]

    def mutate(self, review: Review, inventory: Inventory) -> Decision:
        """Judge a pod before validation, with a patch at creation."""
        if review.kind != POD or review.operation != "CREATE":
            return self._pod_update(review, inventory)
        pod = require_object(review.object, "request.object")
        verdict = self._policy.judge_pod(pod, review.namespace, inventory)
        return _judged(verdict, tried(verdict.patch, pod) if verdict.allowed and verdict.patch else b"")

    def validate(self, review: Review, inventory: Inventory) -> Decision:
        """Judge a pod as it is going to be stored."""
        if review.kind != POD or review.operation != "CREATE":
            return self._pod_update(review, inventory)
        pod = require_object(review.object, "request.object")
        return _judged(self._policy.validate_pod(pod, review.namespace, inventory))

    def workload(self, review: Review, inventory: Inventory) -> Decision:
        """Judge a workload, as strictly as the setting `workloads` says.

        With `warn` the denials of its pods are shown as warnings: the person at `kubectl apply` sees them there, while
        the warnings on pods that a controller makes are seen by nobody.
        """
        if self._workloads == "off" or review.operation not in ("CREATE", "UPDATE") or review.subresource:
            return UNTOUCHED
        workload = require_object(review.object, "request.object")
        template = read_template(workload)
        if template is None or (review.operation == "UPDATE" and _same_pods(review.old_object, workload, template)):
            return UNTOUCHED
        verdict = self._policy.judge_workload(workload, review.namespace, inventory)
        if self._workloads == "deny":
            return _judged(verdict)
        return Decision(verdict=verdict, warnings=tuple(warnings(verdict.findings, severities=_ALL)))

    def _pod_update(self, review: Review, inventory: Inventory) -> Decision:
        # DELETE and CONNECT change no pod, and a Binding or an Eviction under pods/… is none: neither has anything
        # that could be judged, and a registration that sends them must not stop the scheduler.
        if review.kind != POD or review.operation != "UPDATE":
            return UNTOUCHED
        old = require_object(review.old_object, "request.oldObject")
        new = require_object(review.object, "request.object")
        return _judged(self._policy.judge_update(old, new, review.subresource, review.namespace, inventory))


def _judged(verdict: Verdict, patch: bytes = b"") -> Decision:
    return Decision(verdict.allowed, verdict, patch, tuple(verdict.warnings()))


def tried(patch: tuple[dict[str, Any], ...], pod: dict[str, Any]) -> bytes:
    """Return the patch as JSON after it was applied to the pod, which is changed by that. Raises Fault 500.

    The API server answers a patch that does not apply with a 500 to the user whatever `failurePolicy` says, so none
    may leave untried. It is the encoded form that is tried: what is sent is what has been shown to work. The pod has
    been judged and is of no further use, so it is not copied.
    """
    encoded = orjson.dumps(patch)
    try:
        # Affinity has the user's own terms in it, of any length.
        for operation in _kept(encoded) if len(encoded) <= MAX_KEPT else _operations(encoded):
            operation.apply(pod)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError) as error:
        text = "the patch does not apply to the object"
        raise Fault(500, text, counted="bad-patch") from error
    return encoded


def _operations(encoded: bytes) -> tuple[jsonpatch.PatchOperation, ...]:
    """The operations of a patch.

    Not a `JsonPatch`: it makes its operations once to check them, and again whenever it is applied.
    """
    return tuple(jsonpatch.JsonPatch.operations[entry["op"]](entry) for entry in orjson.loads(encoded))


_kept = lru_cache(maxsize=512)(_operations)
"""For the pods that are made alike."""


def _same_pods(old: Any, new: dict[str, Any], template: Template) -> bool:
    """Whether an update of a workload leaves alone what is judged, or is of one that is being deleted.

    Controllers update replicas, status and annotations of their workloads all the time, and finalizers have to come
    off. Neither may fail, or warn again, for a template that was there before; it was judged when it came, and its
    pods are judged when they come.
    """
    metadata = new.get("metadata")
    if is_object(metadata) and metadata.get("deletionTimestamp"):
        return True
    return is_object(old) and read_template(old) == template and _own_keys(old) == _own_keys(new)


def _own_keys(workload: dict[str, Any]) -> list[dict[str, Any]]:
    metadata = workload.get("metadata")
    parts = (metadata.get("annotations"), metadata.get("labels")) if is_object(metadata) else (None, None)
    return [keys_of(part) if is_object(part) else {} for part in parts]
