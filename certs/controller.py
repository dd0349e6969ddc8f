"""Carries a rotation out: read everything, ask `certs.rotation.plan` for the one next action, do it, read again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from certs.cluster import Cluster, Configuration, ConflictError
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
    out_of_step,
    plan,
)
from certs.state import State, read_state, write_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

MAX_STEPS = 25
"""Actions and lost races in one go; the longest rotation takes seven, so this only ends a fight over an object."""


@dataclass(frozen=True, slots=True)
class View:
    """What was read in one go."""

    state: State
    version: str | None
    """Of the Secret; None where there is none."""
    configurations: dict[Target, Configuration | None]
    at: datetime

    @property
    def observed(self) -> dict[Target, tuple[bytes, ...] | None]:
        """The caBundles, as `plan` wants them."""
        return {
            target: None if found is None else tuple(bundle for _, bundle in found.webhooks)
            for target, found in self.configurations.items()
        }

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the certificates are not in order, one line each."""
        faults = list(self.state.problems) if self.version is not None else ["the Secret does not exist"]
        faults += [f"{target} does not exist" for target, found in self.configurations.items() if found is None]
        faults += [f"{target}: caBundle is not the published one" for target in self.out_of_step]
        return tuple(faults)

    @property
    def out_of_step(self) -> tuple[Target, ...]:
        """Configurations whose caBundle is not the one of the Secret."""
        return out_of_step(self.state, self.observed)


class Controller:
    """Brings one Secret and its webhook configurations forward, one safe step at a time.

    Any number of controllers may run at once: each write is bound to the version that its decision was made on.
    `acted` is told of each action that was carried out.
    """

    def __init__(
        self,
        cluster: Cluster,
        targets: Sequence[Target],
        policy: Policy,
        clock: Callable[[], datetime],
        acted: Callable[[Action], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._targets = tuple(targets)
        self._policy = policy
        self._clock = clock
        self._acted = acted

    def look(self) -> View:
        """Read everything; change nothing. Raises `ClusterError`."""
        # The Secret comes last: a bundle of it is then never older than the version of a configuration that the
        # publication is bound to, and a slow writer cannot put an outdated bundle over a newer one.
        configurations = {target: self._cluster.read_configuration(target) for target in self._targets}
        secret = self._cluster.read_secret()
        now = self._clock()
        state = State() if secret is None else read_state(secret.data, self._policy.names, now)
        return View(state, None if secret is None else secret.version, configurations, now)

    def step(self) -> tuple[View, Action]:
        """Do the one next action, unless it is to wait; return it with what it was decided on.

        Raises `ConflictError` where somebody was faster and `ClusterError` where the API server cannot be asked.
        """
        view = self.look()
        action = plan(view.state, view.observed, self._policy, view.at)
        match action:
            case Wait():
                return view, action
            case Publish(targets):
                for target in targets:
                    configuration = view.configurations[target]
                    if configuration is not None:
                        self._cluster.publish(target, configuration, view.state.bundle)
            case _:
                after = apply(action, view.state, view.observed, self._policy, view.at)
                self._cluster.write_secret(write_state(after), view.version)
        log.info("%s", describe(action, view))
        self._acted(action)
        return view, action

    def reconcile(self) -> tuple[View, Wait]:
        """Go on until there is nothing to do; return what is there then, and how long it holds.

        Raises `ClusterError`, also where a fight with another writer does not end.
        """
        conflict: ConflictError | None = None
        for _ in range(MAX_STEPS):
            try:
                view, action = self.step()
            except ConflictError as error:
                conflict = error
                log.info("another writer was faster, reading again: %s", error)
                continue
            if isinstance(action, Wait):
                return view, action
        raise conflict or ConflictError("the certificates do not come to rest: somebody else keeps changing them")


def describe(action: Action, view: View) -> str:
    """Return a line for the log: what was done, and why."""
    match action:
        case Bootstrap():
            return f"made a new authority and a new leaf: {'; '.join(view.faults[:3]) or 'nothing usable was there'}"
        case RenewLeaf():
            return f"signed a new leaf: {view.state.problems[0] if view.state.leaf is None else 'two thirds are over'}"
        case StageAuthority():
            return "made the next authority and put it beside the old one"
        case Publish(targets):
            return f"wrote the caBundle of {', '.join(str(target) for target in targets)}"
        case Confirm():
            return "read the caBundle back from every configuration"
        case Withdraw():
            return "a configuration has changed: the caBundle has to be confirmed again"
        case SwitchLeaf():
            return "the next authority has signed the leaf and is the active one now"
        case DropAuthorities(fingerprints):
            return f"dropped {len(fingerprints)} old authorit{'y' if len(fingerprints) == 1 else 'ies'}"
        case Wait(until, reason):
            return f"nothing to do until {until:%Y-%m-%dT%H:%M:%SZ}: {reason}"
