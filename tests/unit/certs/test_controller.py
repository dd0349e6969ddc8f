"""Rotations as a whole, against an API server in memory and on a clock that stands still."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from certs.authority import Authority, bundle_pem
from certs.cluster import ClusterError, ConflictError
from certs.pair import check_pair, parse_certificates
from certs.rotation import (
    Action,
    Bootstrap,
    Confirm,
    DropAuthorities,
    Publish,
    RenewLeaf,
    StageAuthority,
    SwitchLeaf,
    Wait,
    Withdraw,
)
from certs.state import read_state
from tests.unit.certs.fakes import (
    MUTATING,
    NAMES,
    POLICY,
    SECRET_PATH,
    START,
    TARGETS,
    VALIDATING,
    ApiServer,
    Clock,
    CrashError,
    controller,
    path_of,
)

if TYPE_CHECKING:
    from certs.pair import Pair
    from certs.rotation import Target
    from certs.state import State

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def server() -> ApiServer:
    server = ApiServer()
    server.install(*TARGETS)
    return server


@pytest.fixture
def clock() -> Clock:
    return Clock()


def state(server: ApiServer, clock: Clock) -> State:
    return read_state(server.secret, NAMES, clock.now)


def leaf(server: ApiServer, clock: Clock) -> Pair:
    """The leaf of the Secret, valid, with the bundle that every webhook has got."""
    secret = server.secret
    for target in TARGETS:
        assert server.bundles(target) == [secret["ca.crt"]] * 2
    return check_pair(secret["tls.crt"], secret["tls.key"], secret["ca.crt"], names=NAMES, now=clock.now)


def test_empty_cluster(server: ApiServer, clock: Clock) -> None:
    actions: list[Action] = []

    view, wait = controller(server, clock, acted=actions.append).reconcile()

    assert actions == [Bootstrap(), Publish(TARGETS)]
    assert wait == Wait(START + 60 * DAY, "the leaf is to be renewed")
    assert view.faults == ()
    made = leaf(server, clock)
    assert made.names == NAMES
    assert made.not_after == START + 90 * DAY
    assert len(parse_certificates(server.secret["ca.crt"], "")) == 1
    assert server.objects[SECRET_PATH]["type"] == "kubernetes.io/tls"


@pytest.mark.parametrize("empty", [{}, {"data": None}, {"data": {}}], ids=str)
def test_an_empty_secret_is_filled_without_the_right_to_create(
    server: ApiServer, clock: Clock, empty: dict[str, object]
) -> None:
    server.put(SECRET_PATH, {"metadata": {"name": "hook-tls"}, "type": "Opaque", **empty})
    controller(server, clock).reconcile()
    leaf(server, clock)
    assert [write.split()[0] for write in server.writes] == ["PATCH"] * 3


def test_nothing_is_written_where_nothing_is_due(server: ApiServer, clock: Clock) -> None:
    controller(server, clock).reconcile()
    writes = list(server.writes)
    for _ in range(3):
        clock.advance(DAY)
        controller(server, clock).reconcile()
    assert server.writes == writes


def test_other_fields_of_a_webhook_stay(server: ApiServer, clock: Clock) -> None:
    controller(server, clock).reconcile()
    assert [one["futureField"] for one in server.objects[path_of(MUTATING)]["webhooks"]] == [0, 1]


def test_leaf_is_renewed_at_two_thirds_by_the_same_authority(server: ApiServer, clock: Clock) -> None:
    actions: list[Action] = []
    running = controller(server, clock, acted=actions.append)
    running.reconcile()
    before = server.secret
    actions.clear()

    clock.now = START + 60 * DAY - SECOND
    running.reconcile()
    assert actions == []

    clock.advance(SECOND)
    running.reconcile()
    assert actions == [RenewLeaf()]
    assert server.secret["ca.crt"] == before["ca.crt"]
    assert leaf(server, clock).not_after == clock.now + 90 * DAY


def test_authority_is_rotated_step_by_step(server: ApiServer, clock: Clock) -> None:
    actions: list[Action] = []
    running = controller(server, clock, acted=actions.append)
    running.reconcile()
    clock.now = START + 240 * DAY
    running.reconcile()  # the leaf that is due all the same
    old = state(server, clock)
    clock.now = START + 365 * DAY * 2 / 3 + SECOND
    actions.clear()

    _, wait = running.reconcile()
    assert actions == [StageAuthority(), Publish(TARGETS), Confirm()]
    assert wait == Wait(clock.now + POLICY.settle, "the next authority is published and has to settle")
    assert old.leaf is not None
    assert server.secret["tls.crt"] == old.leaf.certificate
    assert len(parse_certificates(server.bundles(MUTATING)[0], "")) == 2

    clock.advance(POLICY.settle - SECOND)
    running.reconcile()
    assert actions[3:] == []

    clock.advance(SECOND)
    _, wait = running.reconcile()
    assert actions[3:] == [SwitchLeaf()]
    assert wait == Wait(clock.now + 60 * DAY, "the leaf is to be renewed")
    assert leaf(server, clock).certificate != old.leaf.certificate
    assert "next-ca.key" not in server.secret

    clock.now = old.leaf.not_after - SECOND
    actions.clear()
    running.reconcile()
    assert DropAuthorities not in map(type, actions)
    clock.advance(SECOND)
    running.reconcile()
    assert old.active is not None
    assert actions[-2:] == [DropAuthorities((old.active.fingerprint,)), Publish(TARGETS)]
    leaf(server, clock)


def test_leaf_is_not_switched_while_a_configuration_is_missing(server: ApiServer, clock: Clock) -> None:
    running = controller(server, clock)
    running.reconcile()
    del server.objects[path_of(VALIDATING)]
    clock.now = START + 300 * DAY
    first = server.secret["ca.key"]
    for _ in range(10):
        view, wait = running.reconcile()
        clock.advance(POLICY.settle)
    assert server.secret["ca.key"] == first
    assert wait.reason == ("the next authority cannot be published: validatingwebhookconfiguration/hook does not exist")
    assert view.faults == ("validatingwebhookconfiguration/hook does not exist",)

    server.install(VALIDATING)
    running.reconcile()
    assert server.secret["ca.key"] == first
    clock.advance(POLICY.settle)
    running.reconcile()
    assert server.secret["ca.key"] != first
    leaf(server, clock)


def test_a_configuration_that_goes_missing_voids_the_confirmation(server: ApiServer, clock: Clock) -> None:
    actions: list[Action] = []
    running = controller(server, clock, acted=actions.append)
    running.reconcile()
    clock.now = START + 300 * DAY
    running.reconcile()
    bundle = server.bundles(MUTATING)[0]
    del server.objects[path_of(VALIDATING)]
    actions.clear()
    running.reconcile()
    assert actions == [Withdraw()]
    server.install(VALIDATING, bundle=bundle)
    running.reconcile()
    assert actions == [Withdraw(), Confirm()]


def test_drift_during_the_settle_time_starts_it_again(server: ApiServer, clock: Clock) -> None:
    actions: list[Action] = []
    running = controller(server, clock, acted=actions.append)
    running.reconcile()
    clock.now = START + 300 * DAY
    running.reconcile()
    actions.clear()
    clock.advance(POLICY.settle - SECOND)
    server.install(MUTATING)

    _, wait = running.reconcile()

    assert actions == [Withdraw(), Publish((MUTATING,)), Confirm()]
    assert wait.until == clock.now + POLICY.settle


def foreign() -> bytes:
    return Authority.new("foreign", lifetime=DAY, now=START).certificate_pem


@pytest.mark.parametrize("targets", [(MUTATING,), (VALIDATING,), TARGETS], ids=str)
@pytest.mark.parametrize("content", [b"", b"garbage", foreign(), None], ids=["empty", "garbage", "foreign", "added"])
def test_drift_is_repaired(server: ApiServer, clock: Clock, targets: tuple[object, ...], content: bytes | None) -> None:
    actions: list[Action] = []
    running = controller(server, clock, acted=actions.append)
    running.reconcile()
    actions.clear()
    server.install(
        *(target for target in TARGETS if target in targets),
        bundle=server.secret["ca.crt"] + foreign() if content is None else content,
    )
    view = running.look()
    assert view.faults == tuple(f"{target}: caBundle is not the published one" for target in targets)

    running.reconcile()

    assert actions == [Publish(tuple(target for target in TARGETS if target in targets))]
    leaf(server, clock)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("count", range(1, 12))
def test_crash_at_any_write_of_a_rotation(server: ApiServer, clock: Clock, count: int, moment: str) -> None:
    """Die at the n-th write, before or after it happened, and let a new process go on."""
    left = count

    def die(method: str, path: str) -> None:
        nonlocal left
        left -= method != "GET"
        if method != "GET" and left == 0:
            raise CrashError

    setattr(server, moment, die)
    crashes = 0
    for day in range(0, 420, 10):
        clock.now = START + day * DAY
        for _ in range(3):
            try:
                controller(server, clock).reconcile()
            except CrashError:
                crashes += 1
            else:
                break
        leaf(server, clock)
    assert crashes == 1
    assert len(state(server, clock).authorities) == 1


def test_two_writers_on_an_empty_cluster_converge(server: ApiServer, clock: Clock) -> None:
    """The second one comes in right before the first one's every request."""
    for turn in range(1, 9):
        server.objects.clear()
        server.install(*TARGETS)
        left = turn

        def interfere(method: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                controller(server, clock).reconcile()

        server.before = interfere
        controller(server, clock).reconcile()
        assert left <= 0
        server.before = lambda method, path: None
        assert len(parse_certificates(server.secret["ca.crt"], "")) == 1
        leaf(server, clock)


def test_the_loser_of_a_race_writes_nothing_of_its_own(server: ApiServer, clock: Clock) -> None:
    first, second = controller(server, clock), controller(server, clock)

    def interfere(method: str, path: str) -> None:
        if method == "POST":
            server.before = lambda method, path: None
            second.reconcile()

    server.before = interfere
    with pytest.raises(ConflictError):
        first.step()
    winner = server.secret
    first.reconcile()
    assert server.secret == winner


@pytest.mark.parametrize("drifted", [(), (MUTATING,), TARGETS], ids=["no drift", "one drifted", "both drifted"])
@pytest.mark.parametrize("turn", range(1, 6))
def test_a_slow_writer_cannot_publish_an_outdated_bundle(
    server: ApiServer, clock: Clock, turn: int, drifted: tuple[Target, ...]
) -> None:
    """It falls asleep before its n-th request; meanwhile another one publishes the next authority."""
    slow, fast = controller(server, clock), controller(server, clock)
    slow.reconcile()
    clock.now = START + 240 * DAY
    slow.reconcile()
    server.install(*drifted)
    left = turn

    def sleep(method: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            clock.now = START + 244 * DAY
            fast.reconcile()

    server.before = sleep
    with suppress(ConflictError):
        slow.step()
    server.before = lambda method, path: None
    if left > 0:
        assert turn > len(TARGETS) + 1 + len(drifted)
        return
    assert len(parse_certificates(server.secret["ca.crt"], "")) == 2
    assert slow.look().out_of_step == ()


def test_a_fight_ends_in_an_error(server: ApiServer, clock: Clock) -> None:
    running = controller(server, clock)
    running.reconcile()

    def meddle(method: str, path: str) -> None:
        if method == "PATCH":
            server.install(MUTATING)

    server.install(MUTATING)
    server.after = meddle
    with pytest.raises(
        ConflictError, match=r"^the certificates do not come to rest: somebody else keeps changing them$"
    ):
        running.reconcile()


OTHER = Authority.new("other", lifetime=400 * DAY, now=START)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"tls_crt": b"x"}, [RenewLeaf()], id="leaf is garbage"),
        pytest.param({"tls_crt": b""}, [RenewLeaf()], id="leaf emptied by hand"),
        pytest.param({"tls_key": OTHER.private_key_pem}, [RenewLeaf()], id="key of another"),
        pytest.param({"tls_key": None}, [RenewLeaf()], id="no key"),
        pytest.param(
            {"ca_key": None}, [StageAuthority(), Publish(TARGETS), Confirm()], id="authority's key deleted by hand"
        ),
        pytest.param(
            {"ca_key": b"x"}, [StageAuthority(), Publish(TARGETS), Confirm()], id="authority's key is garbage"
        ),
        pytest.param(
            {"ca_key": OTHER.private_key_pem}, [StageAuthority(), Publish(TARGETS), Confirm()], id="another authority's"
        ),
        pytest.param({"ca_crt": b"x"}, [Bootstrap(), Publish(TARGETS)], id="bundle is garbage"),
        pytest.param({"ca_crt": OTHER.certificate_pem}, [Bootstrap(), Publish(TARGETS)], id="another bundle"),
        pytest.param({"ca_key": None, "tls_key": b"x"}, [Bootstrap(), Publish(TARGETS)], id="both keys gone"),
        pytest.param(
            dict.fromkeys(["ca_crt", "ca_key", "tls_crt", "tls_key", "rotation_json"]),
            [Bootstrap(), Publish(TARGETS)],
            id="everything deleted",
        ),
        pytest.param({"rotation_json": b"{"}, [], id="memory is garbage"),
        pytest.param({"rotation_json": b'{"neededUntil": 1}'}, [], id="memory of another form"),
        pytest.param({"rotation_json": b'{"confirmed": {"at": "x"}}'}, [], id="confirmation of another form"),
        pytest.param({"note": b"x"}, [], id="somebody else's key"),
    ],
)
def test_bad_contents_are_replaced(
    server: ApiServer, clock: Clock, changes: dict[str, bytes | None], expected: list[Action]
) -> None:
    actions: list[Action] = []
    running = controller(server, clock, acted=actions.append)
    running.reconcile()
    old = server.secret
    server.tamper(**changes)
    actions.clear()

    running.reconcile()

    assert actions == expected
    made = leaf(server, clock)
    assert made.names == NAMES
    # Servers that still hold the old pair in memory are trusted on.
    check_pair(old["tls.crt"], old["tls.key"], server.bundles(MUTATING)[0], now=clock.now)
    clock.advance(POLICY.settle)
    running.reconcile()
    leaf(server, clock)
    assert state(server, clock).active is not None


