"""The plan: one action for what the Secret and the configurations say, and the time."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from certs.authority import Authority
from certs.pair import fingerprint
from certs.rotation import (
    Action,
    Bootstrap,
    Confirm,
    DropAuthorities,
    Policy,
    Publish,
    RenewLeaf,
    StageAuthority,
    SwitchLeaf,
    Target,
    Wait,
    Withdraw,
    apply,
    plan,
)
from certs.state import Confirmation, State, digest
from tests.unit.certs.fakes import MUTATING, NAMES, POLICY, START, TARGETS, VALIDATING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from certs.rotation import Observed

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
SETTLE = POLICY.settle

OLD = Authority.new(NAMES[0], lifetime=365 * DAY, now=START)
NEXT = Authority.new(NAMES[0], lifetime=365 * DAY, now=START + 244 * DAY)
RETIRED = Authority.new(NAMES[0], lifetime=365 * DAY, now=START - 250 * DAY)
FOREIGN = Authority.new("foreign", lifetime=365 * DAY, now=START)

FRESH = State(
    leaf=OLD.issue(NAMES, lifetime=90 * DAY, now=START),
    authorities=frozenset({OLD.certificate}),
    active=OLD,
    needed_until={OLD.fingerprint: START + 90 * DAY},
)
LATE = replace(FRESH, leaf=OLD.issue(NAMES, lifetime=90 * DAY, now=START + 240 * DAY))
STAGED = replace(LATE, authorities=frozenset({OLD.certificate, NEXT.certificate}), staged=NEXT)
CONFIRMED_AT = START + 244 * DAY
CONFIRMED = replace(STAGED, confirmed=Confirmation(digest(STAGED.bundle), CONFIRMED_AT))
DUE = OLD.issue(NAMES, lifetime=90 * DAY, now=START + 180 * DAY)
RETIRING = replace(
    FRESH,
    authorities=frozenset({OLD.certificate, RETIRED.certificate}),
    needed_until={RETIRED.fingerprint: START + 30 * DAY},
)


def everywhere(state: State) -> dict[Target, Observed]:
    return dict.fromkeys(TARGETS, (state.bundle, state.bundle))


def with_one(**bundles: Observed) -> Callable[[State], dict[Target, Observed]]:
    return lambda state: (
        everywhere(state)
        | {{"mutating": MUTATING, "validating": VALIDATING}[kind]: found for kind, found in bundles.items()}
    )


def nowhere(_: State) -> dict[Target, Observed]:
    return dict.fromkeys(TARGETS)


@pytest.mark.parametrize(
    ("state", "observed", "now", "expected"),
    [
        pytest.param(State(), nowhere, START, Bootstrap(), id="nothing at all"),
        pytest.param(State(), with_one(mutating=(b"x",)), START, Bootstrap(), id="no secret, a foreign bundle"),
        pytest.param(replace(FRESH, leaf=None), everywhere, START, RenewLeaf(), id="no leaf"),
        pytest.param(
            replace(FRESH, leaf=None), with_one(mutating=(b"",)), START, RenewLeaf(), id="no leaf comes before drift"
        ),
        pytest.param(
            replace(FRESH, leaf=None, active=None), everywhere, START, Bootstrap(), id="no leaf nor authority"
        ),
        pytest.param(
            replace(STAGED, leaf=None, active=None),
            nowhere,
            CONFIRMED_AT,
            SwitchLeaf(),
            id="only the next one",
        ),
        pytest.param(
            FRESH, everywhere, START, Wait(START + 60 * DAY, "the leaf is to be renewed"), id="everything in order"
        ),
        pytest.param(
            FRESH, nowhere, START, Wait(START + 60 * DAY, "the leaf is to be renewed"), id="no configuration yet"
        ),
        pytest.param(FRESH, with_one(mutating=(b"",)), START, Publish((MUTATING,)), id="one empty"),
        pytest.param(
            FRESH,
            with_one(validating=(FRESH.bundle, b"")),
            START,
            Publish((VALIDATING,)),
            id="one webhook empty",
        ),
        pytest.param(
            FRESH,
            with_one(mutating=(FRESH.bundle + FOREIGN.certificate_pem,)),
            START,
            Publish((MUTATING,)),
            id="a foreign one beside ours",
        ),
        pytest.param(
            FRESH, with_one(mutating=(b"",), validating=(b"",)), START, Publish(TARGETS), id="both empty, one action"
        ),
        pytest.param(
            FRESH, with_one(mutating=(b"",), validating=None), START, Publish((MUTATING,)), id="one empty, one missing"
        ),
        pytest.param(
            FRESH, with_one(mutating=()), START, Wait(START + 60 * DAY, "the leaf is to be renewed"), id="no webhooks"
        ),
        pytest.param(
            FRESH,
            everywhere,
            START + 60 * DAY - SECOND,
            Wait(START + 60 * DAY, "the leaf is to be renewed"),
            id="leaf not due",
        ),
        pytest.param(FRESH, everywhere, START + 60 * DAY, RenewLeaf(), id="leaf due"),
        pytest.param(FRESH, nowhere, START + 60 * DAY, RenewLeaf(), id="leaf due, no configuration"),
        pytest.param(
            FRESH, with_one(mutating=(b"",)), START + 60 * DAY, Publish((MUTATING,)), id="drift comes before a due leaf"
        ),
        pytest.param(replace(FRESH, active=None), everywhere, START, StageAuthority(), id="authority's key gone"),
        pytest.param(
            LATE,
            everywhere,
            START + 243 * DAY,
            Wait(START + 365 * DAY * 2 / 3, "the authority is to be renewed"),
            id="authority not due",
        ),
        pytest.param(LATE, everywhere, START + 365 * DAY * 2 / 3, StageAuthority(), id="authority due"),
        pytest.param(LATE, nowhere, START + 365 * DAY * 2 / 3, StageAuthority(), id="authority due, no configuration"),
        pytest.param(STAGED, lambda _: everywhere(LATE), CONFIRMED_AT, Publish(TARGETS), id="staged, not published"),
        pytest.param(
            STAGED, with_one(mutating=(LATE.bundle,)), CONFIRMED_AT, Publish((MUTATING,)), id="staged, published once"
        ),
        pytest.param(STAGED, everywhere, CONFIRMED_AT, Confirm(), id="staged and published"),
        pytest.param(
            replace(STAGED, confirmed=Confirmation(digest(LATE.bundle), START)),
            everywhere,
            CONFIRMED_AT,
            Confirm(),
            id="another bundle was confirmed",
        ),
        pytest.param(
            replace(CONFIRMED, confirmed=Confirmation(digest(STAGED.bundle), CONFIRMED_AT + SECOND)),
            everywhere,
            CONFIRMED_AT,
            Confirm(),
            id="confirmed in the future",
        ),
        pytest.param(
            CONFIRMED,
            everywhere,
            CONFIRMED_AT + SETTLE - SECOND,
            Wait(CONFIRMED_AT + SETTLE, "the next authority is published and has to settle"),
            id="settling",
        ),
        pytest.param(CONFIRMED, everywhere, CONFIRMED_AT + SETTLE, SwitchLeaf(), id="settled"),
        pytest.param(
            replace(CONFIRMED, leaf=DUE),
            everywhere,
            CONFIRMED_AT + SETTLE,
            SwitchLeaf(),
            id="settled, leaf due as well",
        ),
        pytest.param(
            replace(CONFIRMED, leaf=DUE), everywhere, CONFIRMED_AT + SECOND, RenewLeaf(), id="settling, leaf due"
        ),
        pytest.param(
            CONFIRMED, with_one(mutating=(LATE.bundle,)), CONFIRMED_AT + SETTLE, Withdraw(), id="settled, but drifted"
        ),
        pytest.param(CONFIRMED, with_one(mutating=None), CONFIRMED_AT + SETTLE, Withdraw(), id="settled, one is gone"),
        pytest.param(
            STAGED,
            with_one(mutating=None),
            CONFIRMED_AT,
            Wait(
                CONFIRMED_AT + SETTLE,
                "the next authority cannot be published: mutatingwebhookconfiguration/hook does not exist",
            ),
            id="staged, one is missing",
        ),
        pytest.param(
            RETIRING,
            everywhere,
            START + 30 * DAY - SECOND,
            Wait(START + 30 * DAY, "an old authority is to be dropped"),
            id="the old one still needed",
        ),
        pytest.param(
            RETIRING, everywhere, START + 30 * DAY, DropAuthorities((RETIRED.fingerprint,)), id="the old one not needed"
        ),
        pytest.param(
            replace(RETIRING, needed_until={}),
            everywhere,
            START + 59 * DAY,
            Wait(START + 60 * DAY, "the leaf is to be renewed"),
            id="an unknown one stays",
        ),
        pytest.param(
            replace(RETIRING, needed_until={}, leaf=OLD.issue(NAMES, lifetime=90 * DAY, now=START + 110 * DAY)),
            everywhere,
            START + 115 * DAY,
            DropAuthorities((RETIRED.fingerprint,)),
            id="an unknown one has expired",
        ),
        pytest.param(
            replace(RETIRING, leaf=RETIRED.issue(NAMES, lifetime=90 * DAY, now=START)),
            everywhere,
            START + 31 * DAY,
            Wait(START + 60 * DAY, "the leaf is to be renewed"),
            id="the one that the leaf hangs on is never dropped",
        ),
    ],
)
def test_plan(
    state: State, observed: Callable[[State], dict[Target, Observed]], now: datetime, expected: Action
) -> None:
    assert plan(state, observed(state), POLICY, now) == expected


def test_a_leaf_is_not_renewed_for_nothing_near_the_end_of_its_authority() -> None:
    end = START + 365 * DAY
    state = replace(FRESH, leaf=OLD.issue(NAMES, lifetime=90 * DAY, now=end - 3 * DAY), staged=NEXT)
    state = replace(state, authorities=frozenset({OLD.certificate, NEXT.certificate}))
    assert state.leaf is not None
    assert state.leaf.not_after == end
    assert plan(state, nowhere(state), POLICY, end - SECOND) == Wait(
        end - SECOND + SETTLE,
        "the next authority cannot be published: mutatingwebhookconfiguration/hook does not exist",
    )


def test_staging_signs_nothing() -> None:
    after = apply(StageAuthority(), LATE, everywhere(LATE), POLICY, CONFIRMED_AT)
    assert after.leaf == LATE.leaf
    assert after.active == OLD
    assert after.staged is not None
    assert after.authorities == {OLD.certificate, after.staged.certificate}


def test_a_switch_remembers_how_long_the_old_authority_is_needed() -> None:
    assert CONFIRMED.leaf is not None
    after = apply(SwitchLeaf(), replace(CONFIRMED, needed_until={}), everywhere(CONFIRMED), POLICY, CONFIRMED_AT)
    assert (after.active, after.staged, after.confirmed) == (NEXT, None, None)
    assert after.needed_until == {
        OLD.fingerprint: CONFIRMED_AT + 90 * DAY,
        NEXT.fingerprint: CONFIRMED_AT + 90 * DAY,
    }
    after = apply(SwitchLeaf(), CONFIRMED, everywhere(CONFIRMED), POLICY, CONFIRMED_AT)
    assert after.needed_until[OLD.fingerprint] == FRESH.needed_until[OLD.fingerprint]


def test_a_shorter_lifetime_does_not_make_old_leaves_forgotten() -> None:
    shorter = Policy(NAMES, leaf_lifetime=DAY)
    after = apply(RenewLeaf(), FRESH, everywhere(FRESH), shorter, START + DAY)
    assert after.needed_until == {OLD.fingerprint: START + 90 * DAY}


def test_bootstrap_keeps_our_authorities_of_the_configurations_and_no_others() -> None:
    expired = Authority.new(NAMES[0], lifetime=DAY, now=START - 10 * DAY)
    bundle = OLD.certificate_pem + FOREIGN.certificate_pem + expired.certificate_pem
    leaf = OLD.issue(NAMES, lifetime=90 * DAY, now=START)
    observed: dict[Target, Observed] = {MUTATING: (bundle, b"garbage", leaf.certificate), VALIDATING: None}
    after = apply(Bootstrap(), State(), observed, POLICY, START)
    assert after.active is not None
    assert after.authorities == {OLD.certificate, after.active.certificate}
    assert after.needed_until[OLD.fingerprint] == START + 90 * DAY


def test_drop_takes_only_what_is_named() -> None:
    after = apply(DropAuthorities((RETIRED.fingerprint,)), RETIRING, everywhere(RETIRING), POLICY, START)
    assert [fingerprint(one) for one in after.authorities] == [OLD.fingerprint]


TOO_SHORT_FOR_LEAF = "is too short: it has to be at least the leaf lifetime, 90d, and six times the settle time, 90s"
TOO_SHORT = "is too short: a third of it is left at renewal, and that has to be at least the settle time,"


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"leaf_lifetime": 269 * SECOND}, f"leaf lifetime 269s {TOO_SHORT} 90s, and at least 1s"),
        ({"leaf_lifetime": 2 * SECOND, "settle": timedelta()}, f"leaf lifetime 2s {TOO_SHORT} 0s, and at least 1s"),
        (
            {"authority_lifetime": 89 * DAY},
            f"authority lifetime 89d {TOO_SHORT_FOR_LEAF}",
        ),
        ({"authority_lifetime": 36501 * DAY}, "the authority lifetime cannot be more than 100 years"),
        ({"settle": -SECOND}, "the settle time cannot be negative"),
        ({"names": ()}, "a certificate needs at least one name"),
    ],
)
def test_times_that_do_not_go_together(times: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Policy(**{"names": NAMES, **times})
