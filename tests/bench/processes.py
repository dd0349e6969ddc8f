"""The processes of a measurement: servers and the client, started here, ended by their pid."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from tests.bench import fleet, pods
from tests.bench.load import Cold, Job, Steady

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 15.0
JOB_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready, and how long that took from the start of its process, in seconds."""

    pid: int
    port: int
    ca: str
    ready_seconds: float

    @property
    def pids(self) -> tuple[int, ...]:
        """The process and its children."""
        return (self.pid, *_children(self.pid))

    def memory_mib(self) -> tuple[float, float]:
        """Resident memory now and at its highest, MiB, children included."""
        found = [_status(pid) for pid in self.pids]
        return sum(now for now, _ in found), sum(most for _, most in found)

    def pin(self, cpus: set[int]) -> None:
        """Run on these CPUs only, all threads."""
        for pid in self.pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), cpus)


@dataclass(frozen=True, slots=True)
class Files:
    """What the processes read, in one folder."""

    folder: Path

    def write(self, nodes: int, profiles: int = fleet.FEW) -> None:
        """A fleet of this many nodes, and one of none; the reviews."""
        for name, content in (
            ("nodes.json", fleet.node_list(nodes, profiles)),
            ("no-nodes.json", fleet.node_list(0, profiles)),
            ("configs.json", fleet.config_map()),
            ("namespaces.json", fleet.namespaces()),
        ):
            (self.folder / name).write_text(json.dumps(content), encoding="utf-8")
        (self.folder / "mutate.json").write_bytes(pods.mutate_body())
        (self.folder / "mutate-new.json").write_bytes(b"".join(pods.new_bodies()))
        (self.folder / "validate.json").write_bytes(pods.validate_body())

    @contextmanager
    def service(self, nodes: str = "nodes.json") -> Iterator[Server]:
        """`mps-webhook serve` with these files and defaults for everything else."""
        command = Path(sys.executable).with_name("mps-webhook")
        argv = [str(command), "serve", "--self-signed", "--host", "127.0.0.1", "--port", "0", "--health-port", "0"]
        for option, name in (("--nodes", nodes), ("--configs", "configs.json"), ("--namespaces", "namespaces.json")):
            argv += [option, str(self.folder / name)]
        # Its log goes to a file, as a container runtime's end of the pipe would have it.
        with _running(argv, self.folder / "service.log") as server:
            yield server

    @contextmanager
    def empty(self, beside: Server) -> Iterator[Server]:
        """The empty endpoint, with the serving pair of the service."""
        argv = [sys.executable, "-m", "tests.bench.empty", str(Path(beside.ca).parent)]
        with _running(argv, self.folder / "empty.log") as server:
            yield Server(server.pid, server.port, beside.ca, server.ready_seconds)


class Client:
    """The process that asks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def steady(self, job: Job) -> Steady:
        """Have a job of the kind `steady` done."""
        return Steady(**self._done(job))

    def cold(self, job: Job) -> Cold:
        """Have a job of the kind `cold` done."""
        return Cold(**self._done(job))

    def _done(self, job: Job) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with _limited(self._process, JOB_SECONDS + job.seconds):
            self._process.stdin.write(json.dumps(asdict(job)) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client has ended while it measured {job.path} on port {job.port}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def client() -> Iterator[Client]:
    """A client, until the block ends."""
    argv = [sys.executable, "-m", "tests.bench.load"]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Client(process)
        finally:
            process.kill()


@contextmanager
def _running(argv: list[str], log: Path) -> Iterator[Server]:
    begin = perf_counter()
    with (
        log.open("wb") as errors,
        subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            said: dict[str, str] = {}
            with _limited(process, START_SECONDS):
                for line in process.stdout or ():
                    key, _, value = line.strip().partition(": ")
                    said[key] = value
                    if key == "ready":
                        break
            took = perf_counter() - begin
            if "ready" not in said:
                raise RuntimeError(f"{argv[0]} did not start: {log.read_text(errors='replace')[-1000:]}")
            yield Server(process.pid, urlsplit(said["https"]).port or 0, said.get("ca", ""), took)
        finally:
            _end(process)


@contextmanager
def _limited(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill the process when the block takes longer, which ends the wait for its output."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # SIGTERM would drain first
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _children(pid: int) -> tuple[int, ...]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            found += (int(child), *_children(int(child)))
    return tuple(found)


def _status(pid: int) -> tuple[float, float]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["VmHWM"].split()[0]) / 1024
