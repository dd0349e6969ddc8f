"""The webhook's own manifests: rights, hardening, and what the API server is told to send."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Object = dict[str, Any]
Objects = list[Object]
Render = Callable[[str], Objects]
Find = Callable[[Objects, str, str], Object]

BOTH = pytest.mark.parametrize("name", ["mps-webhook", "mps-webhook-certs"])


def pod_spec(objects: Objects, find: Find, name: str) -> Object:
    spec: Object = find(objects, "Deployment", name)["spec"]["template"]["spec"]
    return spec


# Rights


def test_the_serving_account_reads_three_kinds_and_writes_nothing(webhook: Objects, find: Find) -> None:
    assert find(webhook, "ClusterRole", "mps-webhook")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": ["get", "list", "watch"]}
    ]
    role = find(webhook, "Role", "mps-webhook")
    assert role["metadata"]["namespace"] == "kube-system"
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["nvidia-device-plugin-configs"],
            "verbs": ["get", "list", "watch"],
        }
    ]


def test_the_certificates_account_writes_named_objects_only(webhook: Objects, find: Find) -> None:
    assert find(webhook, "ClusterRole", "mps-webhook-certs")["rules"] == [
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            "resourceNames": ["mps-webhook"],
            "verbs": ["get", "patch"],
        }
    ]
    role = find(webhook, "Role", "mps-webhook-certs")
    assert role["metadata"]["namespace"] == "mps-system"
    leases = "coordination.k8s.io"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mps-webhook-tls"], "verbs": ["get", "patch"]},
        {
            "apiGroups": [leases],
            "resources": ["leases"],
            "resourceNames": ["mps-webhook-certs"],
            "verbs": ["get", "patch"],
        },
    ]


def test_what_the_certificates_account_writes_is_there_and_empty(webhook: Objects, find: Find) -> None:
    for kind, name in (("Secret", "mps-webhook-tls"), ("Lease", "mps-webhook-certs")):
        shipped = find(webhook, kind, name)
        assert shipped["metadata"]["namespace"] == "mps-system"
        assert not {"data", "stringData", "spec"} & set(shipped)


def test_no_other_roles_and_no_wildcards(webhook: Objects) -> None:
    roles = sorted((o["kind"], o["metadata"]["name"]) for o in webhook if o["kind"] in ("Role", "ClusterRole"))
    assert roles == [
        ("ClusterRole", "mps-webhook"),
        ("ClusterRole", "mps-webhook-certs"),
        ("Role", "mps-webhook"),
        ("Role", "mps-webhook-certs"),
    ]


@BOTH
def test_bindings_give_each_role_to_its_own_account(webhook: Objects, find: Find, name: str) -> None:
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        binding = find(webhook, kind, name)
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "mps-system"}]


@pytest.mark.parametrize("target", ["deploy/webhook", "deploy/overlays/cert-manager"])
def test_the_serving_account_never_reaches_a_secret(render: Render, target: str) -> None:
    objects = render(target)
    bound = {
        (o["roleRef"]["kind"], o["roleRef"]["name"])
        for o in objects
        if o["kind"].endswith("Binding") and any(s["name"] == "mps-webhook" for s in o["subjects"])
    }
    rules = [r for o in objects if (o["kind"], o["metadata"]["name"]) in bound for r in o["rules"]]
    assert len(rules) == 2
    for rule in rules:
        assert not {"secrets", "*"} & set(rule["resources"])
        assert set(rule["verbs"]) <= {"get", "list", "watch"}


@BOTH
def test_tokens_only_where_the_pod_asks(webhook: Objects, find: Find, name: str) -> None:
    assert find(webhook, "ServiceAccount", name)["automountServiceAccountToken"] is False
    spec = pod_spec(webhook, find, name)
    assert spec["automountServiceAccountToken"] is True
    assert spec["serviceAccountName"] == name


# Hardening


def test_the_namespace_enforces_restricted(webhook: Objects, find: Find) -> None:
    labels = find(webhook, "Namespace", "mps-system")["metadata"]["labels"]
    for mode in ("enforce", "audit", "warn"):
        assert labels[f"pod-security.kubernetes.io/{mode}"] == "restricted"


@BOTH
def test_pods_are_what_restricted_asks_for(webhook: Objects, find: Find, name: str) -> None:
    """Each field of the Pod Security standard, and a read-only root on top."""
    spec = pod_spec(webhook, find, name)
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == 65532
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "shareProcessNamespace"} & spec.keys()
    assert {kind for v in spec["volumes"] for kind in v if kind != "name"} <= {"configMap", "secret", "emptyDir"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any("hostPort" in p for p in container["ports"])


@BOTH
def test_resources(webhook: Objects, find: Find, name: str) -> None:
    (container,) = pod_spec(webhook, find, name)["containers"]
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}


@BOTH
def test_service_links_are_off(webhook: Objects, find: Find, name: str) -> None:
    """MPS_WEBHOOK_PORT=tcp://… would be read as a setting."""
    assert pod_spec(webhook, find, name)["enableServiceLinks"] is False


