"""GPU nodes: the config, the number of shares, what the labels say, what excludes MPS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches

from webhook.cli.checks.cluster import Cluster
from webhook.cli.checks.result import Result
from webhook.cli.installed import (
    DEVICE_PLUGIN,
    FEATURE_DISCOVERY,
    POD_LABEL,
    RUNTIME_NAMESPACE,
    Runtime,
)
from webhook.policy import mps
from webhook.policy.nodes import CONFIG_LABEL, MEMORY_LABEL, QGPU_PREFIX
from webhook.policy.occupancy import Occupancy, labelled_cards

_MPS_CAPABLE = "nvidia.com/mps.capable"
_QGPU_LABEL = "qgpu-device-enable"
"""The node label that puts qGPU's DaemonSet onto a node (TKE's documentation of qGPU)."""

NodeCheck = Callable[[Occupancy, Cluster], tuple[str, str] | None]
"""What is wrong with a node and the command that mends it; None where it is sound."""


def nodes(cluster: Cluster) -> Iterator[Result]:
    """Every GPU node, by all of ``NODE_CHECKS``."""
    if not cluster.nodes:
        message = "none offers a GPU or is labelled as having one"
        mend = f"kubectl -n {RUNTIME_NAMESPACE} get pods -l {POD_LABEL}={DEVICE_PLUGIN.name} -o wide"
        yield Result("nodes", "GPU nodes", "hint", message, mend)
    for node in cluster.nodes:
        subject = f"Node {node.node.name}"
        found = [problem for check in NODE_CHECKS if (problem := check(node, cluster))]
        for message, mend in found:
            yield Result("nodes", subject, "problem", message, mend)
        if not found:
            hint = _not_shared(node, cluster)
            yield Result("nodes", subject, "hint", *hint) if hint else Result("nodes", subject, "ok", _sound(node))


def unknown_config(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """Its config is no key of the ConfigMap."""
    if node.profile.known_config or not cluster.configs:
        return None
    name = node.profile.config
    known = sorted(cluster.configs)
    if CONFIG_LABEL not in node.node.labels:
        return None  # the default config, which has a check of its own
    near = (get_close_matches(name, known, n=1, cutoff=0.0) or known)[0]
    message = f"its label {CONFIG_LABEL} names {name}, which is no key of the ConfigMap; there are {', '.join(known)}"
    return message, f"kubectl label node {node.node.name} --overwrite {CONFIG_LABEL}={near}"


def share_count(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """It shows another number of shares than cards × replicas."""
    profile, name = node.profile, node.node.name
    if profile.mig or profile.qgpu:
        return None
    shown = dict(node.node.allocatable).get(profile.resource, 0)
    restart = _restart(DEVICE_PLUGIN, name)
    if not shown:
        other = f" (but {node.shares} under another name)" if node.shares else ""
        message = f"shows no {profile.resource}{other}: the device plugin does not run there, or fails"
        return message, restart if node.shares else _pods_on(DEVICE_PLUGIN, name)
    config = cluster.configs.get(profile.config)
    replicas = config.replicas if config else profile.replicas
    cards = labelled_cards(node.node)
    if cards is None and shown % replicas == 0:
        return None
    if cards is not None and shown == cards * replicas:
        return None
    expected = f"{cards} cards × {replicas} = {cards * replicas}" if cards else f"a multiple of {replicas}"
    why = "the device plugin has not loaded the config, or counts a card as unhealthy"
    return f"shows {shown} {profile.resource}, config {profile.config} makes {expected}: {why}", restart


def labels_disagree(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """GPU feature discovery's labels are not those of its config."""
    del cluster
    if node.profile.drift is None:
        return None
    message = f"{node.profile.drift} ({node.profile.config}): the node is switching, or a component is stuck"
    return message, _restart(FEATURE_DISCOVERY, node.node.name)


