"""Each class of values that docs/measurements.md lists behaves as it says there, under a default of 4 GiB and 25 %."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.daemon import Card, Daemon
from webhook.policy.mps import MEMORY_LIMIT, THREAD_PERCENTAGE, read_memory_limit

DEFAULTS = (4096, 25)
CAP_MIB = 6144
"""More than the default limit: who gets this much has no limit at all."""

HOLDS = ["0=2G", "0=2048M", "0=2GB", "0=2Gi", "0=2GiB", "0=2g", "0 = 2G", "0=2G ", "0=2G,", "00=2G", "0=02G"]
DEFAULT_HOLDS = ["", "0=6G", "0=200G", "0=2147483648", "0=4194304K", "0=-1G"]
NO_LIMIT = [
    "2147483648",
    "2G",
    " 0=2G",
    ",0=2G",
    "0:4G",
    "garbage",
    "“0=2G”",
    "0=2G,1=2G",
    "1=2G",
    "GPU-00000000-0000-0000-0000-000000000000=2G",
    "0=0",
    "0=0M",
    "0=0G",
]
CONTEXT_FAILS = ["0=1.5G", "0=4 G", "0=2T", "0=4MB"]


def _allocated(daemon: Daemon, results: dict[str, Any], value: str) -> int | str:
    found = daemon.client({MEMORY_LIMIT: value}, CAP_MIB)
    outcome: int | str = found["allocated_mib"] if "allocated_mib" in found else found["stage"]
    results.setdefault("memory_limit_values", {})[value] = outcome
    return outcome


@pytest.mark.parametrize("value", HOLDS)
def test_limit_holds(daemon: Daemon, results: dict[str, Any], value: str) -> None:
    assert 1024 < int(_allocated(daemon, results, value)) < 2048


@pytest.mark.parametrize("value", DEFAULT_HOLDS)
def test_daemon_default_holds(daemon: Daemon, results: dict[str, Any], value: str) -> None:
    assert 3072 < int(_allocated(daemon, results, value)) < 4096
    assert read_memory_limit(value).kind in ("unset", "invalid", "enforced")


@pytest.mark.parametrize("value", NO_LIMIT)
def test_every_limit_is_gone(daemon: Daemon, results: dict[str, Any], value: str) -> None:
    assert _allocated(daemon, results, value) == CAP_MIB
    assert read_memory_limit(value).kind in ("rewritable", "invalid")


@pytest.mark.parametrize("value", CONTEXT_FAILS)
def test_context_fails(daemon: Daemon, results: dict[str, Any], value: str) -> None:
    assert _allocated(daemon, results, value) == "context"


@pytest.mark.parametrize(
    ("value", "percent"),
    [
        *[(v, 25.0) for v in ("50", "100", "0", "-5", "101", "150", "abc", "", "nan", "inf", "1e9")],
        ("12.5", 12.5),
        ("10", 10.0),
        ("5", 5.0),
    ],
)
def test_thread_percentage_only_tightens(
    daemon: Daemon, results: dict[str, Any], card: Card, value: str, percent: float
) -> None:
    found = daemon.client({THREAD_PERCENTAGE: value}, cap_mib=0)["processors"]
    results.setdefault("thread_percentage_values", {})[value] = found
    share = daemon.client({}, cap_mib=0)["processors"]
    assert found <= share
    assert abs(found - share * percent / 25) <= 4


def test_a_foreign_pipe_directory_leaves_the_daemon(daemon: Daemon, card: Card) -> None:
    found = daemon.client({"CUDA_MPS_PIPE_DIRECTORY": ""}, CAP_MIB)
    assert found["allocated_mib"] == CAP_MIB
    assert found["processors"] > daemon.client({}, cap_mib=0)["processors"]


def test_hidden_device_leaves_none(daemon: Daemon) -> None:
    assert daemon.client({"CUDA_VISIBLE_DEVICES": "1"})["stage"] != "done"
