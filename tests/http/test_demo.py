"""The demo of the README runs, and its answers are as they should be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_make_demo() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo"], cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("5 pods created, 3 rejected; the service has stopped\n")