@BOTH
def test_priority_and_the_quota_that_some_providers_want_for_it(webhook: Objects, find: Find, name: str) -> None:
    priority = pod_spec(webhook, find, name)["priorityClassName"]
    assert priority == "system-cluster-critical"
    quota = find(webhook, "ResourceQuota", priority)["spec"]
    assert quota["scopeSelector"]["matchExpressions"] == [
        {"scopeName": "PriorityClass", "operator": "In", "values": [priority]}
    ]
    assert quota["hard"] == {"pods": "20"}


@BOTH
def test_no_traffic_but_what_is_needed(webhook: Objects, find: Find, name: str) -> None:
    policy = find(webhook, "NetworkPolicy", name)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    ingress = [p["port"] for rule in policy["ingress"] for p in rule["ports"]]
    assert ingress == (["https", "health"] if name == "mps-webhook" else ["health"])
    egress = [(p["protocol"], p["port"]) for rule in policy["egress"] for p in rule["ports"]]
    assert egress == [("TCP", 443), ("TCP", 6443), ("TCP", 60002), ("UDP", 53), ("TCP", 53)]


# Serving


def test_two_replicas_that_never_go_together(webhook: Objects, find: Find) -> None:
    spec = find(webhook, "Deployment", "mps-webhook")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert find(webhook, "PodDisruptionBudget", "mps-webhook")["spec"]["minAvailable"] == 1
    host, zone = spec["template"]["spec"]["topologySpreadConstraints"]
    assert (host["topologyKey"], host["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")
    assert (zone["topologyKey"], zone["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "ScheduleAnyway")
    # Per revision, else a rollout on two nodes would wait for itself.
    assert host["matchLabelKeys"] == ["pod-template-hash"]


def test_the_drain_ends_before_the_kubelet_loses_patience(webhook: Objects, find: Find, root: Path) -> None:
    from webhook.settings import WebhookSettings

    settings = WebhookSettings.load(root / "deploy/webhook/serving/settings.yaml")
    assert pod_spec(webhook, find, "mps-webhook")["terminationGracePeriodSeconds"] >= 2 * settings.drain_seconds


def test_settings_are_read_by_the_server_and_match_the_manifests(
    webhook: Objects, find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webhook.settings import WebhookSettings

    spec = pod_spec(webhook, find, "mps-webhook")
    (container,) = spec["containers"]
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "settings")
    assert container["args"] == ["serve", "--settings", mount["mountPath"]]
    path = tmp_path / "settings.yaml"
    path.write_text(find(webhook, "ConfigMap", "mps-webhook-settings")["data"][mount["subPath"]])
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    settings = WebhookSettings.load(path)
    assert settings.config_map == "kube-system/nvidia-device-plugin-configs"
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert ports == {"https": settings.port, "health": settings.health_port}
    (tls,) = (m for m in container["volumeMounts"] if m["name"] == "tls")
    assert tls["mountPath"] == str(settings.tls_dir)
    assert "subPath" not in tls


def test_shipped_settings_are_the_defaults(root: Path) -> None:
    from webhook.settings import WebhookSettings

    assert WebhookSettings.load(root / "deploy/webhook/serving/settings.yaml") == WebhookSettings.load()


def test_examples_in_the_settings_are_valid(root: Path, tmp_path: Path) -> None:
    """The lines that are commented out as samples."""
    from webhook.settings import WebhookSettings

    text = (root / "deploy/webhook/serving/settings.yaml").read_text()
    first = text.index("# gpu_memory:")
    sample = text[first:].replace("\n# ", "\n").removeprefix("# ")
    lines = [line for line in sample.splitlines() if not line.startswith("Node kinds")]
    path = tmp_path / "settings.yaml"
    path.write_text("\n".join(lines))
    settings = WebhookSettings.load(path)
    assert settings.gpu_memory == {"Tesla-T4": 15360}
    (profile,) = settings.expected_profiles
    assert (profile.config, profile.memory, profile.compute_capability) == ("mps-4x", 15360, (7, 5))


@BOTH
def test_probes_use_the_plain_port(webhook: Objects, find: Find, name: str) -> None:
    (container,) = pod_spec(webhook, find, name)["containers"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


def test_the_authoritys_key_stays_out_of_the_serving_pods(webhook: Objects, find: Find) -> None:
    (tls,) = (v for v in pod_spec(webhook, find, "mps-webhook")["volumes"] if v["name"] == "tls")
    assert tls["secret"] == {
        "secretName": "mps-webhook-tls",
        "defaultMode": 0o440,
        "items": [{"key": key, "path": key} for key in ("tls.crt", "tls.key", "ca.crt")],
    }


def test_the_service_leads_to_the_https_port(webhook: Objects, find: Find) -> None:
    (port,) = find(webhook, "Service", "mps-webhook")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "https")


# Certificates


def test_certificates_are_kept_under_the_names_that_are_used(webhook: Objects, find: Find) -> None:
    (container,) = pod_spec(webhook, find, "mps-webhook-certs")["containers"]
    assert container["args"][:2] == ["certs", "run"]
    options = dict(zip(container["args"][2::2], container["args"][3::2], strict=True))
    assert options == {
        "--namespace": "mps-system",
        "--secret": "mps-webhook-tls",
        "--service": "mps-webhook",
        "--mutating": "mps-webhook",
        "--validating": "mps-webhook",
        "--lease": "mps-webhook-certs",
    }
    assert find(webhook, "Service", options["--service"])["metadata"]["namespace"] == options["--namespace"]
    find(webhook, "MutatingWebhookConfiguration", options["--mutating"])
    find(webhook, "ValidatingWebhookConfiguration", options["--validating"])


def test_one_certificates_pod_at_a_time(webhook: Objects, find: Find) -> None:
    spec = find(webhook, "Deployment", "mps-webhook-certs")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_cert_manager_takes_the_place_of_the_certificates_pod(render: Render, find: Find) -> None:
    objects = render("deploy/overlays/cert-manager")
    assert not any("certs" in o["metadata"]["name"] for o in objects)
    certificate = find(objects, "Certificate", "mps-webhook")
    assert certificate["spec"]["secretName"] == "mps-webhook-tls"
    assert "mps-webhook.mps-system.svc" in certificate["spec"]["dnsNames"]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = find(objects, kind, "mps-webhook")["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": "mps-system/mps-webhook"}


# What the API server sends


def hooks(objects: Objects, kind: str) -> dict[str, Object]:
    (configuration,) = (o for o in objects if o["kind"] == kind)
    assert configuration["metadata"]["name"] == "mps-webhook"
    return {w["name"]: w for w in configuration["webhooks"]}


def every_hook(objects: Objects) -> list[Object]:
    return [w for o in objects if o["kind"].endswith("WebhookConfiguration") for w in o["webhooks"]]


def operations(hook: Object) -> dict[tuple[str, str], list[str]]:
    return {
        (group, resource): rule["operations"]
        for rule in hook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_pods_are_mutated_when_they_are_created(webhook: Objects) -> None:
    mutating = hooks(webhook, "MutatingWebhookConfiguration")
    assert list(mutating) == ["pods.mps.nvidia.com"]
    pods = mutating["pods.mps.nvidia.com"]
    assert operations(pods) == {("", "pods"): ["CREATE"]}
    assert pods["clientConfig"]["service"]["path"] == "/mutate"
    assert pods["failurePolicy"] == "Fail"
    assert pods["reinvocationPolicy"] == "IfNeeded"


def test_pods_are_validated_with_the_subresources_that_change_containers(webhook: Objects) -> None:
    validating = hooks(webhook, "ValidatingWebhookConfiguration")
    assert list(validating) == ["pods.mps.nvidia.com", "workloads.mps.nvidia.com"]
    pods = validating["pods.mps.nvidia.com"]
    assert operations(pods) == {
        ("", "pods"): ["CREATE", "UPDATE"],
        ("", "pods/ephemeralcontainers"): ["UPDATE"],
        ("", "pods/resize"): ["UPDATE"],
    }
    assert pods["clientConfig"]["service"]["path"] == "/validate"
    assert pods["failurePolicy"] == "Fail"


def test_workloads_are_advised_and_never_held_up(webhook: Objects) -> None:
    workloads = hooks(webhook, "ValidatingWebhookConfiguration")["workloads.mps.nvidia.com"]
    kinds = [("apps", k) for k in ("deployments", "statefulsets", "daemonsets", "replicasets")]
    kinds += [("batch", k) for k in ("jobs", "cronjobs")]
    assert operations(workloads) == {kind: ["CREATE", "UPDATE"] for kind in kinds}
    assert workloads["clientConfig"]["service"]["path"] == "/validate-workloads"
    assert workloads["failurePolicy"] == "Ignore"


def test_what_all_webhooks_have_in_common(webhook: Objects) -> None:
    all_hooks = every_hook(webhook)
    assert len(all_hooks) == 3
    for hook in all_hooks:
        assert hook["sideEffects"] == "None"
        assert hook["matchPolicy"] == "Equivalent"
        assert hook["timeoutSeconds"] == 5
        assert hook["admissionReviewVersions"] == ["v1"]
        assert all("DELETE" not in r["operations"] and "*" not in r["operations"] for r in hook["rules"])
        assert all("*" not in r["resources"] for r in hook["rules"])
        assert hook["namespaceSelector"] == {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "mps-system"]}
            ]
        }
        service = {k: v for k, v in hook["clientConfig"]["service"].items() if k != "path"}
        assert service == {"namespace": "mps-system", "name": "mps-webhook", "port": 443}
        assert "caBundle" not in hook["clientConfig"], "applying the manifests again would fight with the certs pod"
        assert "objectSelector" not in hook, "a label on a pod would opt out"


def test_both_pod_webhooks_see_the_same_pods(webhook: Objects) -> None:
    mutating = hooks(webhook, "MutatingWebhookConfiguration")["pods.mps.nvidia.com"]["matchConditions"]
    validating = hooks(webhook, "ValidatingWebhookConfiguration")["pods.mps.nvidia.com"]["matchConditions"]
    assert mutating == validating
    assert [c["name"] for c in mutating] == ["uses-a-gpu-or-mps"]


def test_match_conditions_look_at_all_that_matters(webhook: Objects) -> None:
    for hook in every_hook(webhook):
        expression = hook["matchConditions"][0]["expression"]
        for part in ("annotations", "labels", "initContainers", "nvidia.com/gpu.shared", "nvidia.com/mig-"):
            assert part in expression
        for part in ("CUDA_MPS_", "NVIDIA_VISIBLE_DEVICES", "lowerAscii", "oldObject"):
            assert part in expression
