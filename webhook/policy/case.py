"""One case: a pod with all that a rule may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from webhook.policy.annotations import Annotations, read_annotations
from webhook.policy.findings import Finding
from webhook.policy.fleet import Inventory
from webhook.policy.pod import Pod
from webhook.policy.quota import Quota, read_quotas
from webhook.policy.settings import Settings


@dataclass(frozen=True, slots=True)
class Case:
    """A pod in its namespace, before the inventory. ``quotas`` has one entry for each GPU container."""

    pod: Pod
    annotations: Annotations
    quotas: tuple[Quota, ...]
    namespace: str
    inventory: Inventory

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.inventory.settings

    @property
    def has_quota(self) -> bool:
        """Whether any container asks for a quota."""
        return any(q.asked for q in self.quotas)


Rule = Callable[[Case], Iterator[Finding]]
"""One rule: what it finds in a case, nothing where all is well."""


def open_case(pod: Pod, namespace: str, inventory: Inventory) -> Case:
    """Read the pod's annotations and quotas."""
    annotations = read_annotations(dict(pod.annotations))
    return Case(pod, annotations, read_quotas(pod, annotations), namespace, inventory)
