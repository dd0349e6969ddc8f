"""The client: a process of its own that asks as the API server does, one request at a time on each connection.

It reads one job as a line of JSON from standard input, does it, and answers with a line of JSON, until its input ends.
TLS sits on the sockets themselves and epoll waits for them, with no event loop and no buffers in between: the client
must not be what is measured. How busy it was is part of the answer.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from tests.bench.figures import percentile

WARM_SECONDS = 0.1
STALL_SECONDS = 10.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Job:
    """What to measure. `bodies`: a file with one body on each line, sent in turn. `ca` empty: the certificate is not
    checked. `pids`: whose CPU time counts as the server's.

    `kind` steady: for `seconds`, on `connections` connections that are kept. `kind` cold: `connections` times one
    request on a connection of its own.
    """

    kind: str
    host: str
    port: int
    path: str
    bodies: str
    ca: str
    connections: int
    seconds: float
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Steady:
    """Milliseconds from sending a request to its whole answer, of those answered with 200; `refused` with 503."""

    requests: int
    refused: int
    seconds: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    server_cpu_seconds: float
    client_busy: float

    @property
    def per_second(self) -> float:
        """Requests answered in a second."""
        return self.requests / self.seconds


@dataclass(frozen=True, slots=True)
class Cold:
    """Milliseconds on a new connection: TCP and TLS alone, and until the first request is answered."""

    requests: int
    handshake_p50_ms: float
    handshake_p95_ms: float
    answer_p50_ms: float
    answer_p95_ms: float


class Connection:
    """One connection that is kept, which takes its requests from those that all share."""

    def __init__(self, job: Job, context: ssl.SSLContext, requests: Iterator[bytes]) -> None:
        self._requests = requests
        raw = socket.create_connection((job.host, job.port), timeout=STALL_SECONDS)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(raw, server_hostname=job.host)
        self.started = 0.0
        self._answer = b""

    def send(self) -> None:
        """Send the request; it fits into the socket's buffer, or the server is stuck."""
        request = next(self._requests)
        self.started = perf_counter()
        if self.socket.send(request) != len(request):
            raise RuntimeError("the server does not take a request")

    def receive(self) -> bytes | None:
        """Take what has come; the whole answer once it is there."""
        answer = self._answer
        while True:
            try:
                received = self.socket.recv(65536)
            except ssl.SSLWantReadError:
                self._answer = answer
                return None
            if not received:
                raise RuntimeError(f"the server has closed the connection after {answer[:200]!r}")
            answer += received
            head = answer.find(b"\r\n\r\n")
            if head >= 0 and len(answer) >= head + 4 + _length(answer):
                self._answer = b""
                return answer


def steady(job: Job, context: ssl.SSLContext, requests: Iterator[bytes]) -> Steady:
    """Keep all connections busy for a while."""
    connections = [Connection(job, context, requests) for _ in range(job.connections)]
    poll = select.epoll()
    by_descriptor = {connection.socket.fileno(): connection for connection in connections}
    for descriptor, connection in by_descriptor.items():
        connection.socket.setblocking(False)
        poll.register(descriptor, select.EPOLLIN)
    try:
        _ask(poll, by_descriptor, WARM_SECONDS)
        # Between the two all connections are idle: a second measured begins and ends with no request under way.
        cpu, client = _cpu_seconds(job.pids), process_time()
        latencies, refused, seconds = _ask(poll, by_descriptor, job.seconds)
        client_busy = (process_time() - client) / seconds
        cpu = _cpu_seconds(job.pids) - cpu
    finally:
        poll.close()
        for connection in connections:
            connection.socket.close()
    latencies.sort()
    p50, p90, p99, most = (percentile(latencies, rank) * 1000 for rank in (50, 90, 99, 100))
    return Steady(len(latencies), refused, seconds, p50, p90, p99, most, cpu, client_busy)


def _ask(poll: select.epoll, by_descriptor: dict[int, Connection], seconds: float) -> tuple[list[float], int, float]:
    latencies: list[float] = []
    refused, under_way = 0, len(by_descriptor)
    waiting: list[tuple[float, Connection]] = []
    begin = perf_counter()
    end = begin + seconds
    for connection in by_descriptor.values():
        connection.send()
    while under_way or waiting:
        events = poll.poll(0.01 if waiting else STALL_SECONDS)
        if not events and not waiting:
            raise RuntimeError(f"no answer in {STALL_SECONDS:g} seconds")
        for descriptor, _ in events:
            connection = by_descriptor[descriptor]
            answer = connection.receive()
            if answer is None:
                continue
            now = perf_counter()
            under_way -= 1
            if answer.startswith(b"HTTP/1.1 200"):
                latencies.append(now - connection.started)
            elif answer.startswith(b"HTTP/1.1 503"):
                refused += 1
                waiting.append((now + _patience(answer), connection))
                continue
            else:
                raise RuntimeError(f"unexpected answer: {answer[:300]!r}")
            if now < end:
                connection.send()
                under_way += 1
        if waiting:
            now = perf_counter()
            due = [connection for at, connection in waiting if at <= now] if now < end else []
            waiting = [(at, connection) for at, connection in waiting if at > now] if now < end else []
            for connection in due:
                connection.send()
                under_way += 1
    return latencies, refused, perf_counter() - begin


def cold(job: Job, context: ssl.SSLContext, requests: Iterator[bytes]) -> Cold:
    """One connection after the other, each for one request."""
    handshakes, answers = [], []
    for _ in range(job.connections):
        begin = perf_counter()
        connection = Connection(job, context, requests)
        handshakes.append((perf_counter() - begin) * 1000)
        with connection.socket:
            connection.send()
            if not (connection.receive() or b"").startswith(b"HTTP/1.1 200"):
                raise RuntimeError("no answer on a new connection")
            answers.append((perf_counter() - begin) * 1000)
    handshakes.sort()
    answers.sort()
    return Cold(
        job.connections,
        percentile(handshakes, 50),
        percentile(handshakes, 95),
        percentile(answers, 50),
        percentile(answers, 95),
    )


def done(job: Job) -> Steady | Cold:
    """Do one job in this process."""
    context = ssl.create_default_context(cafile=job.ca or None)
    if not job.ca:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    bodies = Path(job.bodies).read_bytes().splitlines(keepends=True)
    requests = cycle([_request(job, body) for body in bodies])
    gc.collect()
    gc.disable()
    try:
        return (cold if job.kind == "cold" else steady)(job, context, requests)
    finally:
        gc.enable()


def _request(job: Job, body: bytes) -> bytes:
    """With the headers that the API server's client sends."""
    head = (
        f"POST {job.path}{'&' if '?' in job.path else '?'}timeout=10s HTTP/1.1\r\nHost: {job.host}:{job.port}\r\n"
        "User-Agent: kube-apiserver-admission\r\nAccept: application/json, */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def _length(answer: bytes) -> int:
    found = _LENGTH.search(answer)
    if found is None:
        raise RuntimeError(f"an answer without a length: {answer[:300]!r}")
    return int(found[1])


def _patience(answer: bytes) -> float:
    found = _RETRY_AFTER.search(answer)
    return float(found[1]) if found else 0.0


def _cpu_seconds(pids: tuple[int, ...]) -> float:
    """CPU time of these processes so far, in user and kernel mode."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _job(line: str) -> Job:
    found: dict[str, Any] = json.loads(line)
    return Job(**{**found, "pids": tuple(found["pids"])})


def main() -> None:
    """Answer jobs until the input ends."""
    for line in sys.stdin:
        print(json.dumps(asdict(done(_job(line)))), flush=True)


if __name__ == "__main__":
    main()
