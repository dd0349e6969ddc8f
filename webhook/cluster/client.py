"""Reading from the API server: the kubernetes client's configuration and connection pool, raw JSON on top.

The typed client is left out on purpose. Its models refuse objects they do not know, cost 345 MB for 5,000 nodes where
projected records cost 3 MB, and its watch has neither a read timeout nor bookmarks. Its configuration is worth having:
kubeconfig with every kind of credential, in-cluster tokens, proxies.

Reads block, and each watch has a thread of its own. Three watches are three threads; a blocked read with a timeout on
the socket is the one construction that notices a half-open connection without further machinery; and the event loop
that answers reviews never has a watch's work on it. An asyncio client would be another dependency, without the
kubernetes client's credentials.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject

from webhook import __version__
from webhook.cluster.source import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_LINE = 16 << 20
"""Bytes of one watch event. etcd holds at most 1.5 MiB an object; JSON may double that, no more."""

MAX_PAGE = 256 << 20
"""Bytes of one page of a list."""

_MAX_ERROR = 64 << 10
_MAX_MESSAGE = 300
_BLOCK = 64 << 10
_DEFAULT_KUBECONFIG = "~/.kube/config"


class ApiError(Exception):
    """The API server was not reached or refused; the message is one line.

    ``status`` is the HTTP status, or the code of a Status object, 0 where there was no answer. ``retry_after`` is in
    seconds, 0.0 where the server named none.
    """

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(_one_line(message))
        self.status = status
        self.retry_after = retry_after


class ApiClient:
    """GET requests against one API server; usable from several threads.

    ``load`` makes the configuration. It is called again after a 401, so that a rotated token or client certificate is
    picked up at once; in a pod the client also reads the token file again every minute.
    """

    def __init__(self, load: Callable[[], Configuration], *, connect_timeout: float = 10.0) -> None:
        self._load = load
        self._connect_timeout = connect_timeout
        self._lock = threading.Lock()
        self._configuration, self._pool = self._connect()

    def get(self, path: str, query: Mapping[str, str], *, timeout: float) -> dict[str, Any]:
        """One JSON object. ``timeout`` is the longest silence, in seconds. Raises ApiError."""
        response = self._request(path, query, timeout)
        try:
            body = response.read(MAX_PAGE + 1)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(f"GET {path}: {_reason(error)}") from None
        finally:
            response.close()
        if len(body) > MAX_PAGE:
            raise ApiError(f"GET {path}: a reply of more than {MAX_PAGE >> 20} MiB")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ApiError(f"GET {path}: the reply is no JSON object")
        return found

    def watch(self, path: str, query: Mapping[str, str], *, timeout: float) -> WatchStream:
        """An open watch. ``timeout`` is the longest silence, in seconds. Raises ApiError."""
        return WatchStream(path, self._request(path, query, timeout))

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    def _request(self, path: str, query: Mapping[str, str], timeout: float) -> urllib3.BaseHTTPResponse:
        url, headers, pool = self.address()
        try:
            response = pool.request(
                "GET",
                f"{url}{path}?{urlencode(query)}",
                headers=headers,
                timeout=urllib3.Timeout(connect=self._connect_timeout, read=timeout),
                preload_content=False,
                redirect=False,
                retries=False,  # the caller backs off, and knows from where to go on
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(f"GET {path}: {_reason(error)}") from None
        if response.status == 200:
            return response
        try:
            raise _refusal(path, response)
        finally:
            response.close()
            if response.status == 401:
                self._reconnect()

    def address(self) -> tuple[str, dict[str, str], urllib3.PoolManager]:
        """The server's URL, headers with credentials that are valid now, and the pool. Raises ApiError."""
        headers = {"Accept": "application/json", "User-Agent": f"mps-webhook/{__version__}"}
        with self._lock:
            try:
                # Asking for the credentials makes the client read an old token file again.
                credentials: dict[str, dict[str, Any]] = dict(self._configuration.auth_settings())  # type: ignore[arg-type]
                for credential in credentials.values():
                    if credential["in"] == "header" and credential["value"]:
                        headers[credential["key"]] = credential["value"]
            except (config.ConfigException, OSError) as error:
                raise ApiError(f"no credentials for the API server: {error}") from None
            return self._configuration.host.rstrip("/"), headers, self._pool

    def _connect(self) -> tuple[Configuration, urllib3.PoolManager]:
        configuration = self._load()
        return configuration, RESTClientObject(configuration).pool_manager

    def _reconnect(self) -> None:
        try:
            configuration, pool = self._connect()
        except InputError:
            return  # a token that is being written this moment: what we have is no worse
        with self._lock:
            self._configuration, self._pool = configuration, pool


