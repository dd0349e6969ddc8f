"""Canaries: pods that are admitted and not stored, so that the webhook's answer is seen where it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.cli.checks.cluster import Cluster
from webhook.cli.checks.result import Result
from webhook.cli.installed import NAMESPACE, POD_WEBHOOK, SERVING, at, objects_in
from webhook.cluster.objects import Answer, CannotLookError
from webhook.policy import Verdict, judge_pod, mps
from webhook.policy.annotations import MEMORY_LIMIT, THREAD_PERCENTAGE
from webhook.policy.deviceplugin import GPU
from webhook.policy.domain import DOMAIN
from webhook.policy.nodes import CONFIG_LABEL

_OURS = f'admission webhook "{POD_WEBHOOK}" denied the request'
_LOGS = f"kubectl -n {NAMESPACE} logs deployment/{SERVING}"
_CONFIGURATIONS = (
    f"kubectl get mutatingwebhookconfiguration,validatingwebhookconfiguration {SERVING} -o yaml  # compare with deploy/"
)


def canaries(cluster: Cluster) -> Iterator[Result]:
    """A pod that no node could take is denied; one that fits is allowed, with its limit written."""
    if cluster.dry_run is None:
        yield Result("canary", "Dry-run pods", "skipped", "there is no API server to ask, only files")
        return
    for pod in (denied_canary(), allowed_canary(cluster)):
        verdict = judge_pod(pod, cluster.namespace, cluster.inventory)
        expected = f"denied with {', '.join(_denials(verdict))}" if not verdict.allowed else "allowed"
        subject = f"Dry-run pod with {_what(pod)}"
        answer = cluster.dry_run(pod)
        yield _judged(subject, expected, verdict, answer, cluster)


def denied_canary() -> dict[str, Any]:
    """A memory limit that is no quantity: wrong on whatever node."""
    return _pod({f"{DOMAIN}/{MEMORY_LIMIT}": "no-quantity"}, {})


def allowed_canary(cluster: Cluster) -> dict[str, Any]:
    """A quota that every share has room for, on a config that shares with MPS; without one a plain GPU pod."""
    sharing = sorted(name for name, config in cluster.configs.items() if config.strategy == "mps")
    present = [n.profile.config for n in cluster.nodes if n.node.labels.get(CONFIG_LABEL) in sharing]
    for config in (*present, *sharing):
        pod = _pod({f"{DOMAIN}/{THREAD_PERCENTAGE}": "1"}, {CONFIG_LABEL: config}, cluster.configs[config].resource)
        if judge_pod(pod, cluster.namespace, cluster.inventory).allowed:
            return pod
    return _pod({}, {})


def _judged(subject: str, expected: str, verdict: Verdict, answer: Answer, cluster: Cluster) -> Result:
    if answer.status in (200, 201):
        if not verdict.allowed:
            message = f"was allowed, and should be {expected}: the API server did not ask the webhook"
            return Result("canary", subject, "problem", message, _CONFIGURATIONS)
        if missing := _missing(verdict, answer):
            message = f"was allowed without {', '.join(missing)}: the mutating webhook was not asked"
            return Result("canary", subject, "problem", message, _CONFIGURATIONS)
        return Result("canary", subject, "ok", "allowed, as it should be" + (", and patched" if verdict.patch else ""))
    if _OURS in answer.message:
        if not verdict.allowed and all(f"[{code}]" in answer.message for code in _denials(verdict)):
            return Result("canary", subject, "ok", f"{expected}, as it should be")
        return Result("canary", subject, "problem", f"should be {expected}, but: {answer.message}", _LOGS)
    if "failed calling webhook" in answer.message:
        message = f"the API server gets no answer from the webhook: {answer.message}"
        return Result("canary", subject, "problem", message, f"kubectl -n {NAMESPACE} get pods,endpointslices -o wide")
    raise CannotLookError(f"dry-run pod in namespace {cluster.namespace}: {answer.status} {answer.message}")


def _denials(verdict: Verdict) -> list[str]:
    return sorted({f.code for f in verdict.findings if f.severity == "deny"})


def _missing(verdict: Verdict, answer: Answer) -> list[str]:
    """The variables that the webhook would have written and that are not there."""
    stored = {
        e.get("name") for c in objects_in(at(answer.object, "spec").get("containers")) for e in objects_in(c.get("env"))
    }
    wanted = (mps.MEMORY_LIMIT, mps.THREAD_PERCENTAGE)
    written = {name for name in wanted for grant in verdict.grants if _grants(name, grant.memory_mib, grant.threads)}
    return sorted(written - stored)


def _grants(name: str, memory_mib: int | None, threads: str | None) -> bool:
    return (memory_mib if name == mps.MEMORY_LIMIT else threads) is not None


def _what(pod: Mapping[str, Any]) -> str:
    annotations = at(pod, "metadata", "annotations")
    return ", ".join(f"{key}: {value}" for key, value in annotations.items()) or f"{GPU}: 1"


def _pod(annotations: Mapping[str, str], selector: Mapping[str, str], resource: str = GPU) -> dict[str, Any]:
    """A pod that Pod Security lets into any namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "mps-doctor-", "annotations": dict(annotations)},
        "spec": {
            "nodeSelector": dict(selector),
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "canary",
                    "image": "mps-webhook",
                    "resources": {
                        "requests": {"cpu": "1m", "memory": "1Mi", resource: "1"},
                        "limits": {"cpu": "1m", "memory": "1Mi", resource: "1"},
                    },
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
