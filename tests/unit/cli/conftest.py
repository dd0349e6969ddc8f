"""Fixtures of the commands' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.cluster import Sound


@pytest.fixture
def sound(tmp_path: Path) -> Sound:
    """A sound installation, to be broken."""
    return Sound(tmp_path)
