"""Without a control plane none of the other modules is collected, and this one says how to get one."""

from __future__ import annotations

import os

import pytest

from tests.e2e.harness import controlplane


def test_there_is_a_control_plane() -> None:
    if controlplane.existing() is None and controlplane.assets() is None:
        outcome = pytest.fail if os.environ.get("E2E_REQUIRED") == "1" else pytest.skip
        outcome(controlplane.HOW_TO_GET_THEM)