class WatchStream:
    """The lines of one watch. One thread reads; ``interrupt`` may be called from any other."""

    def __init__(self, path: str, response: urllib3.BaseHTTPResponse) -> None:
        self._path = path
        self._response = response

    def lines(self) -> Iterator[bytes]:
        """Every whole line, as soon as it is there. Ends when the server ends the watch.

        Raises ApiError where the connection breaks or is silent for too long. What was received of a line by then is
        dropped: the caller asks again from the last whole event. A line beyond bounds is an ApiError of status 413:
        asked again from there, it would come again.
        """
        rest = b""
        try:
            while block := self._response.read1(_BLOCK):
                *whole, rest = (rest + block).split(b"\n")
                yield from filter(None, whole)
                if len(rest) > MAX_LINE:
                    raise ApiError(f"watch of {self._path}: an event of more than {MAX_LINE >> 20} MiB", 413)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # ValueError: reading from what interrupt() has closed.
            raise ApiError(f"watch of {self._path}: {_reason(error)}") from None

    def interrupt(self) -> None:
        """Wake the reading thread; its iteration ends or raises ApiError."""
        try:
            self._response.shutdown()
        except (RuntimeError, ValueError, OSError):
            return  # already over

    def close(self) -> None:
        """Give the connection up."""
        self._response.close()


def from_environment(kubeconfig: str | os.PathLike[str] | None = None, context: str | None = None) -> ApiClient:
    """A client as kubectl would find its cluster: the file named, ``$KUBECONFIG``, ``~/.kube/config``, else the pod's.

    Raises InputError with one line.
    """
    return ApiClient(lambda: _configuration(kubeconfig, context))


def _configuration(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> Configuration:
    path = os.fspath(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG
    named = path != _DEFAULT_KUBECONFIG or context is not None
    found = Configuration()
    load_kube_config: Callable[..., None] = config.load_kube_config
    load_incluster_config: Callable[..., None] = config.load_incluster_config
    try:
        if named or Path(path).expanduser().is_file():
            # Nothing is written here: a renewed OIDC token stays in memory.
            load_kube_config(path, context=context, client_configuration=found, persist_config=False)
        else:
            load_incluster_config(client_configuration=found)
    except config.ConfigException as error:
        where = f"{path}: " if named else "no kubeconfig, and not in a pod: "
        raise InputError(_one_line(f"{where}{error}")) from None
    except Exception as error:
        # The loader lets whatever a broken file brings about pass through: KeyError, YAML and TLS errors.
        raise InputError(_one_line(f"{path}: no usable kubeconfig: {type(error).__name__}: {error}")) from None
    return found


def _refusal(path: str, response: urllib3.BaseHTTPResponse) -> ApiError:
    try:
        status = json.loads(response.read(_MAX_ERROR))
        message = status.get("message") if isinstance(status, dict) else None
    except (urllib3.exceptions.HTTPError, OSError, ValueError, RecursionError):
        message = None
    after = response.headers.get("Retry-After", "")
    return ApiError(
        f"GET {path}: {response.status} {message or response.reason or ''}".rstrip(),
        response.status,
        float(after) if after.isascii() and after.isdigit() and len(after) < 6 else 0.0,
    )


def _reason(error: Exception) -> str:
    """What a person needs of an urllib3 error, whose text names objects and addresses in memory."""
    match error:
        case urllib3.exceptions.ReadTimeoutError() | TimeoutError():
            return "nothing heard for too long"
        case urllib3.exceptions.NewConnectionError():  # a kind of ConnectTimeoutError, so it comes first
            return f"no connection: {error.__cause__ or 'refused'}"
        case urllib3.exceptions.ConnectTimeoutError():
            return "no connection in time"
        case urllib3.exceptions.ProtocolError():
            return "the connection broke"
        case _:
            return f"{type(error).__name__}: {error}"


def _one_line(text: str) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"
