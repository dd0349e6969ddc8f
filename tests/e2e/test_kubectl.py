"""What a person reads at `kubectl apply`, line by line. The README's transcript is this."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.harness.manifests import ROOT
from tests.e2e.harness.objects import MEMORY, THREADS, env_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.harness.api import Api, Object
    from tests.e2e.harness.controlplane import Cluster

pytestmark = pytest.mark.usefixtures("watched")
EXAMPLES = ROOT / "deploy" / "examples"
OVER = (
    "memory-limit 5Gi × 4 shares = 20480Mi, but a card of config mps-4x has 15360Mi (1 node, Tesla-T4): "
    "ask for at most 3840Mi, or use mps-2x [memory-over-budget]"
)
LIMIT_REWRITTEN = "[limit-rewritten]"


@pytest.fixture
def namespace(cluster: Cluster, api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    name = cluster.namespace(request.node.name.partition("[")[0].replace("_", "-").removeprefix("test-")[:50])
    yield name
    api.delete("Namespace", name)


def apply(cluster: Cluster, path: Path, namespace: str) -> subprocess.CompletedProcess[str]:
    return cluster.kubectl("apply", "-n", namespace, "-f", str(path))


def test_the_documented_pods_are_patched(cluster: Cluster, api: Api, namespace: str) -> None:
    for path in sorted(EXAMPLES.glob("*.yaml")):
        done = apply(cluster, path, namespace)
        assert (done.returncode == 0) is (path.name != "rejected.yaml"), (path.name, done.stderr)
    stored = {p["metadata"]["name"]: p for p in api.list("Pod", namespace)}
    assert env_of(stored["mps-basic"]) == {}
    assert env_of(stored["mps-pinned-config"]) == {}
    assert env_of(stored["mps-limits-by-variable"]) == {MEMORY: "0=4096M", THREADS: "25"}
    assert env_of(stored["jupyter"]) == {MEMORY: "0=3072M", THREADS: "25"}
    assert [env_of(stored["per-container"], i) for i in range(3)] == [
        {THREADS: "20", MEMORY: "0=3072M"},
        {THREADS: "10", MEMORY: "0=1536M"},
        {},
    ]
    assert "mps-rejected" not in stored


def test_a_pod_over_budget_is_refused_once_and_in_one_line(cluster: Cluster, namespace: str) -> None:
    path = EXAMPLES / "rejected.yaml"
    done = apply(cluster, path, namespace)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f'Error from server (Forbidden): error when creating "{path}": admission webhook "pods.mps.nvidia.com" denied '
        f"the request: spec.containers[0] (cuda-app): {OVER}\n"
    )


def test_a_deployment_over_budget_is_warned_of(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    made: Object = yaml.safe_load((EXAMPLES / "rejected.yaml").read_text())
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "over"},
        "spec": {
            "selector": {"matchLabels": {"app": "over"}},
            "template": {
                "metadata": {"labels": {"app": "over"}, "annotations": made["metadata"]["annotations"]},
                "spec": {**made["spec"], "restartPolicy": "Always"},
            },
        },
    }
    path = tmp_path / "deployment.yaml"
    path.write_text(yaml.safe_dump(deployment))
    done = apply(cluster, path, namespace)
    assert (done.returncode, done.stdout) == (0, "deployment.apps/over created\n")
    assert done.stderr == f"Warning: spec.template.spec.containers[0] (cuda-app): {OVER}\n"


def test_a_warning_is_shown_once(cluster: Cluster, namespace: str) -> None:
    """/mutate says it. /validate judges the same pod after the rewrite and has nothing left to say."""
    done = apply(cluster, EXAMPLES / "limits-by-variable.yaml", namespace)
    assert done.returncode == 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]
    assert len([line for line in warnings if LIMIT_REWRITTEN in line]) == 1
    assert len(set(warnings)) == len(warnings), warnings


def test_a_warning_of_both_webhooks_is_shown_once(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """Under 1Gi is warned of by both; kubectl shows equal texts once."""
    made: Object = yaml.safe_load((EXAMPLES / "jupyter.yaml").read_text())
    made["metadata"]["annotations"]["mps.nvidia.com/memory-limit"] = "800Mi"
    made["spec"]["nodeSelector"] = {"nvidia.com/device-plugin.config": "mps-4x"}
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(made))
    done = apply(cluster, path, namespace)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == 1, warnings
    assert warnings[0].endswith("[memory-below-minimum]")
