"""The webhook's side in the cluster: its Deployments, and the configurations that lead the API server to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webhook.cli.checks.cluster import Cluster
from webhook.cli.checks.result import Result
from webhook.cli.installed import (
    CERT_MANAGER,
    NAMESPACE,
    REGISTRATIONS,
    ROTATING,
    SERVING,
    SETTINGS_NAME,
    Registration,
    Rules,
    at,
    digest,
    objects_in,
)
from webhook.cluster.objects import CONFIG_MAP, DEPLOYMENT, MUTATING

_INSTALL = "kubectl apply -k deploy/webhook"


def settings(cluster: Cluster) -> Iterator[Result]:
    """The webhook's settings are such that it starts with them."""
    subject = f"ConfigMap {NAMESPACE}/{SETTINGS_NAME}"
    if cluster.own_settings is None:
        yield Result("settings", subject, "skipped", "other settings were given to judge by")
        return
    if cluster.objects.get(CONFIG_MAP, NAMESPACE, SETTINGS_NAME) is None:
        yield Result("settings", subject, "problem", "does not exist: the webhook does not start without it", _INSTALL)
        return
    _, problems = cluster.own_settings
    for problem in problems:
        mend = f"kubectl -n {NAMESPACE} edit configmap {SETTINGS_NAME}"
        yield Result("settings", subject, "problem", f"the webhook does not start with it: {problem}", mend)
    if not problems:
        config = cluster.settings.default_config
        yield Result("settings", subject, "ok", f"usable; nodes without a label are judged by {config}")


def deployments(cluster: Cluster) -> Iterator[Result]:
    """The serving pods are ready, and so is the one that looks after the certificates."""
    for name in (SERVING, ROTATING):
        if name == ROTATING and managed_by_cert_manager(cluster):
            return
        subject = f"Deployment {NAMESPACE}/{name}"
        found = cluster.objects.get(DEPLOYMENT, NAMESPACE, name)
        if found is None:
            yield Result("deployments", subject, "problem", "does not exist", _INSTALL)
            continue
        wanted = at(found, "spec").get("replicas", 1)
        ready = at(found, "status").get("readyReplicas") or 0
        logs = f"kubectl -n {NAMESPACE} logs deployment/{name}"
        if ready < wanted or not wanted:
            yield Result("deployments", subject, "problem", f"{ready} of {wanted} pods are ready", logs)
        else:
            yield Result("deployments", subject, "ok", f"{ready} of {wanted} pods are ready; logs: {logs}")


def registrations(cluster: Cluster) -> Iterator[Result]:
    """Both webhook configurations are there, and send and fail as shipped."""
    for kind, expected in REGISTRATIONS.items():
        subject = f"{kind.name} {SERVING}"
        found = cluster.objects.get(kind, "", SERVING)
        if found is None:
            message = "does not exist: the API server does not ask the webhook"
            yield Result("configurations", subject, "problem", message, _INSTALL)
            continue
        present = {w.get("name"): w for w in objects_in(found.get("webhooks"))}
        problems = [
            problem
            for shipped in expected
            for problem in (
                _deviations(present[shipped.name], shipped)
                if shipped.name in present
                else [f"{shipped.name} is missing"]
            )
        ]
        for problem in problems:
            yield Result("configurations", subject, "problem", problem, _INSTALL)
        if not problems:
            yield Result("configurations", subject, "ok", "failurePolicy, rules and selectors are as shipped")


def managed_by_cert_manager(cluster: Cluster) -> bool:
    """Whether cert-manager looks after the certificates. Raises CannotLookError."""
    return CERT_MANAGER in at(cluster.objects.get(MUTATING, "", SERVING), "metadata", "annotations")


def _deviations(webhook: dict[str, Any], shipped: Registration) -> Iterator[str]:
    name = shipped.name
    policy = webhook.get("failurePolicy", "Fail")
    if policy != shipped.failure_policy:
        effect = (
            "while the webhook is down, pods pass unchecked"
            if policy == "Ignore"
            else "while the webhook is down, workloads are refused"
        )
        yield f"{name}: failurePolicy is {policy}, shipped is {shipped.failure_policy}: {effect}"
    service = at(webhook, "clientConfig", "service")
    target = f"{service.get('namespace')}/{service.get('name')}{service.get('path')}"
    if target != f"{NAMESPACE}/{SERVING}{shipped.path}":
        yield f"{name}: it calls {target if service else 'a URL'}, shipped is {NAMESPACE}/{SERVING}{shipped.path}"
    if _rules(webhook) != shipped.rules:
        yield f"{name}: its rules are not those shipped, so some objects are never sent to the webhook, or too many"
    if _left_out(webhook) != shipped.left_out:
        left_out = ", ".join(sorted(shipped.left_out))
        yield f"{name}: namespaceSelector is not as shipped, which leaves out {left_out} alone"
    if webhook.get("objectSelector"):
        yield f"{name}: an objectSelector lets pods opt out by their labels; shipped is none"
    conditions = {c.get("name"): digest(str(c.get("expression"))) for c in objects_in(webhook.get("matchConditions"))}
    if conditions != dict(shipped.conditions):
        yield f"{name}: matchConditions are not those of this version ({', '.join(sorted(shipped.conditions))})"


def _rules(webhook: dict[str, Any]) -> Rules:
    return frozenset(
        (
            frozenset(map(str, rule.get("apiGroups") or ())),
            frozenset(map(str, rule.get("operations") or ())),
            frozenset(map(str, rule.get("resources") or ())),
        )
        for rule in objects_in(webhook.get("rules"))
    )


def _left_out(webhook: dict[str, Any]) -> frozenset[str] | None:
    """The namespaces its selector leaves out; None for a selector of any other form."""
    selector = at(webhook, "namespaceSelector")
    expressions = objects_in(selector.get("matchExpressions"))
    if not selector:
        return frozenset()
    if selector.get("matchLabels") or len(expressions) != 1:
        return None
    (one,) = expressions
    if one.get("key") != "kubernetes.io/metadata.name" or one.get("operator") != "NotIn":
        return None
    return frozenset(map(str, one.get("values") or ()))
