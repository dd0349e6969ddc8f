"""Nodes, configurations and namespaces from files, for checks without a cluster.

A file holds objects as ``kubectl get -o yaml`` or ``-o json`` prints them: one object, several YAML documents, or lists
of objects. Whatever cannot be used raises InputError with one line that begins with the file's name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from webhook import kubeyaml
from webhook.cluster.source import InputError, SourceStatus
from webhook.policy import (
    ConfigError,
    DeviceConfig,
    Fleet,
    Inventory,
    Namespace,
    Node,
    Settings,
    parse_config_map,
    project_namespace,
    project_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike

T = TypeVar("T", Node, Namespace)

CONFIG_MAP = "kube-system/nvidia-device-plugin-configs"
"""Namespace and name of the ConfigMap that the NVIDIA device plugin's documentation and ours use."""


class FileSource:
    """An inventory read once. Raises InputError when made, so that nothing half read is ever served.

    Without a file of namespaces no namespace is known, and none enforces a Pod Security level.
    """

    def __init__(
        self,
        nodes: str | PathLike[str],
        configs: str | PathLike[str],
        namespaces: str | PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        config_map: str = CONFIG_MAP,
    ) -> None:
        settings = settings or Settings()
        found = read_nodes(nodes)
        known = read_configs(configs, config_map)
        self._inventory = Inventory(
            Fleet(found, known, settings),
            {} if namespaces is None else read_namespaces(namespaces),
        )
        self._status = SourceStatus(synced=True, nodes=len(found), configs=tuple(known))

    def inventory(self) -> Inventory:
        """The snapshot; it never changes."""
        return self._inventory

    def status(self) -> SourceStatus:
        """Always synced, of age 0 and without a problem."""
        return self._status

    async def run(self) -> None:
        """Return at once: files are read when the source is made."""


def read_nodes(path: str | PathLike[str]) -> tuple[Node, ...]:
    """Every Node object of a file, in its order. Raises InputError."""
    return tuple(_read_all(path, "Node", project_node).values())


def read_namespaces(path: str | PathLike[str]) -> dict[str, Namespace]:
    """Every Namespace object of a file, by name. Raises InputError."""
    return _read_all(path, "Namespace", project_namespace)


def read_configs(path: str | PathLike[str], config_map: str = CONFIG_MAP) -> dict[str, DeviceConfig]:
    """The configurations of the ConfigMap in a file, by name. Raises InputError.

    Other kinds beside it are passed over, so that a whole manifest will do. Of several ConfigMaps the one called
    ``config_map`` (namespace/name) is read; a single one is read whatever its name.
    """
    found = [item for item in _objects(path) if item.kind == "ConfigMap"]
    if not found:
        raise InputError(f"{path}: no ConfigMap in it")
    if len(found) > 1:
        found = [item for item in found if _full_name(item.object) == config_map]
        if len(found) != 1:
            raise InputError(f"{path}: several ConfigMaps, and not exactly one is {config_map}")
    data = found[0].object.get("data") or {}
    if not isinstance(data, dict) or not all(isinstance(text, str) for text in data.values()):
        raise InputError(f"{path}: the ConfigMap's data is no map of texts")
    try:
        return parse_config_map(data)
    except ConfigError as error:
        raise InputError(f"{path}: {error}") from None


def read_documents(path: str | PathLike[str]) -> list[Any]:
    """Every document of a file: JSON as JSON, all else as YAML the way kubectl reads it. Raises InputError."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a UTF-8 text") from None
    except ValueError as error:  # a null byte in the name
        raise InputError(f"{path!r}: {error}") from None
    return parse_documents(text, str(path))


def parse_documents(text: str, origin: str) -> list[Any]:
    """Every document of a text; ``origin`` begins the message of an InputError."""
    broken_json = None
    if text.lstrip()[:1] in ("{", "["):
        try:
            return [json.loads(text)]
        except ValueError as error:
            broken_json = error
        except RecursionError:
            raise InputError(f"{origin}: nested too deeply") from None
    try:
        return kubeyaml.load_all(text)
    except kubeyaml.YAMLError as error:
        if broken_json is not None and origin.endswith(".json"):
            raise InputError(f"{origin}: no JSON: {broken_json}") from None
        raise InputError(f"{origin}: no YAML: {error}") from None


class _Item(NamedTuple):
    where: str
    """``document 2`` or ``document 1, items[3]``."""
    kind: str
    object: Mapping[str, Any]


def _read_all(path: str | PathLike[str], kind: str, project: Callable[[Mapping[str, Any]], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for item in _objects(path):
        if item.kind != kind:
            raise InputError(f"{path}: {item.where} is {_article(item.kind)}, not a {kind}")
        try:
            projected = project(item.object)
        except ValueError as error:
            raise InputError(f"{path}: {item.where}: {error}") from None
        if projected.name in found:
            raise InputError(f"{path}: {item.where}: a second {kind} called {projected.name}")
        found[projected.name] = projected
    return found


def _objects(path: str | PathLike[str]) -> Iterator[_Item]:
    for number, document in enumerate(read_documents(path), 1):
        yield from _unpack(path, document, f"document {number}")


def _unpack(path: str | PathLike[str], document: object, where: str) -> Iterator[_Item]:
    if not isinstance(document, dict):
        raise InputError(f"{path}: {where} is no Kubernetes object")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{path}: {where} has no kind")
    if not kind.endswith("List"):
        yield _Item(where, kind, document)
        return
    items = document.get("items") or []
    if not isinstance(items, list):
        raise InputError(f"{path}: {where}: items is no list")
    # The API server leaves the kind out of the items of a typed list (NodeList), but never of a plain List.
    default = kind.removesuffix("List")
    for index, item in enumerate(items):
        place = f"{where}, items[{index}]"
        if not isinstance(item, dict):
            raise InputError(f"{path}: {place} is no Kubernetes object")
        item_kind = item.get("kind") or default
        if not isinstance(item_kind, str) or not item_kind or item_kind.endswith("List"):
            raise InputError(f"{path}: {place} has no kind that a list can hold")
        yield _Item(place, item_kind, item)


def _full_name(config_map: Mapping[str, Any]) -> str:
    metadata = config_map.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _article(kind: str) -> str:
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
