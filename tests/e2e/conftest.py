"""One control plane and one installation for all tests of this folder.

Each test leaves both as it found them: what it breaks, it mends, and what it makes has a name of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import controlplane
from tests.e2e.harness.controlplane import Cluster, ControlPlane
from tests.e2e.harness.installation import Installation
from tests.e2e.harness.manifests import NAMESPACE
from tests.e2e.harness.metrics import Watched
from tests.e2e.harness.objects import CONFIG_MAP, add_configs, add_node, configs, gpu_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness.api import Api


THE_TEST_THAT_SAYS_SO = "test_control_plane.py"
collect_ignore = (
    []
    if controlplane.existing() or controlplane.assets()
    else [path.name for path in Path(__file__).parent.glob("test_*.py") if path.name != THE_TEST_THAT_SAYS_SO]
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of this folder."""
    config.addinivalue_line("markers", "soak: ten minutes under load; chosen with `-m soak` alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes many minutes, unless marks are chosen on the command line."""
    if config.option.markexpr:
        return
    soaks = [item for item in items if item.get_closest_marker("soak")]
    if soaks:
        config.hook.pytest_deselected(items=soaks)
        items[:] = [item for item in items if item not in soaks]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The control plane, with two nodes of GPUs and the device plugin's configurations, and no webhook yet."""
    folder = tmp_path_factory.mktemp("cluster")
    kubeconfig, binaries = controlplane.existing(), controlplane.assets()
    found: Cluster
    if kubeconfig is not None:
        found = Cluster(folder, kubeconfig, "kubectl", controllers=True)
        for kind, name, namespace in (("Namespace", NAMESPACE, ""), ("ConfigMap", CONFIG_MAP, "kube-system")):
            if found.api.find(kind, name, namespace) is not None:
                found.stop()
                pytest.exit(f"the cluster has a {kind} {name}, which these tests would overwrite", returncode=1)
    elif binaries is not None:
        found = ControlPlane(folder, binaries)
    else:
        pytest.skip(controlplane.HOW_TO_GET_THEM)
    # Pods that were bound stay: nobody runs them to an end. There is room for all tests.
    nodes = [gpu_node("t4-quarter", "mps-4x", 4, cards=100), gpu_node("t4-half", "mps-2x", 2, cards=100)]
    try:
        add_configs(found)
        for node in nodes:
            add_node(found, node)
        yield found
        if kubeconfig is not None:
            found.removed([configs(found), *nodes])
    finally:
        found.stop()


@pytest.fixture(scope="session")
def installation(cluster: Cluster) -> Iterator[Installation]:
    """The webhook, installed and ready."""
    installed = Installation(cluster)
    try:
        installed.start()
        yield installed
    finally:
        if not isinstance(cluster, ControlPlane):
            installed.remove()
        installed.stop()


@pytest.fixture
def api(installation: Installation) -> Api:
    """The API server, once the webhook stands behind it."""
    return installation.cluster.api


@pytest.fixture
def own(cluster: Cluster) -> ControlPlane:
    """The control plane, for tests that need its processes."""
    if not isinstance(cluster, ControlPlane):
        pytest.skip("an existing cluster is not restarted")
    return cluster


@pytest.fixture
def controllers(cluster: Cluster) -> None:
    """Skips a test that needs kube-controller-manager and kube-scheduler where they do not run."""
    if not cluster.controllers:
        pytest.skip("kube-controller-manager and kube-scheduler are not among the binaries")


@pytest.fixture
def watched(installation: Installation) -> Iterator[Watched]:
    """What the API server counts against the webhook during a test, which has to be nothing."""
    found = Watched(installation.cluster.api)
    yield found
    found.assert_quiet()
