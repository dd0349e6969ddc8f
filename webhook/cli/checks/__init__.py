"""What ``kubectl mps doctor`` looks at, one function a check.

A check takes the ``Cluster`` and yields a ``Result`` for each thing it looked at. What it may not look at raises
CannotLookError, which ``examine`` tells apart from a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from webhook.cli.checks.admission import deployments, registrations, settings
from webhook.cli.checks.canary import canaries
from webhook.cli.checks.certificates import certificate, trust
from webhook.cli.checks.cluster import Cluster, DryRun
from webhook.cli.checks.nodes import nodes
from webhook.cli.checks.promises import promises
from webhook.cli.checks.result import Result, Status
from webhook.cli.checks.runtime import config_map, daemon_sets, default_config
from webhook.cluster.objects import CannotLookError

__all__ = ["CHECKS", "Cluster", "DryRun", "Result", "Status", "examine"]

CHECKS: dict[str, Callable[[Cluster], Iterator[Result]]] = {
    "daemonsets": daemon_sets,
    "configs": config_map,
    "default-config": default_config,
    "nodes": nodes,
    "promises": promises,
    "settings": settings,
    "deployments": deployments,
    "configurations": registrations,
    "certificate": certificate,
    "ca-bundle": trust,
    "canary": canaries,
}


def examine(cluster: Cluster) -> Iterator[Result]:
    """Every check's results, in order. Raises nothing for what cannot be looked at."""
    for name, check in CHECKS.items():
        try:
            yield from check(cluster)
        except CannotLookError as error:
            yield Result(name, "Not looked at", "unseen", str(error), "kubectl auth can-i --list")
