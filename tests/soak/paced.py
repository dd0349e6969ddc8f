"""The client that keeps its pace: so many requests a second, whatever becomes of them, in a process of its own.

A request is due at its time and sent on a connection that is free; where none is, it is sent late. Nobody waits for
what `Retry-After` says: that is what makes an overload. A connection that the server gives up, by `Connection: close`
or by closing it while it is idle, is replaced, as the API server's transport does; a request that was sent and got no
answer is lost, for the API server does not repeat it.
"""

from __future__ import annotations

import gc
import json
import select
import ssl
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from tests.bench.figures import percentile
from tests.bench.load import Connection
from tests.bench.load import Job as Target
from tests.bench.processes import ROOT
from tests.soak.wire import request

GIVE_UP_SECONDS = 15.0
"""How long answers are waited for once the time is over; a request without one by then is lost."""
MAX_REASONS = 5


@dataclass(frozen=True, slots=True)
class Job:
    """`rate` requests a second on `connections` connections for `seconds`; figures for every `window` seconds."""

    port: int
    ca: str
    bodies: str
    connections: int
    rate: float
    seconds: float
    window: float = 1.0


@dataclass(frozen=True, slots=True)
class Window:
    """What was answered within one window. Milliseconds of what was accepted (200), from sending to the whole answer,
    and from the time when it was due.
    """

    accepted: int
    shed: int
    p50_ms: float
    p99_ms: float
    due_p99_ms: float


@dataclass(frozen=True, slots=True)
class Offered:
    """What became of a job. `ended` is of `time.monotonic`, which all processes of a machine share.

    `shed`: answered 503 with `Retry-After: 1`. `reasons`: the first few of what is neither that nor 200, `wrong` how
    many there were, lost ones among them.
    """

    sent: int
    accepted: int
    shed: int
    wrong: int
    reasons: tuple[str, ...]
    replaced: int
    seconds: float
    ended: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    due_p99_ms: float
    busy: float
    windows: tuple[Window, ...]


@dataclass(slots=True)
class _Answers:
    """The answers of one window, or of all."""

    took: list[float] = field(default_factory=list)
    since_due: list[float] = field(default_factory=list)
    shed: int = 0

    def window(self) -> Window:
        took, since_due = sorted(self.took), sorted(self.since_due)
        p50, p99, due = percentile(took, 50), percentile(took, 99), percentile(since_due, 99)
        return Window(len(took), self.shed, p50 * 1000, p99 * 1000, due * 1000)


class _Pool:
    """The connections: those that are free, and those with a request under way."""

    def __init__(self, job: Job) -> None:
        context = ssl.create_default_context(cafile=job.ca)
        bodies = Path(job.bodies).read_bytes().splitlines(keepends=True)
        requests = cycle([request(job.port, body) for body in bodies])
        target = Target("steady", "127.0.0.1", job.port, "/mutate", job.bodies, job.ca, job.connections, job.seconds)
        self._open = partial(Connection, target, context, requests)
        self._poll = select.epoll()
        self._known: dict[int, Connection] = {}
        self._missing = 0
        self.free: deque[Connection] = deque()
        self.busy: dict[int, float] = {}
        """When the request was due, by the connection's descriptor."""
        self.replaced = 0
        for _ in range(job.connections):
            self._add()

    def send(self, due: float) -> None:
        """Send on a free connection. Raises OSError where it cannot be sent, which loses it."""
        connection = self.free.popleft()
        try:
            connection.send()
        except OSError:
            self.replace(connection)
            raise
        self.busy[connection.socket.fileno()] = due

    def ready(self, seconds: float) -> list[Connection]:
        """Wait for what has something to read."""
        return [self._known[descriptor] for descriptor, _ in self._poll.poll(max(0.0, seconds))]

    def replace(self, connection: Connection) -> None:
        """Close one and open another; where that fails (nobody listens for the moment), again with the next."""
        descriptor = connection.socket.fileno()
        self._poll.unregister(descriptor)
        del self._known[descriptor]
        self.busy.pop(descriptor, None)
        with suppress(ValueError):
            self.free.remove(connection)
        connection.socket.close()
        self.replaced += 1
        self._missing += 1
        while self._missing:
            try:
                self._add()
            except OSError:
                return
            self._missing -= 1

    def close(self) -> None:
        for connection in self._known.values():
            connection.socket.close()
        self._poll.close()

    def _add(self) -> None:
        connection = self._open()
        connection.socket.setblocking(False)
        self._known[connection.socket.fileno()] = connection
        self._poll.register(connection.socket.fileno(), select.EPOLLIN)
        self.free.append(connection)


