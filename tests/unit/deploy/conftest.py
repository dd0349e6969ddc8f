"""The manifests as kustomize renders them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
Object = dict[str, Any]
Objects = list[Object]


@lru_cache
def _render(target: Path) -> Objects:
    done = subprocess.run(["kubectl", "kustomize", str(target)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, f"kustomize warns: {done.stderr}"
    return list(yaml.load_all(done.stdout, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@pytest.fixture(scope="session")
def render() -> Callable[[str | Path], Objects]:
    """Objects of a kustomization, to be read only, by its folder (relative ones are below the repository's root)."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    return lambda target: _render(ROOT / target)


@pytest.fixture(scope="session")
def find() -> Callable[[Objects, str, str], Object]:
    """The one object of a kind and name."""

    def one(objects: Objects, kind: str, name: str) -> Object:
        found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} of {kind} {name}"
        return found[0]

    return one


@pytest.fixture
def webhook(render: Callable[[str], Objects]) -> Objects:
    return render("deploy/webhook")


@pytest.fixture
def runtime(render: Callable[[str], Objects]) -> Objects:
    return render("deploy/mps-runtime")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
