"""Running pods: what they may use fits on the cards they are on."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.cli.checks.cluster import Cluster
from webhook.cli.checks.result import Result
from webhook.policy import Profile, mps
from webhook.policy.annotations import MEMORY_LIMIT
from webhook.policy.domain import DOMAIN
from webhook.policy.occupancy import Holder, occupy
from webhook.policy.quantity import mib_text

_OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY for it or its neighbours"


def promises(cluster: Cluster) -> Iterator[Result]:
    """No limit is over its budget, none is ignored, and the cards hold what is promised."""
    held = sharing = 0
    sound = True
    for node in occupy(cluster.inventory.fleet, cluster.holders):
        if node.profile.strategy != "mps" or not node.holders:
            continue
        held, sharing = held + len(node.holders), sharing + 1
        for holder in node.holders:
            if problem := _of_holder(holder, node.profile):
                sound = False
                subject = f"Pod {holder.namespace}/{holder.pod} ({holder.container}) on {node.node.name}"
                yield Result("promises", subject, "problem", *problem)
        if node.promised_mib and node.physical_mib and node.promised_mib > node.physical_mib:
            sound = False
            message = f"{node.promised_mib}MiB are promised, its cards have {node.physical_mib}MiB: {_OUT_OF_MEMORY}"
            yield Result("promises", f"Node {node.node.name}", "problem", message, "kubectl mps nodes --pods")
    if sound:
        message = f"limits are in force and fit on the cards (containers: {held}, nodes: {sharing})"
        yield Result("promises", "Running pods", "ok", message)


def _of_holder(holder: Holder, profile: Profile) -> tuple[str, str] | None:
    again = f"kubectl -n {holder.namespace} delete pod {holder.pod}  # then create it again"
    if holder.limit == "ignored":
        message = f"its {mps.MEMORY_LIMIT} is of a form that MPS ignores, and then no limit holds at all"
        return message, f"{again}: the webhook mends the form or says what it is"
    if holder.asked_mib is not None and holder.limit == "share":
        message = f"asks for {mib_text(holder.asked_mib)}, but was created past the webhook: the limit is not in force"
        return message, again
    total = (holder.limit_mib or 0) * profile.replicas
    if profile.memory_mib is None or total <= profile.memory_mib:
        return None
    limit = f"limit {mib_text(holder.limit_mib or 0)} × {profile.replicas} shares = {total}MiB"
    message = f"{limit}, a card of config {profile.config} has {profile.memory_mib}MiB: {_OUT_OF_MEMORY}"
    return message, f"{again} with {DOMAIN}/{MEMORY_LIMIT}: {mib_text(profile.share_mib or 0)}"
