"""A serving pair as it lies in a directory: read as a whole, checked as a whole.

`load_pair` reads `tls.crt`, `tls.key` and `ca.crt` and answers with a frozen `Pair`, or raises `PairError` with one
line that says what is wrong. `server_context` makes the TLS context of exactly the bytes that were checked.

The files of a Secret volume are links through `..data`, which kubelet swaps at once for another directory. Reading
the three names one after the other could therefore mix two generations: all of them are read from the one directory
that `..data` named at the start.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"
AUTHORITIES_FILE = "ca.crt"

MAX_FILE_BYTES = 256 * 1024
"""Upper bound of each file. A Secret is at most 1 MiB altogether."""

MAX_CHAIN = 8
"""Certificates between the leaf and its root, both included."""

_READ_ATTEMPTS = 3


class PairError(ValueError):
    """The pair cannot be served; the message is one line for the person who looks after the certificates."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A leaf certificate with its key, checked.

    The private key stays out of `repr`, so that a logged pair gives nothing away.
    """

    certificate: bytes
    """PEM of `tls.crt`: the leaf first, then intermediates."""
    private_key: bytes = field(repr=False)
    """PEM of `tls.key`."""
    authorities: bytes
    """PEM of `ca.crt`; empty where there is none, and the chain was not checked then."""
    not_before: datetime
    """Of the leaf, in UTC."""
    not_after: datetime
    """Of the leaf, in UTC."""
    fingerprint: str
    """SHA-256 of the leaf's DER form, 64 hexadecimal digits."""
    names: tuple[str, ...]
    """Subject alternative names of the leaf: DNS names, then IP addresses."""


def load_pair(directory: str | Path, *, names: Collection[str] = (), now: datetime | None = None) -> Pair:
    """Read and check the pair in `directory`.

    `names` are DNS names or IP addresses that the leaf has to cover, each of them; `now` is the moment it has to be
    valid at, the current one by default. An absent `ca.crt` is allowed: certificates of a public authority come
    without one.

    Raises `PairError`; the message starts with the directory.
    """
    directory = Path(directory)
    try:
        certificate, key, authorities = _read(directory)
        return check_pair(certificate, key, authorities, names=names, now=now)
    except PairError as error:
        raise PairError(f"{directory}: {error}") from None


def check_pair(
    certificate: bytes,
    private_key: bytes,
    authorities: bytes,
    *,
    names: Collection[str] = (),
    now: datetime | None = None,
) -> Pair:
    """Check PEM bytes as `load_pair` does the files: key, dates, use, names and chain, in this order.

    The chain is followed by hand and not by `cryptography.x509.verification`, because that one applies the rules of
    the public web (no Ed25519, key usage obligatory), which the API server does not: it would refuse pairs that work.
    """
    now = datetime.now(UTC) if now is None else now
    chain = parse_certificates(certificate, CERTIFICATE_FILE)
    leaf = chain[0]
    if not fits_key(leaf, _parse_key(private_key)):
        raise PairError(f"{KEY_FILE} is not the key of {CERTIFICATE_FILE}")
    _check_dates(leaf, now)
    _check_use(leaf)
    found = subject_names(leaf)
    if not found:
        raise PairError(
            f"{CERTIFICATE_FILE} has no subject alternative name, and clients do not look at the common name"
        )
    missing = [name for name in names if not _covers(found, name)]
    if missing:
        raise PairError(f"{CERTIFICATE_FILE} is for {', '.join(found)}, not for {', '.join(missing)}")
    if authorities.strip():
        roots = parse_certificates(authorities, AUTHORITIES_FILE)
        if not _reaches(leaf, chain[1:], roots, now):
            raise PairError(f"{CERTIFICATE_FILE} does not chain to a valid certificate of {AUTHORITIES_FILE}")
    return Pair(
        certificate=certificate,
        private_key=private_key,
        authorities=authorities,
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
        fingerprint=fingerprint(leaf),
        names=found,
    )


