"""The decision: pure functions over plain pod dicts.

No I/O, no clock, no server, no client. ``judge_pod``, ``validate_pod``, ``judge_update`` and ``judge_workload`` each
take raw objects of any shape with an ``Inventory`` and return a ``Verdict``; none of them raises.
"""

from webhook.policy.deviceplugin import ConfigError, DeviceConfig, parse_config, parse_config_map
from webhook.policy.findings import Finding, Severity
from webhook.policy.fleet import Fleet, Group, Inventory
from webhook.policy.nodes import Namespace, Node, Profile, project_namespace, project_node
from webhook.policy.settings import ExpectedProfile, Settings
from webhook.policy.verdict import (
    ALLOWED,
    Grant,
    Verdict,
    judge_pod,
    judge_update,
    judge_workload,
    validate_pod,
)

__all__ = [
    "ALLOWED",
    "ConfigError",
    "DeviceConfig",
    "ExpectedProfile",
    "Finding",
    "Fleet",
    "Grant",
    "Group",
    "Inventory",
    "Namespace",
    "Node",
    "Profile",
    "Settings",
    "Severity",
    "Verdict",
    "judge_pod",
    "judge_update",
    "judge_workload",
    "parse_config",
    "parse_config_map",
    "project_namespace",
    "project_node",
    "validate_pod",
]
