"""Where a command takes its inventory from: the files it was given, else the current cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.cluster.files import CONFIG_MAP, read_configs, read_namespaces, read_nodes
from webhook.policy import DeviceConfig, Fleet, Inventory, Namespace, Node, Settings

if TYPE_CHECKING:
    from webhook.cluster.client import ApiClient


@dataclass(frozen=True)
class Files:
    """The files named on the command line, None where the current cluster is to be asked."""

    nodes: Path | None = None
    configs: Path | None = None
    namespaces: Path | None = None
    settings: Path | None = None

    def inventory(self) -> Inventory:
        """Read the inventory. Raises InputError or SettingsError, each with clear lines.

        Where nodes and configurations come from files, namespaces need not: none is then known to forbid anything.
        """
        settings, config_map = self._settings()
        cluster = _Cluster()
        nodes = read_nodes(self.nodes) if self.nodes else cluster.nodes()
        configs = read_configs(self.configs, config_map) if self.configs else cluster.configs(config_map)
        if self.namespaces:
            namespaces: Mapping[str, Namespace] = read_namespaces(self.namespaces)
        else:
            namespaces = {} if self.nodes and self.configs else cluster.namespaces()
        return Inventory(Fleet(nodes, configs, settings), namespaces)

    def _settings(self) -> tuple[Settings, str]:
        if self.settings is None and not any(name.startswith("MPS_WEBHOOK_") for name in os.environ):
            return Settings(), CONFIG_MAP
        from webhook.settings import WebhookSettings

        loaded = WebhookSettings.load(self.settings)
        return loaded.policy(), loaded.config_map


class _Cluster:
    """The current cluster, connected to when it is first asked: the client library takes its time to load."""

    @cached_property
    def _client(self) -> ApiClient:
        from webhook.cluster.client import from_environment

        return from_environment()

    def nodes(self) -> tuple[Node, ...]:
        from webhook.cluster.once import fetch_nodes

        return fetch_nodes(self._client)

    def configs(self, config_map: str) -> dict[str, DeviceConfig]:
        from webhook.cluster.once import fetch_configs

        return fetch_configs(self._client, config_map)

    def namespaces(self) -> Mapping[str, Namespace]:
        from webhook.cluster.once import fetch_namespaces

        return fetch_namespaces(self._client)
