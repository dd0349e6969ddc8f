"""Memory is given back every so often, where the C library can."""

from __future__ import annotations

import asyncio
import ctypes
from types import SimpleNamespace

import pytest

from webhook.server.memory import keep_trimmed


async def test_it_is_given_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    thrice = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trim(pad: int) -> int:
        asked.append(pad)
        if len(asked) == 3:
            loop.call_soon_threadsafe(thrice.set)
        return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(malloc_trim=trim))
    task = asyncio.create_task(keep_trimmed(0.001))
    await asyncio.wait_for(thrice.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(asked) == {0}


async def test_a_library_without_the_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    await asyncio.wait_for(keep_trimmed(0.001), 10)
