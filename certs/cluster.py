"""What a rotation needs of a cluster, and how it gets it from an API server.

Objects are small and few, so they are read anew instead of watched, as raw JSON: typed models of the client would
drop fields they do not know when they write an object back. Every write names the resource version it is based on;
the API server refuses it with a conflict when anybody was faster.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from certs.rotation import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JSON = dict[str, Any]

_PLURALS = {"mutating": "mutatingwebhookconfigurations", "validating": "validatingwebhookconfigurations"}


class ClusterError(Exception):
    """The API server could not be asked, or refused; one line, without anything that was sent."""


class ConflictError(ClusterError):
    """Somebody else was faster: read again."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """Contents of the Secret with the version they were read at."""

    data: Mapping[str, bytes]
    version: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """The part of a webhook configuration that matters here."""

    webhooks: tuple[tuple[str, bytes], ...]
    """Name and caBundle (PEM; empty where there is none) of each webhook, in order."""
    version: str


class Cluster(Protocol):
    """The objects that a rotation reads and writes. Every method may raise `ClusterError`."""

    def read_secret(self) -> StoredSecret | None:
        """Return the Secret; None where there is none."""
        ...

    def write_secret(self, data: Mapping[str, bytes | None], version: str | None) -> None:
        """Change keys of the Secret read at `version`, or create it (None). Raises `ConflictError`."""
        ...

    def read_configuration(self, target: Target) -> Configuration | None:
        """Return a webhook configuration; None where there is none."""
        ...

    def publish(self, target: Target, configuration: Configuration, bundle: bytes) -> None:
        """Make `bundle` the caBundle of each webhook of what was read before. Raises `ConflictError`."""
        ...


class Transport(Protocol):
    """One request to an API server."""

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> JSON | None:
        """Return the answer's object; None for 404.

        Raises `ConflictError` where a version is no longer the one that was read, `ClusterError` for other refusals.
        """
        ...


class KubernetesCluster:
    """`Cluster` on an API server.

    Needs, in RBAC: get and patch of the Secret and of the webhook configurations, all by name. RBAC cannot limit
    create to a name, and whoever may create Secrets can make tokens of any service account of the namespace: ship an
    empty Secret instead, it counts as one that has nothing usable in it. Only without one, create is needed too.
    """

    def __init__(self, transport: Transport, namespace: str, secret: str, labels: Mapping[str, str]) -> None:
        self._transport = transport
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = secret
        self._labels = dict(labels)

    def read_secret(self) -> StoredSecret | None:
        """See `Cluster`."""
        found = self._transport.request("GET", f"{self._secrets}/{self._name}")
        if found is None:
            return None
        with _well_formed("Secret"):
            data = {key: _decode(value) for key, value in (found.get("data") or {}).items()}
            return StoredSecret(data, _version(found))

    def write_secret(self, data: Mapping[str, bytes | None], version: str | None) -> None:
        """See `Cluster`. A merge patch: keys and labels of others in the Secret stay."""
        if version is None:
            body: JSON = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self._name, "labels": self._labels},
                "type": "kubernetes.io/tls",
                "data": {key: _encode(value) for key, value in data.items() if value is not None},
            }
            self._transport.request("POST", self._secrets, body)
            return
        patch = {
            "metadata": {"resourceVersion": version},
            "data": {key: None if value is None else _encode(value) for key, value in data.items()},
        }
        path = f"{self._secrets}/{self._name}"
        if self._transport.request("PATCH", path, patch, "application/merge-patch+json") is None:
            raise ConflictError(f"secret {self._name} was deleted meanwhile")

    def read_configuration(self, target: Target) -> Configuration | None:
        """See `Cluster`."""
        found = self._transport.request("GET", _path(target))
        if found is None:
            return None
        with _well_formed(str(target)):
            webhooks = tuple(
                (webhook["name"], _decode(webhook["clientConfig"].get("caBundle") or ""))
                for webhook in found.get("webhooks") or ()
            )
            return Configuration(webhooks, _version(found))

    def publish(self, target: Target, configuration: Configuration, bundle: bytes) -> None:
        """See `Cluster`. A strategic merge by the webhooks' names that touches nothing but caBundle.

        Not a JSON Patch with a `test` of the version: the API server answers one that does not hold with the same
        bare 422 as any other fault, while a version in a merge patch gives a plain conflict.
        """
        patch = {
            "metadata": {"resourceVersion": configuration.version},
            "webhooks": [
                {"name": name, "clientConfig": {"caBundle": _encode(bundle)}}
                for name, present in configuration.webhooks
                if present != bundle
            ],
        }
        if self._transport.request("PATCH", _path(target), patch, "application/strategic-merge-patch+json") is None:
            raise ConflictError(f"{target} was deleted meanwhile")


@contextmanager
def _well_formed(what: str) -> Iterator[None]:
    """Turn an answer of another shape, of a proxy for one, into an error that is tried again."""
    try:
        yield
    except (KeyError, TypeError, AttributeError):
        raise ClusterError(f"the answer is not a {what}") from None


def _path(target: Target) -> str:
    return f"/apis/admissionregistration.k8s.io/v1/{_PLURALS[target.kind]}/{target.name}"


def _version(found: JSON) -> str:
    return str(found["metadata"]["resourceVersion"])


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decode(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except (binascii.Error, ValueError):
        return b""
