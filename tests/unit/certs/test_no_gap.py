"""The promise itself: whatever happens on the way, no API server meets a leaf that it does not trust.

Two processes rotate at once, die between any two requests, get into each other's way, and people tamper with the
configurations, on a clock that the test moves. After every single write each leaf that a server may still serve is
checked against each bundle that an API server may still use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certs.cluster import ConflictError
from certs.pair import PairError, check_pair
from certs.rotation import Bootstrap, Policy, SwitchLeaf
from tests.unit.certs.fakes import NAMES, SECRET_PATH, TARGETS, ApiServer, Clock, CrashError, controller, path_of

if TYPE_CHECKING:
    from datetime import datetime

    from certs.rotation import Action, Target


@dataclass
class World:
    """A cluster, and everything that was ever true in it and still matters."""

    policy: Policy
    server: ApiServer = field(default_factory=ApiServer)
    clock: Clock = field(default_factory=Clock)
    actions: list[Action] = field(default_factory=list)
    leaves: dict[bytes, tuple[bytes, datetime]] = field(default_factory=dict)
    current: dict[Target, bytes] = field(default_factory=dict)
    former: list[tuple[bytes, datetime]] = field(default_factory=list)
    crash_at: int = 0
    intrude_at: int = 0

    def __post_init__(self) -> None:
        self.server.install(*TARGETS)
        self.server.before = self.before
        self.server.after = self.after

    def before(self, method: str, path: str) -> None:
        self.crash_at -= 1
        if self.crash_at == 0:
            raise CrashError
        self.intrude_at -= 1
        if self.intrude_at == 0:
            self.reconcile()

    def after(self, method: str, path: str) -> None:
        if method != "GET":
            for target in TARGETS:
                if path == path_of(target):
                    self.replaced(target)
                    self.current[target] = self.server.bundles(target)[0]
            self.check()
        self.crash_at -= 1
        if self.crash_at == 0:
            raise CrashError

    def reconcile(self) -> None:
        try:
            controller(self.server, self.clock, self.policy, self.actions.append).reconcile()
        except CrashError:
            pass
        except ConflictError:
            raise AssertionError("two writers do not come to rest") from None

    def replaced(self, target: Target) -> None:
        if target in self.current:
            self.former.append((self.current.pop(target), self.clock.now))

    def drift(self, target: Target) -> None:
        self.replaced(target)
        self.server.install(target)

    def check(self) -> None:
        now = self.clock.now
        if SECRET_PATH in self.server.objects:
            secret = self.server.secret
            pair = check_pair(secret["tls.crt"], secret["tls.key"], secret["ca.crt"], names=NAMES, now=now)
            self.leaves[pair.certificate] = (pair.private_key, pair.not_after)
        self.leaves = {leaf: (key, end) for leaf, (key, end) in self.leaves.items() if end > now}
        # An API server may be behind, but not by more than the settle time: that is what it is for.
        self.former = [(bundle, end) for bundle, end in self.former if end + self.policy.settle > now]
        for bundle in {*self.current.values(), *(bundle for bundle, _ in self.former)}:
            for leaf, (key, _) in self.leaves.items():
                try:
                    check_pair(leaf, key, bundle, now=now)
                except PairError as error:
                    raise AssertionError(f"{self.actions[-1:]} at {now}: {error}") from None


SPANS = st.tuples(st.integers(10, 90), st.integers(30, 120), st.integers(160, 400)).map(
    lambda span: Policy(
        NAMES,
        settle=timedelta(seconds=span[0]),
        leaf_lifetime=timedelta(seconds=span[0] * span[1] / 10),
        authority_lifetime=timedelta(seconds=span[0] * span[2] / 10),
    )
)
TICK = st.tuples(
    st.sampled_from(["calm"] * 6 + ["crash", "crash", "intrude", "intrude", "drift"]),
    st.floats(0.05, 0.95),
    st.integers(1, 24),
    st.sampled_from(TARGETS),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(policy=SPANS, ticks=st.lists(TICK, min_size=30, max_size=60))
def test_every_live_leaf_is_trusted_by_every_bundle_in_use(
    policy: Policy, ticks: list[tuple[str, float, int, Target]]
) -> None:
    world = World(policy)
    world.reconcile()
    for what, part, count, target in ticks:
        world.clock.advance(policy.settle * part)
        world.check()
        match what:
            case "crash":
                world.crash_at = count
            case "intrude":
                world.intrude_at = count
            case "drift":
                world.drift(target)
        world.reconcile()
        world.crash_at = world.intrude_at = 0
        world.reconcile()
        world.check()
        bundle = world.server.secret["ca.crt"]
        assert all(world.server.bundles(target) == [bundle] * 2 for target in TARGETS)
    assert world.actions.count(Bootstrap()) == 1


def test_the_promise_is_put_to_the_test() -> None:
    """Two whole rotations of the authority pass in a simulation of the length that is used above."""
    policy = Policy(
        NAMES,
        settle=timedelta(seconds=30),
        leaf_lifetime=timedelta(seconds=120),
        authority_lifetime=timedelta(seconds=600),
    )
    world = World(policy)
    for _ in range(60):
        world.reconcile()
        world.clock.advance(policy.settle / 2)
        world.check()
    assert world.actions.count(SwitchLeaf()) == 2
