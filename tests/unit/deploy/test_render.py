"""Every kustomization renders, and what comes out is what an API server takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

Objects = list[dict[str, Any]]
Render = Callable[[str], Objects]

TARGETS = (
    "deploy",
    "deploy/webhook",
    "deploy/mps-runtime",
    "deploy/overlays/cert-manager",
    "deploy/overlays/gpu-feature-discovery",
)
# matchConditions are on by default from 1.28 on.
VERSIONS = ("1.28", "1.30", "1.33", "1.36")


def test_no_kustomization_is_left_out(root: Path) -> None:
    """Parts and components are rendered through the ones listed here."""
    found = {str(p.parent.relative_to(root)) for p in (root / "deploy").rglob("kustomization.yaml")}
    parts = {"deploy/webhook/serving", "deploy/webhook/certs"}
    components = {"deploy/components/default-config", "deploy/components/gpu-feature-discovery"}
    assert set(TARGETS) | parts | components <= found
    for other in found - set(TARGETS) - parts:
        assert "kind: Component" in (root / other / "kustomization.yaml").read_text(), f"{other} is rendered by no test"


@pytest.mark.parametrize("target", [t for t in TARGETS if t not in ("deploy/webhook", "deploy/mps-runtime")])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_the_schema(render: Render, target: str, version: str) -> None:
    """`deploy` is the runtime and the webhook, as a test below says."""
    for obj in render(target):
        if obj["apiVersion"].startswith("cert-manager.io/"):
            continue
        assert kubernetes_validate.validate(obj, version, strict=True) == version


@pytest.mark.parametrize("target", TARGETS)
def test_no_object_comes_twice(render: Render, target: str) -> None:
    names = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in render(target)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("target", TARGETS)
def test_helpers_of_kustomize_are_never_applied(render: Render, target: str) -> None:
    names = {o["metadata"]["name"] for o in render(target)}
    assert not names & {"default-config", "nvidia-device-plugin-configs-checksum", "mps-webhook-settings-checksum"}


def test_everything_is_both_parts(render: Render) -> None:
    def keys(target: str) -> set[tuple[str, str]]:
        return {(o["kind"], o["metadata"]["name"]) for o in render(target)}

    assert keys("deploy") == keys("deploy/webhook") | keys("deploy/mps-runtime")
    assert not keys("deploy/webhook") & keys("deploy/mps-runtime")


@pytest.mark.parametrize("target", ["deploy", "deploy/webhook"])
def test_webhooks_are_registered_last(render: Render, target: str) -> None:
    """The namespace first, and nothing is refused for want of a webhook that comes a moment later."""
    kinds = [o["kind"] for o in render(target)]
    assert kinds[0] == "Namespace"
    assert kinds[-2:] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]


@pytest.mark.parametrize("target", TARGETS)
def test_selectors_match_their_own_pods_alone(render: Render, target: str) -> None:
    workloads = [o for o in render(target) if o["kind"] in ("Deployment", "DaemonSet")]
    for workload in workloads:
        selector = workload["spec"]["selector"]["matchLabels"]
        matched = [
            w["metadata"]["name"]
            for w in workloads
            if w["metadata"]["namespace"] == workload["metadata"]["namespace"]
            and selector.items() <= w["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert matched == [workload["metadata"]["name"]]
        spread = workload["spec"]["template"]["spec"].get("topologySpreadConstraints", ())
        assert all(s["labelSelector"]["matchLabels"] == selector for s in spread)


@pytest.mark.parametrize("target", TARGETS)
def test_policies_budgets_and_services_select_somebody(render: Render, target: str) -> None:
    objects = render(target)
    labels = [
        (o["metadata"]["namespace"], o["spec"]["template"]["metadata"]["labels"])
        for o in objects
        if o["kind"] in ("Deployment", "DaemonSet")
    ]
    selectors = {"Service": ("selector",), "PodDisruptionBudget": ("selector", "matchLabels")}
    selectors["NetworkPolicy"] = ("podSelector", "matchLabels")
    for obj in objects:
        if obj["kind"] in selectors:
            wanted = obj["spec"]
            for key in selectors[obj["kind"]]:
                wanted = wanted[key]
            namespace = obj["metadata"]["namespace"]
            assert [n for n, have in labels if n == namespace and wanted.items() <= have.items()] == [namespace]


@pytest.mark.parametrize("target", TARGETS)
def test_accounts_config_maps_and_roles_are_there(render: Render, target: str) -> None:
    objects = render(target)
    there = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}
    for obj in objects:
        namespace = obj["metadata"].get("namespace")
        if obj["kind"] in ("Deployment", "DaemonSet"):
            spec = obj["spec"]["template"]["spec"]
            assert ("ServiceAccount", namespace, spec["serviceAccountName"]) in there
            for volume in spec["volumes"]:
                if "configMap" in volume:
                    assert ("ConfigMap", namespace, volume["configMap"]["name"]) in there
        if obj["kind"].endswith("RoleBinding") or obj["kind"] == "RoleBinding":
            role = obj["roleRef"]
            assert (role["kind"], namespace if role["kind"] == "Role" else None, role["name"]) in there
            assert all((s["kind"], s["namespace"], s["name"]) in there for s in obj["subjects"])


@pytest.mark.parametrize("target", TARGETS)
def test_images_are_pinned(render: Render, target: str) -> None:
    from webhook import __version__

    allowed = {f"mps-webhook:{__version__}", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}
    for obj in render(target):
        if obj["kind"] in ("Deployment", "DaemonSet"):
            spec = obj["spec"]["template"]["spec"]
            assert {c["image"] for c in [*spec["containers"], *spec.get("initContainers", ())]} <= allowed


@pytest.mark.parametrize("target", TARGETS)
def test_the_default_config_is_set_everywhere_from_one_place(render: Render, target: str, root: Path) -> None:
    source = (root / "deploy/components/default-config/default-config.yaml").read_text()
    match = re.search(r"^  default-config: (\S+)$", source, re.MULTILINE)
    assert match
    seen = []
    for obj in render(target):
        if obj["kind"] in ("Deployment", "DaemonSet"):
            spec = obj["spec"]["template"]["spec"]
            for container in [*spec["containers"], *spec.get("initContainers", ())]:
                names = ("DEFAULT_CONFIG", "MPS_WEBHOOK_DEFAULT_CONFIG")
                seen += [e["value"] for e in container.get("env", ()) if e["name"] in names]
    daemon_sets = sum(o["kind"] == "DaemonSet" for o in render(target))
    serving = sum(o["kind"] == "Deployment" and o["metadata"]["name"] == "mps-webhook" for o in render(target))
    assert seen == [match[1]] * (2 * daemon_sets + serving)
    assert seen
