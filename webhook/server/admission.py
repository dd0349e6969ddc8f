"""One endpoint of the webhook: from the bytes of a review to the bytes of an answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from webhook.server.body import late
from webhook.server.deadline import allowance
from webhook.server.faults import CLOSE, JSON_TYPE, Fault
from webhook.server.logs import FIELDS, LOGGER, places
from webhook.server.review import allow, deny, parse_review
from webhook.server.tracing import from_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from webhook.cluster import Source
    from webhook.policy import Grant, Inventory
    from webhook.server.body import BodyReader
    from webhook.server.decide import Decision, Endpoint
    from webhook.server.lifecycle import Lifecycle
    from webhook.server.metrics import Metrics
    from webhook.server.review import Review
    from webhook.server.tracing import Trace

MAX_REMEMBERED = 24 * 1024
"""Bytes of a review whose verdict is remembered. Read into what the rules look at, a body made for it takes 25 times as
much, and hundreds are kept: 145 MiB at the most (measured)."""
MAX_CAUSES = 100
MAX_ANNOTATION = 1024
"""Characters of one audit annotation. The audit log is not the place for a pod of a thousand containers."""

_EXPECTED = frozenset({"in-flight", "body-budget", "closing", "disconnected"})
"""Faults that come in crowds and say nothing new in a log; the metrics count them."""


@dataclass(slots=True)
class _Call:
    """One request under way. Times are of `time.monotonic`: uvloop's own clock knows whole milliseconds only."""

    started: float
    deadline: float
    review: Review | None = None
    decision: Decision | None = None
    fault: str = ""

    def check(self) -> None:
        """Raise Fault 504 where an answer would come too late."""
        if monotonic() >= self.deadline:
            raise late()


