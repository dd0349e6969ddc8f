"""The rotation, as pure functions: what the Secret and the webhook configurations say, and the time, give one action.

`plan` looks and answers; it generates nothing, writes nothing and knows no clock. `apply` makes the next state of the
Secret out of an action that changes it. Whoever carries the actions out reads everything anew before each of them, so
a crash between any two leaves a state that `plan` continues from.

A new authority comes into force without a gap:

1. `StageAuthority`: it is made and put beside the old one in `ca.crt`; nothing is signed with it yet.
2. `Publish`: every webhook of every configuration gets both as its caBundle.
3. `Confirm`: all of them were read back with exactly this bundle; the time is noted.
4. `Wait`: the settle time, for API servers whose watch lags behind and for volumes that kubelet has yet to refresh.
   If a configuration drifts meanwhile, `Withdraw` voids the confirmation and it starts again at 2.
5. `SwitchLeaf`: the new authority signs the leaf, and the old authority's key is forgotten.
6. `DropAuthorities`: the old one leaves the bundle when the last leaf that it signed has expired. No server can be
   so far behind that it still serves one of its leaves then, so nobody has to ask the servers.

At every moment each leaf that has not expired is trusted by each bundle that an API server may hold. The exception is
`Bootstrap`: where nothing usable is left, everything is made anew at once and published right after.

To rotate by hand: empty `tls.crt` in the Secret for a new leaf, delete `ca.key` for a new authority, without a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from certs.authority import Authority, bears_name, renewal_time
from certs.pair import PairError, fingerprint, parse_certificates
from certs.state import Confirmation, State, digest, is_authority

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography import x509

    from certs.pair import Pair


@dataclass(frozen=True, slots=True)
class Policy:
    """What certificates are for and how long they last. Raises `ValueError` where the times do not go together."""

    names: tuple[str, ...]
    """Names of the leaf; the first one also names the authority."""
    authority_lifetime: timedelta = timedelta(days=365)
    """A year: the successor comes after eight months, so the way it comes is one that has been walked before."""
    leaf_lifetime: timedelta = timedelta(days=90)
    """Renewed after 60 days; the 30 that remain are the time there is to notice a rotation that stands still."""
    settle: timedelta = timedelta(seconds=90)
    """From the confirmed bundle to the leaf that needs it: kubelet refreshes volumes within about a minute and a
    half, API servers see a changed configuration within seconds."""

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("a certificate needs at least one name")
        if self.settle < timedelta(0):
            raise ValueError("the settle time cannot be negative")
        if self.leaf_lifetime < max(3 * self.settle, timedelta(seconds=3)):
            raise ValueError(
                f"leaf lifetime {_span(self.leaf_lifetime)} is too short: a third of it is left at renewal, and that "
                f"has to be at least the settle time, {_span(self.settle)}, and at least 1s"
            )
        if self.authority_lifetime > timedelta(days=36500):
            raise ValueError("the authority lifetime cannot be more than 100 years")
        if self.authority_lifetime < max(self.leaf_lifetime, 6 * self.settle):
            raise ValueError(
                f"authority lifetime {_span(self.authority_lifetime)} is too short: it has to be at least the leaf "
                f"lifetime, {_span(self.leaf_lifetime)}, and six times the settle time, {_span(self.settle)}"
            )


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A webhook configuration, by kind and name."""

    kind: Literal["mutating", "validating"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}webhookconfiguration/{self.name}"


Observed = tuple[bytes, ...] | None
"""caBundle of each webhook of a configuration, as PEM and in its order; None where the configuration does not exist."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Make an authority and a leaf anew, at once: there is none that could be used."""


@dataclass(frozen=True, slots=True)
class RenewLeaf:
    """Sign a new leaf with the active authority."""


@dataclass(frozen=True, slots=True)
class StageAuthority:
    """Make the next authority and put it into the bundle."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the bundle into these configurations."""

    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Note that every configuration was read back with the bundle."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Void the confirmation: a configuration has changed since."""


@dataclass(frozen=True, slots=True)
class SwitchLeaf:
    """Sign the leaf with the staged authority, which becomes the active one."""


