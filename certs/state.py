"""What the one Secret holds: everything a rotation has to remember, and nothing anywhere else.

| key | content | who needs it |
|---|---|---|
| `tls.crt`, `tls.key` | the serving pair | the servers |
| `ca.crt` | all authorities to be trusted now, oldest first: this very text is the caBundle | the servers |
| `ca.key` | key of the authority that signs; its certificate is the one in `ca.crt` that it fits | the rotation alone |
| `next-ca.key` | key of the successor while it is being published | the rotation alone |
| `rotation.json` | when the caBundle was confirmed, and how long each authority is needed | the rotation alone |

One object means that every step is one write, which happens as a whole or not at all. Servers mount it with `items`
for the first three keys, and have no right to read the Secret itself: the authority's keys never reach them.

Contents are never trusted. What cannot be used reads as absent, together with a line in `problems`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import Authority, bundle_pem
from certs.pair import (
    AUTHORITIES_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    Pair,
    PairError,
    check_pair,
    fingerprint,
    fits_key,
    parse_certificates,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AUTHORITY_KEY = "ca.key"
NEXT_AUTHORITY_KEY = "next-ca.key"
ROTATION_KEY = "rotation.json"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Every webhook configuration was read back with this bundle."""

    bundle: str
    """SHA-256 of the bundle's PEM, in hexadecimal digits."""
    at: datetime


@dataclass(frozen=True, slots=True)
class State:
    """Contents of the Secret, as far as they can be used."""

    leaf: Pair | None = None
    authorities: frozenset[x509.Certificate] = frozenset()
    """Everything in `ca.crt`."""
    active: Authority | None = None
    """Signs leaves. None when its key is gone or it has expired."""
    staged: Authority | None = None
    """Becomes `active` as soon as its publication is confirmed."""
    confirmed: Confirmation | None = None
    needed_until: Mapping[str, datetime] = field(default_factory=dict)
    """By fingerprint of the authority: the end of the last leaf it has signed."""
    problems: tuple[str, ...] = ()

    @property
    def bundle(self) -> bytes:
        """PEM that has to be the caBundle of every webhook."""
        return bundle_pem(self.authorities)


def digest(bundle: bytes) -> str:
    """Return the form in which a confirmation names a bundle."""
    return hashlib.sha256(bundle).hexdigest()


def read_state(data: Mapping[str, bytes], names: Sequence[str], now: datetime) -> State:
    """Read the contents of the Secret as they are at `now`; `names` are those a leaf has to cover. Never raises."""
    problems: list[str] = []
    authorities = _authorities(data.get(AUTHORITIES_FILE, b""), problems)
    confirmed, needed_until = _rotation(data.get(ROTATION_KEY, b""), problems)
    return State(
        leaf=_leaf(data, authorities, names, now, problems),
        authorities=authorities,
        active=_authority(data, AUTHORITY_KEY, authorities, now, problems),
        staged=_authority(data, NEXT_AUTHORITY_KEY, authorities, now, problems),
        confirmed=confirmed,
        needed_until=needed_until,
        problems=tuple(problems),
    )


def write_state(state: State) -> dict[str, bytes | None]:
    """Return the contents of the Secret; None stands for a key that has to go."""
    known = {fingerprint(one) for one in state.authorities}
    rotation: dict[str, Any] = {
        "neededUntil": {name: _stamp(end) for name, end in sorted(state.needed_until.items()) if name in known}
    }
    if state.confirmed is not None:
        rotation["confirmed"] = {"bundle": state.confirmed.bundle, "at": _stamp(state.confirmed.at)}
    return {
        CERTIFICATE_FILE: state.leaf.certificate if state.leaf else b"",
        KEY_FILE: state.leaf.private_key if state.leaf else b"",
        AUTHORITIES_FILE: state.bundle,
        AUTHORITY_KEY: state.active.private_key_pem if state.active else None,
        NEXT_AUTHORITY_KEY: state.staged.private_key_pem if state.staged else None,
        ROTATION_KEY: json.dumps(rotation, sort_keys=True).encode(),
    }


def _leaf(
    data: Mapping[str, bytes],
    authorities: frozenset[x509.Certificate],
    names: Sequence[str],
    now: datetime,
    problems: list[str],
) -> Pair | None:
    if not authorities:
        # check_pair would skip the chain: without an authority there is nothing that a client could trust.
        problems.append(f"{AUTHORITIES_FILE} holds no authority")
        return None
    certificate, key = data.get(CERTIFICATE_FILE, b""), data.get(KEY_FILE, b"")
    try:
        return check_pair(certificate, key, bundle_pem(authorities), names=names, now=now)
    except PairError as error:
        problems.append(str(error))
        return None


def _authorities(pem: bytes, problems: list[str]) -> frozenset[x509.Certificate]:
    if not pem.strip():
        return frozenset()
    try:
        return frozenset(one for one in parse_certificates(pem, AUTHORITIES_FILE) if is_authority(one))
    except PairError as error:
        problems.append(str(error))
        return frozenset()


def is_authority(certificate: x509.Certificate) -> bool:
    """Tell whether a certificate may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _authority(
    data: Mapping[str, bytes],
    name: str,
    authorities: frozenset[x509.Certificate],
    now: datetime,
    problems: list[str],
) -> Authority | None:
    pem = data.get(name, b"")
    if not pem.strip():
        return None
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        problems.append(f"{name} is not an ECDSA private key in PEM")
        return None
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    for certificate in authorities:
        if fits_key(certificate, public):
            if certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
                return Authority(certificate, key)
            problems.append(f"the authority of {name} is not valid at the moment")
            return None
    problems.append(f"{name} fits no certificate of {AUTHORITIES_FILE}")
    return None


def _rotation(text: bytes, problems: list[str]) -> tuple[Confirmation | None, dict[str, datetime]]:
    if not text.strip():
        return None, {}
    try:
        content = json.loads(text)
        needed = {str(name): _moment(end) for name, end in content.get("neededUntil", {}).items()}
        confirmed = content.get("confirmed")
        if confirmed is None:
            return None, needed
        return Confirmation(str(confirmed["bundle"]), _moment(confirmed["at"])), needed
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        problems.append(f"{ROTATION_KEY} cannot be read")
        return None, {}


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return moment.astimezone(UTC)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