def server_context(pair: Pair) -> ssl.SSLContext:
    """Return a TLS server context of the pair's own bytes, TLS 1.2 and up.

    The bytes in memory are used and not the files, which may be others by now. Raises `PairError` where OpenSSL
    refuses what `check_pair` let pass (a key that is too short, for one).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        with _as_file(pair.certificate + b"\n" + pair.private_key) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise PairError(f"the TLS library refuses the pair: {error.reason or error}") from None
    except OSError as error:
        raise PairError(f"the pair cannot be handed to the TLS library: {error.strerror}") from None
    return context


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the DER form, 64 hexadecimal digits, as `openssl x509 -fingerprint -sha256` has it."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def subject_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the subject alternative names: DNS names, then IP addresses. Empty where there is none."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))


def parse_certificates(pem: bytes, what: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM text, at least one. Raises `PairError` that speaks of `what`."""
    if not pem.strip():
        raise PairError(f"{what} is empty")
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        for certificate in certificates:
            certificate.extensions  # noqa: B018 - parsed lazily: a broken extension has to show here, not later
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise PairError(f"{what} is not a PEM certificate") from None
    return certificates


def fits_key(certificate: x509.Certificate, public_key: bytes) -> bool:
    """Tell whether a certificate is that of a public key, given as DER (SubjectPublicKeyInfo)."""
    try:
        own = certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    except (ValueError, UnsupportedAlgorithm):
        return False
    return own == public_key


def _read(directory: Path) -> tuple[bytes, bytes, bytes]:
    for attempt in range(1, _READ_ATTEMPTS + 1):
        resolved = _resolve(directory)
        try:
            return (
                _read_file(resolved / CERTIFICATE_FILE),
                _read_file(resolved / KEY_FILE),
                _read_file(resolved / AUTHORITIES_FILE, required=False),
            )
        except PairError:
            # kubelet removes the old directory right after the swap: look where the link leads now.
            if attempt == _READ_ATTEMPTS or _resolve(directory) == resolved:
                raise
    raise AssertionError("unreachable")


def _resolve(directory: Path) -> Path:
    data = directory / "..data"
    return (data if data.is_symlink() else directory).resolve()


def _read_file(path: Path, *, required: bool = True) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        # An absent ca.crt counts only if its directory is still there: else the volume was swapped meanwhile.
        if required or not path.parent.is_dir():
            raise PairError(f"{path.name} is missing") from None
        return b""
    except OSError as error:
        raise PairError(f"{path.name} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise PairError(f"{path.name} is larger than {MAX_FILE_BYTES // 1024} KiB")
    return content


def _parse_key(pem: bytes) -> bytes:
    """Return the public half, as DER."""
    if not pem.strip():
        raise PairError(f"{KEY_FILE} is empty")
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError:
        raise PairError(f"{KEY_FILE} is encrypted; a key without a passphrase is needed") from None
    except (ValueError, UnsupportedAlgorithm):
        raise PairError(f"{KEY_FILE} is not a PEM private key") from None
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _check_dates(leaf: x509.Certificate, now: datetime) -> None:
    if now < leaf.not_valid_before_utc:
        raise PairError(f"{CERTIFICATE_FILE} is not valid before {_stamp(leaf.not_valid_before_utc)}")
    if now >= leaf.not_valid_after_utc:
        raise PairError(f"{CERTIFICATE_FILE} has expired at {_stamp(leaf.not_valid_after_utc)}")


def _check_use(leaf: x509.Certificate) -> None:
    try:
        uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if ExtendedKeyUsageOID.SERVER_AUTH not in uses and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in uses:
        raise PairError(f"{CERTIFICATE_FILE} is not meant for servers: its extended key usage lacks serverAuth")


def _covers(found: Sequence[str], name: str) -> bool:
    name = name.lower().rstrip(".")
    _, _, parent = name.partition(".")
    return any(san.lower() in (name, f"*.{parent}") for san in found)


def _reaches(
    certificate: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    now: datetime,
    depth: int = 1,
) -> bool:
    if certificate in roots:
        return True
    if depth == MAX_CHAIN:
        return False
    for issuer in (*roots, *intermediates):
        if not (issuer.not_valid_before_utc <= now < issuer.not_valid_after_utc and _issued(certificate, issuer)):
            continue
        rest = [other for other in intermediates if other != issuer]
        if _reaches(issuer, rest, roots, now, depth + 1):
            return True
    return False


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        certificate.verify_directly_issued_by(issuer)
    except (x509.ExtensionNotFound, ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Give bytes a path for as long as needed: OpenSSL's Python binding takes nothing else.

    In memory where the system can (the root file system of the container is read-only), else in a private file.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
