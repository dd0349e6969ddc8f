"""The device plugin and the MPS control daemon: names that people and tools know, and upstream's faults mended."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Object = dict[str, Any]
Objects = list[Object]
Render = Callable[[str | Path], Objects]
Find = Callable[[Objects, str, str], Object]

PLUGIN = "nvidia-device-plugin-daemonset"
DAEMON = "nvidia-mps-control-daemon"
CONFIGS = "nvidia-device-plugin-configs"


def environment(container: Object) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container.get("env", ())}


def containers(daemon_set: Object) -> dict[str, Object]:
    spec = daemon_set["spec"]["template"]["spec"]
    return {c["name"]: c for c in [*spec.get("initContainers", ()), *spec["containers"]]}


@pytest.mark.parametrize("name", [PLUGIN, DAEMON])
def test_found_as_the_documentation_says(runtime: Objects, find: Find, name: str) -> None:
    """`kubectl get ds NAME -n kube-system` and `kubectl get pods -n kube-system -l qcloud-app=NAME`."""
    daemon_set = find(runtime, "DaemonSet", name)
    assert daemon_set["metadata"]["namespace"] == "kube-system"
    assert daemon_set["spec"]["selector"]["matchLabels"] == {"qcloud-app": name}
    assert daemon_set["spec"]["template"]["metadata"]["labels"]["qcloud-app"] == name


@pytest.mark.parametrize(
    ("name", "init", "running"),
    [
        (PLUGIN, ["config-manager-init"], ["nvidia-device-plugin-ctr", "config-manager-sidecar"]),
        (DAEMON, ["mount-shm", "config-manager-init"], ["mps-control-daemon-ctr", "config-manager-sidecar"]),
    ],
)
def test_logs_are_found_by_container(
    runtime: Objects, find: Find, name: str, init: list[str], running: list[str]
) -> None:
    """`kubectl logs -c NAME`; without -c the first one, which is the one that matters."""
    spec = find(runtime, "DaemonSet", name)["spec"]["template"]["spec"]
    assert [c["name"] for c in spec["initContainers"]] == init
    assert [c["name"] for c in spec["containers"]] == running


def test_no_two_share_labels(render: Render) -> None:
    labels = [
        o["spec"]["template"]["metadata"]["labels"]["qcloud-app"]
        for o in render("deploy/overlays/gpu-feature-discovery")
        if o["kind"] == "DaemonSet"
    ]
    assert sorted(labels) == ["gpu-feature-discovery", PLUGIN, DAEMON]


@pytest.mark.parametrize(
    ("name", "main"),
    [
        (PLUGIN, "nvidia-device-plugin-ctr"),
        (DAEMON, "mps-control-daemon-ctr"),
        ("gpu-feature-discovery", "gpu-feature-discovery-ctr"),
    ],
)
def test_the_sidecar_signals_the_process_that_runs(render: Render, find: Find, name: str, main: str) -> None:
    """The config manager compares with argv[0] as a whole, and has to see the process."""
    daemon_set = find(render("deploy/overlays/gpu-feature-discovery"), "DaemonSet", name)
    by_name = containers(daemon_set)
    sidecar = environment(by_name["config-manager-sidecar"])
    assert by_name[main]["command"] == [sidecar["PROCESS_TO_SIGNAL"]]
    assert (sidecar["SEND_SIGNAL"], sidecar["SIGNAL"], sidecar["ONESHOT"]) == ("true", "1", "false")
    init = environment(by_name["config-manager-init"])
    assert (init["SEND_SIGNAL"], init["ONESHOT"]) == ("false", "true")
    spec = daemon_set["spec"]["template"]["spec"]
    assert bool(spec.get("shareProcessNamespace")) != bool(spec.get("hostPID"))
    privileged = by_name[main]["securityContext"].get("privileged", False)
    assert by_name["config-manager-sidecar"]["securityContext"].get("privileged", False) == privileged


@pytest.mark.parametrize("name", [PLUGIN, DAEMON])
@pytest.mark.parametrize("manager", ["config-manager-init", "config-manager-sidecar"])
def test_config_managers_read_what_the_main_container_reads(
    runtime: Objects, find: Find, name: str, manager: str
) -> None:
    by_name = containers(find(runtime, "DaemonSet", name))
    env = environment(by_name[manager])
    assert env["NODE_LABEL"] == "nvidia.com/device-plugin.config"
    assert env["NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert env["KUBECONFIG"] is None, "set, and empty: the pod's own account"
    assert env["CONFIG_FILE_SRCDIR"] == "/available-configs"
    assert env["FALLBACK_STRATEGIES"] == "named,single"
    assert by_name[manager]["command"] == ["config-manager"]
    main = next(c for n, c in by_name.items() if n.endswith("-ctr"))
    assert environment(main)["CONFIG_FILE"] == env["CONFIG_FILE_DST"] == "/config/config.yaml"
    mounts = {m["name"]: m["mountPath"] for m in main["volumeMounts"]}
    # The link in /config points into /available-configs: both are needed, in the same places.
    for volume, path in (("available-configs", "/available-configs"), ("config", "/config")):
        assert mounts[volume] == path
        assert {m["name"]: m["mountPath"] for m in by_name[manager]["volumeMounts"]}[volume] == path


def test_a_default_is_always_there(runtime: Objects, find: Find) -> None:
    data = find(runtime, "ConfigMap", CONFIGS)["data"]
    assert "default" in data
    for name in (PLUGIN, DAEMON):
        for manager in ("config-manager-init", "config-manager-sidecar"):
            env = environment(containers(find(runtime, "DaemonSet", name))[manager])
            assert env["DEFAULT_CONFIG"] in data


def test_mps_parts_meet_in_the_same_folders(runtime: Objects, find: Find) -> None:
    host = {"mps-root": "/run/nvidia/mps", "mps-shm": "/run/nvidia/mps/shm"}
    for name, main in ((PLUGIN, "nvidia-device-plugin-ctr"), (DAEMON, "mps-control-daemon-ctr")):
        daemon_set = find(runtime, "DaemonSet", name)
        volumes = {v["name"]: v for v in daemon_set["spec"]["template"]["spec"]["volumes"]}
        assert {v: volumes[v]["hostPath"]["path"] for v in host} == host
        mounts = {m["name"]: m["mountPath"] for m in containers(daemon_set)[main]["volumeMounts"]}
        assert (mounts["mps-root"], mounts["mps-shm"]) == ("/mps", "/dev/shm")
    plugin = containers(find(runtime, "DaemonSet", PLUGIN))["nvidia-device-plugin-ctr"]
    assert environment(plugin)["MPS_ROOT"] == host["mps-root"]


def test_shared_memory_is_mounted_on_the_host(runtime: Objects, find: Find) -> None:
    mount = containers(find(runtime, "DaemonSet", DAEMON))["mount-shm"]
    assert mount["command"] == ["mps-control-daemon", "mount-shm"]
    assert mount["securityContext"] == {"privileged": True}
    assert mount["volumeMounts"] == [{"name": "mps-root", "mountPath": "/mps", "mountPropagation": "Bidirectional"}]


def test_where_they_run(runtime: Objects, find: Find) -> None:
    plugin, daemon = (find(runtime, "DaemonSet", n)["spec"]["template"]["spec"] for n in (PLUGIN, DAEMON))
    assert daemon["nodeSelector"] == {"nvidia.com/mps.capable": "true"}
    assert "nodeSelector" not in plugin
    for spec in (plugin, daemon):
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [(t["matchExpressions"][0]["key"], t["matchExpressions"][0]["values"]) for t in terms] == [
            ("feature.node.kubernetes.io/pci-10de.present", ["true"]),
            ("feature.node.kubernetes.io/cpu-model.vendor_id", ["NVIDIA"]),
            ("nvidia.com/gpu.present", ["true"]),
        ]
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
        assert spec["priorityClassName"] == "system-node-critical"


def test_rights(runtime: Objects) -> None:
    rules = [o["rules"] for o in runtime if o["kind"] in ("Role", "ClusterRole")]
    assert rules == [[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]]


def test_rights_of_feature_discovery(render: Render, find: Find) -> None:
    objects = render("deploy/overlays/gpu-feature-discovery")
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    assert find(objects, "ClusterRole", "gpu-feature-discovery")["rules"] == [nodes]
    assert find(objects, "Role", "gpu-feature-discovery")["rules"] == [
        {
            "apiGroups": ["nfd.k8s-sigs.io"],
            "resources": ["nodefeatures"],
            "verbs": ["get", "list", "watch", "create", "update"],
        },
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]


def test_feature_discovery_says_what_it_needs(root: Path) -> None:
    text = (root / "deploy/components/gpu-feature-discovery/kustomization.yaml").read_text()
    assert "IT NEEDS node-feature-discovery" in text


@pytest.mark.parametrize(
    ("key", "strategy", "replicas"),
    [("default", "none", 1), ("mps-1x", "none", 1), ("mps-2x", "mps", 2), ("mps-4x", "mps", 4)],
)
def test_configs_parse_as_the_device_plugin_parses_them(
    runtime: Objects, find: Find, key: str, strategy: str, replicas: int
) -> None:
    from webhook.policy import parse_config

    config = parse_config(find(runtime, "ConfigMap", CONFIGS)["data"][key])
    assert (config.strategy, config.replicas, config.resource) == (strategy, replicas, "nvidia.com/gpu")
    assert config.fail_greater_than_one is (strategy == "mps")


def test_no_other_configs(runtime: Objects, find: Find) -> None:
    configs = find(runtime, "ConfigMap", CONFIGS)
    assert configs["metadata"]["namespace"] == "kube-system"
    assert sorted(configs["data"]) == ["default", "mps-1x", "mps-2x", "mps-4x"]


def checksums(objects: Objects, annotation: str) -> set[str]:
    return {
        o["spec"]["template"]["metadata"]["annotations"][annotation]
        for o in objects
        if annotation in o.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
    }


@pytest.mark.parametrize(
    ("edited", "annotation", "count"),
    [
        ("mps-runtime/configs/mps-4x.yaml", "configs-checksum", 2),
        ("webhook/serving/settings.yaml", "settings-checksum", 1),
    ],
)
def test_an_edit_rolls_the_pods_under_a_stable_name(
    render: Render, root: Path, tmp_path: Path, edited: str, annotation: str, count: int
) -> None:
    shutil.copytree(root / "deploy", tmp_path / "deploy")
    path = tmp_path / "deploy" / edited
    path.write_text(path.read_text() + "# edited\n")
    before, after = render("deploy"), render(tmp_path / "deploy")
    old, new = checksums(before, annotation), checksums(after, annotation)
    assert len(old) == len(new) == 1
    assert old != new
    carriers = [
        o
        for o in after
        if annotation in o.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
    ]
    assert len(carriers) == count

    def names(objects: Objects) -> list[str]:
        return [o["metadata"]["name"] for o in objects]

    assert names(before) == names(after)


def test_the_default_config_reaches_all_from_one_edit(render: Render, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "deploy", tmp_path / "deploy")
    path = tmp_path / "deploy/components/default-config/default-config.yaml"
    path.write_text(path.read_text().replace("default-config: mps-1x", "default-config: mps-2x"))
    values = []
    for obj in render(tmp_path / "deploy"):
        if obj["kind"] in ("DaemonSet", "Deployment"):
            for container in containers(obj).values():
                env = environment(container)
                values += [env[n] for n in ("DEFAULT_CONFIG", "MPS_WEBHOOK_DEFAULT_CONFIG") if n in env]
    assert values == ["mps-2x"] * 5
