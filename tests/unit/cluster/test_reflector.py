"""The reflector against an API server: lists, watches, and all that goes wrong between."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration

from webhook.cluster.client import ApiError
from webhook.cluster.reflector import Reflector, Resource, Timing

PATH = "/api/v1/nodes"
FAST = Timing(page=3, list=2.0, watch=300.0, silence=0.4, backoff_first=0.01, backoff_limit=0.05)


def labels_of(raw: Any) -> str:
    """A projection that keeps one label and forgets the rest."""
    if raw.get("kind") == "Nonsense":
        raise ValueError("not a Node")
    return str(raw["metadata"].get("label", raw.get("label", "")))


class Mirror:
    """A reflector in its thread, with a count of the changes it told."""

    def __init__(self, client: Any, timing: Timing, selector: str = "") -> None:
        self.changes = 0
        self.reflector = Reflector(client, Resource("nodes", PATH, labels_of, selector), self._count, timing=timing)
        self.thread = threading.Thread(target=self.reflector.run, daemon=True)

    def _count(self) -> None:
        self.changes += 1

    @property
    def records(self) -> dict[str, str] | None:
        return self.reflector.records()


@pytest.fixture
def mirror(api: Any) -> Iterator[Callable[..., Mirror]]:
    started: list[Mirror] = []

    def start(client: Any = None, timing: Timing = FAST, selector: str = "") -> Mirror:
        mirror = Mirror(client or api.client(), timing, selector)
        mirror.thread.start()
        started.append(mirror)
        return mirror

    yield start
    for mirror in started:
        mirror.reflector.stop()
        mirror.thread.join(5)
        assert not mirror.thread.is_alive()


def watching(api: Any, times: int = 1) -> Callable[[], bool]:
    return lambda: api.count(PATH, watch=True) >= times


def test_lists_in_pages(api: Any, mirror: Any, until: Any) -> None:
    for i in range(8):
        api.put(PATH, f"n{i}", label=str(i))
    m = mirror()
    until(watching(api))
    assert m.records == {f"n{i}": str(i) for i in range(8)}
    lists = [query for _, query in api.requests if "watch" not in query]
    assert lists == [{"limit": "3"}, {"limit": "3", "continue": "3"}, {"limit": "3", "continue": "6"}]
    assert m.changes == 1


def test_watch_is_asked_for_as_it_should_be(api: Any, mirror: Any, until: Any) -> None:
    api.put(PATH, "a")
    mirror(selector="metadata.name=a")
    until(watching(api))
    listed, watched = (query for _, query in api.requests)
    assert listed == {"limit": "3", "fieldSelector": "metadata.name=a"}
    assert 300 <= int(watched.pop("timeoutSeconds")) <= 450
    assert watched == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": str(api.version),
        "fieldSelector": "metadata.name=a",
    }


def test_nothing_is_known_before_the_first_list_is_complete(api: Any, mirror: Any, until: Any) -> None:
    api.refusals[PATH] = 500, {}
    m = mirror()
    until(lambda: m.reflector.problem)
    assert m.records is None
    del api.refusals[PATH]
    until(watching(api))
    assert m.records == {}
    assert m.reflector.problem is None


def test_events(api: Any, mirror: Any, until: Any) -> None:
    api.put(PATH, "a", label="1")
    m = mirror()
    until(watching(api))
    api.put(PATH, "b", label="2")
    until(lambda: m.records == {"a": "1", "b": "2"})
    api.put(PATH, "a", label="3")
    until(lambda: m.records == {"a": "3", "b": "2"})
    api.delete(PATH, "b")
    until(lambda: m.records == {"a": "3"})
    assert m.changes == 4
    assert m.reflector.restarts == 0


def test_heartbeats_change_nothing(api: Any, mirror: Any, until: Any) -> None:
    api.put(PATH, "a", label="1", heartbeat=0)
    m = mirror()
    until(watching(api))
    for i in range(1, 50):
        api.put(PATH, "a", label="1", heartbeat=i)
    api.put(PATH, "b", label="2")
    until(lambda: "b" in m.records)
    assert m.changes == 2


def test_watch_resumes_from_the_last_bookmark(api: Any, mirror: Any, until: Any) -> None:
    m = mirror()
    until(watching(api))
    api.bookmark(PATH)
    bookmark = str(api.version)
    until(lambda: m.reflector._version == bookmark)
    api.compact()
    api.compacted = int(bookmark)  # what came before the bookmark is gone, what came with it is not
    api.end_watches()
    until(watching(api, 2))
    assert api.versions_watched(PATH)[1] == bookmark
    api.put(PATH, "a")
    until(lambda: m.records == {"a": ""})
    assert api.count(PATH, watch=False) == 1
    assert m.reflector.restarts == 0


@pytest.mark.parametrize("in_stream", [pytest.param(True, id="as an event"), pytest.param(False, id="as a status")])
def test_expired_position_means_a_new_list(api: Any, mirror: Any, until: Any, in_stream: bool) -> None:
    api.expired_in_stream = in_stream
    for name in ("a", "b", "c", "d"):
        api.put(PATH, name, label="1")
    m = mirror()
    until(watching(api))
    kept = m.records["a"]
    api.mute = True
    api.delete(PATH, "b")
    api.put(PATH, "e", label="1")
    api.compact()
    api.mute = False
    api.end_watches()
    until(lambda: set(m.records) == {"a", "c", "d", "e"})
    assert m.records["a"] is kept
    assert m.changes == 2
    assert api.count(PATH, watch=False) == 4  # two pages, twice
    until(lambda: m.reflector.problem is None)


def test_new_list_replaces_as_a_whole(api: Any, mirror: Any, until: Any) -> None:
    """Between the pages of a new list the old records stay, all of them."""
    for i in range(7):
        api.put(PATH, f"n{i}", label="old")
    m = mirror()
    until(watching(api))
    seen: list[set[str]] = []
    for i in range(7):
        api.mute = True
        api.put(PATH, f"n{i}", label="new")
    api.compact()
    api.mute = False
    real = m.reflector._client.get

    def spy(*args: Any, **kwargs: Any) -> Any:
        seen.append(set(m.records.values()))
        return real(*args, **kwargs)

    m.reflector._client.get = spy
    api.end_watches()
    until(lambda: set(m.records.values()) == {"new"})
    assert seen == [{"old"}] * 3


def test_same_list_again_changes_nothing(api: Any, mirror: Any, until: Any) -> None:
    api.put(PATH, "a", label="1")
    m = mirror()
    until(watching(api))
    api.compact()
    api.end_watches()
    until(watching(api, 3))
    assert m.changes == 1


def test_half_open_connection_is_noticed(api: Any, mirror: Any, until: Any) -> None:
    m = mirror()
    until(watching(api))
    before = m.reflector._version
    api.mute = True
    until(watching(api, 2))
    api.mute = False
    assert api.versions_watched(PATH)[:2] == [before, before]
    assert m.reflector.restarts >= 1
    api.put(PATH, "a")
    until(lambda: m.records == {"a": ""})
    assert api.count(PATH, watch=False) == 1


def test_line_cut_off_is_not_applied_and_comes_again(api: Any, mirror: Any, until: Any) -> None:
    m = mirror()
    until(watching(api))
    api.mute = True
    before = m.reflector._version
    api.put(PATH, "a", label="whole")
    line = api.log[-1][2]
    api.mute = False
    with api.changed:
        api.log.clear()  # the event itself is sent by hand, in part
    api.end_watches(line[: len(line) // 2])
    api.log.append((api.version, PATH, line))
    until(lambda: m.records == {"a": "whole"})
    assert api.versions_watched(PATH)[1] == before
    assert api.count(PATH, watch=False) == 1


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"<html>\n", id="no JSON"),
        pytest.param(b"\xff\xfe\n", id="no text"),
        pytest.param(b"[]\n", id="no object"),
        pytest.param(b"[" * 100_000 + b"\n", id="nested without end"),
        pytest.param(b'{"type": "ADDED"}\n', id="no object in the event"),
        pytest.param(b'{"type": "ADDED", "object": {"metadata": {"name": "x"}}}\n', id="no version"),
        pytest.param(b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "7"}}}\n', id="no name"),
        pytest.param(
            b'{"type": "ADDED", "object": {"kind": "Nonsense", "metadata": {"name": "x", "resourceVersion": "7"}}}\n',
            id="another kind",
        ),
        pytest.param(
            b'{"type": "LATER", "object": {"metadata": {"name": "x", "resourceVersion": "7"}}}\n', id="another type"
        ),
        pytest.param(b'{"type": "ERROR", "object": {"code": 500, "message": "internal error"}}\n', id="error"),
        pytest.param(b'{"type": "ERROR", "object": "boom"}\n', id="error without a status"),
    ],
)
def test_line_that_is_no_event_means_a_new_list(api: Any, mirror: Any, until: Any, line: bytes) -> None:
    api.put(PATH, "a", label="1")
    m = mirror()
    until(watching(api))
    api.raw(PATH, line)
    until(lambda: api.count(PATH, watch=False) == 2)
    api.put(PATH, "b", label="2")
    until(lambda: m.records == {"a": "1", "b": "2"})
    until(lambda: m.reflector.problem is None)


def test_event_without_an_end_is_given_up(api: Any, mirror: Any, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.cluster.client.MAX_LINE", 100_000)
    m = mirror()
    until(watching(api))
    api.raw(PATH, b"x" * 300_000)
    until(lambda: m.reflector.restarts)
    api.put(PATH, "a")
    until(lambda: m.records == {"a": ""})


def test_server_restart(api: Any, mirror: Any, until: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "webhook")
    api.put(PATH, "a")
    m = mirror()
    until(watching(api))
    api.stop()
    until(lambda: "no connection" in (m.reflector.problem or ""))
    assert m.records == {"a": ""}
    assert m.reflector.age() > 0
    api.put(PATH, "b")
    api.start()
    until(lambda: m.records == {"a": "", "b": ""})
    assert m.reflector.problem is None
    assert api.count(PATH, watch=False) == 1
    # Said once, however often it was tried; a connection that was lost in the closing is another matter.
    refused = "GET /api/v1/nodes: no connection: [Errno 111] Connection refused"
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING].count(refused) == 1


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        pytest.param(401, "GET /api/v1/nodes: 401 no", id="401"),
        pytest.param(403, "GET /api/v1/nodes: 403 nodes is forbidden", id="403"),
        pytest.param(503, "GET /api/v1/nodes: 503 no", id="503"),
        pytest.param(302, "GET /api/v1/nodes: 302 no", id="redirect is not followed"),
    ],
)
def test_refusal_is_one_line_and_passes(api: Any, mirror: Any, until: Any, status: int, problem: str) -> None:
    api.refusals[PATH] = status, {}
    m = mirror()
    until(lambda: m.reflector.restarts >= 3)
    assert m.reflector.problem == problem
    api.refusals.clear()
    until(lambda: m.records == {})
    assert m.reflector.problem is None


@pytest.mark.parametrize(
    ("status", "lists"),
    [
        pytest.param(401, 1, id="no credentials"),
        pytest.param(403, 1, id="no right"),
        pytest.param(429, 1, id="no room"),
        pytest.param(400, 2, id="position not understood"),
        pytest.param(504, 2, id="position ahead of the server"),
    ],
)
def test_what_a_refused_watch_means_for_the_position(
    api: Any, mirror: Any, until: Any, status: int, lists: int
) -> None:
    m = mirror()
    until(watching(api))
    api.refusals[f"{PATH}?watch"] = status, {}
    api.end_watches()
    until(lambda: str(status) in (m.reflector.problem or ""))
    api.refusals.clear()
    opened = api.count(PATH, watch=True)
    until(watching(api, opened + 1))
    api.put(PATH, "a")
    until(lambda: m.records == {"a": ""})
    assert api.count(PATH, watch=False) >= lists
    assert (api.count(PATH, watch=False) > 1) is (lists > 1)


def recorded_waits(mirror: Mirror) -> list[float]:
    """What the reflector would have waited, without the waiting."""
    waits: list[float] = []

    def wait(seconds: float | None = None) -> bool:
        waits.append(seconds or 0.0)
        return mirror.reflector._stopping.is_set()

    mirror.reflector._stopping.wait = wait  # type: ignore[method-assign, assignment]
    return waits


def test_retry_after_is_kept_to(api: Any, mirror: Any, until: Any) -> None:
    api.refusals[PATH] = 429, {"Retry-After": "3600"}
    m = Mirror(api.client(), FAST)
    waits = recorded_waits(m)
    m.thread.start()
    until(lambda: len(waits) >= 3)
    m.reflector.stop()
    m.thread.join(5)
    assert set(waits[:3]) == {FAST.backoff_limit}  # never longer than the limit, whatever the server says


def test_back_off_doubles_up_to_its_limit_with_some_chance(api: Any, until: Any) -> None:
    api.refusals[PATH] = 500, {}
    m = Mirror(api.client(), Timing(backoff_first=0.25, backoff_limit=30.0))
    waits = recorded_waits(m)
    m.thread.start()
    until(lambda: len(waits) >= 10)
    m.reflector.stop()
    m.thread.join(5)
    for wait, longest in zip(waits, [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30, 30], strict=False):
        assert longest / 2 <= wait <= longest


class Scripted:
    """A client whose watches fail one after the other, as told: at once with a status, or after some silent seconds."""

    def __init__(self, *script: float) -> None:
        self.script = list(script)
        self.now = 0.0

    def get(self, path: str, query: Any, *, timeout: float) -> Any:
        return {"metadata": {"resourceVersion": "1"}, "items": []}

    def watch(self, path: str, query: Any, *, timeout: float) -> Any:
        step = self.script.pop(0)
        if isinstance(step, int):
            raise ApiError("refused", step)
        return Silent(self, step)


class Silent:
    def __init__(self, client: Scripted, seconds: float) -> None:
        self.client, self.seconds = client, seconds

    def lines(self) -> Iterator[bytes]:
        self.client.now += self.seconds
        raise ApiError("nothing heard")

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("script", "longest"),
    [
        pytest.param([429, 429, 429, 429], [1, 2, 4, 8], id="doubles"),
        pytest.param([0, 0, 0, 410, 0], [1, 2, 4, 1, 2], id="expired after an outage: list at once"),
        pytest.param([410, 410, 410], [1, 2, 4], id="expired again and again"),
        pytest.param([429, 429, 70.0, 429], [1, 2, 1, 2], id="a watch that lasted counts as a success"),
        pytest.param([429, 429, 0.5, 429], [1, 2, 4, 8], id="one that did not counts for nothing"),
    ],
)
def test_what_the_waiting_grows_with(script: list[float], longest: list[float]) -> None:
    client = Scripted(*script)
    waits: list[float] = []
    reflector: Any = Reflector(
        client,  # type: ignore[arg-type]
        Resource("nodes", PATH, labels_of),
        lambda: None,
        timing=Timing(backoff_first=1.0),
        clock=lambda: client.now,
    )

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if not client.script:
            reflector._stopping.set()

    reflector._stopping.wait = wait
    reflector.run()
    assert len(waits) == len(longest)
    assert all(limit / 2 <= seconds <= limit for seconds, limit in zip(waits, longest, strict=True))


def test_watch_that_ends_at_once_is_not_opened_in_a_hot_loop(api: Any, mirror: Any, until: Any) -> None:
    m = mirror()
    until(watching(api))
    for _ in range(3):
        opened = api.count(PATH, watch=True)
        api.end_watches()
        until(watching(api, opened + 1))
    assert m.reflector.restarts >= 2
    assert api.count(PATH, watch=False) == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([1], id="no object"),
        pytest.param({"items": []}, id="no metadata"),
        pytest.param({"metadata": {"resourceVersion": "1"}, "items": [{}]}, id="an object without a name"),
        pytest.param({"metadata": {"resourceVersion": "1"}, "items": 3}, id="items no list"),
    ],
)
def test_reply_that_is_no_list(api: Any, mirror: Any, until: Any, body: Any) -> None:
    client = api.client()
    real = client.get
    client.get = lambda *args, **kwargs: body
    m = mirror(client)
    until(lambda: m.reflector.problem)
    assert m.reflector.problem == f"GET {PATH}: the reply is no list"
    client.get = real
    until(lambda: m.records == {})


def test_unforeseen_error_starts_over(api: Any, mirror: Any, until: Any, caplog: pytest.LogCaptureFixture) -> None:
    client = api.client()
    real = client.get
    client.get = lambda *args, **kwargs: 1 // 0
    m = mirror(client)
    until(lambda: m.reflector.problem)
    assert m.reflector.problem == "nodes: ZeroDivisionError"
    client.get = real
    until(lambda: m.records == {})


def test_rotated_token_is_read_again(api: Any, mirror: Any, until: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    api.token = "first"

    def load() -> Configuration:
        configuration = Configuration(host=f"http://127.0.0.1:{api.port}")
        configuration.api_key["BearerToken"] = f"Bearer {token.read_text()}"
        return configuration

    m = mirror(api.client(load))
    until(watching(api))
    api.token = "second"
    token.write_text("second")
    api.end_watches()
    api.put(PATH, "a")
    until(lambda: m.records == {"a": ""})
    assert api.count(PATH, watch=False) == 1


def test_stop_wakes_a_silent_watch(api: Any, until: Any) -> None:
    m = Mirror(api.client(), Timing(silence=60.0))
    m.thread.start()
    until(lambda: m.reflector._stream is not None)
    m.reflector.stop()
    m.thread.join(5)
    assert not m.thread.is_alive()


def test_stop_wakes_a_back_off(api: Any, until: Any) -> None:
    api.refusals[PATH] = 500, {}
    m = Mirror(api.client(), Timing(backoff_first=60.0, backoff_limit=60.0))
    m.thread.start()
    until(lambda: m.reflector.problem)
    m.reflector.stop()
    m.thread.join(5)
    assert not m.thread.is_alive()


def test_age_is_the_time_since_the_last_contact(api: Any, until: Any) -> None:
    now = [1000.0]
    reflector = Reflector(
        api.client(), Resource("nodes", PATH, labels_of), lambda: None, timing=FAST, clock=lambda: now[0]
    )
    now[0] = 1007.0
    assert reflector.age() == 7.0
    thread = threading.Thread(target=reflector.run, daemon=True)
    thread.start()
    until(watching(api))
    api.bookmark(PATH)
    until(lambda: reflector.age() == 0.0)
    now[0] = 1012.0
    assert reflector.age() == 5.0
    api.bookmark(PATH)
    until(lambda: reflector.age() == 0.0)
    reflector.stop()
    thread.join(5)


def test_raw_objects_are_not_kept() -> None:
    """Of 500 nodes of 13 KB each, less than 2 MB stays, and no more than a page of them is there at once."""
    import tracemalloc

    from webhook.policy import project_node

    images = [{"names": [f"registry.example.com/image-{i}@sha256:{i:064d}"], "sizeBytes": i} for i in range(90)]

    def node(i: int) -> dict[str, Any]:
        labels = {f"example.com/label-{k}": f"value-{k}" for k in range(30)} | {"kubernetes.io/hostname": f"node-{i}"}
        status = {"allocatable": {"nvidia.com/gpu": "4", "cpu": "8"}, "images": images}
        return {"kind": "Node", "metadata": {"name": f"node-{i}", "labels": labels}, "status": status}

    class Paged:
        def get(self, path: str, query: dict[str, str], *, timeout: float) -> Any:
            begin = int(query.get("continue", "0"))
            end = begin + int(query["limit"])
            metadata = {"resourceVersion": "1"} | ({"continue": str(end)} if end < 500 else {})
            # Through JSON and back, so that no string is shared between the objects.
            return json.loads(json.dumps({"metadata": metadata, "items": [node(i) for i in range(begin, end)]}))

    assert len(json.dumps(node(0))) > 10_000
    client: Any = Paged()
    reflector = Reflector(client, Resource("nodes", PATH, project_node), lambda: None, timing=Timing(page=50))
    tracemalloc.start()
    try:
        reflector._list()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reflector.records() or ()) == 500
    assert kept < 2_000_000
    assert peak < 12_000_000
