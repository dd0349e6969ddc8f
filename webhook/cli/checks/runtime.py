"""The GPU side: both DaemonSets, the ConfigMap, the default config."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.cli.checks.cluster import Cluster
from webhook.cli.checks.result import Result
from webhook.cli.installed import (
    DEVICE_PLUGIN,
    MPS_DAEMON,
    NAMESPACE,
    POD_LABEL,
    RUNTIME_NAMESPACE,
    SERVING,
    Runtime,
    at,
    configs_of,
    variables,
    webhook_default,
)
from webhook.cluster.objects import CannotLookError, Object
from webhook.policy.nodes import CONFIG_LABEL
from webhook.policy.occupancy import PRESENT_LABEL, Occupancy

_INSTALL = "kubectl apply -k deploy/mps-runtime  # on TKE install the nvidia-gpu add-on, 1.0.5 or newer, instead"


def daemon_sets(cluster: Cluster) -> Iterator[Result]:
    """Device plugin and MPS control daemon are there, under name and label, and ready."""
    for runtime in (DEVICE_PLUGIN, MPS_DAEMON):
        subject = f"DaemonSet {RUNTIME_NAMESPACE}/{runtime.name}"
        named = next((d for d in cluster.daemon_sets if at(d, "metadata").get("name") == runtime.name), None)
        labelled = [str(at(d, "metadata").get("name")) for d in cluster.daemon_sets if _label(d) == runtime.name]
        if named is None:
            other = f"; {labelled[0]} carries its label {POD_LABEL}" if labelled else ""
            yield Result("daemonsets", subject, "problem", f"does not exist{other}", _INSTALL)
        elif _label(named) != runtime.name:
            message = f"its pods lack the label {POD_LABEL}={runtime.name}, by which they are looked for"
            yield Result("daemonsets", subject, "problem", message, _INSTALL)
        else:
            yield _readiness(runtime, subject, named, _where_it_belongs(runtime, cluster))


def config_map(cluster: Cluster) -> Iterator[Result]:
    """Each key of the ConfigMap is a configuration that the device plugin starts with."""
    full_name = cluster.config_map_name
    namespace, _, name = full_name.partition("/")
    data = at(cluster.config_map, "data")
    if not data:
        message = "does not exist" if cluster.config_map is None else "has no config in it"
        yield Result("configs", f"ConfigMap {full_name}", "problem", message, _INSTALL)
    configs, problems = configs_of(cluster.config_map)
    for key, problem in problems.items():
        subject = f"ConfigMap {full_name}, key {key}"
        mend = f"kubectl -n {namespace} edit configmap {name}"
        yield Result("configs", subject, "problem", f"the device plugin would not start with it: {problem}", mend)
    for key, config in configs.items():
        shares = "not shared" if config.strategy == "none" else f"{config.strategy}, {config.replicas} shares a card"
        yield Result("configs", f"ConfigMap {full_name}, key {key}", "ok", shares)


def default_config(cluster: Cluster) -> Iterator[Result]:
    """Device plugin, MPS daemon and webhook take nodes without a label for the same config, and it exists."""
    found: dict[str, str] = {}
    for runtime in (DEVICE_PLUGIN, MPS_DAEMON):
        for daemon_set in cluster.daemon_sets:
            if at(daemon_set, "metadata").get("name") == runtime.name:
                found |= {value: runtime.name for value in variables(daemon_set, "DEFAULT_CONFIG") if value}
    subject = "DEFAULT_CONFIG"
    if not cluster.configs:
        return  # no default could exist; the check of the ConfigMap says what to do
    if not found:
        if "default" not in cluster.configs and cluster.daemon_sets:
            message = f"not set, and the ConfigMap has no key default: nodes without {CONFIG_LABEL} get no config"
            yield Result("default-config", subject, "hint", message, _set_default(next(iter(cluster.configs), "")))
        return
    runs = next(iter(found))
    if len(found) > 1:
        values = ", ".join(f"{value} ({owner})" for value, owner in found.items())
        message = f"differs from container to container: {values}"
        yield Result("default-config", subject, "problem", message, _set_default(runs))
    elif runs not in cluster.configs:
        message = f"{runs} is no key of the ConfigMap; there are {', '.join(sorted(cluster.configs))}"
        yield Result("default-config", subject, "problem", message, _set_default(next(iter(cluster.configs), "")))
    else:
        yield _agreement(cluster, subject, runs)


def _agreement(cluster: Cluster, subject: str, runs: str) -> Result:
    judged = webhook_default(cluster.objects)
    if judged is None or cluster.configs.get(judged) == cluster.configs[runs]:
        return Result("default-config", subject, "ok", f"nodes without {CONFIG_LABEL} run {runs}")
    return Result(
        "default-config",
        subject,
        "problem",
        f"nodes without {CONFIG_LABEL} run {runs}, but the webhook judges by {judged}",
        f"kubectl -n {NAMESPACE} set env deployment/{SERVING} MPS_WEBHOOK_DEFAULT_CONFIG={runs}",
    )


def _set_default(config: str) -> str:
    names = f"daemonset/{DEVICE_PLUGIN.name} daemonset/{MPS_DAEMON.name}"
    return f"kubectl -n {RUNTIME_NAMESPACE} set env {names} DEFAULT_CONFIG={config or 'mps-1x'}"


def _readiness(runtime: Runtime, subject: str, found: Object, belongs: int | None) -> Result:
    status = at(found, "status")
    wanted, ready, updated = (
        int(status.get(k) or 0) for k in ("desiredNumberScheduled", "numberReady", "updatedNumberScheduled")
    )
    if not wanted:
        return _nowhere(runtime, subject, belongs)
    if ready < wanted:
        return Result("daemonsets", subject, "problem", f"{ready} of {wanted} pods are ready", runtime.logs)
    if updated < wanted:
        message = f"{updated} of {wanted} pods run its current template, the others an older one"
        mend = f"kubectl -n {RUNTIME_NAMESPACE} rollout restart daemonset/{runtime.name}"
        return Result("daemonsets", subject, "problem", message, mend)
    return Result("daemonsets", subject, "ok", f"{ready} of {wanted} pods are ready; logs: {runtime.logs}")


def _nowhere(runtime: Runtime, subject: str, belongs: int | None) -> Result:
    if not belongs:
        why = "no GPU node" if runtime == DEVICE_PLUGIN else "no node shares with MPS"
        return Result("daemonsets", subject, "ok", f"runs on no node: {why}")
    label = PRESENT_LABEL if runtime == DEVICE_PLUGIN else "nvidia.com/mps.capable"
    message = f"runs on no node, but belongs on {belongs}"
    return Result("daemonsets", subject, "problem", message, f"kubectl label node NODE {label}=true")


def _where_it_belongs(runtime: Runtime, cluster: Cluster) -> int | None:
    """How many nodes it belongs on; None where nodes cannot be seen."""

    def wants(node: Occupancy) -> bool:
        return not node.profile.mig and (runtime == DEVICE_PLUGIN or node.profile.strategy == "mps")

    try:
        return sum(map(wants, cluster.nodes))
    except CannotLookError:
        return None


def _label(daemon_set: Object) -> object:
    return at(daemon_set, "spec", "template", "metadata", "labels").get(POD_LABEL)
