"""Requests to an API server, with the configuration and the connections of the `kubernetes` client.

The client takes a second and 50 MB to load, so nothing but the command that rotates imports this module.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client, config

from certs.cluster import JSON, ClusterError, ConflictError

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubernetesTransport:
    """`Transport` with the configuration and the connections of the `kubernetes` client.

    `kubeconfig` names a file; without one: `KUBECONFIG`, else the pod's service account (its token is read anew every
    minute), else `~/.kube/config`. Raises `ClusterError` where none of them can be used.
    """

    def __init__(self, kubeconfig: str | None = None, *, timeout: float = 10.0) -> None:
        configuration = client.Configuration()
        try:
            if kubeconfig is None and "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=configuration
                )
            else:
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=kubeconfig, client_configuration=configuration
                )
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError) as error:
            raise ClusterError(f"no cluster to talk to: {_line(error)}") from None
        self._configuration = configuration
        self._client = client.ApiClient(configuration)
        self._timeout = timeout

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> JSON | None:
        """See `Transport`."""
        try:
            headers = {"Accept": "application/json", "User-Agent": "mps-webhook-certs"}
            settings: dict[str, Any] = dict(self._configuration.auth_settings())
            for setting in settings.values():
                headers[setting["key"]] = setting["value"]
            if body is not None:
                headers["Content-Type"] = content_type
            response = self._client.rest_client.pool_manager.request(
                method,
                self._configuration.host + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(total=self._timeout),
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterError(f"{method} {path}: {_line(error)}") from None
        return interpret(method, path, response.status, response.data)

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()  # type: ignore[no-untyped-call]


def interpret(method: str, path: str, status: int, content: bytes) -> JSON | None:
    """Return an answer's object, or raise what its status means; see `Transport`."""
    if status == 404 and method in ("GET", "PATCH"):
        return None
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if 200 <= status < 300 and isinstance(answer, dict):
        return answer
    message = str(answer.get("message", "")) if isinstance(answer, dict) else ""
    text = f"{method} {path}: HTTP {status}{': ' if message else ''}{' '.join(message.split())[:500]}"
    # The version is not the one that was read any more, or what was to be created exists.
    if status == 409:
        raise ConflictError(text)
    raise ClusterError(text)


def service_account_namespace() -> str | None:
    """Return the namespace of the pod this runs in; None outside of one."""
    try:
        return (_SERVICE_ACCOUNT / "namespace").read_text().strip() or None
    except OSError:
        return None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
