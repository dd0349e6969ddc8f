"""The client: where its cluster comes from, and the line for each way not to reach it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from kubernetes.config.incluster_config import InClusterConfigLoader

from webhook.cluster.client import ApiClient, ApiError, from_environment
from webhook.cluster.source import InputError

NODES = "/api/v1/nodes"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster that the machine running the tests may know of."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def kubeconfig(port: int, token: str = "secret") -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        }
    )


@pytest.mark.parametrize("how", ["argument", "variable", "home"])
def test_finds_the_cluster_as_kubectl_does(api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    api.token = "secret"
    path = tmp_path / "home" / ".kube" / "config" if how == "home" else tmp_path / "config"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(kubeconfig(api.port))
    if how == "variable":
        monkeypatch.setenv("KUBECONFIG", str(path))
    client = from_environment(path if how == "argument" else None)
    assert client.get(NODES, {"limit": "1"}, timeout=5)["kind"] == "List"
    client.close()


@pytest.mark.parametrize(
    ("content", "context", "line"),
    [
        pytest.param(None, None, "Invalid kube-config file. No configuration found.", id="absent"),
        pytest.param("a: [", None, "no usable kubeconfig: ParserError:", id="broken YAML"),
        pytest.param("[]", None, "no usable kubeconfig: ", id="no map"),
        pytest.param(kubeconfig(1), "there", "Invalid kube-config file. Expected object with name there", id="context"),
    ],
)
def test_unusable_kubeconfig_gets_one_line(tmp_path: Path, content: str | None, context: str | None, line: str) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError) as caught:
        from_environment(path, context)
    assert str(caught.value).startswith(f"{path}: {line}")
    assert "\n" not in str(caught.value)


def test_no_cluster_at_all() -> None:
    with pytest.raises(InputError) as caught:
        from_environment()
    assert str(caught.value) == "no kubeconfig, and not in a pod: Service host/port is not set."


def test_token_of_a_pod_is_read_again(api: Any, tmp_path: Path) -> None:
    """The kubelet swaps the file; the old token goes on to be sent only until it is refused."""
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    authority.write_text("unused over plain HTTP")
    api.token = "first"

    def load() -> Configuration:
        found = Configuration()
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
        untyped: Any = InClusterConfigLoader
        loader = untyped(str(token), str(authority), environ=environ)
        loader.load_and_set(found)
        found.host = loader.host = found.host.replace("https", "http")
        found.ssl_ca_cert = loader.ssl_ca_cert = None
        return found

    client = ApiClient(load)
    # The pod's client spells the scheme in lower case; servers take either.
    api.scheme = "bearer"
    assert client.get(NODES, {"limit": "1"}, timeout=5)
    api.token = "second"
    token.write_text("second")
    with pytest.raises(ApiError, match="401"):
        client.get(NODES, {"limit": "1"}, timeout=5)
    assert client.get(NODES, {"limit": "1"}, timeout=5)


def test_credentials_that_are_being_written_keep_the_old_ones(api: Any) -> None:
    first = [True]

    def load() -> Configuration:
        if not first:
            raise InputError("half written")
        first.clear()
        return Configuration(host=f"http://127.0.0.1:{api.port}")

    client = ApiClient(load)
    api.token = "another"
    for _ in range(2):
        with pytest.raises(ApiError, match="401"):
            client.get(NODES, {"limit": "1"}, timeout=5)
    api.token = None
    assert client.get(NODES, {"limit": "1"}, timeout=5)


def test_unreachable(api: Any) -> None:
    client = api.client()
    api.stop()
    with pytest.raises(ApiError) as caught:
        client.get(NODES, {}, timeout=5)
    assert str(caught.value) == f"GET {NODES}: no connection: [Errno 111] Connection refused"
    assert caught.value.status == 0


def test_wrong_protocol(api: Any) -> None:
    client = ApiClient(lambda: Configuration(host=f"https://127.0.0.1:{api.port}"))
    with pytest.raises(ApiError) as caught:
        client.get(NODES, {}, timeout=5)
    assert str(caught.value).startswith(f"GET {NODES}: SSLError: ")


def test_refusal_has_the_servers_words_on_one_short_line(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api.refusals[NODES] = 429, {"Retry-After": "7"}
    api.words = "slow\n\x1b[31mdown " * 100
    with pytest.raises(ApiError) as caught:
        api.client().get(NODES, {}, timeout=5)
    text = str(caught.value)
    assert text.startswith(f"GET {NODES}: 429 slow [31mdown slow")
    assert (len(text), text.isprintable()) == (300, True)
    assert (caught.value.status, caught.value.retry_after) == (429, 7.0)


@pytest.mark.parametrize("body", [pytest.param(b"<html>", id="no JSON"), pytest.param(b"[]", id="no object")])
def test_reply_that_is_no_object(api: Any, body: bytes) -> None:
    api.bodies[NODES] = body
    with pytest.raises(ApiError) as caught:
        api.client().get(NODES, {}, timeout=5)
    assert str(caught.value) == f"GET {NODES}: the reply is no JSON object"


def test_reply_beyond_bounds(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.cluster.client.MAX_PAGE", 1 << 20)
    api.bodies[NODES] = b"x" * ((1 << 20) + 1)
    with pytest.raises(ApiError) as caught:
        api.client().get(NODES, {}, timeout=5)
    assert str(caught.value) == f"GET {NODES}: a reply of more than 1 MiB"


def test_credentials_are_in_no_message(api: Any) -> None:
    api.token = "another"
    client = ApiClient(lambda: _with_token(api.port, "Bearer hunter2"))
    with pytest.raises(ApiError) as caught:
        client.get(NODES, {}, timeout=5)
    assert "hunter2" not in str(caught.value)


def _with_token(port: int, token: str) -> Configuration:
    found = Configuration(host=f"http://127.0.0.1:{port}")
    found.api_key["BearerToken"] = token
    return found
