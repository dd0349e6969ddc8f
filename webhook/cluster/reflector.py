"""A reflector: one collection of the API server, mirrored as small records by list and watch.

What it keeps to, and why:

- The list is paged, so that one page of raw JSON is in memory at a time; every object is projected at once.
- The list names no resourceVersion. "0" would be answered from a cache that may lie behind what this process has
  already seen, and older API servers ignore the page size with it. The consistent read costs the server little: it
  happens at start and after a 410, not at each reconnect.
- The watch starts at the list's resourceVersion and goes on from the last event or bookmark. Bookmarks, about one a
  minute, keep the version of a quiet collection young, so that a reconnect is not answered 410; they are also the
  heartbeat by which a dead connection is told from a quiet one: silence beyond the read timeout means reconnect.
- A version is taken over only after its event was applied. A line cut off by a broken connection was not, and is sent
  again.
- A broken connection or an overloaded server: go on from the last version. A 410, an error event, a line that is no
  event, or any other refusal: the position cannot be trusted, list anew. The records stay as they were meanwhile, and
  a new list replaces them as a whole.
- ``changed`` is called only where a projected record differs. A node's heartbeat changes nothing that is kept.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from webhook.cluster.client import ApiClient, ApiError, WatchStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

log = logging.getLogger(__name__)

_LASTED = 1.0
"""Seconds after which a watch counts as one that worked, even where nothing happened in it."""

_POSITION_HOLDS = (0, 401, 403, 429)
"""No answer, no right, no room: the position is as good as before. Any other refusal may be about the position."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A collection and what is kept of each of its objects.

    ``project`` gets the raw object and raises ValueError on what is none. Records compare by value. All objects lie in
    one namespace or in none, so that the name is the key.
    """

    name: str
    path: str
    project: Callable[[Mapping[str, Any]], T]
    field_selector: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, except ``page``, which is objects.

    Of 5,000 nodes of 15 KB, a page of 100 leaves 13 MB behind in the process, one of 250 leaves 22 MB, and reading a
    page's JSON holds up the event loop in proportion (measured).
    ``watch`` is how long the server is asked to keep a watch; each time up to a half more, so that replicas that
    started together do not reconnect together. ``silence`` has to exceed the minute between two bookmarks.
    ``backoff_first`` doubles with each failure in a row up to ``backoff_limit``; half of it is chance.
    """

    page: int = 100
    list: float = 60.0
    watch: float = 300.0
    silence: float = 70.0
    backoff_first: float = 0.25
    backoff_limit: float = 30.0


def list_all(client: ApiClient, resource: Resource[T], timing: Timing) -> Iterator[tuple[dict[str, T], str]]:
    """Page after page: records by name, and the resourceVersion of the whole list. Raises ApiError."""
    query = {"limit": str(timing.page)} | _selector(resource)
    while True:
        page = client.get(resource.path, query, timeout=timing.list)
        try:
            metadata = page["metadata"]
            records = dict(_record(resource, item) for item in page.get("items") or ())
            version, token = metadata["resourceVersion"], metadata.get("continue")
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ApiError(f"GET {resource.path}: the reply is no list") from None
        del page  # before the next one is fetched
        yield records, version
        if not token:
            return
        query["continue"] = token


