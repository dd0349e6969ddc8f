"""A Secret volume, played by a thread: what the kubelet writes when a Secret changes, in the way it writes it."""

from __future__ import annotations

import base64
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING

import httpx

from tests.e2e.harness.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.e2e.harness.api import Api

Files = dict[str, bytes]


class SecretVolume:
    """A directory that follows a Secret.

    The files lie in a directory named by the time; `..data` leads there, and each file's name leads through `..data`.
    A change is a new directory and one rename of `..data`, so whoever resolves the link once gets files that belong
    together. `period` is in seconds; the kubelet's is a minute or more.
    """

    def __init__(
        self, api: Api, namespace: str, name: str, items: Sequence[str], folder: Path, period: float = 1.0
    ) -> None:
        self._api = api
        self._where = (name, namespace)
        self._items = tuple(items)
        self._folder = folder
        self._period = period
        self._written: Files = {}
        self._ending = threading.Event()
        self._held = threading.Event()
        self._thread = threading.Thread(target=self._run, name="secret-volume", daemon=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether every file is there; a pod would not start before."""
        return all(name in self._written for name in self._items)

    def hold(self) -> None:
        """Follow the Secret no longer; what `write` puts there stays."""
        self._held.set()

    def resume(self) -> None:
        """Follow the Secret again."""
        self._written = {}
        self._held.clear()

    def write(self, files: Files) -> None:
        """Put files there, with the swap of the link."""
        fresh = self._folder / f"..{time.strftime('%Y_%m_%d_%H_%M_%S')}.{time.monotonic_ns()}"
        fresh.mkdir(mode=0o755)
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        data, swap = self._folder / "..data", self._folder / "..data_tmp"
        before = self._folder / os.readlink(data) if data.is_symlink() else None  # noqa: PTH115
        swap.symlink_to(fresh.name)
        swap.rename(data)
        for name in files:
            link = self._folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        if before is not None:
            shutil.rmtree(before)
        self._written = files

    def stop(self) -> None:
        """Follow the Secret no longer."""
        self._ending.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        while not self._ending.wait(self._period):
            if self._held.is_set():
                continue
            try:
                secret = self._api.find("Secret", *self._where)
            except (ApiError, httpx.HTTPError):
                continue  # the API server is away: the kubelet keeps what it has
            data = {} if secret is None else secret.get("data") or {}
            files = {name: base64.b64decode(data[name]) for name in self._items if name in data}
            if len(files) == len(self._items) and files != self._written and not self._held.is_set():
                self.write(files)
