"""Who of several rotates: one Lease, held as `client-go` holds it.

The Lease keeps replicas from getting into each other's way; that nothing breaks when two act at once is seen to by
the versions that every write is bound to. The clock of another machine is never compared with the own one: a Lease
has run out when it has not changed for its duration, by the own clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from certs.cluster import ClusterError, ConflictError

if TYPE_CHECKING:
    from certs.cluster import JSON, Transport


@dataclass(frozen=True, slots=True)
class Record:
    """The part of a Lease that matters here. `holder` is empty when it is free."""

    holder: str
    duration: timedelta
    renewed: str
    transitions: int
    version: str


class LeaseStore(Protocol):
    """Where the Lease is kept. Both methods may raise `ClusterError`."""

    def read(self) -> Record | None:
        """Return the Lease; None where there is none."""
        ...

    def write(
        self, holder: str, duration: timedelta, now: datetime, *, transitions: int, acquired: bool, version: str | None
    ) -> None:
        """Write the Lease read at `version`, or create it (None). Raises `ConflictError`."""
        ...


class Leadership:
    """One contender for the Lease. Call `hold` more often than every third of `duration`."""

    def __init__(self, store: LeaseStore, identity: str, duration: timedelta = timedelta(seconds=30)) -> None:
        self._store = store
        self._identity = identity
        self._duration = duration
        self._seen: Record | None = None
        self._seen_at: datetime | None = None
        self._renewed_at: datetime | None = None
        self.leading = False

    def hold(self, now: datetime) -> bool:
        """Take or renew the Lease if that is possible; return whether it is held. Raises `ClusterError`."""
        try:
            self.leading = self._hold(now)
        except ConflictError:
            self.leading = False
        except ClusterError:
            self.leading = False
            raise
        return self.leading

    def release(self, now: datetime) -> None:
        """Give the Lease back if it is held, so that a successor need not wait. Raises `ClusterError`."""
        if not self.leading:
            return
        self.leading = False
        found = self._store.read()
        if found is not None and found.holder == self._identity:
            self._write("", timedelta(seconds=1), now, found)

    def _hold(self, now: datetime) -> bool:
        found = self._store.read()
        if found is None:
            self._store.write(self._identity, self._duration, now, transitions=0, acquired=True, version=None)
            self._renewed_at = now
            return True
        if self._seen != found:
            self._seen, self._seen_at = found, now
        if found.holder == self._identity:
            # Renewed at a third of its duration only: between two renewals nothing has to be written.
            if self._renewed_at is None or now - self._renewed_at >= self._duration / 3:
                self._write(self._identity, self._duration, now, found)
            return True
        if found.holder and self._seen_at is not None and now - self._seen_at < found.duration:
            return False
        self._write(self._identity, self._duration, now, found)
        return True

    def _write(self, holder: str, duration: timedelta, now: datetime, found: Record) -> None:
        acquired = holder not in ("", found.holder)
        self._store.write(
            holder,
            duration,
            now,
            transitions=found.transitions + acquired,
            acquired=acquired,
            version=found.version,
        )
        self._renewed_at = now


class KubernetesLease:
    """`LeaseStore` on an API server. Needs, in RBAC: get and patch of the Lease, and create where none is shipped."""

    def __init__(self, transport: Transport, namespace: str, name: str) -> None:
        self._transport = transport
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name

    def read(self) -> Record | None:
        """See `LeaseStore`."""
        found = self._transport.request("GET", f"{self._leases}/{self._name}")
        if found is None:
            return None
        spec = found.get("spec") or {}
        return Record(
            holder=spec.get("holderIdentity") or "",
            duration=timedelta(seconds=spec.get("leaseDurationSeconds") or 0),
            renewed=spec.get("renewTime") or "",
            transitions=spec.get("leaseTransitions") or 0,
            version=str(found["metadata"]["resourceVersion"]),
        )

    def write(
        self, holder: str, duration: timedelta, now: datetime, *, transitions: int, acquired: bool, version: str | None
    ) -> None:
        """See `LeaseStore`."""
        spec: dict[str, Any] = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, int(duration.total_seconds())),
            "renewTime": _micro_time(now),
            "leaseTransitions": transitions,
        }
        if acquired:
            spec["acquireTime"] = _micro_time(now)
        if version is None:
            body: JSON = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": spec,
            }
            self._transport.request("POST", self._leases, body)
            return
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        path = f"{self._leases}/{self._name}"
        if self._transport.request("PATCH", path, patch, "application/merge-patch+json") is None:
            raise ConflictError(f"lease {self._name} was deleted meanwhile")


def _micro_time(now: datetime) -> str:
    return f"{now:%Y-%m-%dT%H:%M:%S.%f}Z"