class Reflector(Generic[T]):
    """Mirrors one resource until stopped. ``run`` blocks; everything else may be called from any thread."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[T],
        changed: Callable[[], None],
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.restarts = 0
        """How often list or watch were begun anew for another reason than the watch's time being up."""
        self.problem: str | None = None
        """Why nothing is heard from the server, one line; None while all is well."""
        self._client = client
        self._changed = changed
        self._timing = timing or Timing()
        self._clock = clock
        self._contact = clock()
        self._records: dict[str, T] | None = None
        self._version: str | None = None
        self._failures = 0
        self._expired = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._stream: WatchStream | None = None

    def records(self) -> dict[str, T] | None:
        """A copy of the records by name; None before the first list is complete."""
        with self._lock:
            return None if self._records is None else dict(self._records)

    def age(self) -> float:
        """Seconds since the server was last heard of."""
        return max(0.0, self._clock() - self._contact)

    def run(self) -> None:
        """List and watch, again and again, until ``stop`` is called. Raises nothing."""
        while not self._stopping.is_set():
            try:
                if self._version is None:
                    self._list()
                self._watch()
            except ApiError as error:
                if error.status not in _POSITION_HOLDS:
                    self._version = None
                self._failed(error)
            except Exception as error:
                # Nothing foreseen comes here. A mirror that ends silently would be worse than one that starts over.
                log.exception("%s: the reflector failed", self.resource.name)
                self._version = None
                self._failed(ApiError(f"{self.resource.name}: {type(error).__name__}"))

    def stop(self) -> None:
        """Make ``run`` return soon."""
        self._stopping.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.interrupt()

    def _list(self) -> None:
        fresh: dict[str, T] = {}
        version = ""
        known = self._records or {}
        for records, version in list_all(self._client, self.resource, self._timing):  # noqa: B007 - used below
            if self._stopping.is_set():
                return
            self._heard()
            # An equal record is kept as the object it was, so that nothing is held twice.
            fresh.update((name, known[name] if known.get(name) == new else new) for name, new in records.items())
        if fresh != self._records:
            with self._lock:
                self._records = fresh
            self._changed()
        self._version = version

    def _watch(self) -> None:
        if self._stopping.is_set():
            return
        opened = self._clock()
        seconds = self._timing.watch * (1 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(max(1, int(seconds))),
        } | _selector(self.resource)
        stream = self._client.watch(self.resource.path, query, timeout=self._timing.silence)
        self._heard()
        events = 0
        with self._lock:
            self._stream = stream
        try:
            if self._stopping.is_set():
                return
            for line in stream.lines():
                self._apply(line)
                self._failures, self._expired = 0, False
                self._heard()
                events += 1
        finally:
            with self._lock:
                self._stream = None
            stream.close()
            if self._clock() - opened >= _LASTED:
                self._failures = 0
        if not events and self._clock() - opened < _LASTED:
            raise ApiError(f"watch of {self.resource.path}: the server ended it at once")

    def _apply(self, line: bytes) -> None:
        """Apply one event and move on to its version. Raises ApiError, with the position given up, on what is none."""
        where = f"watch of {self.resource.path}"
        try:
            kind, raw, version = _event(line)
            if kind == "ERROR":
                self._version = None
            elif kind != "BOOKMARK":
                self._put(kind, raw)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._version = None
            raise ApiError(f"{where}: a line that is no event") from None
        if kind == "ERROR":
            raise ApiError(f"{where}: {raw.get('code')} {raw.get('message')}", _code(raw))
        self._version = version

    def _put(self, kind: str, raw: Mapping[str, Any]) -> None:
        name, record = _record(self.resource, raw)
        records = self._records if self._records is not None else {}
        if kind in ("ADDED", "MODIFIED"):
            if records.get(name) == record:
                return
            with self._lock:
                records[name] = record
        elif kind == "DELETED":
            if name not in records:
                return
            with self._lock:
                del records[name]
        else:
            raise ValueError(kind)
        self._changed()

    def _heard(self) -> None:
        self._contact = self._clock()
        if self.problem is not None:
            log.info("%s: heard from the API server again", self.resource.name)
            self.problem = None

    def _failed(self, error: ApiError) -> None:
        if self._stopping.is_set():
            return
        # A server that calls a position expired is in order, however long it was away: list at once. API servers do so
        # after each start. Only where the next position is expired too does the waiting grow.
        expired = error.status == 410
        self._failures = 1 if expired and not self._expired else self._failures + 1
        self._expired = expired
        self.restarts += 1
        text = str(error)
        if text != self.problem:
            # One lost connection or one expired position is everyday life; what lasts is worth a warning, once.
            everyday = self._failures == 1 and error.status in (0, 410)
            log.log(logging.INFO if everyday else logging.WARNING, "%s", text)
        self.problem = text
        longest = min(self._timing.backoff_limit, self._timing.backoff_first * 2 ** min(self._failures - 1, 20))
        delay = longest * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing
        self._stopping.wait(max(delay, min(error.retry_after, self._timing.backoff_limit)))


def _event(line: bytes) -> tuple[str, Mapping[str, Any], str]:
    """Type, object and resourceVersion of an event; for an error its Status and no version.

    Raises ValueError, KeyError, TypeError, AttributeError or RecursionError on what is none.
    """
    event = json.loads(line)
    kind, raw = event["type"], event["object"]
    if not isinstance(raw, dict):
        raise TypeError(raw)
    if kind == "ERROR":
        return kind, raw, ""
    version = raw["metadata"]["resourceVersion"]
    if not isinstance(version, str) or not version:
        raise ValueError(version)
    return kind, raw, version


def _code(status: Mapping[str, Any]) -> int:
    code = status.get("code")
    return code if isinstance(code, int) else 0


def _record(resource: Resource[T], raw: Mapping[str, Any]) -> tuple[str, T]:
    """Name and record of an object. Raises ValueError, KeyError or TypeError on what is none."""
    name = raw["metadata"]["name"]
    if not isinstance(name, str) or not name:
        raise ValueError(name)
    return name, resource.project(raw)


def _selector(resource: Resource[T]) -> dict[str, str]:
    return {"fieldSelector": resource.field_selector} if resource.field_selector else {}
