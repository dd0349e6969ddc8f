"""What phrases findings about nodes share: reasons with the nodes they hold for, limits, the cost of a CUDA context."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.policy import mps
from webhook.policy.fleet import Group
from webhook.policy.nodes import Profile
from webhook.policy.pod import shown
from webhook.policy.quantity import mib_text
from webhook.policy.quota import Quota

COMFORTABLE_MIB = 1024
"""Below it a framework's own needs are felt: measured, PyTorch took about 300 MiB before the first tensor."""

_REASONS_SHOWN = 3


def reasons(found: Sequence[tuple[str, Group]]) -> str:
    """Equal reasons once, each with the nodes it holds for: ``… has 15360Mi (1 node, Tesla-T4)``."""
    by_text: dict[str, list[Group]] = {}
    for text, group in found:
        by_text.setdefault(text, []).append(group)
    parts = [f"{text} ({_nodes(groups)})" for text, groups in by_text.items()]
    more = len(parts) - _REASONS_SHOWN
    return ", ".join(parts[:_REASONS_SHOWN]) + (f" and {more} more like it" if more > 0 else "")


def _nodes(groups: Sequence[Group]) -> str:
    count = sum(len(g.names) for g in groups)
    products = list(dict.fromkeys(shown(g.profile.product) for g in groups if g.profile.product))
    listed = products[:2] + (["…"] if len(products) > 2 else [])
    return ", ".join([f"{count} node{'s' * (count != 1)}" if count else "no node now", *listed])


def each(quota: Quota) -> str:
    """What one process gets, told apart from the container's where it runs several."""
    text = mib_text(quota.process_mib or 0)
    return f"{text} a process" if quota.processes > 1 else text


def context(quota: Quota, profile: Profile) -> str:
    """The context's cost as a phrase: measured on this card, else on the reference card."""
    threads = quota.threads_on(profile.share_threads)
    own = mps.context_mib(profile.product, threads)
    cost = mps.context_mib(mps.REFERENCE_PRODUCT, threads) if own is None else own
    return f"{cost}Mi at {threads:g}% of the threads" + (" (measured on an H200)" if own is None else "")
