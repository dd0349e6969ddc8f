"""The benchmark is no test, but it has to run, and its table has to say what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import fleet, plan, pods, traffic
from tests.bench.figures import percentile
from tests.bench.load import Steady
from tests.bench.processes import Files
from tests.bench.report import COLUMNS, Report
from tests.bench.traffic import Reference, Round
from webhook.policy import memory, project_node

TINY = plan.Scale(
    verdict_seconds=0.01, seconds=0.05, rounds=2, cold_rounds=1, starts=1, nodes=(10, 200), connections=(1, 2)
)


def test_the_whole_benchmark_at_a_tiny_scale() -> None:
    said: list[str] = []

    report = plan.measure(TINY, ("verdict", "http", "memory", "start"), said.append, reference=None, pin=False)

    cases = [(cost.pod, cost.profiles, cost.nodes) for cost in report.verdict if not cost.again]
    assert cases == [(pod, p, n) for pod in ("pinned", "free") for p, n in ((4, 10), (4, 200), (10, 10), (200, 200))]
    again = [(cost.pod, cost.profiles, cost.nodes) for cost in report.verdict if cost.again]
    assert again == [(pod, p, 200) for pod in ("pinned", "free") for p in (4, 200)]
    assert all(0 < cost.median_us <= cost.p95_us for cost in report.verdict)
    rounds = [(found.target, found.connections, found.round) for found in report.traffic]
    targets = ["/mutate", "/mutate, new pods", "/validate", "empty"]
    assert rounds == [(t, c, n) for c in (1, 2) for n, order in ((0, targets), (1, targets[::-1])) for t in order]
    assert all(found.figures.requests > 0 and found.figures.refused == 0 for found in report.traffic)
    assert [found.target for found in report.cold] == ["/mutate", "empty"]
    assert [start.nodes for start in report.starts] == [0, 200]
    assert all(start.rss_mib <= start.peak_mib for start in report.starts)
    assert {"python", "uvicorn", "uvloop", "httptools", "openssl", "cpu", "cores"} <= set(report.raw()["machine"])
    assert json.loads(json.dumps(report.raw()))["traffic"][0]["figures"]["requests"] > 0
    assert "free, 4 profiles, 200 : 10 nodes" in names(report)
    assert "/mutate, 1 connection, round 1 of 2" in said


def test_ratios_are_taken_within_a_round() -> None:
    report = Report()
    for number, (ours, theirs) in enumerate(((1000, 2000), (500, 2000), (900, 900))):
        report.traffic += [Round("/mutate", 8, number, steady(ours)), Round("reference", 8, number, steady(theirs))]

    ratio = row(report, "/mutate : reference, 8 connections")

    assert ratio["a second"] == "0.50 (0.25–1.00)"
    assert ratio["p50"] == "2.00"


def test_refused_requests_show_beside_those_answered() -> None:
    report = Report(traffic=[Round("/mutate", 128, 0, steady(900, refused=100))])

    assert names(report) == ["[bold]requests over TLS, ms", "/mutate, 128 connections, 10.0% refused"]


@pytest.mark.parametrize(
    "url",
    ["https://192.0.2.1/mutate", "https://example.com:8443/", "http://127.0.0.1:8080/mutate", "127.0.0.1:8443"],
)
def test_only_this_machine_is_asked(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a reference is https:// and on this machine"):
        traffic.reference_target(Files(tmp_path), Reference(url))


@pytest.mark.parametrize(("count", "profiles"), [(4, 4), (500, 4), (10, 200), (500, 200)])
def test_fleets_are_the_same_every_time(count: int, profiles: int) -> None:
    nodes = list(fleet.nodes(count, profiles))

    assert nodes == list(fleet.nodes(count, profiles))
    assert len({project_node(node).name for node in nodes}) == count
    assert all(40 <= len(node["metadata"]["labels"]) <= 50 for node in nodes)
    assert len(fleet.inventory(count, profiles).fleet.profiles) == min(count, profiles)


def test_the_reviews_are_of_the_size_they_say() -> None:
    assert len(pods.mutate_body()) == pods.BODY_BYTES
    new = pods.new_bodies()
    assert len(set(new)) == pods.NEW_PODS > memory.SIZE
    assert all(abs(len(body) - pods.BODY_BYTES) < 8 and body.count(b"\n") == 1 for body in new)
    pod = json.loads(pods.validate_body())["request"]["object"]
    assert {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=3072M"} in pod["spec"]["containers"][0]["env"]


@pytest.mark.parametrize(("rank", "value"), [(0, 1), (50, 5), (90, 9), (95, 10), (100, 10)], ids=str)
def test_percentiles_are_values_that_were_measured(rank: float, value: float) -> None:
    assert percentile(range(1, 11), rank) == value


def steady(requests: int, refused: int = 0) -> Steady:
    ms = 1000 / requests
    return Steady(requests, refused, 1.0, ms, ms, ms, ms, 0.5, 0.1)


def names(report: Report) -> list[str]:
    return [str(cell) for cell in report.table().columns[0].cells]


def row(report: Report, name: str) -> dict[str, str]:
    number = names(report).index(name)
    return {
        title: str(list(column.cells)[number]) for title, column in zip(COLUMNS, report.table().columns, strict=True)
    }
