"""The Lease: one holder at a time, by the own clock alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certs.cluster import ClusterError
from certs.lease import KubernetesLease, Leadership
from tests.unit.certs.fakes import LEASE_PATH, START, ApiServer

SECOND = timedelta(seconds=1)
PREFIX, NAME = LEASE_PATH.rsplit("/", 1)


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def contender(server: ApiServer, identity: str) -> Leadership:
    return Leadership(KubernetesLease(server, "system", "hook-certs"), identity)


def spec(server: ApiServer) -> dict[str, object]:
    found: dict[str, object] = server.objects[LEASE_PATH]["spec"]
    return found


def test_the_first_one_makes_it(server: ApiServer) -> None:
    assert contender(server, "a").hold(START)
    assert spec(server) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 30,
        "acquireTime": "2026-03-01T12:00:00.000000Z",
        "renewTime": "2026-03-01T12:00:00.000000Z",
        "leaseTransitions": 0,
    }


def test_the_second_one_waits_for_it_to_run_out(server: ApiServer) -> None:
    first, second = contender(server, "a"), contender(server, "b")
    assert first.hold(START)
    # The other machine's clock is a year ahead: only what it sees itself counts.
    ahead = START + timedelta(days=365)
    assert not second.hold(ahead)
    assert not second.hold(ahead + 29 * SECOND)
    assert second.hold(ahead + 30 * SECOND)
    assert (spec(server)["holderIdentity"], spec(server)["leaseTransitions"]) == ("b", 1)
    assert not first.hold(START + 31 * SECOND)


def test_a_holder_that_renews_is_never_overthrown(server: ApiServer) -> None:
    first, second = contender(server, "a"), contender(server, "b")
    for second_of_time in range(0, 300, 5):
        assert first.hold(START + second_of_time * SECOND)
        assert not second.hold(START + second_of_time * SECOND)
    assert len([one for one in server.writes if one.startswith("PATCH")]) == 29


def test_release_lets_the_next_one_in_at_once(server: ApiServer) -> None:
    first, second = contender(server, "a"), contender(server, "b")
    first.hold(START)
    assert not second.hold(START)
    first.release(START + SECOND)
    assert not first.leading
    assert spec(server)["holderIdentity"] == ""
    assert second.hold(START + SECOND)
    writes = len(server.writes)
    first.release(START + SECOND)
    assert len(server.writes) == writes


def test_release_leaves_the_successor_alone(server: ApiServer) -> None:
    first, second = contender(server, "a"), contender(server, "b")
    first.hold(START)
    second.hold(START)
    second.hold(START + 40 * SECOND)
    first.release(START + 41 * SECOND)
    assert spec(server)["holderIdentity"] == "b"


@pytest.mark.parametrize("turn", [1, 2])
def test_a_race_has_one_winner(server: ApiServer, turn: int) -> None:
    first, second = contender(server, "a"), contender(server, "b")
    left = turn

    def interfere(method: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            assert second.hold(START)

    server.before = interfere
    assert not first.hold(START)
    assert spec(server)["holderIdentity"] == "b"


def test_a_restarted_process_takes_an_empty_lease(server: ApiServer) -> None:
    server.put(LEASE_PATH, {"metadata": {"name": NAME}})
    assert contender(server, "a").hold(START)
    assert spec(server)["holderIdentity"] == "a"


def test_whoever_cannot_ask_does_not_lead(server: ApiServer) -> None:
    first = contender(server, "a")
    assert first.hold(START)

    def fail(method: str, path: str) -> None:
        raise ClusterError("down")

    server.before = fail
    with pytest.raises(ClusterError, match="down"):
        first.hold(START + SECOND)
    assert not first.leading


def test_a_lease_deleted_while_it_is_renewed(server: ApiServer) -> None:
    first = contender(server, "a")
    first.hold(START)

    def delete(method: str, path: str) -> None:
        if method == "PATCH":
            del server.objects[LEASE_PATH]

    server.before = delete
    assert not first.hold(START + 15 * SECOND)
    assert first.hold(START + 16 * SECOND)
