"""The API server as these tests talk to it: raw JSON, warnings and refusals as they come."""

from __future__ import annotations

import re
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
from kubernetes import client, config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_CLUSTER_SCOPED = frozenset(
    {"Namespace", "Node", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ClusterRole"}
)
_VERSIONS = {
    "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
}
_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')


class ApiError(Exception):
    """A refusal, as the Status says it."""

    def __init__(self, code: int, status: Object) -> None:
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.message = str(status.get("message", ""))
        self.details: Object = status.get("details") or {}
        super().__init__(f"{code} {self.reason}: {self.message}")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of whatever code, with the texts of its Warning headers."""

    code: int
    body: Object
    warnings: list[str] = field(default_factory=list)

    def checked(self) -> Object:
        """Return the object. Raises ApiError where it was refused."""
        if self.code >= 400:
            raise ApiError(self.code, self.body)
        return self.body


class Api:
    """One API server, as one user. May be used from several threads."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    @classmethod
    def of_kubeconfig(cls, path: Path, *, connections: int = 100) -> Api:
        """Return the API server of the current context."""
        found = client.Configuration()
        load: Callable[..., None] = config.load_kube_config
        load(str(path), client_configuration=found, persist_config=False)
        context = ssl.create_default_context(cafile=found.ssl_ca_cert)
        if found.cert_file:
            context.load_cert_chain(found.cert_file, found.key_file)
        credentials: dict[str, Any] = dict(found.auth_settings())
        headers = {c["key"]: c["value"] for c in credentials.values() if c["in"] == "header" and c["value"]}
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        return cls(
            httpx.Client(
                base_url=found.host, verify=context, headers=headers, timeout=35.0, limits=limits, trust_env=False
            )
        )

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Reply:
        """Make one call; refusals are returned as well."""
        answer = self._http.request(
            method, path, params=params, json=body, headers={"Content-Type": content_type} if body is not None else None
        )
        texts = [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(answer.headers.get("Warning", ""))]
        return Reply(answer.status_code, answer.json(), texts)

    def text(self, path: str) -> str:
        """Return what is no JSON, such as /metrics."""
        answer = self._http.get(path, headers={"Accept": "text/plain"})
        answer.raise_for_status()
        return answer.text

    def try_create(self, obj: Object, *, dry_run: bool = False) -> Reply:
        """Create an object, refusal or not."""
        path = path_of(obj["kind"], obj["metadata"].get("namespace", "default"), version=obj["apiVersion"])
        return self.send("POST", path, obj, params={"dryRun": "All"} if dry_run else None)

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object. Raises ApiError."""
        return self.try_create(obj, dry_run=dry_run).checked()

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        """Read an object. Raises ApiError."""
        return self.send("GET", path_of(kind, namespace, name)).checked()

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """Read an object; None where there is none. Raises ApiError."""
        reply = self.send("GET", path_of(kind, namespace, name))
        return None if reply.code == 404 else reply.checked()

    def list(self, kind: str, namespace: str = "default", **params: str) -> list[Object]:
        """Read all objects of a kind. Raises ApiError."""
        items: list[Object] = self.send("GET", path_of(kind, namespace), params=params).checked()["items"]
        return items

    def try_patch(
        self,
        kind: str,
        name: str,
        patch: Any,
        namespace: str = "default",
        *,
        subresource: str = "",
        content_type: str = MERGE,
    ) -> Reply:
        """Patch an object or a subresource of it, refusal or not."""
        path = path_of(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        return self.send("PATCH", path, patch, content_type=content_type)

    def patch(self, kind: str, name: str, patch: Any, namespace: str = "default", **more: str) -> Object:
        """Patch an object. Raises ApiError."""
        return self.try_patch(kind, name, patch, namespace, **more).checked()

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object at once; nothing happens where there is none. Raises ApiError."""
        body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        reply = self.send("DELETE", path_of(kind, namespace, name), body)
        if reply.code != 404:
            reply.checked()


def path_of(kind: str, namespace: str = "default", name: str = "", version: str = "") -> str:
    """Return the path of a collection, or of an object by name."""
    version = version or _VERSIONS.get(kind, "v1")
    plural = kind.lower() + "s"
    where = "" if kind in _CLUSTER_SCOPED else f"/namespaces/{namespace}"
    return f"/{'api' if version == 'v1' else 'apis'}/{version}{where}/{plural}" + (f"/{name}" if name else "")


def eventually(check: Callable[[], Any], what: str, timeout: float = 20.0) -> Any:
    """Wait until `check` returns something true, and return that; an AssertionError says what it last met."""
    deadline = time.monotonic() + timeout
    while True:
        last: object = None
        try:
            found = check()
        except (ApiError, AssertionError, httpx.HTTPError) as error:
            found, last = None, error
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what} ({last or found!r})")
        time.sleep(0.1)
