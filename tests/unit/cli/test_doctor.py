"""One fault a test: doctor finds it, says it word for word, and names the command that mends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs import Authority
from tests.builders import LIMIT, PodBuilder, mig_node, pod
from tests.unit.cli.cluster import OTHER, Sound, bound, encoded, gpu_node
from webhook.cli.checks import CHECKS
from webhook.cli.checks.result import Result
from webhook.cli.doctor import render

Fault = Callable[[Sound], object]

CONFIG_LABEL = "nvidia.com/device-plugin.config"
PLUGIN = "nvidia-device-plugin-daemonset"
DAEMON = "nvidia-mps-control-daemon"
INSTALL = "kubectl apply -k deploy/mps-runtime  # on TKE install the nvidia-gpu add-on, 1.0.5 or newer, instead"
INSTALL_WEBHOOK = "kubectl apply -k deploy/webhook"
CERTS = "kubectl -n mps-system rollout restart deployment/mps-webhook-certs"
SECRET = "Secret mps-system/mps-webhook-tls"


def test_a_sound_installation_is_in_order(sound: Sound) -> None:
    done = sound.run("doctor", "-o", "json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert {r["status"] for r in found} == {"ok", "skipped"}
    assert {r["check"] for r in found} == set(CHECKS)


def test_every_object_says_what_was_looked_at_and_where_the_logs_are(sound: Sound) -> None:
    lines = sound.run("doctor").stdout.splitlines()
    logs = f"kubectl -n kube-system logs -l qcloud-app={DAEMON} -c mps-control-daemon-ctr"
    assert f"✓ daemonsets      DaemonSet kube-system/{DAEMON}: 2 of 2 pods are ready; logs: {logs}" in lines
    assert "✓ nodes           Node t4-b: config mps-2x, 4 nvidia.com/gpu = 2 × 2, 15360MiB a card" in lines
    assert "- canary          Dry-run pods: there is no API server to ask, only files" in lines
    assert lines[-1] == "1 skipped, 19 in order"


def _status(kind: str, name: str, **status: int) -> Fault:
    return lambda sound: sound.find(kind, name)["status"].update(status)


def _labels(node: str, **labels: str | None) -> Fault:
    """Change labels below nvidia.com, None removes; dashes and dots in keyword form."""

    def break_(sound: Sound) -> None:
        own = sound.find("Node", node)["metadata"]["labels"]
        for key, value in labels.items():
            name = "nvidia.com/" + key.replace("__", "-").replace("_", ".")
            own.pop(name, None)
            own.update({} if value is None else {name: value})

    return break_


def _all(*faults: Fault) -> Fault:
    return lambda sound: [fault(sound) for fault in faults]


def _config(key: str, text: str) -> Fault:
    return lambda sound: sound.find("ConfigMap", "nvidia-device-plugin-configs")["data"].update({key: text})


def _default(kind: str, name: str, value: str) -> Fault:
    return lambda sound: sound.set_default(kind, name, value)


def _only_node(**node: object) -> Fault:
    """One node in place of the two."""

    def break_(sound: Sound) -> None:
        sound.remove("Node", "t4-a")
        sound.remove("Node", "t4-b")
        sound.add(gpu_node("n", **node))  # type: ignore[arg-type]

    return break_


def _running(made: PodBuilder, node: str = "t4-a", name: str = "p") -> Fault:
    return lambda sound: sound.add(bound(made, node, name))


def _hook(kind: str, name: str = "pods.mps.nvidia.com", **fields: object) -> Fault:
    return lambda sound: sound.webhook(kind, name).update(fields)


def _bundle(kind: str, bundle: bytes) -> Fault:
    return lambda sound: sound.webhook(kind)["clientConfig"].update(caBundle=encoded(bundle))


def _unlabel_pods(sound: Sound) -> None:
    del sound.find("DaemonSet", PLUGIN)["spec"]["template"]["metadata"]["labels"]["qcloud-app"]


def _rename_daemon(sound: Sound) -> None:
    sound.find("DaemonSet", DAEMON)["metadata"]["name"] = "mps"


RUNTIME = [
    pytest.param(
        lambda s: s.remove("DaemonSet", PLUGIN),
        ("daemonsets", f"DaemonSet kube-system/{PLUGIN}", "problem", "does not exist", INSTALL),
        id="no-device-plugin",
    ),
    pytest.param(
        _rename_daemon,
        (
            "daemonsets",
            f"DaemonSet kube-system/{DAEMON}",
            "problem",
            "does not exist; mps carries its label qcloud-app",
            INSTALL,
        ),
        id="mps-daemon-under-another-name",
    ),
    pytest.param(
        _unlabel_pods,
        (
            "daemonsets",
            f"DaemonSet kube-system/{PLUGIN}",
            "problem",
            f"its pods lack the label qcloud-app={PLUGIN}, by which they are looked for",
            INSTALL,
        ),
        id="pods-without-label",
    ),
    pytest.param(
        _status("DaemonSet", DAEMON, numberReady=1),
        (
            "daemonsets",
            f"DaemonSet kube-system/{DAEMON}",
            "problem",
            "1 of 2 pods are ready",
            f"kubectl -n kube-system logs -l qcloud-app={DAEMON} -c mps-control-daemon-ctr",
        ),
        id="mps-daemon-not-ready",
    ),
    pytest.param(
        _status("DaemonSet", PLUGIN, updatedNumberScheduled=1),
        (
            "daemonsets",
            f"DaemonSet kube-system/{PLUGIN}",
            "problem",
            "1 of 2 pods run its current template, the others an older one",
            f"kubectl -n kube-system rollout restart daemonset/{PLUGIN}",
        ),
        id="stuck-rollout",
    ),
    pytest.param(
        _status("DaemonSet", PLUGIN, desiredNumberScheduled=0),
        (
            "daemonsets",
            f"DaemonSet kube-system/{PLUGIN}",
            "problem",
            "runs on no node, but belongs on 2",
            "kubectl label node NODE nvidia.com/gpu.present=true",
        ),
        id="device-plugin-nowhere",
    ),
    pytest.param(
        _status("DaemonSet", DAEMON, desiredNumberScheduled=0),
        (
            "daemonsets",
            f"DaemonSet kube-system/{DAEMON}",
            "problem",
            "runs on no node, but belongs on 2",
            "kubectl label node NODE nvidia.com/mps.capable=true",
        ),
        id="mps-daemon-nowhere",
    ),
    pytest.param(
        _config("mps-8x", "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}"),
        (
            "configs",
            "ConfigMap kube-system/nvidia-device-plugin-configs, key mps-8x",
            "problem",
            (
                "the device plugin would not start with it: number of replicas must be >= 2 "
                "(leave sharing out for one pod a card)"
            ),
            "kubectl -n kube-system edit configmap nvidia-device-plugin-configs",
        ),
        id="config-with-one-replica",
    ),
    pytest.param(
        _all(_default("DaemonSet", PLUGIN, "mps-3x"), _default("DaemonSet", DAEMON, "mps-3x")),
        (
            "default-config",
            "DEFAULT_CONFIG",
            "problem",
            "mps-3x is no key of the ConfigMap; there are default, mps-1x, mps-2x, mps-4x",
            f"kubectl -n kube-system set env daemonset/{PLUGIN} daemonset/{DAEMON} DEFAULT_CONFIG=default",
        ),
        id="default-is-no-config",
    ),
    pytest.param(
        _all(
            _default("DaemonSet", PLUGIN, ""),
            _default("DaemonSet", DAEMON, ""),
            lambda s: s.find("ConfigMap", "nvidia-device-plugin-configs")["data"].pop("default"),
        ),
        (
            "default-config",
            "DEFAULT_CONFIG",
            "hint",
            f"not set, and the ConfigMap has no key default: nodes without {CONFIG_LABEL} get no config",
            f"kubectl -n kube-system set env daemonset/{PLUGIN} daemonset/{DAEMON} DEFAULT_CONFIG=mps-1x",
        ),
        id="no-default",
    ),
    pytest.param(
        lambda s: s.remove("ConfigMap", "nvidia-device-plugin-configs"),
        (
            "configs",
            "ConfigMap kube-system/nvidia-device-plugin-configs",
            "problem",
            "does not exist",
            INSTALL,
        ),
        id="no-config-map",
    ),
    pytest.param(
        _default("DaemonSet", DAEMON, "mps-4x"),
        (
            "default-config",
            "DEFAULT_CONFIG",
            "problem",
            f"differs from container to container: mps-1x ({PLUGIN}), mps-4x ({DAEMON})",
            f"kubectl -n kube-system set env daemonset/{PLUGIN} daemonset/{DAEMON} DEFAULT_CONFIG=mps-1x",
        ),
        id="two-defaults",
    ),
    pytest.param(
        _default("Deployment", "mps-webhook", "mps-4x"),
        (
            "default-config",
            "DEFAULT_CONFIG",
            "problem",
            f"nodes without {CONFIG_LABEL} run mps-1x, but the webhook judges by mps-4x",
            "kubectl -n mps-system set env deployment/mps-webhook MPS_WEBHOOK_DEFAULT_CONFIG=mps-1x",
        ),
        id="webhook-judges-by-another-default",
    ),
]

NODES = [
    pytest.param(
        _labels("t4-a", device__plugin_config="mps-5x"),
        (
            "nodes",
            "Node t4-a",
            "problem",
            (
                f"its label {CONFIG_LABEL} names mps-5x, which is no key of the ConfigMap; "
                "there are default, mps-1x, mps-2x, mps-4x"
            ),
            f"kubectl label node t4-a --overwrite {CONFIG_LABEL}=mps-4x",
        ),
        id="unknown-config",
    ),
    pytest.param(
        lambda s: s.find("Node", "t4-b")["status"]["allocatable"].update({"nvidia.com/gpu": "2"}),
        (
            "nodes",
            "Node t4-b",
            "problem",
            (
                "shows 2 nvidia.com/gpu, config mps-2x makes 2 cards × 2 = 4: the device plugin has not loaded the "
                "config, or counts a card as unhealthy"
            ),
            f"kubectl -n kube-system delete pod -l qcloud-app={PLUGIN} --field-selector spec.nodeName=t4-b",
        ),
        id="unchanged-count-config-not-loaded",
    ),
    pytest.param(
        lambda s: s.find("Node", "t4-a")["status"]["allocatable"].pop("nvidia.com/gpu"),
        (
            "nodes",
            "Node t4-a",
            "problem",
            "shows no nvidia.com/gpu: the device plugin does not run there, or fails",
            f"kubectl -n kube-system describe pod -l qcloud-app={PLUGIN} --field-selector spec.nodeName=t4-a",
        ),
        id="no-gpus-shown",
    ),
    pytest.param(
        _only_node(config=None),
        (
            "nodes",
            "Node n",
            "hint",
            f"has no label {CONFIG_LABEL} and runs the default mps-1x, which does not share: 1 nvidia.com/gpu a card",
            f"kubectl label node n {CONFIG_LABEL}=mps-2x",
        ),
        id="unchanged-count-default-does-not-share",
    ),
    pytest.param(
        _all(
            _only_node(config="mps-1x"),
            _default("DaemonSet", PLUGIN, "mps-4x"),
            _default("DaemonSet", DAEMON, "mps-4x"),
            _default("Deployment", "mps-webhook", "mps-4x"),
        ),
        (
            "nodes",
            "Node n",
            "hint",
            f"its label {CONFIG_LABEL}=mps-1x beats the default mps-4x: 1 nvidia.com/gpu a card",
            f"kubectl label node n {CONFIG_LABEL}-",
        ),
        id="unchanged-count-label-beats-default",
    ),
    pytest.param(
        _labels("t4-a", gpu_replicas="2"),
        (
            "nodes",
            "Node t4-a",
            "problem",
            (
                "nvidia.com/gpu.replicas is 2, the configuration says 4 (mps-4x): the node is switching, or a "
                "component is stuck"
            ),
            "kubectl -n kube-system delete pod -l qcloud-app=gpu-feature-discovery --field-selector spec.nodeName=t4-a",
        ),
        id="labels-disagree",
    ),
    pytest.param(
        _labels("t4-a", mps_capable=None),
        (
            "nodes",
            "Node t4-a",
            "problem",
            "config mps-4x shares with MPS, but without nvidia.com/mps.capable=true no MPS daemon runs there",
            "kubectl label node t4-a --overwrite nvidia.com/mps.capable=true",
        ),
        id="not-mps-capable",
    ),
    pytest.param(
        _labels("t4-a", gpu_memory=None),
        (
            "nodes",
            "Node t4-a",
            "problem",
            (
                "its cards' memory is not known (no nvidia.com/gpu.memory, not in the setting gpu_memory): "
                "no budget is checked"
            ),
            "kubectl label node t4-a nvidia.com/gpu.memory=MIB_OF_ONE_CARD",
        ),
        id="memory-unknown",
    ),
    pytest.param(
        lambda s: s.find("Node", "t4-a")["status"]["allocatable"].update(
            {"tke.cloud.tencent.com/qgpu-core": "100", "tke.cloud.tencent.com/qgpu-memory": "15"}
        ),
        (
            "nodes",
            "Node t4-a",
            "problem",
            (
                "offers tke.cloud.tencent.com/qgpu-core, tke.cloud.tencent.com/qgpu-memory: qGPU and MPS exclude each "
                "other on a node"
            ),
            "kubectl label node t4-a qgpu-device-enable-  # and in its node pool",
        ),
        id="qgpu",
    ),
    pytest.param(
        lambda s: s.find("Node", "t4-a")["status"]["allocatable"].update({"nvidia.com/mig-1g.5gb": "7"}),
        (
            "nodes",
            "Node t4-a",
            "problem",
            "its cards are cut by MIG, and config mps-4x shares with MPS: the device plugin refuses",
            f"kubectl label node t4-a --overwrite {CONFIG_LABEL}=default",
        ),
        id="mig",
    ),
    pytest.param(
        _all(
            _config("mps-20x", "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 20}]}}"),
            _labels(
                "t4-a", device__plugin_config="mps-20x", gpu_replicas="20", gpu_compute_major="7", gpu_compute_minor="0"
            ),
            lambda s: s.find("Node", "t4-a")["status"]["allocatable"].update({"nvidia.com/gpu": "20"}),
        ),
        (
            "nodes",
            "Node t4-a",
            "problem",
            "config mps-20x has 20 shares, the MPS daemon takes 16 a card",
            f"kubectl label node t4-a --overwrite {CONFIG_LABEL}=mps-2x",
        ),
        id="more-shares-than-clients",
    ),
    pytest.param(
        lambda s: [s.remove("Node", "t4-a"), s.remove("Node", "t4-b")],
        (
            "nodes",
            "GPU nodes",
            "hint",
            "none offers a GPU or is labelled as having one",
            f"kubectl -n kube-system get pods -l qcloud-app={PLUGIN} -o wide",
        ),
        id="no-gpu-nodes",
    ),
]

PODS = [
    pytest.param(
        _running(pod().gpu().env(LIMIT, "0=5120M")),
        (
            "promises",
            "Pod team-a/p (app) on t4-a",
            "problem",
            (
                "limit 5Gi × 4 shares = 20480MiB, a card of config mps-4x has 15360MiB: CUDA_ERROR_OUT_OF_MEMORY for "
                "it or its neighbours"
            ),
            "kubectl -n team-a delete pod p  # then create it again with mps.nvidia.com/memory-limit: 3840Mi",
        ),
        id="limit-over-budget",
    ),
    pytest.param(
        _running(pod().gpu().env(LIMIT, "4G")),
        (
            "promises",
            "Pod team-a/p (app) on t4-a",
            "problem",
            f"its {LIMIT} is of a form that MPS ignores, and then no limit holds at all",
            "kubectl -n team-a delete pod p  # then create it again: the webhook mends the form or says what it is",
        ),
        id="limit-ignored",
    ),
    pytest.param(
        _running(pod().gpu().memory("3Gi")),
        (
            "promises",
            "Pod team-a/p (app) on t4-a",
            "problem",
            "asks for 3Gi, but was created past the webhook: the limit is not in force",
            "kubectl -n team-a delete pod p  # then create it again",
        ),
        id="created-past-the-webhook",
    ),
]

ADMISSION = [
    pytest.param(
        lambda s: s.remove("ConfigMap", "mps-webhook-settings"),
        (
            "settings",
            "ConfigMap mps-system/mps-webhook-settings",
            "problem",
            "does not exist: the webhook does not start without it",
            INSTALL_WEBHOOK,
        ),
        id="no-settings",
    ),
    pytest.param(
        lambda s: s.settings("placment: deny"),
        (
            "settings",
            "ConfigMap mps-system/mps-webhook-settings",
            "problem",
            "the webhook does not start with it: placment: Extra inputs are not permitted",
            "kubectl -n mps-system edit configmap mps-webhook-settings",
        ),
        id="unknown-setting",
    ),
    pytest.param(
        lambda s: s.settings("- placement"),
        (
            "settings",
            "ConfigMap mps-system/mps-webhook-settings",
            "problem",
            "the webhook does not start with it: not a map of settings",
            "kubectl -n mps-system edit configmap mps-webhook-settings",
        ),
        id="settings-no-map",
    ),
    pytest.param(
        lambda s: s.remove("Deployment", "mps-webhook"),
        ("deployments", "Deployment mps-system/mps-webhook", "problem", "does not exist", INSTALL_WEBHOOK),
        id="not-deployed",
    ),
    pytest.param(
        _status("Deployment", "mps-webhook", readyReplicas=1),
        (
            "deployments",
            "Deployment mps-system/mps-webhook",
            "problem",
            "1 of 2 pods are ready",
            "kubectl -n mps-system logs deployment/mps-webhook",
        ),
        id="not-ready",
    ),
    pytest.param(
        lambda s: s.remove("MutatingWebhookConfiguration", "mps-webhook"),
        (
            "configurations",
            "MutatingWebhookConfiguration mps-webhook",
            "problem",
            "does not exist: the API server does not ask the webhook",
            INSTALL_WEBHOOK,
        ),
        id="no-configuration",
    ),
    pytest.param(
        lambda s: s.find("ValidatingWebhookConfiguration", "mps-webhook")["webhooks"].pop(),
        (
            "configurations",
            "ValidatingWebhookConfiguration mps-webhook",
            "problem",
            "workloads.mps.nvidia.com is missing",
            INSTALL_WEBHOOK,
        ),
        id="a-webhook-missing",
    ),
    pytest.param(
        _hook("MutatingWebhookConfiguration", failurePolicy="Ignore"),
        (
            "configurations",
            "MutatingWebhookConfiguration mps-webhook",
            "problem",
            (
                "pods.mps.nvidia.com: failurePolicy is Ignore, shipped is Fail: while the webhook is down, pods pass "
                "unchecked"
            ),
            INSTALL_WEBHOOK,
        ),
        id="failure-policy-ignore",
    ),
    pytest.param(
        _hook("ValidatingWebhookConfiguration", "workloads.mps.nvidia.com", failurePolicy="Fail"),
        (
            "configurations",
            "ValidatingWebhookConfiguration mps-webhook",
            "problem",
            (
                "workloads.mps.nvidia.com: failurePolicy is Fail, shipped is Ignore: while the webhook is down, "
                "workloads are refused"
            ),
            INSTALL_WEBHOOK,
        ),
        id="failure-policy-fail",
    ),
    pytest.param(
        _hook("MutatingWebhookConfiguration", namespaceSelector={"matchLabels": {"mps": "on"}}),
        (
            "configurations",
            "MutatingWebhookConfiguration mps-webhook",
            "problem",
            "pods.mps.nvidia.com: namespaceSelector is not as shipped, which leaves out kube-system, mps-system alone",
            INSTALL_WEBHOOK,
        ),
        id="namespace-selector",
    ),
    pytest.param(
        _hook("ValidatingWebhookConfiguration", objectSelector={"matchLabels": {"mps": "on"}}),
        (
            "configurations",
            "ValidatingWebhookConfiguration mps-webhook",
            "problem",
            "pods.mps.nvidia.com: an objectSelector lets pods opt out by their labels; shipped is none",
            INSTALL_WEBHOOK,
        ),
        id="object-selector",
    ),
    pytest.param(
        _hook("ValidatingWebhookConfiguration", matchConditions=[{"name": "uses-a-gpu-or-mps", "expression": "false"}]),
        (
            "configurations",
            "ValidatingWebhookConfiguration mps-webhook",
            "problem",
            "pods.mps.nvidia.com: matchConditions are not those of this version (uses-a-gpu-or-mps)",
            INSTALL_WEBHOOK,
        ),
        id="match-conditions",
    ),
    pytest.param(
        _hook("MutatingWebhookConfiguration", rules=[]),
        (
            "configurations",
            "MutatingWebhookConfiguration mps-webhook",
            "problem",
            (
                "pods.mps.nvidia.com: its rules are not those shipped, so some objects are never sent to the webhook, "
                "or too many"
            ),
            INSTALL_WEBHOOK,
        ),
        id="rules",
    ),
    pytest.param(
        lambda s: s.webhook("MutatingWebhookConfiguration")["clientConfig"]["service"].update(name="other"),
        (
            "configurations",
            "MutatingWebhookConfiguration mps-webhook",
            "problem",
            "pods.mps.nvidia.com: it calls mps-system/other/mutate, shipped is mps-system/mps-webhook/mutate",
            INSTALL_WEBHOOK,
        ),
        id="another-service",
    ),
    pytest.param(
        _bundle("MutatingWebhookConfiguration", OTHER.pair.authorities),
        (
            "ca-bundle",
            "MutatingWebhookConfiguration mps-webhook, pods.mps.nvidia.com",
            "problem",
            f"caBundle does not lead to the certificate in {SECRET}: every call fails",
            CERTS,
        ),
        id="bundle-of-another-authority",
    ),
    pytest.param(
        _bundle("MutatingWebhookConfiguration", b""),
        (
            "ca-bundle",
            "MutatingWebhookConfiguration mps-webhook, pods.mps.nvidia.com",
            "problem",
            "caBundle is empty: the API server trusts no certificate of the webhook, every call fails",
            CERTS,
        ),
        id="bundle-empty",
    ),
]


@pytest.mark.parametrize(("fault", "expected"), [*RUNTIME, *NODES, *PODS, *ADMISSION])
def test_a_fault_is_found_with_its_mend(sound: Sound, fault: Fault, expected: tuple[str, ...]) -> None:
    fault(sound)
    done = sound.run("doctor", "-o", "json")
    found = [tuple(r.values()) for r in json.loads(done.stdout) if r["status"] not in ("ok", "skipped")]
    assert found == [expected]
    assert done.exit_code == (1 if expected[2] == "problem" else 0)


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        pytest.param({"tls.crt": OTHER.pair.certificate}, "tls.key is not the key of tls.crt", id="another-key"),
        pytest.param({"tls.crt": b""}, "tls.crt is empty", id="no-certificate"),
        pytest.param(
            {"ca.crt": OTHER.pair.authorities},
            "tls.crt does not chain to a valid certificate of ca.crt",
            id="another-authority",
        ),
    ],
)
def test_a_faulty_pair_is_found(sound: Sound, secret: dict[str, bytes], message: str) -> None:
    sound.find("Secret", "mps-webhook-tls")["data"].update({k: encoded(v) for k, v in secret.items()})
    assert {"check": "certificate", "subject": SECRET, "status": "problem", "message": message, "mend": CERTS} in (
        sound.doctor()
    )


def test_a_broken_pair_leaves_the_bundles_uncompared(sound: Sound) -> None:
    del sound.find("Secret", "mps-webhook-tls")["data"]["tls.key"]
    found = sound.doctor()
    assert found[0]["message"] == "tls.key is missing"
    assert {r["message"] for r in found[1:]} == {
        "its caBundle cannot be compared, the certificate itself is not in order"
    }


def test_the_mps_daemon_runs_nowhere_where_nobody_shares(sound: Sound) -> None:
    _only_node(config="mps-1x")(sound)
    sound.find("DaemonSet", DAEMON)["status"]["desiredNumberScheduled"] = 0
    assert [r["status"] for r in sound.doctor()] == []
    assert "nvidia-mps-control-daemon: runs on no node: no node shares with MPS" in sound.run("doctor").stdout


def test_a_secret_that_is_not_there(sound: Sound) -> None:
    sound.remove("Secret", "mps-webhook-tls")
    found = sound.doctor()
    assert found[0]["message"] == "does not exist: the serving pods wait for it"
    assert found[1]["message"] == f"there is no certificate to compare its caBundle with: {SECRET} does not exist"


def _issue(sound: Sound, issued_ago: timedelta) -> None:
    then = datetime.now(UTC) - issued_ago
    authority = Authority.new("ca", lifetime=timedelta(days=365), now=then)
    pair = authority.issue(["mps-webhook.mps-system.svc"], lifetime=timedelta(days=90), now=then)
    parts = {"tls.crt": pair.certificate, "tls.key": pair.private_key, "ca.crt": pair.authorities}
    sound.find("Secret", "mps-webhook-tls")["data"] = {k: encoded(v) for k, v in parts.items()}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for webhook in sound.find(kind, "mps-webhook")["webhooks"]:
            webhook["clientConfig"]["caBundle"] = encoded(pair.authorities)


@pytest.mark.parametrize(
    ("days", "status", "message"),
    [
        pytest.param(59, "ok", "30 days left, to be renewed on ", id="young"),
        pytest.param(62, "problem", "27 days left, and it was to be renewed on ", id="overdue"),
        pytest.param(91, "problem", "tls.crt has expired at ", id="expired"),
    ],
)
def test_the_days_a_certificate_has_left(sound: Sound, days: int, status: str, message: str) -> None:
    _issue(sound, timedelta(days=days, hours=1))
    found = json.loads(sound.run("doctor", "-o", "json").stdout)
    (certificate,) = [r for r in found if r["check"] == "certificate"]
    assert certificate["status"] == status
    assert certificate["message"].startswith(message)


def test_cert_manager_is_told_apart(sound: Sound) -> None:
    sound.remove("Deployment", "mps-webhook-certs")
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = {"cert-manager.io/inject-ca-from": "mps-system/mps-webhook"}
        sound.find(kind, "mps-webhook")["metadata"]["annotations"] = annotations
    assert sound.doctor() == []
    _bundle("MutatingWebhookConfiguration", b"")(sound)
    assert sound.doctor()[0]["mend"] == "kubectl -n mps-system describe certificate mps-webhook"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: mig_node("other"), "left to MIG; no share of MPS", id="mig"),
        pytest.param(
            lambda: gpu_node(
                "other",
                config=None,
                allocatable={"nvidia.com/gpu": "0", "tke.cloud.tencent.com/qgpu-core": "100"},
            ),
            "left to qGPU; no share of MPS",
            id="qgpu",
        ),
    ],
)
def test_nodes_left_to_other_ways_of_sharing_are_sound(
    sound: Sound, make: Callable[[], dict[str, object]], message: str
) -> None:
    sound.add(make())
    found = json.loads(sound.run("doctor", "-o", "json").stdout)
    assert [r["message"] for r in found if r["subject"] == "Node other"] == [message]


def test_the_setting_gpu_memory_of_the_cluster_makes_memory_known(sound: Sound) -> None:
    _labels("t4-a", gpu_memory=None)(sound)
    sound.settings("gpu_memory: {Tesla-T4: 15360Mi}")
    assert sound.doctor() == []


def test_what_is_promised_together_is_added_up(sound: Sound) -> None:
    for name in ("p", "q"):
        _running(pod().gpu().env(LIMIT, "4G"), name=name)(sound)
    (found,) = [r for r in sound.doctor() if r["subject"] == "Node t4-a"]
    assert found["message"] == (
        "30720MiB are promised, its cards have 15360MiB: CUDA_ERROR_OUT_OF_MEMORY for it or its neighbours"
    )
    assert found["mend"] == "kubectl mps nodes --pods"


def test_many_sound_things_are_counted() -> None:
    results = [Result("nodes", f"Node {i}", "ok", "fine") for i in range(4)]
    results.append(Result("nodes", "Node x", "problem", "broken", "mend it"))
    assert [line.plain for line in render(results)] == [
        "✓ nodes  4 are in order",
        "✗ nodes  Node x: broken",
        "         → mend it",
        "1 problem, 4 in order",
    ]


def test_unusable_files_are_one_line(sound: Sound, tmp_path: Path) -> None:
    done = sound.run("doctor", "-f", str(tmp_path / "none.yaml"))
    assert done.exit_code == 2
    assert done.stderr == f"kubectl mps: {tmp_path / 'none.yaml'}: No such file or directory\n"
