"""Processes of this machine: started with a log of their own, ended by their pid, never by name."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

TAIL_LINES = 25


class ProcessError(Exception):
    """A process ended or did not come up; the text carries the end of its log."""


class Process:
    """One process. Its output goes to `log`, appended to across restarts."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        # Nothing of the caller's environment: a variable of a developer's shell may not decide a test.
        self._env = {"PATH": os.environ.get("PATH", ""), "HOME": str(log.parent), **(env or {})}
        self._popen: subprocess.Popen[bytes] | None = None
        self._started_at = 0

    def start(self) -> None:
        """Start it, or start it again once it has ended."""
        assert not self.alive, f"{self.name} runs"
        self._started_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                self.argv, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the last start."""
        assert self._popen is not None
        return self._popen.pid

    @property
    def output(self) -> str:
        """What it has printed since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._started_at)
            return log.read().decode(errors="replace")

    def terminate(self, timeout: float = 40.0) -> int:
        """Send SIGTERM and return the exit status; raises ProcessError where it does not end in time."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self) -> int:
        """Send SIGKILL, as the kernel does to a process that ran out of memory."""
        return self._end(signal.SIGKILL, 10.0)

    def send(self, number: signal.Signals) -> None:
        """Send a signal and go on."""
        if self.alive:
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        """Wait for its end and return the exit status; raises ProcessError where it does not end in time."""
        assert self._popen is not None
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.name} did not end within {timeout:g} s\n{self._tail()}") from None

    def stop(self) -> None:
        """End it for good, whatever it takes; nothing happens where it does not run."""
        if not self.alive:
            return
        try:
            self.terminate()
        except ProcessError:
            self.kill()

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
        """Wait for a condition; raises ProcessError where the process ends meanwhile, or time runs out."""
        deadline = time.monotonic() + timeout
        while not condition():
            if not self.alive:
                raise ProcessError(f"{self.name} ended before {what}\n{self._tail()}")
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name}: not {what} within {timeout:g} s\n{self._tail()}")
            time.sleep(0.05)

    def _end(self, number: signal.Signals, timeout: float) -> int:
        self.send(number)
        return self.wait(timeout)

    def _tail(self) -> str:
        return "\n".join(self.output.splitlines()[-TAIL_LINES:])


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nothing listens on; all are held at once, so no two are the same."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
