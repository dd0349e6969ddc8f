"""The live inventory: when there is one, when there is a new one, and what keeps the old one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from webhook.cluster.configs import ConfigKeeper, ConfigMapData, project_config_map
from webhook.cluster.live import ClusterSource
from webhook.cluster.once import fetch_configs, fetch_namespaces, fetch_nodes
from webhook.cluster.reflector import Timing
from webhook.cluster.source import InputError
from webhook.policy import DeviceConfig, Namespace, Settings

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
NAME = "nvidia-device-plugin-configs"
FULL_NAME = f"kube-system/{NAME}"

FAST = Timing(page=100, list=2.0, silence=30.0, backoff_first=0.01, backoff_limit=0.05)
EXCLUSIVE = "version: v1"
FOUR = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
TWO = FOUR.replace("4", "2")
ONE = FOUR.replace("4", "1")
MPS_FOUR = DeviceConfig("mps", 4, "nvidia.com/gpu", fail_greater_than_one=True)
MPS_TWO = DeviceConfig("mps", 2, "nvidia.com/gpu", fail_greater_than_one=True)
REPLICAS = "number of replicas must be >= 2 (leave sharing out for one pod a card)"


def fill(api: Any) -> None:
    api.put(NODES, "gpu-1", status={"allocatable": {"nvidia.com/gpu": "4"}})
    api.put(NAMESPACES, "team-a")
    api.put(CONFIG_MAPS, NAME, data={"mps-1x": EXCLUSIVE, "mps-4x": FOUR})


@asynccontextmanager
async def running(api: Any, **options: Any) -> AsyncIterator[ClusterSource]:
    source = ClusterSource(api.client(), Settings(), timing=FAST, settle=0.02, **options)
    task = asyncio.create_task(source.run())
    try:
        yield source
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in threads
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def no_thread_stays(threads: object) -> None:
    pass


def configs(source: ClusterSource) -> dict[str, DeviceConfig]:
    inventory = source.inventory()
    return {} if inventory is None else dict(inventory.fleet.configs)


async def test_inventory_is_complete_or_none(api: Any) -> None:
    fill(api)
    api.refusals[NAMESPACES] = 403, {}
    async with running(api) as source:
        await until(lambda: source.status().watch_restarts["namespaces"] >= 2 and api.count(NODES, watch=True))
        assert source.inventory() is None
        status = source.status()
        assert not status.synced
        assert status.problems == ("GET /api/v1/namespaces: 403 namespaces is forbidden",)
        api.refusals.clear()
        await until(source.inventory)
        inventory = source.inventory()
        assert inventory is not None
        assert len(inventory.fleet) == 1
        assert dict(inventory.namespaces) == {"team-a": Namespace("team-a")}
        assert configs(source) == {"mps-1x": DeviceConfig(), "mps-4x": MPS_FOUR}
        await until(lambda: not source.status().problems)
        status = source.status()
        assert (status.synced, status.nodes, status.configs) == (True, 1, ("mps-1x", "mps-4x"))
        assert 0 <= status.age_seconds < 30


async def test_only_the_one_config_map_is_asked_for(api: Any) -> None:
    fill(api)
    async with running(api) as source:
        await until(source.inventory)
        await until(lambda: api.count(CONFIG_MAPS, watch=True))
    selectors = {query.get("fieldSelector") for path, query in api.requests if path == CONFIG_MAPS}
    assert selectors == {f"metadata.name={NAME}"}


async def test_heartbeat_makes_no_new_snapshot(api: Any) -> None:
    fill(api)
    async with running(api) as source:
        await until(lambda: source.inventory() and api.count(NODES, watch=True))
        before = source.inventory()
        for i in range(50):
            api.put(NODES, "gpu-1", status={"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"beat": i}]})
        await until(lambda: source._nodes._version == str(api.version))
        await asyncio.sleep(0.1)  # several times what a snapshot waits
        assert source.inventory() is before
        api.put(NODES, "gpu-1", status={"allocatable": {"nvidia.com/gpu": "8"}})
        await until(lambda: source.inventory() is not before)


async def test_many_changes_are_few_snapshots(api: Any) -> None:
    fill(api)
    async with running(api) as source:
        await until(lambda: source.inventory() and api.count(NODES, watch=True))
        built = 0
        rebuild = source._rebuild

        def counted() -> None:
            nonlocal built
            built += 1
            rebuild()

        source._rebuild = counted  # type: ignore[method-assign]
        source._settle = 0.2
        for i in range(300):
            api.put(NODES, f"new-{i}")
        await until(lambda: source.status().nodes == 301)
        assert built < 20


async def test_snapshot_does_not_change_under_its_reader(api: Any) -> None:
    fill(api)
    async with running(api) as source:
        await until(lambda: source.inventory() and api.count(NODES, watch=True) and api.count(NAMESPACES, watch=True))
        before = source.inventory()
        assert before is not None
        api.put(NODES, "gpu-2")
        api.put(NAMESPACES, "team-b")
        await until(lambda: source.status().nodes == 2 and len(source.inventory().namespaces) == 2)  # type: ignore[union-attr]
        assert (len(before.fleet), len(before.namespaces)) == (1, 1)


async def test_deleted_nodes_go_when_listed_anew(api: Any) -> None:
    fill(api)
    api.put(NODES, "gpu-2")
    async with running(api) as source:
        await until(lambda: source.status().nodes == 2)
        api.stop()
        api.delete(NODES, "gpu-2")
        api.compact()
        api.start()
        await until(lambda: source.status().nodes == 1)
        await until(lambda: not source.status().problems)
        assert source.status().synced


async def test_stale_inventory_stays_in_force(api: Any) -> None:
    fill(api)
    async with running(api) as source:
        await until(source.inventory)
        before = source.inventory()
        api.stop()
        await until(lambda: len(source.status().problems) == 3)
        assert source.inventory() is before
        assert source.status().synced
        api.start()


async def test_config_map_goes_bad_and_good_again(api: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "webhook.cluster.live")
    fill(api)
    async with running(api) as source:
        await until(lambda: source.inventory() and api.count(CONFIG_MAPS, watch=True))
        api.put(CONFIG_MAPS, NAME, data={"mps-1x": EXCLUSIVE, "mps-4x": ONE, "mps-2x": TWO})
        problem = f"config mps-4x does not parse, keeping the last good one: {REPLICAS}"
        await until(lambda: source.status().problems == (problem,))
        await until(lambda: "mps-2x" in configs(source))
        assert configs(source) == {"mps-1x": DeviceConfig(), "mps-4x": MPS_FOUR, "mps-2x": MPS_TWO}
        api.put(NODES, "gpu-2")  # another snapshot, the same problem: logged once
        await until(lambda: source.status().nodes == 2)
        api.put(CONFIG_MAPS, NAME, data={"mps-4x": TWO})
        await until(lambda: configs(source) == {"mps-4x": MPS_TWO})
        assert source.status().problems == ()
        api.delete(CONFIG_MAPS, NAME)
        gone = f"ConfigMap {FULL_NAME} is gone, keeping the last good one"
        await until(lambda: source.status().problems == (gone,))
        assert configs(source) == {"mps-4x": MPS_TWO}
        api.put(CONFIG_MAPS, NAME, data={"mps-4x": FOUR})
        await until(lambda: configs(source) == {"mps-4x": MPS_FOUR})
        assert source.status().problems == ()
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [problem, gone]


async def test_without_a_config_map_it_is_complete_and_says_so(api: Any) -> None:
    api.put(NODES, "gpu-1")
    api.put(CONFIG_MAPS, "another", data={"mps-4x": FOUR})
    async with running(api) as source:
        await until(source.inventory)
        assert configs(source) == {}
        assert source.status().problems == (
            f"ConfigMap {FULL_NAME} does not exist, nodes are judged by their labels alone",
        )


async def test_what_cannot_be_built_keeps_the_last_one(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(api)
    async with running(api) as source:
        await until(lambda: source.inventory() and api.count(NODES, watch=True))
        before = source.inventory()
        with monkeypatch.context() as broken:
            broken.setattr("webhook.cluster.live.Fleet", None)
            api.put(NODES, "gpu-2")
            await until(lambda: source.status().problems)
            assert source.inventory() is before
        api.put(NODES, "gpu-3")
        await until(lambda: source.status().nodes == 3)
        assert source.status().problems == ()


async def test_stops_before_anything_was_reached(api: Any) -> None:
    api.stop()
    async with running(api) as source:
        await until(lambda: source.status().problems)
        assert source.inventory() is None


def texts(**data: str) -> ConfigMapData:
    return project_config_map({"data": {name.replace("_", "-"): text for name, text in data.items()}})


def test_keeper_without_an_earlier_config() -> None:
    keeper = ConfigKeeper(FULL_NAME)
    keeper.update(texts(mps_4x=ONE, mps_2x=TWO))
    assert keeper.configs == {"mps-2x": MPS_TWO}
    assert keeper.problems == (f"config mps-4x does not parse, and there is no earlier one: {REPLICAS}",)


def test_keeper_does_not_remember_what_was_taken_out() -> None:
    keeper = ConfigKeeper(FULL_NAME)
    keeper.update(texts(mps_4x=FOUR))
    keeper.update(texts(mps_2x=TWO))
    assert keeper.configs == {"mps-2x": MPS_TWO}
    keeper.update(texts(mps_4x=ONE))
    assert keeper.configs == {}
    keeper.update(texts(mps_4x=FOUR))
    assert (keeper.configs, keeper.problems) == ({"mps-4x": MPS_FOUR}, ())


def test_keeper_goes_back_to_the_text_it_had() -> None:
    keeper = ConfigKeeper(FULL_NAME)
    for text, config in ((FOUR, MPS_FOUR), (ONE, MPS_FOUR), (FOUR, MPS_FOUR), (TWO, MPS_TWO), (FOUR, MPS_FOUR)):
        keeper.update(texts(mps_4x=text))
        assert keeper.configs == {"mps-4x": config}


@pytest.mark.parametrize("data", [pytest.param([1], id="list"), pytest.param({"a": 1}, id="number")])
def test_config_map_of_another_shape(data: object) -> None:
    with pytest.raises(ValueError, match="not a ConfigMap object"):
        project_config_map({"data": data})


def test_order_of_keys_is_no_change() -> None:
    assert project_config_map({"data": {"a": "1", "b": "2"}}) == project_config_map({"data": {"b": "2", "a": "1"}})


def test_reads_once(api: Any) -> None:
    fill(api)
    client = api.client()
    assert [node.name for node in fetch_nodes(client)] == ["gpu-1"]
    assert fetch_namespaces(client) == {"team-a": Namespace("team-a")}
    assert fetch_configs(client) == {"mps-1x": DeviceConfig(), "mps-4x": MPS_FOUR}


@contextmanager
def refused(message: str) -> Iterator[None]:
    with pytest.raises(InputError) as caught:
        yield
    assert str(caught.value) == message


def test_reading_once_has_one_line_for_what_fails(api: Any) -> None:
    client = api.client()
    with refused(f"ConfigMap {FULL_NAME} does not exist in the cluster"):
        fetch_configs(client)
    api.put(CONFIG_MAPS, NAME, data={"mps-4x": ONE})
    with refused(f"ConfigMap {FULL_NAME}: config mps-4x: {REPLICAS}"):
        fetch_configs(client)
    api.refusals[NODES] = 403, {}
    with refused("GET /api/v1/nodes: 403 nodes is forbidden"):
        fetch_nodes(client)
