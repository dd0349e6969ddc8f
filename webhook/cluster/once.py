"""Nodes, configurations and namespaces of a cluster, read once: for commands that look and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from webhook.cluster.client import ApiClient, ApiError
from webhook.cluster.files import CONFIG_MAP
from webhook.cluster.live import NAMESPACES, NODES, config_map_resource
from webhook.cluster.reflector import Resource, Timing, list_all
from webhook.cluster.source import InputError
from webhook.policy import ConfigError, DeviceConfig, Namespace, Node, parse_config_map

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


def fetch_nodes(client: ApiClient) -> tuple[Node, ...]:
    """Every node. Raises InputError."""
    return tuple(_fetch(client, NODES).values())


def fetch_namespaces(client: ApiClient) -> Mapping[str, Namespace]:
    """Every namespace by name. Raises InputError."""
    return _fetch(client, NAMESPACES)


def fetch_configs(client: ApiClient, config_map: str = CONFIG_MAP) -> dict[str, DeviceConfig]:
    """The configurations of the ConfigMap (namespace/name), by name. Raises InputError, also where it is absent."""
    found = _fetch(client, config_map_resource(config_map))
    if not found:
        raise InputError(f"ConfigMap {config_map} does not exist in the cluster")
    (data,) = found.values()
    try:
        return parse_config_map(dict(data.texts))
    except ConfigError as error:
        raise InputError(f"ConfigMap {config_map}: {error}") from None


def _fetch(client: ApiClient, resource: Resource[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    try:
        for records, _ in list_all(client, resource, Timing()):
            found.update(records)
    except ApiError as error:
        raise InputError(str(error)) from None
    return found
