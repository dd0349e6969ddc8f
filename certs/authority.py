"""An authority and the leaves it signs: ECDSA P-256, backdated by an hour, renewed at two thirds of their lifetime."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.pair import Pair, fingerprint, subject_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BACKDATE = timedelta(hours=1)
"""`notBefore` lies this far in the past: a client whose clock is behind must not refuse a fresh certificate."""

_COMMON_NAME_MAX = 64  # X.520 ub-common-name
_AUTHORITY_NAME_MAX = _COMMON_NAME_MAX - len(" CA 01234567")
_DNS_NAME = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_DNS_NAME_MAX = 253


@dataclass(frozen=True, slots=True)
class Authority:
    """A self-signed certificate authority with its key. The key stays out of `repr`."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def new(cls, name: str, *, lifetime: timedelta, now: datetime) -> Authority:
        """Make an authority that lives for `lifetime` from `now`.

        The common name is `name` and a part of the serial number: an authority and its successor never share a
        subject, so no client has to guess which of the two a leaf belongs to.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        subject = _common_name(f"{name[:_AUTHORITY_NAME_MAX]} CA {serial & 0xFFFFFFFF:08x}")
        certificate = (
            _builder(subject, key, now, now + lifetime)
            .issuer_name(subject)
            .serial_number(serial)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(sign_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in hexadecimal digits."""
        return fingerprint(self.certificate)

    @property
    def not_after(self) -> datetime:
        """End of the certificate, in UTC."""
        return self.certificate.not_valid_after_utc

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def private_key_pem(self) -> bytes:
        """The private key as unencrypted PKCS #8 PEM."""
        return _key_pem(self.key)

    def issue(
        self, names: Sequence[str], *, lifetime: timedelta, now: datetime, authorities: bytes | None = None
    ) -> Pair:
        """Sign a serving pair for DNS names and IP addresses; it never outlives the authority.

        `authorities` is the PEM that goes along as `ca.crt`, this authority alone by default. Raises `ValueError`
        for no name at all and for what is neither a DNS name nor an address.
        """
        if not names:
            raise ValueError("a certificate needs at least one name")
        alternatives = [general_name(name) for name in names]
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(now + lifetime, self.not_after)
        own_id = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        certificate = (
            _builder(_common_name(names[0][:_COMMON_NAME_MAX]), key, now, end)
            .issuer_name(self.certificate.subject)
            .serial_number(x509.random_serial_number())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_id), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Pair(
            certificate=certificate.public_bytes(serialization.Encoding.PEM),
            private_key=_key_pem(key),
            authorities=self.certificate_pem if authorities is None else authorities,
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
            fingerprint=fingerprint(certificate),
            names=subject_names(certificate),
        )


def bears_name(certificate: x509.Certificate, name: str) -> bool:
    """Tell whether a certificate calls itself an authority made by `Authority.new(name)`."""
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return any(str(one.value).rpartition(" CA ")[0] == name[:_AUTHORITY_NAME_MAX] for one in common)


def service_names(service: str, namespace: str, cluster_domain: str = "cluster.local") -> tuple[str, ...]:
    """Return the names a Service is called by. The API server calls `<service>.<namespace>.svc`."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.{cluster_domain}",
        f"{service}.{namespace}",
        service,
    )


def renewal_time(not_before: datetime, not_after: datetime) -> datetime:
    """Return when two thirds of the lifetime are over, counted without the backdated hour."""
    start = min(not_before + BACKDATE, not_after)
    return start + (not_after - start) * 2 / 3


def bundle_pem(authorities: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as one PEM text, each once, oldest first: the same set always gives the same bytes."""
    ordered = sorted(set(authorities), key=lambda one: (one.not_valid_before_utc, fingerprint(one)))
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in ordered)


def general_name(name: str) -> x509.GeneralName:
    """Return a DNS name (a wildcard in the first label is fine) or an IP address as a subject alternative name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if len(name) > _DNS_NAME_MAX or not _DNS_NAME.fullmatch(name.lower()):
        raise ValueError(f"{name!r} is neither a DNS name nor an IP address")
    return x509.DNSName(name.lower())


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    start = now.astimezone(UTC).replace(microsecond=0) - BACKDATE
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .not_valid_before(start)
        .not_valid_after(end.astimezone(UTC).replace(microsecond=0))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _common_name(value: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value)])


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