def test_a_lost_secret_keeps_the_authority_of_running_servers_as_long_as_their_leaf_lives(
    server: ApiServer, clock: Clock
) -> None:
    running = controller(server, clock)
    running.reconcile()
    old = server.secret
    del server.objects[SECRET_PATH]

    running.reconcile()

    check_pair(old["tls.crt"], old["tls.key"], server.bundles(MUTATING)[0], now=clock.now)
    assert server.secret["ca.key"] != old["ca.key"]
    clock.advance(90 * DAY)
    running.reconcile()
    assert old["ca.crt"] not in server.bundles(MUTATING)[0]


def test_a_secret_of_other_names_is_signed_anew(server: ApiServer, clock: Clock) -> None:
    running = controller(server, clock)
    running.reconcile()
    secret = read_state(server.secret, NAMES, clock.now)
    assert secret.active is not None
    other = secret.active.issue(["other.svc"], lifetime=DAY, now=clock.now)
    server.tamper(tls_crt=other.certificate, tls_key=other.private_key)

    assert running.look().faults == ("tls.crt is for other.svc, not for hook.system.svc, hook.system",)
    running.reconcile()
    leaf(server, clock)


def test_nobody_looked_for_years(server: ApiServer, clock: Clock) -> None:
    actions: list[Action] = []
    running = controller(server, clock, acted=actions.append)
    running.reconcile()
    actions.clear()
    clock.advance(1000 * DAY)

    running.reconcile()

    assert actions == [Bootstrap(), Publish(TARGETS)]
    assert len(parse_certificates(server.secret["ca.crt"], "")) == 1
    leaf(server, clock)


