"""The card, daemons, and where results go. Everything here is skipped where there is no GPU with MPS."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.daemon import CONTROL, Card, Daemon

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip this folder's tests on a machine that cannot run them."""
    if shutil.which(CONTROL) is None or shutil.which("nvidia-smi") is None:
        why = pytest.mark.skip(reason=f"needs an NVIDIA GPU and {CONTROL}; run `make gpu` on such a machine")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(why)


@pytest.fixture(scope="session")
def card() -> Card:
    """The card the tests run on."""
    return Card.read()


@pytest.fixture(scope="session")
def results(card: Card) -> Iterator[dict[str, Any]]:
    """What was measured, by test; written at the end as one JSON file named by date, card and driver.

    It goes to the directory GPU_RESULTS, tests/gpu/results where that is not set.
    """
    today = dt.datetime.now(dt.UTC).date().isoformat()
    found: dict[str, Any] = {"date": today, "card": card.name, "driver": card.driver, "memory_mib": card.memory_mib}
    yield found
    folder = Path(os.environ.get("GPU_RESULTS") or HERE / "results")
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{today}-{card.name}-{card.driver}.json".replace(" ", "-")
    (folder / name).write_text(json.dumps(found, indent=2) + "\n")


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with the defaults that the module's DEFAULTS name: MiB and percent, each or None."""
    default_mib, default_threads = request.module.DEFAULTS
    with Daemon(tmp_path_factory.mktemp("mps")).started(default_mib, default_threads) as running:
        yield running


@pytest.fixture
def node_daemon(card: Card, tmp_path: Path) -> Iterator[Callable[[int], Daemon]]:
    """Start the daemon of a node whose card is cut into so many shares, as NVIDIA's control daemon sets it up."""
    running: list[Any] = []

    def start(replicas: int) -> Daemon:
        context = Daemon(tmp_path / f"mps-{replicas}x").started(card.memory_mib // replicas, 100 // replicas)
        running.append(context)
        daemon: Daemon = context.__enter__()
        return daemon

    yield start
    for context in running:
        context.__exit__(None, None, None)