class _Run:
    """One job under way."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pool = _Pool(job)
        self._windows: list[_Answers] = []
        self._all = _Answers()
        self._wrong: Counter[str] = Counter()
        self._sent = 0

    def done(self) -> Offered:
        job, pool = self._job, self._pool
        busy, begin = process_time(), monotonic()
        end = begin + job.seconds
        due = begin
        while (now := monotonic()) < end:
            while due <= now and pool.free:
                self._send(due)
                due += 1 / job.rate
            self._take(pool.ready(min(due, end) - now if pool.free else end - now), begin)
        seconds = monotonic() - begin
        busy = (process_time() - busy) / seconds
        while pool.busy and monotonic() < end + GIVE_UP_SECONDS:
            self._take(pool.ready(0.1), begin)
        ended = monotonic()
        if pool.busy:
            self._wrong[f"no answer within {GIVE_UP_SECONDS:g} s"] += len(pool.busy)
        pool.close()
        whole, took = self._all.window(), sorted(self._all.took)
        return Offered(
            sent=self._sent,
            accepted=whole.accepted,
            shed=whole.shed,
            wrong=self._wrong.total(),
            reasons=tuple(f"{count} × {reason}" for reason, count in self._wrong.most_common(MAX_REASONS)),
            replaced=pool.replaced,
            seconds=seconds,
            ended=ended,
            p50_ms=whole.p50_ms,
            p99_ms=whole.p99_ms,
            max_ms=percentile(took, 100) * 1000,
            due_p99_ms=whole.due_p99_ms,
            busy=busy,
            windows=tuple(answers.window() for answers in self._windows),
        )

    def _send(self, due: float) -> None:
        self._sent += 1
        try:
            self._pool.send(due)
        except OSError as error:
            self._wrong[f"not sent: {type(error).__name__}"] += 1

    def _take(self, ready: list[Connection], begin: float) -> None:
        pool = self._pool
        for connection in ready:
            descriptor = connection.socket.fileno()
            try:
                answer = connection.receive()
            except (OSError, RuntimeError) as error:
                if descriptor in pool.busy:
                    self._wrong[f"no answer: {type(error).__name__}: {str(error)[:80]}"] += 1
                pool.replace(connection)
                continue
            if answer is None:
                continue
            now, due = monotonic(), pool.busy.pop(descriptor)
            self._count(answer, connection.started, due, now, begin)
            if b"\r\nconnection: close" in answer[: answer.find(b"\r\n\r\n")].lower():
                pool.replace(connection)
            else:
                pool.free.append(connection)

    def _count(self, answer: bytes, sent: float, due: float, now: float, begin: float) -> None:
        number = int((now - begin) / self._job.window)
        while len(self._windows) <= number:
            self._windows.append(_Answers())
        for answers in (self._windows[number], self._all):
            if answer.startswith(b"HTTP/1.1 200"):
                answers.took.append(now - sent)
                answers.since_due.append(now - due)
            elif answer.startswith(b"HTTP/1.1 503") and b"\r\nretry-after: 1\r\n" in answer.lower():
                answers.shed += 1
            elif answers is self._all:
                self._wrong[answer[:200].decode("ascii", errors="replace").split("\r\n")[0]] += 1


@contextmanager
def offering(job: Job) -> Iterator[subprocess.Popen[str]]:
    """Begin a job; `offered` waits for its end."""
    argv = [sys.executable, "-m", "tests.soak.paced", json.dumps(asdict(job))]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def offered(process: subprocess.Popen[str], seconds: float) -> Offered:
    """Return what became of a job, which is to end within so many seconds. Raises RuntimeError where it has none."""
    said, _ = process.communicate(timeout=seconds + 2 * GIVE_UP_SECONDS)
    if process.returncode:
        raise RuntimeError(f"the client ended with {process.returncode}")
    found: dict[str, Any] = json.loads(said)
    windows = tuple(Window(**window) for window in found.pop("windows"))
    return Offered(**{**found, "reasons": tuple(found["reasons"]), "windows": windows})


def offer(job: Job) -> Offered:
    """Do a job and return what became of it."""
    with offering(job) as process:
        return offered(process, job.seconds)


def main(text: str) -> None:
    """Do one job in this process and print what became of it."""
    run = _Run(Job(**json.loads(text)))
    gc.collect()
    gc.freeze()
    print(json.dumps(asdict(run.done())), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
