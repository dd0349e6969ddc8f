"""What MPS does with values, held against the rows measured on a GPU.

A row's ``alloc_mib`` is what a client could allocate before it was refused; the daemon's defaults were 4 GiB and 25 %
except in the groups ``mem-format`` and ``pct-format``, where it had none.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.builders import LIMIT, THREADS, node, pod
from tests.unit.policy.judging import codes, judge, patched
from webhook.policy import mps

FOLDER = Path(__file__).parents[2] / "fixtures" / "mps"
ROWS: list[dict[str, Any]] = [
    json.loads(line) for p in sorted(FOLDER.glob("*.jsonl")) for line in p.read_text().splitlines()
]
DEFAULT_MIB = 4096
SHARE = node("share", config="mps-4x", memory=4 * DEFAULT_MIB, capability="9.0", product="NVIDIA-H200")

WITH_DEFAULT = ("escape-mem CVD=0", "hier-mem", "container only /dev/nvidia0")
MEMORY = [r for r in ROWS if r["group"] in ("mem-format", *WITH_DEFAULT) and r["name"] != "None"]
PERCENT = [r for r in ROWS if r["group"] in ("pct-format", "escape-pct", "hier-pct") and r["name"] != "None"]


def effect(row: dict[str, Any]) -> str:
    """What a memory value was seen to do: hold, shrink (no context at all) or remove every limit."""
    if row["stage"] == "ctx":
        return "shrunk"
    return "removed" if row["alloc_err"] == "cudaSuccess" else "held"


def limit_after(value: str) -> str | None:
    """The value in the patched pod, None where the pod is denied."""
    subject = pod().gpu().env(LIMIT, value)
    verdict = judge(subject, SHARE)
    if not verdict.allowed:
        return None
    (entry,) = patched(subject, verdict)["spec"]["containers"][0]["env"]
    return str(entry["value"])


def row_id(row: dict[str, Any]) -> str:
    return f"{row['group']}: {row['name']!r}"


def test_there_are_rows() -> None:
    assert {effect(r) for r in MEMORY} == {"held", "shrunk", "removed"}
    assert len(MEMORY) > 60
    assert len(PERCENT) > 40


@pytest.mark.parametrize("row", [r for r in MEMORY if effect(r) != "held" and r["name"]], ids=row_id)
def test_a_value_that_removed_or_shrank_the_limit_never_passes_untouched(row: dict[str, Any]) -> None:
    after = limit_after(row["name"])
    assert after is None or (after != row["name"] and re.fullmatch(r"0=[1-9][0-9]*M", after))


DOCUMENTED = re.compile(r"0=0*[1-9][0-9]*[MG](?:i?B|i)?", re.IGNORECASE)


@pytest.mark.parametrize("row", [r for r in MEMORY if effect(r) == "held"], ids=row_id)
def test_a_documented_form_that_held_passes_untouched(row: dict[str, Any]) -> None:
    """Above the share the daemon's default held, which is no raise but a mistake all the same."""
    read = mps.read_memory_limit(row["name"])
    if row["name"] == "":
        assert read == mps.MemoryLimit("unset")
    elif DOCUMENTED.fullmatch(row["name"]):
        assert read.kind == "enforced"
        assert limit_after(row["name"]) == (row["name"] if read.mib <= DEFAULT_MIB else None)
    else:
        assert limit_after(row["name"]) is None


@pytest.mark.parametrize(
    "row", [r for r in MEMORY if effect(r) == "held" and DOCUMENTED.fullmatch(r["name"])], ids=row_id
)
def test_what_is_read_is_what_was_allocated(row: dict[str, Any]) -> None:
    """A client allocates its limit less what its context takes, within the allocator's step of 64 MiB."""
    limit = min(mps.read_memory_limit(row["name"]).mib, DEFAULT_MIB)
    assert limit - 64 - 514 <= row["alloc_mib"] < limit


@pytest.mark.parametrize("value", ["4294967296", "4G", "4096M", "2147483648", "2G"])
def test_plain_sizes_end_as_real_limits(value: str) -> None:
    after = limit_after(value)
    assert after is not None
    held = mps.read_memory_limit(after)
    assert (held.kind, held.mib) == ("enforced", mps.read_memory_limit(value).mib)