@dataclass(frozen=True, slots=True)
class DropAuthorities:
    """Take authorities, by fingerprint, out of the bundle."""

    fingerprints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`, unless something changes; `reason` is for a person."""

    until: datetime
    reason: str


Change = Bootstrap | RenewLeaf | StageAuthority | Confirm | Withdraw | SwitchLeaf | DropAuthorities
"""Actions that are one write of the Secret."""
Action = Change | Publish | Wait


def plan(state: State, observed: Mapping[Target, Observed], policy: Policy, now: datetime) -> Action:
    """Return the one thing to do next. An absent Secret is an empty `State`.

    The configurations belong to whoever runs this: a caBundle with anything but our bundle in it, foreign
    certificates included, has drifted and is replaced as a whole.
    """
    unusable = _without_leaf(state)
    if unusable is not None:
        return unusable
    drifted = out_of_step(state, observed)
    if drifted:
        return Withdraw() if state.staged and state.confirmed else Publish(drifted)
    advance = _advance(state, observed, policy, now) if state.staged is not None else None
    if _leaf_due(state, policy, now) and not isinstance(advance, SwitchLeaf):
        return RenewLeaf()
    if advance is not None:
        return advance
    if _authority_due(state, now):
        return StageAuthority()
    dropped = _unneeded(state, now)
    if dropped:
        return DropAuthorities(dropped)
    return _idle(state, now)


def apply(action: Change, state: State, observed: Mapping[Target, Observed], policy: Policy, now: datetime) -> State:
    """Return the state that `action` leads to. Makes keys, so two calls never give the same one."""
    match action:
        case Bootstrap():
            return _bootstrap(state, observed, policy, now)
        case RenewLeaf():
            assert state.active is not None  # noqa: S101 - plan asks for it only then
            return _issue(state, state.active, policy, now)
        case StageAuthority():
            staged = Authority.new(policy.names[0], lifetime=policy.authority_lifetime, now=now)
            return replace(state, staged=staged, authorities=state.authorities | {staged.certificate}, confirmed=None)
        case Confirm():
            return replace(state, confirmed=Confirmation(digest(state.bundle), now))
        case Withdraw():
            return replace(state, confirmed=None)
        case SwitchLeaf():
            assert state.staged is not None  # noqa: S101 - plan asks for it only then
            ended = {
                fingerprint(one): state.needed_until.get(fingerprint(one), _last_possible(one, state, policy, now))
                for one in state.authorities
                if one != state.staged.certificate
            }
            switched = replace(state, active=state.staged, staged=None, confirmed=None, needed_until=ended)
            return _issue(switched, state.staged, policy, now)
        case DropAuthorities(fingerprints):
            kept = frozenset(one for one in state.authorities if fingerprint(one) not in fingerprints)
            return replace(state, authorities=kept)


def out_of_step(state: State, observed: Mapping[Target, Observed]) -> tuple[Target, ...]:
    """Return the configurations with a webhook whose caBundle is not byte for byte the bundle, sorted."""
    bundle = state.bundle
    return tuple(
        sorted(
            target
            for target, bundles in observed.items()
            if bundles is not None and any(one != bundle for one in bundles)
        )
    )


def _without_leaf(state: State) -> Action | None:
    """Return what to do where no server could be started: no second is to be lost, nor is there anything to break."""
    if state.leaf is not None:
        return None
    if state.active is not None:
        return RenewLeaf()
    return SwitchLeaf() if state.staged is not None else Bootstrap()


def _leaf_due(state: State, policy: Policy, now: datetime) -> bool:
    if state.leaf is None or state.active is None:
        return False
    if now < renewal_time(state.leaf.not_before, state.leaf.not_after):
        return False
    # Near the end of an authority a new leaf ends where the old one does: renewing it again would gain nothing.
    return min(now + policy.leaf_lifetime, state.active.not_after) - state.leaf.not_after >= timedelta(seconds=1)


def _authority_due(state: State, now: datetime) -> bool:
    return state.active is None or now >= _renewal(state.active)


def _advance(state: State, observed: Mapping[Target, Observed], policy: Policy, now: datetime) -> Action:
    absent = sorted(target for target, bundles in observed.items() if bundles is None)
    if absent and state.confirmed is not None:
        return Withdraw()
    if absent:
        return Wait(now + policy.settle, f"the next authority cannot be published: {absent[0]} does not exist")
    confirmed = state.confirmed
    # A confirmation from the future was noted by a clock that is wrong: it would hold the rotation up for as long.
    if confirmed is None or confirmed.bundle != digest(state.bundle) or confirmed.at > now:
        return Confirm()
    if now >= confirmed.at + policy.settle:
        return SwitchLeaf()
    return Wait(confirmed.at + policy.settle, "the next authority is published and has to settle")


def _unneeded(state: State, now: datetime) -> tuple[str, ...]:
    """Return authorities that no live leaf needs.

    One that nothing is known about (somebody put it into `ca.crt` by hand, or `rotation.json` was lost) stays until
    it expires.
    """
    found = []
    for one in state.authorities - _held(state):
        end = min(state.needed_until.get(fingerprint(one), one.not_valid_after_utc), one.not_valid_after_utc)
        if end <= now:
            found.append(fingerprint(one))
    return tuple(sorted(found))


def _held(state: State) -> frozenset[x509.Certificate]:
    """Return the authorities in use: the active one, the staged one and those that the leaf chains to."""
    held = {authority.certificate for authority in (state.active, state.staged) if authority is not None}
    if state.leaf is not None:
        held |= {one for one in state.authorities if _signed(state.leaf, one)}
    return frozenset(held)


def _signed(leaf: Pair, authority: x509.Certificate) -> bool:
    certificate = parse_certificates(leaf.certificate, "leaf")[0]
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _idle(state: State, now: datetime) -> Wait:
    times = []
    if state.leaf is not None:
        times.append((renewal_time(state.leaf.not_before, state.leaf.not_after), "the leaf is to be renewed"))
    if state.active is not None:
        times.append((_renewal(state.active), "the authority is to be renewed"))
    held = _held(state)
    times += [
        (state.needed_until.get(fingerprint(one), one.not_valid_after_utc), "an old authority is to be dropped")
        for one in state.authorities - held
    ]
    later = [(when, what) for when, what in times if when > now]
    until, reason = min(later, default=(now + timedelta(hours=1), "nothing is due"))
    return Wait(until, reason)


def _renewal(authority: Authority) -> datetime:
    return renewal_time(authority.certificate.not_valid_before_utc, authority.not_after)


def _issue(state: State, authority: Authority, policy: Policy, now: datetime) -> State:
    leaf = authority.issue(policy.names, lifetime=policy.leaf_lifetime, now=now, authorities=state.bundle)
    needed = dict(state.needed_until)
    needed[authority.fingerprint] = max(needed.get(authority.fingerprint, leaf.not_after), leaf.not_after)
    return replace(state, leaf=leaf, needed_until=needed)


def _last_possible(authority: x509.Certificate, state: State, policy: Policy, now: datetime) -> datetime:
    """Return when the last leaf of an authority ends, where no record says so."""
    ends = [now + policy.leaf_lifetime]
    if state.leaf is not None:
        ends.append(state.leaf.not_after)
    return min(max(ends), authority.not_valid_after_utc)


def _bootstrap(state: State, observed: Mapping[Target, Observed], policy: Policy, now: datetime) -> State:
    """Make everything anew, but keep what running servers may depend on.

    The Secret may have been lost or overwritten while servers still serve the pair they have in memory. Authorities
    that can still be read, in the Secret or (those with our name) in a caBundle, therefore stay in the bundle for as
    long as their leaves may live.
    """
    authority = Authority.new(policy.names[0], lifetime=policy.authority_lifetime, now=now)
    kept = {one for one in state.authorities | _ours(observed, policy) if now < one.not_valid_after_utc}
    fresh = State(
        authorities=frozenset({authority.certificate, *kept}),
        active=authority,
        needed_until={
            fingerprint(one): state.needed_until.get(fingerprint(one), _last_possible(one, state, policy, now))
            for one in kept
        },
    )
    return _issue(fresh, authority, policy, now)


def _ours(observed: Mapping[Target, Observed], policy: Policy) -> set[x509.Certificate]:
    found: set[x509.Certificate] = set()
    for bundles in observed.values():
        for bundle in bundles or ():
            try:
                found.update(parse_certificates(bundle, "caBundle"))
            except PairError:
                continue
    return {one for one in found if is_authority(one) and bears_name(one, policy.names[0])}


def _span(duration: timedelta) -> str:
    days, rest = divmod(duration, timedelta(days=1))
    return f"{duration.total_seconds():g}s" if rest or not days else f"{days}d"
