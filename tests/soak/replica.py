"""The service under test: `mps-webhook serve` on loopback, with 5,000 nodes from files."""

from __future__ import annotations

import re
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certs.issue import self_signed, write_files
from tests.bench.processes import Files
from tests.e2e.harness.metrics import Series, parse
from tests.e2e.harness.processes import Process, resident_mib

NODES = 5000
_PRINTED = re.compile(r"^(https|health): https?://[^:]+:([0-9]+)$", re.MULTILINE)
_READ = ("mps_webhook_", "process_")


class Replica:
    """One serving process, everything that is not about files and ports as by default."""

    def __init__(self, files: Files, name: str) -> None:
        options = {"nodes": "nodes.json", "configs": "configs.json", "namespaces": "namespaces.json", "tls-dir": "tls"}
        argv = [str(Path(sys.executable).with_name("mps-webhook")), "serve", "--host", "127.0.0.1"]
        argv += ["--port", "0", "--health-port", "0"]
        for option, value in options.items():
            argv += [f"--{option}", str(files.folder / value)]
        self.process = Process(name, argv, files.folder / f"{name}.log")
        self.port = self.health_port = 0

    def start(self) -> None:
        """Start it, learn its ports and wait until it is ready."""
        self.process.start()
        self.process.wait_until(lambda: "\nready\n" in self.process.output, "ready", 60.0)
        ports = dict(_PRINTED.findall(self.process.output))
        self.port, self.health_port = int(ports["https"]), int(ports["health"])

    def metrics(self) -> Series:
        """Its own metrics and the process's."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/metrics", timeout=10.0) as answer:
            return parse(answer.read().decode(), _READ)

    def resident_mib(self) -> float:
        """Its resident memory, MiB."""
        return resident_mib(self.process.pid)

    def waited_seconds(self) -> float:
        """Seconds in which its main thread, the event loop's, could have run and had no core."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9

    def forget_log(self) -> None:
        """Empty its log, which is opened for appending: a line a decision comes to hundreds of MiB in ten minutes."""
        self.process.log.open("wb").close()

    def stop(self) -> None:
        """End it without the drain time."""
        self.process.send(signal.SIGINT)
        if self.process.alive:
            self.process.wait(20.0)


def write(files: Files) -> None:
    """What replicas and clients read: fleet, reviews, and a serving pair that all replicas share."""
    files.write(NODES)
    folder = files.folder / "tls"
    folder.mkdir()
    write_files(self_signed(("localhost", "127.0.0.1")), folder)


@contextmanager
def serving(files: Files, name: str = "service") -> Iterator[Replica]:
    """A replica that is ready, until the block ends."""
    replica = Replica(files, name)
    try:
        replica.start()
        yield replica
    finally:
        replica.stop()