def daemon_kept_away(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """Its config shares with MPS, and the label that lets the MPS daemon onto it is missing."""
    del cluster
    if node.profile.strategy != "mps" or node.profile.mig or node.node.labels.get(_MPS_CAPABLE) == "true":
        return None
    message = f"config {node.profile.config} shares with MPS, but without {_MPS_CAPABLE}=true no MPS daemon runs there"
    return message, f"kubectl label node {node.node.name} --overwrite {_MPS_CAPABLE}=true"


def memory_unknown(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """Nobody knows its cards' memory, so that no budget is checked."""
    del cluster
    if node.profile.memory_mib is not None or node.profile.mig or node.profile.qgpu:
        return None
    message = f"its cards' memory is not known (no {MEMORY_LABEL}, not in the setting gpu_memory): no budget is checked"
    return message, f"kubectl label node {node.node.name} {MEMORY_LABEL}=MIB_OF_ONE_CARD"


def mig_under_mps(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """Its cards are cut by MIG, which the device plugin refuses to share with MPS."""
    if not node.profile.mig or node.profile.strategy != "mps":
        return None
    message = f"its cards are cut by MIG, and config {node.profile.config} shares with MPS: the device plugin refuses"
    return message, f"kubectl label node {node.node.name} --overwrite {CONFIG_LABEL}={_exclusive(cluster)}"


def qgpu_beside_mps(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """It offers qGPU too, which excludes MPS."""
    del cluster
    offered = [name for name, _ in node.node.allocatable if name.startswith(QGPU_PREFIX)]
    labelled = CONFIG_LABEL in node.node.labels
    if not offered or (node.profile.strategy != "mps" and not labelled):
        return None
    message = f"offers {', '.join(offered)}: qGPU and MPS exclude each other on a node"
    return message, f"kubectl label node {node.node.name} {_QGPU_LABEL}-  # and in its node pool"


def too_many_shares(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """Its config has more shares than the MPS daemon serves."""
    most = mps.max_clients(node.profile.compute_capability)
    if node.profile.strategy != "mps" or node.profile.replicas <= most:
        return None
    message = f"config {node.profile.config} has {node.profile.replicas} shares, the MPS daemon takes {most} a card"
    fit = [n for n, c in sorted(cluster.configs.items()) if c.strategy == "mps" and c.replicas <= most]
    config = fit[0] if fit else _exclusive(cluster)
    return message, f"kubectl label node {node.node.name} --overwrite {CONFIG_LABEL}={config}"


NODE_CHECKS: tuple[NodeCheck, ...] = (
    unknown_config,
    share_count,
    labels_disagree,
    daemon_kept_away,
    memory_unknown,
    mig_under_mps,
    qgpu_beside_mps,
    too_many_shares,
)


def _not_shared(node: Occupancy, cluster: Cluster) -> tuple[str, str] | None:
    """Sound, but whoever expects more shares wonders: the label beats a default that shares, or there is neither."""
    profile, name = node.profile, node.node.name
    sharing = sorted(n for n, c in cluster.configs.items() if c.strategy == "mps")
    if profile.strategy != "none" or profile.mig or profile.qgpu or not sharing:
        return None
    default = cluster.settings.default_config
    if CONFIG_LABEL not in node.node.labels:
        message = f"has no label {CONFIG_LABEL} and runs the default {profile.config}, which does not share"
        return f"{message}: 1 {profile.resource} a card", f"kubectl label node {name} {CONFIG_LABEL}={sharing[0]}"
    if profile.config != default and default in sharing:
        message = f"its label {CONFIG_LABEL}={profile.config} beats the default {default}"
        return f"{message}: 1 {profile.resource} a card", f"kubectl label node {name} {CONFIG_LABEL}-"
    return None


def _sound(node: Occupancy) -> str:
    profile = node.profile
    if profile.mig or profile.qgpu:
        return f"left to {'MIG' if profile.mig else 'qGPU'}; no share of MPS"
    shared = f"{node.cards} × {profile.replicas}"
    return f"config {profile.config}, {node.shares} {profile.resource} = {shared}, {profile.memory_mib}MiB a card"


def _exclusive(cluster: Cluster) -> str:
    return next((n for n, c in sorted(cluster.configs.items()) if c.strategy == "none"), "mps-1x")


def _restart(runtime: Runtime, node: str) -> str:
    selector = f"-l {POD_LABEL}={runtime.name} --field-selector spec.nodeName={node}"
    return f"kubectl -n {RUNTIME_NAMESPACE} delete pod {selector}"


def _pods_on(runtime: Runtime, node: str) -> str:
    selector = f"-l {POD_LABEL}={runtime.name} --field-selector spec.nodeName={node}"
    return f"kubectl -n {RUNTIME_NAMESPACE} describe pod {selector}"
