"""Doctor and nodes against an API server: what may not be looked at, and the dry-run pods."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.builders import LIMIT, pod
from tests.unit.cli.cluster import Sound, bound
from webhook.cli.kubectl import main
from webhook.cluster import objects
from webhook.policy import Inventory, judge_pod
from webhook.policy.patch import Operation

KINDS = [k for k in vars(objects).values() if isinstance(k, objects.Kind)]
CANARY = "Dry-run pod with mps.nvidia.com/memory-limit: no-quantity"
QUOTA = "Dry-run pod with mps.nvidia.com/active-thread-percentage: 1"


class Api:
    """Serves the objects of a ``Sound`` cluster; ``forbidden`` kinds are answered 403, pods are judged or as told."""

    def __init__(self, sound: Sound) -> None:
        self.sound = sound
        self.forbidden: set[str] = set()
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[str] = []

    def get(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        if path == "/version":
            return 200, {"gitVersion": "v1.36.0"}
        found = objects.FileObjects([self.sound.file()])
        for kind in KINDS:
            *_, before, last = path.split("/")
            if kind.plural not in (before, last) or not path.startswith(kind.base):
                continue
            if kind.plural in self.forbidden:
                return 403, {"message": f"{kind.plural} is forbidden"}
            namespace = path.split("/namespaces/")[1].split("/", maxsplit=1)[0] if "/namespaces/" in path else ""
            if kind.plural == before:
                one = found.get(kind, namespace, last)
                return (200, one) if one else (404, {"message": "not found"})
            items = list(found.each(kind, namespace))
            start, size = int(query.get("continue", ["0"])[0]), 1  # pages of one, whatever is asked for
            rest = str(start + size) if start + size < len(items) else ""
            return 200, {"metadata": {"continue": rest}, "items": items[start : start + size]}
        return 404, {"message": "no such path"}

    def post(self, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        self.asked.append(f"{path} {query}")
        if self.answers:
            return self.answers.pop(0)
        from datetime import UTC, datetime

        from webhook.cli.checks import Cluster

        inventory = Cluster(objects.FileObjects([self.sound.file()]), datetime.now(UTC)).inventory
        return judged(body, inventory)


def judged(body: Any, inventory: Inventory) -> tuple[int, Any]:
    """The answer of an API server with a webhook that works."""
    import jsonpatch

    verdict = judge_pod(body, "default", inventory)
    if not verdict.allowed:
        return 403, denied(verdict.denial())
    patch: list[Operation] = list(verdict.patch)
    return 201, jsonpatch.apply_patch(body, patch)


def denied(message: str) -> dict[str, Any]:
    return {"message": f'admission webhook "pods.mps.nvidia.com" denied the request: {message}'}


@contextmanager
def serving(api: Api) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            self._answer(*api.get(url.path, parse_qs(url.query)))

        def do_POST(self) -> None:
            url = urlsplit(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(*api.post(url.path, parse_qs(url.query), body))

        def _answer(self, status: int, found: Any) -> None:
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Live:
    """A cluster behind an API server, and the commands that ask it."""

    def __init__(self, api: Api, kubeconfig: Path) -> None:
        self.api = api
        self.sound = api.sound
        self._kubeconfig = kubeconfig

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--kubeconfig", str(self._kubeconfig)])

    def doctor(self, check: str = "", *arguments: str) -> list[dict[str, str]]:
        found = json.loads(self.run("doctor", "-o", "json", *arguments).stdout)
        return [r for r in found if check in ("", r["check"])]


def kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def live(sound: Sound, tmp_path: Path) -> Iterator[Live]:
    api = Api(sound)
    with serving(api) as port:
        yield Live(api, kubeconfig(tmp_path, port))


def test_a_sound_cluster_is_in_order(live: Live) -> None:
    done = live.run("doctor")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert f"✓ canary          {CANARY}: denied with invalid-memory-limit, as it should be" in lines
    assert f"✓ canary          {QUOTA}: allowed, as it should be, and patched" in lines
    assert lines[-1] == "21 in order"


def test_the_canaries_are_dry_runs_in_the_namespace_named(live: Live) -> None:
    live.doctor("", "-n", "team-a")
    assert live.api.asked == ["/api/v1/namespaces/team-a/pods {'dryRun': ['All']}"] * 2


@pytest.mark.parametrize(
    ("forbidden", "checks"),
    [
        pytest.param("secrets", {"certificate", "ca-bundle"}, id="secrets"),
        pytest.param("nodes", {"nodes", "promises", "canary"}, id="nodes"),
        pytest.param("pods", {"promises"}, id="pods"),
        pytest.param("daemonsets", {"daemonsets", "default-config", "settings"}, id="daemonsets"),
        pytest.param(
            "configmaps", {"configs", "default-config", "nodes", "promises", "settings", "canary"}, id="configmaps"
        ),
        pytest.param("deployments", {"deployments", "default-config"}, id="deployments"),
        pytest.param(
            "mutatingwebhookconfigurations", {"configurations", "ca-bundle", "deployments"}, id="configurations"
        ),
    ],
)
def test_what_may_not_be_looked_at_is_said_and_the_rest_examined(live: Live, forbidden: str, checks: set[str]) -> None:
    live.api.forbidden = {forbidden}
    done = live.run("doctor", "-o", "json")
    unseen = [r for r in json.loads(done.stdout) if r["status"] == "unseen"]
    assert {r["check"] for r in unseen} == checks
    assert all(r["message"].endswith(f"403 {forbidden} is forbidden") for r in unseen)
    assert all(r["mend"] == "kubectl auth can-i --list" for r in unseen)
    assert done.exit_code == 2


def test_a_problem_beats_what_may_not_be_looked_at(live: Live) -> None:
    live.api.forbidden = {"secrets"}
    live.sound.remove("Deployment", "mps-webhook")
    assert live.run("doctor").exit_code == 1


ALLOWED: tuple[int, dict[str, Any]] = (201, {"spec": {"containers": [{"name": "canary"}]}})


@pytest.mark.parametrize(
    ("answers", "subject", "status", "message"),
    [
        pytest.param(
            [ALLOWED],
            CANARY,
            "problem",
            "was allowed, and should be denied with invalid-memory-limit: the API server did not ask the webhook",
            id="denied-canary-allowed",
        ),
        pytest.param(
            [(403, denied("something else [other]"))],
            CANARY,
            "problem",
            'should be denied with invalid-memory-limit, but: admission webhook "pods.mps.nvidia.com" denied the '
            "request: something else [other]",
            id="denied-otherwise",
        ),
        pytest.param(
            [(500, {"message": "Internal error occurred: failed calling webhook"})],
            CANARY,
            "problem",
            "the API server gets no answer from the webhook: Internal error occurred: failed calling webhook",
            id="webhook-down",
        ),
        pytest.param(
            [(403, denied("no [invalid-memory-limit]")), ALLOWED],
            QUOTA,
            "problem",
            "was allowed without CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: the mutating webhook was not asked",
            id="not-patched",
        ),
        pytest.param(
            [(403, denied("no [invalid-memory-limit]")), (403, denied("no [mixed-candidates]"))],
            QUOTA,
            "problem",
            'should be allowed, but: admission webhook "pods.mps.nvidia.com" denied the request: no [mixed-candidates]',
            id="denied-although-it-fits",
        ),
        pytest.param(
            [(403, {"message": 'pods is forbidden: User "u" cannot create'})],
            "Not looked at",
            "unseen",
            'dry-run pod in namespace default: 403 pods is forbidden: User "u" cannot create',
            id="no-right-to-create-pods",
        ),
    ],
)
def test_canaries(
    live: Live, answers: list[tuple[int, dict[str, Any]]], subject: str, status: str, message: str
) -> None:
    live.api.answers = answers
    found = {r["subject"]: r for r in live.doctor("canary")}
    assert (found[subject]["status"], found[subject]["message"]) == (status, message)


def test_without_a_config_that_shares_a_plain_pod_is_the_canary(live: Live) -> None:
    data = live.sound.find("ConfigMap", "nvidia-device-plugin-configs")["data"]
    del data["mps-2x"], data["mps-4x"]
    for name in ("t4-a", "t4-b"):
        live.sound.remove("Node", name)
    assert [(r["subject"], r["status"]) for r in live.doctor("canary")] == [
        (CANARY, "ok"),
        ("Dry-run pod with nvidia.com/gpu: 1", "ok"),
    ]


def test_nodes_from_the_cluster(live: Live) -> None:
    live.sound.add(bound(pod().gpu().env(LIMIT, "0=3G"), "t4-a", "p"))
    done = live.run("nodes")
    assert done.exit_code == 0
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        "NODE      CONFIG  STRATEGY  SHARES  USED  FREE  A SHARE     PROMISED",
        "t4-a      mps-4x  mps            4     1     3  3840Mi 25%  ██░░░░░░░░ 20%",
        "t4-b      mps-2x  mps            4     0     4  7680Mi 50%  ░░░░░░░░░░ 0%",
    ]


def test_nodes_without_the_right_to_see_pods(live: Live) -> None:
    live.api.forbidden = {"pods"}
    done = live.run("nodes")
    assert done.exit_code == 0
    assert done.stderr == (
        "kubectl mps: pods could not be listed, so nobody knows what is used: GET /api/v1/pods: 403 pods is forbidden\n"
    )
    assert done.stdout.splitlines()[1].split()[3:6] == ["4", "?", "?"]


def test_nodes_without_the_right_to_see_nodes(live: Live) -> None:
    live.api.forbidden = {"nodes"}
    done = live.run("nodes")
    assert done.exit_code == 2
    assert done.stderr == "kubectl mps: GET /api/v1/nodes: 403 nodes is forbidden\n"


@pytest.mark.parametrize("command", ["nodes", "doctor"])
def test_no_cluster_is_one_line(command: str, tmp_path: Path) -> None:
    with serving(Api(Sound(tmp_path))) as port:
        pass
    done = CliRunner().invoke(main, [command, "--kubeconfig", str(kubeconfig(tmp_path, port))])
    assert done.exit_code == 2
    assert done.stderr.startswith("kubectl mps: GET /version: no connection: ")
    assert len(done.stderr.splitlines()) == 1
