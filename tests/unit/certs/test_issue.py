"""Certificates as they are made: what stands in them, that TLS accepts them, and how they get into files."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

import certs
from certs import Authority, IssueError, bundle_pem, load_pair, self_signed, server_context, service_names, write_files
from certs.authority import bears_name, renewal_time
from certs.pair import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
WHOLE = NOW.replace(microsecond=0)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NAMES = ("hook.system.svc", "*.example.org", "127.0.0.1", "::1")

AUTHORITY = Authority.new("hook.system.svc", lifetime=365 * DAY, now=NOW)
PAIR = AUTHORITY.issue(NAMES, lifetime=90 * DAY, now=NOW)
LEAF = x509.load_pem_x509_certificate(PAIR.certificate)

DIGITAL_SIGNATURE = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
SIGN = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
OWN_ID = x509.SubjectKeyIdentifier.from_public_key


@pytest.mark.parametrize(
    ("certificate", "extension", "critical"),
    [
        pytest.param(
            AUTHORITY.certificate, x509.BasicConstraints(ca=True, path_length=0), True, id="authority: constraints"
        ),
        pytest.param(AUTHORITY.certificate, SIGN, True, id="authority: usage"),
        pytest.param(AUTHORITY.certificate, OWN_ID(AUTHORITY.key.public_key()), False, id="authority: own id"),
        pytest.param(LEAF, x509.BasicConstraints(ca=False, path_length=None), True, id="leaf: constraints"),
        pytest.param(LEAF, DIGITAL_SIGNATURE, True, id="leaf: usage"),
        pytest.param(LEAF, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False, id="leaf: extended usage"),
        pytest.param(
            LEAF,
            x509.AuthorityKeyIdentifier(OWN_ID(AUTHORITY.key.public_key()).digest, None, None),
            False,
            id="leaf: authority's id",
        ),
    ],
)
def test_extension(certificate: x509.Certificate, extension: x509.ExtensionType, critical: bool) -> None:
    found = certificate.extensions.get_extension_for_class(type(extension))
    assert (found.value, found.critical) == (extension, critical)


@pytest.mark.parametrize(
    ("certificate", "lifetime"), [(AUTHORITY.certificate, 365 * DAY), (LEAF, 90 * DAY)], ids=["authority", "leaf"]
)
def test_dates_key_and_serial(certificate: x509.Certificate, lifetime: timedelta) -> None:
    assert certificate.not_valid_before_utc == WHOLE - HOUR
    assert certificate.not_valid_after_utc == WHOLE + lifetime
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert certificate.serial_number.bit_length() > 64


def test_pair_describes_the_leaf() -> None:
    assert PAIR.names == NAMES
    assert (PAIR.not_before, PAIR.not_after) == (WHOLE - HOUR, WHOLE + 90 * DAY)
    assert PAIR.fingerprint == fingerprint(LEAF)
    assert PAIR.authorities == AUTHORITY.certificate_pem
    assert PAIR.private_key.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert "PRIVATE" not in repr(PAIR) + repr(AUTHORITY)
    assert "key=" not in repr(PAIR) + repr(AUTHORITY)


def test_authorities_of_one_name_differ_in_subject() -> None:
    other = Authority.new("hook.system.svc", lifetime=DAY, now=NOW)
    assert other.certificate.subject != AUTHORITY.certificate.subject
    assert bears_name(other.certificate, "hook.system.svc")
    assert not bears_name(other.certificate, "hook.system")
    assert not bears_name(LEAF, "hook.system.svc")


def test_a_long_name_is_cut_in_the_subject_alone() -> None:
    name = f"{'a' * 63}.{'b' * 63}.svc"
    authority = Authority.new(name, lifetime=DAY, now=NOW)
    assert bears_name(authority.certificate, name)
    assert authority.issue([name], lifetime=DAY, now=NOW).names == (name,)


def test_a_leaf_never_outlives_its_authority() -> None:
    assert AUTHORITY.issue(NAMES, lifetime=90 * DAY, now=NOW + 360 * DAY).not_after == AUTHORITY.not_after


def test_service_names() -> None:
    assert service_names("hook", "system") == (
        "hook.system.svc",
        "hook.system.svc.cluster.local",
        "hook.system",
        "hook",
    )


@pytest.mark.parametrize(
    ("lifetime", "renewed"), [(90 * DAY, 60 * DAY), (timedelta(seconds=9), timedelta(seconds=6))], ids=str
)
def test_two_thirds_are_counted_without_the_backdated_hour(lifetime: timedelta, renewed: timedelta) -> None:
    assert renewal_time(WHOLE - HOUR, WHOLE + lifetime) == WHOLE + renewed


def test_a_certificate_shorter_than_the_hour_is_due_at_its_end() -> None:
    assert renewal_time(WHOLE, WHOLE + DAY / 48) == WHOLE + DAY / 48


def test_bundle_is_stable() -> None:
    later = Authority.new("a", lifetime=DAY, now=NOW + DAY)
    bundle = bundle_pem([later.certificate, AUTHORITY.certificate, later.certificate])
    assert bundle == AUTHORITY.certificate_pem + later.certificate_pem
    assert bundle == bundle_pem(x509.load_pem_x509_certificates(bundle))
    assert bundle_pem([]) == b""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("name", "accepted"), [("localhost", True), ("127.0.0.1", True), ("example.org", False)], ids=str
)
def test_handshake_over_loopback(version: ssl.TLSVersion, name: str, accepted: bool) -> None:
    issued = self_signed(["localhost", "127.0.0.1"])
    client = ssl.create_default_context(cadata=issued.pair.authorities.decode())
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    client.maximum_version = version
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_once, args=(listener, server_context(issued.pair)))
        thread.start()
        try:
            with socket.create_connection(listener.getsockname(), timeout=5) as raw:
                if accepted:
                    with client.wrap_socket(raw, server_hostname=name) as connection:
                        assert connection.version() == version.name.replace("_", ".")
                        assert connection.recv(5) == b"hello"
                else:
                    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
                        client.wrap_socket(raw, server_hostname=name)
        finally:
            thread.join()


def serve_once(listener: socket.socket, context: ssl.SSLContext) -> None:
    raw, _ = listener.accept()
    try:
        with context.wrap_socket(raw, server_side=True) as connection:
            connection.sendall(b"hello")
    except OSError:
        raw.close()


@pytest.mark.parametrize(
    ("names", "lifetime", "message"),
    [
        ([], DAY, "a certificate needs at least one name"),
        (["a_b"], DAY, "'a_b' is neither a DNS name nor an IP address"),
        ([""], DAY, "'' is neither a DNS name nor an IP address"),
        (["a", "-a.svc"], DAY, "'-a.svc' is neither a DNS name nor an IP address"),
        (["a.*.svc"], DAY, "'a.*.svc' is neither a DNS name nor an IP address"),
        (["bücher.example"], DAY, "'bücher.example' is neither a DNS name nor an IP address"),
        (["1.2.3.4/8"], DAY, "'1.2.3.4/8' is neither a DNS name nor an IP address"),
        (["a"], timedelta(0), "the lifetime has to be at least one second"),
        (["a"], timedelta(days=3_650_000), "the lifetime ends beyond the year 9999"),
    ],
    ids=str,
)
def test_self_signed_refuses(names: list[str], lifetime: timedelta, message: str) -> None:
    with pytest.raises(IssueError) as caught:
        self_signed(names, lifetime=lifetime)
    assert str(caught.value) == message


def test_names_are_written_in_lower_case() -> None:
    assert self_signed(["LocalHost"]).pair.names == ("localhost",)


def test_files(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    issued = self_signed(["localhost"])

    paths = write_files(issued, directory)

    assert paths == tuple(directory / name for name in ("ca.crt", "ca.key", "tls.crt", "tls.key"))
    assert sorted(directory.iterdir()) == sorted(paths)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) & 0o177 for path in paths} == {
        "ca.crt": 0o044,
        "ca.key": 0,
        "tls.crt": 0o044,
        "tls.key": 0,
    }
    assert load_pair(directory, names=["localhost"]) == issued.pair
    key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert key.public_key() == issued.authority.certificate.public_key()


def test_files_are_not_overwritten_unasked(tmp_path: Path) -> None:
    old = self_signed(["localhost"])
    write_files(old, tmp_path)
    (tmp_path / "tls.crt").unlink()
    with pytest.raises(IssueError) as caught:
        write_files(self_signed(["localhost"]), tmp_path)
    assert str(caught.value) == f"{tmp_path} has ca.crt, ca.key, tls.key already; nothing was written"
    assert not (tmp_path / "tls.crt").exists()
    assert (tmp_path / "tls.key").read_bytes() == old.pair.private_key

    new = self_signed(["localhost"])
    write_files(new, tmp_path, overwrite=True)
    assert load_pair(tmp_path) == new.pair
    assert len(list(tmp_path.iterdir())) == 4


def test_a_key_is_not_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_bytes(b"")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("tls.key", ".tls.key.new"):
        (out / name).symlink_to(target)
    write_files(self_signed(["localhost"]), out, overwrite=True)
    assert target.read_bytes() == b""
    assert not (out / "tls.key").is_symlink()


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IssueError) as caught:
        write_files(self_signed(["localhost"]), tmp_path / "file" / "out")
    assert str(caught.value) == f"{tmp_path / 'file' / 'out'} cannot be written: Not a directory"


def test_public_surface() -> None:
    assert len(set(certs.__all__)) == len(certs.__all__)
    assert [name for name in certs.__all__ if not hasattr(certs, name)] == []
