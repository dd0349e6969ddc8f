"""Objects of a cluster as they are, for commands that look at more than the inventory.

Kinds are looked up one by one, and each look may be refused on its own: who may not read Secrets can still be told
about nodes. ``FileObjects`` answers from files, ``webhook.cluster.look`` from an API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from webhook.cluster.files import read_documents
from webhook.cluster.source import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

Object = Mapping[str, Any]
"""An object as the API server or a file has it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object: the path its collections lie under, and their name there."""

    name: str
    base: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "") -> str:
        """The collection in one namespace, or in all."""
        return f"{self.base}/namespaces/{namespace}/{self.plural}" if namespace else f"{self.base}/{self.plural}"


NODE = Kind("Node", "/api/v1", "nodes", namespaced=False)
POD = Kind("Pod", "/api/v1", "pods")
CONFIG_MAP = Kind("ConfigMap", "/api/v1", "configmaps")
SECRET = Kind("Secret", "/api/v1", "secrets")
DAEMON_SET = Kind("DaemonSet", "/apis/apps/v1", "daemonsets")
DEPLOYMENT = Kind("Deployment", "/apis/apps/v1", "deployments")
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
MUTATING = Kind("MutatingWebhookConfiguration", _REGISTRATION, "mutatingwebhookconfigurations", namespaced=False)
VALIDATING = Kind("ValidatingWebhookConfiguration", _REGISTRATION, "validatingwebhookconfigurations", namespaced=False)


class CannotLookError(Exception):
    """An object could not be looked at: no right, no answer. The message is one line."""


class Objects(Protocol):
    """Raw objects. Whatever is returned is to be read only."""

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """One object, None where it does not exist. Raises CannotLookError."""

    def each(self, kind: Kind, namespace: str = "") -> Iterator[Object]:
        """All objects of a kind in a namespace, or in all, one after the other. Raises CannotLookError."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server says to a create that is not kept; ``object`` is what would have been stored."""

    status: int
    message: str = ""
    object: Object | None = None


class FileObjects:
    """The objects in files, which are taken for all there is: what is not in them does not exist.

    Raises InputError when made, with one line that begins with a file's name.
    """

    def __init__(self, paths: Iterable[str | PathLike[str]]) -> None:
        self._by_kind: dict[str, list[Object]] = {}
        for path in paths:
            for document in read_documents(path):
                for found in _unpack(path, document):
                    self._by_kind.setdefault(found["kind"], []).append(found)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """See ``Objects``."""
        return next((o for o in self.each(kind, namespace) if _metadata(o).get("name") == name), None)

    def each(self, kind: Kind, namespace: str = "") -> Iterator[Object]:
        """See ``Objects``."""
        for found in self._by_kind.get(kind.name, ()):
            if not namespace or not kind.namespaced or (_metadata(found).get("namespace") or "default") == namespace:
                yield found


def _unpack(path: str | PathLike[str], document: object, default: str = "") -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        raise InputError(f"{path}: something in it is no Kubernetes object")
    kind = document.get("kind") or default
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{path}: an object in it has no kind")
    if not kind.endswith("List"):
        yield {**document, "kind": kind}
        return
    items = document.get("items") or []
    if not isinstance(items, list):
        raise InputError(f"{path}: the items of a {kind} are no list")
    for item in items:
        yield from _unpack(path, item, kind.removesuffix("List"))


def _metadata(found: Object) -> Mapping[str, Any]:
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
