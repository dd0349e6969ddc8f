"""The loop and what it tells others, on a clock that stands still; the HTTP side over loopback."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from certs.cluster import ClusterError
from certs.lease import KubernetesLease, Leadership
from certs.loop import run
from certs.status import Status, serve
from tests.unit.certs.fakes import (
    LEASE_PATH,
    MUTATING,
    SECRET_PATH,
    START,
    TARGETS,
    ApiServer,
    Clock,
    controller,
    path_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
POLL = timedelta(seconds=5)


class Stop(threading.Event):
    """Ends the loop after some pauses and moves the clock instead of sleeping."""

    def __init__(self, clock: Clock, rounds: int, between: Callable[[int], None] = lambda number: None) -> None:
        super().__init__()
        self.clock = clock
        self.rounds = rounds
        self.between = between
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self.clock.advance(timedelta(seconds=timeout))
        self.between(len(self.pauses))
        if len(self.pauses) == self.rounds:
            self.set()
        return self.is_set()


@pytest.fixture
def server() -> ApiServer:
    server = ApiServer()
    server.install(*TARGETS)
    return server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def status(clock: Clock) -> Status:
    return Status(TARGETS, clock, patience=60 * SECOND)


def turn(server: ApiServer, clock: Clock, status: Status, stop: threading.Event, identity: str = "a") -> None:
    leadership = Leadership(KubernetesLease(server, "system", "hook-certs"), identity)
    run(controller(server, clock, acted=status.acted), leadership, status, stop, poll=POLL, clock=clock)


def metric(status: Status, series: str, /, **labels: str) -> float | None:
    return status.registry.get_sample_value(series, labels)


def test_rounds(server: ApiServer, clock: Clock, status: Status, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stop = Stop(clock, 4)

    turn(server, clock, status, stop)

    assert stop.pauses == [5, 5, 5, 5]
    assert status.ready() == (True, "ok")
    assert server.objects[LEASE_PATH]["spec"]["holderIdentity"] == ""
    assert [record.getMessage() for record in caplog.records] == [
        "made a new authority and a new leaf: the Secret does not exist",
        "wrote the caBundle of mutatingwebhookconfiguration/hook, validatingwebhookconfiguration/hook",
        "nothing to do until 2026-04-30T12:00:00Z: the leaf is to be renewed",
    ]
    assert metric(status, "certs_rotations_total", certificate="leaf") == 1
    assert metric(status, "certs_rotations_total", certificate="authority") == 1
    assert metric(status, "certs_publications_total") == 2
    assert metric(status, "certs_bundle_in_step", kind="mutating", name="hook") == 1
    assert metric(status, "certs_bundle_authorities") == 1
    assert metric(status, "certs_leader") == 1
    assert metric(status, "certs_errors_total") == 0
    assert metric(status, "certs_not_after_timestamp_seconds", certificate="leaf") == (START + 90 * DAY).timestamp()
    assert metric(status, "certs_not_after_timestamp_seconds", certificate="authority") == (
        (START + 365 * DAY).timestamp()
    )


def test_wakes_up_when_something_is_due(server: ApiServer, clock: Clock, status: Status) -> None:
    turn(server, clock, status, Stop(clock, 1))
    clock.now = START + 60 * DAY - 2 * SECOND
    stop = Stop(clock, 2)
    turn(server, clock, status, stop)
    assert stop.pauses == [2, 5]
    assert metric(status, "certs_rotations_total", certificate="leaf") == 2


def test_drift_is_repaired_in_the_next_round(server: ApiServer, clock: Clock, status: Status) -> None:
    def tamper(number: int) -> None:
        if number == 2:
            server.install(MUTATING)

    turn(server, clock, status, Stop(clock, 3, tamper))
    assert server.bundles(MUTATING) == [server.secret["ca.crt"]] * 2
    assert metric(status, "certs_publications_total") == 3


def test_a_process_without_the_lease_only_looks(server: ApiServer, clock: Clock, status: Status) -> None:
    Leadership(KubernetesLease(server, "system", "hook-certs"), "other").hold(clock.now)
    turn(server, clock, status, Stop(clock, 3))
    assert SECRET_PATH not in server.objects
    assert server.objects[LEASE_PATH]["spec"]["holderIdentity"] == "other"
    assert metric(status, "certs_leader") == 0
    assert status.ready() == (
        False,
        "the Secret does not exist",
    )


def test_failures_are_tried_again_later_and_later(
    server: ApiServer, clock: Clock, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(method: str, path: str) -> None:
        raise ClusterError("GET /x: connection refused")

    def recover(number: int) -> None:
        if number == 6:
            server.before = lambda method, path: None

    server.before = fail
    stop = Stop(clock, 8, recover)
    turn(server, clock, status, stop)

    assert [record.getMessage() for record in caplog.records[:6]] == ["round failed: GET /x: connection refused"] * 6
    for pause, longest in zip(stop.pauses, [5, 10, 20, 30, 30, 30], strict=False):
        assert longest / 2 <= pause <= longest
    assert stop.pauses[6:] == [5, 5]
    assert metric(status, "certs_errors_total") == 6
    assert status.ready() == (True, "ok")


def test_a_lease_that_cannot_be_given_back_is_a_line_in_the_log(
    server: ApiServer, clock: Clock, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(method: str, path: str) -> None:
        raise ClusterError("down")

    def cut(number: int) -> None:
        server.before = fail

    turn(server, clock, status, Stop(clock, 1, cut))
    assert caplog.messages == ["the Lease could not be given back: down"]


def test_health_over_time(server: ApiServer, clock: Clock, status: Status) -> None:
    assert status.alive() == (True, "the loop turned 0 s ago")
    assert status.ready() == (False, "the cluster has not been read yet")
    turn(server, clock, status, Stop(clock, 1))
    clock.advance(60 * SECOND)
    assert status.ready() == (False, "the cluster was last read 65 s ago")
    clock.advance(170 * SECOND)
    assert status.alive() == (True, "the loop turned 235 s ago")
    clock.advance(6 * SECOND)
    assert status.alive() == (False, "the loop turned 241 s ago")
    status.failed(leading=False)
    assert status.alive() == (True, "the loop turned 0 s ago")


def test_a_missing_configuration_shows(server: ApiServer, clock: Clock, status: Status) -> None:
    del server.objects[path_of(MUTATING)]
    turn(server, clock, status, Stop(clock, 1))
    assert status.ready() == (False, "mutatingwebhookconfiguration/hook does not exist")
    assert metric(status, "certs_bundle_in_step", kind="mutating", name="hook") == 0
    assert metric(status, "certs_bundle_in_step", kind="validating", name="hook") == 1


@pytest.fixture(params=["127.0.0.1", ""], ids=["loopback", "every address"])
def address(status: Status, request: pytest.FixtureRequest) -> Iterator[str]:
    server = serve(status, 0, request.param)
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_http(address: str, server: ApiServer, clock: Clock, status: Status) -> None:
    with httpx.Client(base_url=address, timeout=5) as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "the cluster has not been read yet\n")
        turn(server, clock, status, Stop(clock, 1))
        answer = client.get("/readyz?verbose")
        assert (answer.status_code, answer.text) == (200, "ok\n")
        answer = client.get("/livez")
        assert (answer.status_code, answer.text) == (200, "the loop turned 5 s ago\n")
        answer = client.get("/metrics")
        assert answer.status_code == 200
        assert 'certs_bundle_in_step{kind="mutating",name="hook"} 1.0\n' in answer.text
        assert client.get("/").status_code == 404
        assert client.post("/readyz").status_code == 501