def test_an_authority_put_into_the_bundle_by_hand_stays_until_it_expires(server: ApiServer, clock: Clock) -> None:
    running = controller(server, clock)
    running.reconcile()
    mine = parse_certificates(server.secret["ca.crt"], "")[0]
    server.tamper(ca_crt=bundle_pem([mine, OTHER.certificate]))
    clock.advance(30 * DAY)
    running.reconcile()
    assert OTHER.certificate_pem in server.bundles(MUTATING)[0]
    clock.advance(371 * DAY)
    running.reconcile()
    assert OTHER.certificate_pem not in server.bundles(MUTATING)[0]


def test_a_confirmation_from_the_future_is_not_waited_for(server: ApiServer, clock: Clock) -> None:
    running = controller(server, clock)
    running.reconcile()
    clock.now = START + 300 * DAY
    running.reconcile()
    rotation = json.loads(server.secret["rotation.json"])
    rotation["confirmed"]["at"] = (clock.now + 1000 * DAY).isoformat()
    server.tamper(rotation_json=json.dumps(rotation).encode())
    _, wait = running.reconcile()
    assert wait.until == clock.now + POLICY.settle


def test_a_configuration_without_webhooks(server: ApiServer, clock: Clock) -> None:
    server.put(path_of(MUTATING), {"metadata": {"name": "hook"}})
    view, _ = controller(server, clock).reconcile()
    assert view.faults == ()


@pytest.mark.parametrize("found", [{"webhooks": [{"name": "x"}]}, {"webhooks": ["x"]}, {"webhooks": 1}])
def test_an_answer_of_another_shape(server: ApiServer, clock: Clock, found: dict[str, object]) -> None:
    server.put(path_of(MUTATING), {"metadata": {"name": "hook"}, **found})
    with pytest.raises(ClusterError, match=r"^the answer is not a mutatingwebhookconfiguration/hook$"):
        controller(server, clock).reconcile()


def test_keys_never_leave_the_secret(server: ApiServer, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    running = controller(server, clock)
    for day in range(0, 400, 20):
        clock.now = START + day * DAY
        view, wait = running.reconcile()
        clock.advance(POLICY.settle)
        running.reconcile()
        assert "PRIVATE" not in repr(view) + repr(wait)
    assert "made the next authority" in caplog.text
    assert "PRIVATE" not in caplog.text
    assert "PRIVATE" not in json.dumps([server.objects[path_of(target)] for target in TARGETS])