class Admission:
    """An ASGI application for one path.

    Plain ASGI and not a route function: the path of every pod creation goes through here, and a route's dependency
    handling costs more than the decision does.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        decide: Callable[[Review, Inventory], Decision],
        *,
        source: Source,
        lifecycle: Lifecycle,
        bodies: BodyReader,
        metrics: Metrics,
        trace: Trace | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._decide = decide
        self._source = source
        self._lifecycle = lifecycle
        self._bodies = bodies
        self._metrics = metrics
        self._trace = trace or from_environment()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: a decision with 200, or the fault that kept it from being made."""
        started = scope.get("state", {}).get("arrived") or monotonic()
        call = _Call(started, started + allowance(scope["query_string"]))
        code, headers = 200, [JSON_TYPE]
        try:
            answer = await self._decided(call, scope, receive)
        except Fault as fault:
            code, headers, answer = self._report(fault, call)
        except Exception as error:
            self._metrics.panic()
            panic = Fault(500, "internal error, see the log of the webhook", counted="panic")
            panic.__cause__ = error
            code, headers, answer = self._report(panic, call)
        if self._lifecycle.leaving and CLOSE not in headers:
            headers = [*headers, CLOSE]
        operation = call.review.operation if call.review else ""
        seconds = monotonic() - started
        self._metrics.request(self._endpoint, operation, code, seconds)
        length = (b"content-length", b"%d" % len(answer))
        await send({"type": "http.response.start", "status": code, "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": answer})
        if self._trace is not None:
            self._trace(
                self._endpoint,
                scope["headers"],
                seconds,
                code,
                review=call.review,
                decision=call.decision,
                fault=call.fault,
            )

    async def _decided(self, call: _Call, scope: Scope, receive: Receive) -> bytes:
        body = await self._bodies.read(scope["headers"], receive, call.deadline)
        self._lifecycle.check()
        call.check()
        call.review = review = parse_review(body)
        inventory = self._inventory()
        decision = self._decide(review, inventory if len(body) <= MAX_REMEMBERED else inventory.unremembering())
        answer = self._answer(review, decision)
        call.check()
        call.decision = decision
        self._record(review, decision, monotonic() - call.started)
        return answer

    def _inventory(self) -> Inventory:
        inventory = self._source.inventory()
        if inventory is None:
            # No Retry-After: it would be repeated in vain until the caller's timeout, and this text would be lost.
            text = "the cluster's nodes and GPU configurations have not been read yet; try again in a few seconds"
            raise Fault(503, text, counted="not-synced")
        return inventory

    def _answer(self, review: Review, decision: Decision) -> bytes:
        annotations = audit_annotations(decision)
        if decision.allowed:
            return allow(review.uid, patch=decision.patch, warnings=decision.warnings, annotations=annotations)
        assert decision.verdict is not None  # noqa: S101 - only a verdict denies
        denials = [finding for finding in decision.verdict.findings if finding.severity == "deny"]
        causes = [
            {"reason": finding.code, "message": finding.message, "field": finding.field}
            for finding in denials[:MAX_CAUSES]
        ]
        return deny(review.uid, decision.verdict.denial(), causes, warnings=decision.warnings, annotations=annotations)

    def _record(self, review: Review, decision: Decision, seconds: float) -> None:
        verdict = decision.verdict
        self._metrics.decision(self._endpoint, decision.outcome, verdict)
        if not LOGGER.isEnabledFor(logging.INFO):
            return
        fields = {
            "endpoint": self._endpoint,
            "uid": review.uid,
            "namespace": review.namespace,
            "name": review.shown_name,
            "kind": review.kind[1],
            "operation": review.operation,
            "dryRun": review.dry_run,
            "decision": decision.outcome,
            "codes": verdict.codes if verdict else (),
            "fit": sum(len(group.names) for group in verdict.fit) if verdict else 0,
            "unfit": sum(len(group.names) for group in verdict.unfit) if verdict else 0,
            "duration_ms": round(seconds * 1000, 3),
        }
        if review.subresource:
            fields["subresource"] = review.subresource
        LOGGER.info("decision", extra={FIELDS: fields})

    def _report(self, fault: Fault, call: _Call) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        call.fault = fault.counted
        self._metrics.fault(self._endpoint, fault.counted)
        level = logging.DEBUG if fault.counted in _EXPECTED else logging.ERROR if fault.code == 500 else logging.WARNING
        if LOGGER.isEnabledFor(level):
            fields: dict[str, object] = {"endpoint": self._endpoint, "code": fault.code, "fault": fault.counted}
            review = call.review
            if review is not None:
                fields |= {"uid": review.uid, "namespace": review.namespace, "name": review.shown_name}
            cause = fault.__cause__
            if cause is not None:
                fields |= {"exception": type(cause).__name__, "at": places(cause.__traceback__)}
            LOGGER.log(level, fault.message, extra={FIELDS: fields})
        return fault.code, fault.headers(), fault.body()


def audit_annotations(decision: Decision) -> dict[str, str]:
    """Return what the audit log is to say; the API server puts the webhook's name and a slash before each key.

    `memory` and `threads` are what each container was granted (`app=3072Mi,worker=2x512Mi` where the worker's two
    processes have 512 MiB each), `configs` the configurations of the nodes that fit.
    """
    found: dict[str, str] = {"decision": decision.outcome}
    verdict = decision.verdict
    if verdict is None:
        return found
    if verdict.codes:
        found["codes"] = ",".join(verdict.codes)
    if decision.allowed:
        memory = ",".join(f"{_each(g)}{g.memory_mib}Mi" for g in verdict.grants if g.memory_mib is not None)
        threads = ",".join(f"{_each(g)}{g.threads}" for g in verdict.grants if g.threads is not None)
        configs = ",".join(sorted({group.config for group in verdict.fit}))
        found |= {key: text for key, text in (("memory", memory), ("threads", threads), ("configs", configs)) if text}
    return {key: text[:MAX_ANNOTATION] for key, text in found.items()}


def _each(grant: Grant) -> str:
    return f"{grant.container}={grant.processes}x" if grant.processes > 1 else f"{grant.container}="
