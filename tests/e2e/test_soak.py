"""23: ten minutes of a large cluster: 5,000 nodes, their heartbeats, reviews all the time; memory stays flat.

Chosen with `-m soak`. It has a control plane of its own without controllers, which would have their own idea of 5,000
nodes without kubelets. E2E_SOAK_SECONDS shortens it.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import controlplane
from tests.e2e.harness.api import eventually
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.installation import Installation
from tests.e2e.harness.load import Connection, Dialler, Load, review
from tests.e2e.harness.metrics import total
from tests.e2e.harness.objects import QUOTA, add_configs, gpu_node, pod
from tests.e2e.harness.processes import resident_mib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness.api import Object

pytestmark = pytest.mark.soak
NODES = 5000
SECONDS = float(os.environ.get("E2E_SOAK_SECONDS", "600"))
REVIEWS_A_SECOND = 200.0
HEARTBEATS_A_SECOND = 20.0
"""5,000 kubelets report every five minutes; a few more, for changes that matter."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    binaries = controlplane.assets()
    if binaries is None:
        pytest.skip(controlplane.HOW_TO_GET_THEM)
    plane = ControlPlane(tmp_path_factory.mktemp("large"), binaries, controllers=False)
    try:
        add_configs(plane)
        installed = Installation(plane)
        try:
            installed.start()
            yield installed
        finally:
            installed.stop()
    finally:
        plane.stop()


def node(number: int) -> Object:
    """A node of 13 KB, most of which is the list of its images."""
    half = number % 2
    found = gpu_node(f"node-{number:04}", "mps-2x" if half else "mps-4x", 2 if half else 4)
    found["status"]["images"] = [
        {"names": [f"registry.example.com/team/image-{i:02}@sha256:{'0' * 64}", f"example.com/i:{i}"], "sizeBytes": i}
        for i in range(80)
    ]
    return found


def resident(installation: Installation) -> float:
    """Resident memory of the larger replica, MiB."""
    return max(resident_mib(r.process.pid) for r in installation.replicas)


def test_23_memory_stays_flat(large: Installation) -> None:
    api = large.cluster.api
    before = resident(large)
    assert 12_000 < len(json.dumps(node(0))) < 15_000
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: api.create(node(number)), range(NODES)))
        # A new node's status is dropped at its creation.
        list(
            pool.map(
                lambda n: api.patch("Node", f"node-{n:04}", {"status": node(n)["status"]}, subresource="status"),
                range(NODES),
            )
        )
    eventually(
        lambda: all(total(r.metrics(), "mps_webhook_inventory_nodes") == NODES for r in large.replicas), "5,000", 60.0
    )
    # One that begins with all of them lists them, page by page; the others were told of each.
    large.add_replica()
    large.wait_ready()
    loaded = resident_mib(large.replicas[-1].process.pid)

    numbers = itertools.count()
    lock = threading.Lock()

    def heartbeat() -> None:
        with lock:
            number = next(numbers)
        name = f"node-{number % NODES:04}"
        stamp = {"type": "Ready", "status": "True", "reason": f"beat {number}"}
        api.try_patch("Node", name, {"status": {"conditions": [stamp]}}, subresource="status").checked()
        if number % 20 == 0:
            # A change that counts: a new inventory is built.
            memory = {"nvidia.com/gpu.memory": str(15360 + number % 2)}
            api.try_patch("Node", name, {"metadata": {"labels": memory}}).checked()

    body = review(pod(QUOTA))
    own = threading.local()
    opened: list[Connection] = []
    dialler = Dialler(api, large.service.port)

    def ask() -> None:
        if not hasattr(own, "connection"):
            own.connection = dialler.kept()
            opened.append(own.connection)
        assert own.connection.call(body)["allowed"] is True

    series: list[list[float]] = []
    with (
        Load(ask, REVIEWS_A_SECOND, workers=8).running() as asked,
        Load(heartbeat, HEARTBEATS_A_SECOND, 2).running() as beats,
    ):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(SECONDS / 60)
            series.append([resident_mib(r.process.pid) for r in large.replicas])
    for connection in opened:
        connection.close()
    # The first fifth is for what grows once: pools, the allocator's arenas.
    settled, last = series[len(series) // 5], series[-1]
    print(f"\nresident MiB: {before:.1f} without nodes, {loaded:.1f} with {NODES} at the start; of each replica after")
    print(f"{SECONDS / 5:.0f} s {[round(x, 1) for x in settled]}, {SECONDS:.0f} s {[round(x, 1) for x in last]};")
    print(f"{len(asked.outcomes)} reviews, {len(beats.outcomes)} heartbeats")
    asked.assert_flawless(int(0.8 * REVIEWS_A_SECOND * SECONDS))
    beats.assert_flawless(int(0.8 * HEARTBEATS_A_SECOND * SECONDS))
    growth = max(b - a for a, b in zip(settled, last, strict=True))
    assert growth < 8.0, f"grown by {growth:.1f} MiB"
    assert loaded - before < 20.0, f"{NODES} nodes cost {loaded - before:.1f} MiB"