@pytest.mark.parametrize("row", PERCENT, ids=row_id)
def test_percentages(row: dict[str, Any]) -> None:
    """A plain number passes; what means 100 % unsaid, or is a number by the driver's leave only, does not."""
    value = row["name"]
    verdict = judge(pod().gpu().env(THREADS, value), SHARE)
    plain = re.fullmatch(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", value)
    good = value == "" or (plain is not None and 0 < float(value) <= 100)
    assert codes(verdict, "deny") == (set() if good else {"invalid-thread-variable"})
    assert verdict.patch == ()
    if row["group"] == "pct-format" and row["sms"] == 132:
        assert not good or value in ("100", "")
    capped = good and value != "" and float(value) > 25
    assert ("threads-over-share" in codes(verdict, "warn")) is capped


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r["group"] in ("pipe", "other-env") and "=" in r["name"]], ids=row_id
)
def test_other_variables(row: dict[str, Any]) -> None:
    name, _, value = row["name"].partition("=")
    verdict = judge(pod().gpu().env(name, value.strip("'")), SHARE)
    escaped = row.get("sms") == 132 or "err" in row
    assert verdict.allowed is not escaped
    assert ("connections-raised" in verdict.codes) is (name == mps.MAX_CONNECTIONS)


CROWD = [
    (int(name.split("=")[1]), result["live"])
    for row in ROWS
    if row["group"] == "crowd" and re.fullmatch(r"60 with [0-9]+", row["name"])
    for name, result in row["result"].items()
]


@pytest.mark.parametrize(("connections", "live"), CROWD)
def test_clients(connections: int, live: int) -> None:
    assert mps.max_clients((9, 0)) == 48
    if connections > 2:
        assert mps.clients_at(connections) == f"{live} clients"
    else:
        assert live == mps.max_clients((9, 0))


COSTS = {int(r["name"]): r["overhead_mib"] for r in ROWS if r["group"] == "context-cost"}


@pytest.mark.parametrize(("threads", "overhead"), COSTS.items())
def test_context(threads: int, overhead: int) -> None:
    known = mps.context_mib("NVIDIA-H200", threads)
    assert known is not None
    assert abs(known - overhead) <= 1  # two runs, the second on another card of the kind
    assert known <= (mps.context_mib("NVIDIA-H200", threads + 0.5) or 0)


def test_context_of_other_cards_is_not_known() -> None:
    assert mps.context_mib("Tesla-T4", 25) is None
    assert mps.context_mib(None, 25) is None
    assert mps.context_mib("NVIDIA-H200", 0.5) == 58


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        ("", mps.MemoryLimit("unset")),
        ("0=1M", mps.MemoryLimit("enforced", 1)),
        ("0=3G", mps.MemoryLimit("enforced", 3072)),
        ("0=3gIB", mps.MemoryLimit("enforced", 3072)),
        ("0=8796093022207M", mps.MemoryLimit("enforced", (1 << 43) - 1)),
        ("0=8796093022208M", mps.MemoryLimit("invalid")),
        ("0=99999999999999999999G", mps.MemoryLimit("invalid")),
        ("0=" + "9" * 5000 + "M", mps.MemoryLimit("invalid")),
        ("3M", mps.MemoryLimit("rewritable", 3)),
        ("1048576", mps.MemoryLimit("rewritable", 1)),
        ("1048575", mps.MemoryLimit("invalid")),
        ("9" * 5000, mps.MemoryLimit("invalid")),
        ("0=1M\n", mps.MemoryLimit("invalid")),
    ],
)
def test_read_memory_limit(value: str, limit: mps.MemoryLimit) -> None:
    assert mps.read_memory_limit(value) == limit


@pytest.mark.parametrize("mib", [1, 3072, (1 << 43) - 1])
def test_what_is_written_is_enforced(mib: int) -> None:
    assert mps.read_memory_limit(mps.write_memory_limit(mib)) == mps.MemoryLimit("enforced", mib)


@pytest.mark.parametrize("mib", [0, -1, 1 << 43])
def test_no_limit_is_written_that_would_remove_it(mib: int) -> None:
    with pytest.raises(ValueError, match="would remove the limit"):
        mps.write_memory_limit(mib)


@pytest.mark.parametrize(
    ("value", "percentage"),
    [("25", Fraction(25)), ("12.5", Fraction(25, 2)), ("0.1", Fraction(1, 10)), ("100.0", Fraction(100)),
     ("100.01", None), ("0", None), ("0.0", None), ("1" * 5000, None), ("1." + "0" * 5000, None), ("25\n", None)],
)  # fmt: skip
def test_read_thread_percentage(value: str, percentage: Fraction | None) -> None:
    assert mps.read_thread_percentage(value) == percentage


@pytest.mark.parametrize(
    ("capability", "clients"), [(None, 48), ((9, 0), 48), ((7, 5), 48), ((7, 4), 16), ((7, 0), 16), ((6, 1), 16)]
)
def test_max_clients(capability: tuple[int, int] | None, clients: int) -> None:
    assert mps.max_clients(capability) == clients
