"""The inventory of a running cluster, kept current by three watches."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from webhook.cluster.configs import ConfigKeeper, ConfigMapData, project_config_map
from webhook.cluster.files import CONFIG_MAP
from webhook.cluster.reflector import Reflector, Resource, Timing
from webhook.cluster.source import SourceStatus
from webhook.policy import Fleet, Inventory, Namespace, Node, Settings, project_namespace, project_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.client import ApiClient

log = logging.getLogger(__name__)

NODES = Resource("nodes", "/api/v1/nodes", project_node)
NAMESPACES = Resource("namespaces", "/api/v1/namespaces", project_namespace)


def config_map_resource(config_map: str) -> Resource[ConfigMapData]:
    """One ConfigMap, given as namespace/name. The selector is what lets RBAC grant this one name alone."""
    namespace, _, name = config_map.partition("/")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return Resource("configmaps", path, project_config_map, f"metadata.name={name}")


class ClusterSource:
    """An inventory that follows the cluster. ``run`` once; the rest may be called from any thread, at any time.

    A snapshot is built in a thread of its own, after a short wait that takes in what else changes (5,000 nodes that
    join are a few snapshots), and never for more than a fifth of the time. Readers get the whole old one or the whole
    new one: the swap is one assignment.
    """

    def __init__(
        self,
        client: ApiClient,
        settings: Settings | None = None,
        config_map: str = CONFIG_MAP,
        *,
        timing: Timing | None = None,
        settle: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._settings = settings or Settings()
        self._settle = settle
        self._clock = clock
        self._config_name = config_map.partition("/")[2]
        self._keeper = ConfigKeeper(config_map)
        self._dirty = threading.Event()
        self._stopping = threading.Event()
        self._inventory: Inventory | None = None
        self._counts: tuple[int, tuple[str, ...]] = (0, ())
        self._problems: tuple[str, ...] = ()
        timing = timing or Timing()
        self._nodes: Reflector[Node] = Reflector(client, NODES, self._dirty.set, timing=timing, clock=clock)
        self._namespaces: Reflector[Namespace] = Reflector(
            client, NAMESPACES, self._dirty.set, timing=timing, clock=clock
        )
        self._config_maps: Reflector[ConfigMapData] = Reflector(
            client, config_map_resource(config_map), self._dirty.set, timing=timing, clock=clock
        )

    def inventory(self) -> Inventory | None:
        """The current snapshot; None until nodes, namespaces and the ConfigMap were all listed once."""
        return self._inventory

    def status(self) -> SourceStatus:
        """How far the snapshot can be trusted. The age is that of the watch that was silent longest."""
        nodes, configs = self._counts
        return SourceStatus(
            synced=self._inventory is not None,
            age_seconds=max(reflector.age() for reflector in self._reflectors()),
            problems=(*(r.problem for r in self._reflectors() if r.problem is not None), *self._problems),
            nodes=nodes,
            configs=configs,
            watch_restarts=MappingProxyType({r.resource.name: r.restarts for r in self._reflectors()}),
        )

    async def run(self) -> None:
        """Watch until cancelled; the threads have ended when this returns."""
        threads = [
            threading.Thread(target=reflector.run, name=f"watch-{reflector.resource.name}", daemon=True)
            for reflector in self._reflectors()
        ]
        threads.append(threading.Thread(target=self._build, name="inventory", daemon=True))
        for thread in threads:
            thread.start()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._stopping.set()
            self._dirty.set()
            for reflector in self._reflectors():
                reflector.stop()
            await asyncio.to_thread(_join, threads)
            self._client.close()

    def _reflectors(self) -> tuple[Reflector[Any], ...]:
        return (self._nodes, self._namespaces, self._config_maps)

    def _build(self) -> None:
        took = 0.0
        while not self._stopping.is_set():
            self._dirty.wait()
            if self._stopping.wait(max(self._settle, 4 * took)):
                return
            self._dirty.clear()  # before reading: what changes from here on makes the next one
            began = self._clock()
            try:
                self._rebuild()
            except Exception:
                log.exception("the inventory could not be built, keeping the last one")
                self._report(("the inventory could not be built, keeping the last one",))
            took = self._clock() - began

    def _rebuild(self) -> None:
        nodes, namespaces, config_maps = self._nodes.records(), self._namespaces.records(), self._config_maps.records()
        if nodes is None or namespaces is None or config_maps is None:
            return
        self._keeper.update(config_maps.get(self._config_name))
        configs = self._keeper.configs
        inventory = Inventory(Fleet(nodes.values(), configs, self._settings), MappingProxyType(namespaces))
        self._counts = (len(nodes), tuple(configs))
        self._report(self._keeper.problems)
        if self._inventory is None:
            log.info(
                "inventory complete: %d nodes, %d configs, %d namespaces", len(nodes), len(configs), len(namespaces)
            )
        self._inventory = inventory

    def _report(self, problems: tuple[str, ...]) -> None:
        for problem in problems:
            if problem not in self._problems:
                log.warning("%s", problem)
        if self._problems and not problems:
            log.info("configurations are in order again")
        self._problems = problems


def _join(threads: list[threading.Thread]) -> None:
    # A thread in the middle of a connect or a list may take longer; it is a daemon and touches nothing that matters.
    deadline = time.monotonic() + 5.0
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
