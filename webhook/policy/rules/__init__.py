"""The rules, one small function each.

``ALWAYS`` holds those that look at the pod alone; ``nodes.NODE_RULES`` those that are judged per profile, and
``node_warnings.NODE_WARNINGS`` what is said about the profiles that remain.
"""

from webhook.policy.case import Rule
from webhook.policy.rules import annotations, bypass, requests, variables

ALWAYS: tuple[Rule, ...] = (
    *annotations.RULES,
    *requests.RULES,
    *variables.RULES,
    *bypass.RULES,
)

__all__ = ["ALWAYS"]
