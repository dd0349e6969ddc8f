from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.support import DENIED, Fixed, Running, serving, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a service; arguments as of `serving`, the directory aside."""
    with ExitStack() as stack:

        def start(*arguments: Any, **settings: Any) -> Running:
            return stack.enter_context(serving(tmp_path / "tls", *arguments, **settings))

        yield start


@pytest.fixture(scope="session")
def denying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that denies whatever it judges, for tests that leave no trace in it."""
    with serving(tmp_path_factory.mktemp("denying") / "tls", policy=Fixed(verdict(DENIED))) as running:
        yield running
