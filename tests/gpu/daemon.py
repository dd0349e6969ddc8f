"""A private MPS control daemon, and clients under it.

It has directories of its own and leaves the card alone: no setting, no compute mode, no other daemon is touched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTROL = "nvidia-cuda-mps-control"
CLIENT = Path(__file__).with_name("client.py")
TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Card:
    """GPU 0 as nvidia-smi names it; memory is MiB of the whole card, as GPU feature discovery labels it."""

    name: str
    driver: str
    memory_mib: int
    compute_capability: tuple[int, int]

    @classmethod
    def read(cls) -> Card:
        """Ask nvidia-smi."""
        query = ["nvidia-smi", "--id=0", "--query-gpu=name,driver_version,memory.total,compute_cap"]
        said = subprocess.run([*query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
        name, driver, memory, capability = (part.strip() for part in said.stdout.strip().split(","))
        major, minor = capability.split(".")
        return cls(name, driver, int(memory), (int(major), int(minor)))


@dataclass(frozen=True)
class Daemon:
    """A running daemon."""

    directory: Path

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """A client's environment: this daemon's directory and the variables, no other variable of MPS or CUDA."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        return {**plain, "CUDA_MPS_PIPE_DIRECTORY": str(self.directory), **variables}

    def command(self, text: str) -> str:
        """Give the control program one command; what it says."""
        done = subprocess.run(
            [CONTROL],
            input=f"{text}\n",
            env=self._own(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return (done.stdout + done.stderr).strip()

    def client(self, variables: Mapping[str, str], cap_mib: int = 8192) -> dict[str, Any]:
        """Run one client to its end; what it found."""
        command = [sys.executable, str(CLIENT), "--cap", str(cap_mib)]
        environment = self.environment(variables)
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @contextmanager
    def holding(self, variables: Mapping[str, str], cap_mib: int) -> Iterator[dict[str, Any]]:
        """A client that keeps what it got until the block ends."""
        command = [sys.executable, str(CLIENT), "--cap", str(cap_mib), "--hold"]
        with subprocess.Popen(
            command, env=self.environment(variables), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            assert process.stdin
            found: dict[str, Any] = json.loads(process.stdout.readline())
            try:
                yield found
            finally:
                process.stdin.close()
                process.wait(TIMEOUT_SECONDS)

    def _own(self) -> dict[str, str]:
        log = self.directory / "log"
        return {**self.environment({}), "CUDA_MPS_LOG_DIRECTORY": str(log)}

    @contextmanager
    def started(self, default_mib: int | None, default_threads: int | None) -> Iterator[Daemon]:
        """Start it with the defaults that the control daemon of a node would set, and stop it at the end."""
        (self.directory / "log").mkdir(parents=True, exist_ok=True)
        subprocess.run([CONTROL, "-d"], env=self._own(), check=True, timeout=TIMEOUT_SECONDS, stdout=subprocess.DEVNULL)
        try:
            if default_mib is not None:
                self.command(f"set_default_device_pinned_mem_limit 0 {default_mib}M")
            if default_threads is not None:
                self.command(f"set_default_active_thread_percentage {default_threads}")
            yield self
        finally:
            self.command("quit -t 10")
