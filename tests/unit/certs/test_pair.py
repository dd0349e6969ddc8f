"""The pair in a directory: what is accepted, what is refused and in which words."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

import certs.pair
from certs.pair import MAX_FILE_BYTES, PairError, check_pair, load_pair, server_context

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAME = "mps-webhook.mps-system.svc"
DAY = timedelta(days=1)

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
READ_FILE = certs.pair._read_file


class Made:
    """A certificate with its key, made by hand so that any of its properties can be wrong."""

    def __init__(
        self,
        subject: str,
        issuer: Made | None = None,
        *,
        ca: bool = False,
        names: Sequence[x509.GeneralName] = (),
        uses: Sequence[x509.ObjectIdentifier] = (),
        start: timedelta = -DAY,
        end: timedelta = 30 * DAY,
        key: Key | None = None,
    ) -> None:
        self.key: Key = key or ec.generate_private_key(ec.SECP256R1())
        self.issuer = issuer
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer.certificate.subject if issuer else name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW + start)
            .not_valid_after(NOW + end)
        )
        if ca:
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if uses:
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        signer = issuer.key if issuer else self.key
        self.certificate: x509.Certificate = builder.sign(
            signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def leaf(issuer: Made | None, **kwargs: Any) -> Made:
    kwargs.setdefault("names", [x509.DNSName(NAME)])
    return Made("leaf", issuer, **kwargs)


ROOT = Made("root", ca=True, end=365 * DAY)
OTHER_ROOT = Made("root", ca=True)
MIDDLE = Made("middle", ROOT, ca=True)
LEAF = leaf(ROOT)
EXPIRED_ROOT = Made("expired root", ca=True, start=-30 * DAY, end=-DAY)
NO_CA = Made("no ca")


def write(
    directory: Path, certificate: bytes | None = None, key: bytes | None = None, authorities: bytes | None = None
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (("tls.crt", certificate), ("tls.key", key), ("ca.crt", authorities)):
        if content is not None:
            (directory / name).write_bytes(content)
    return directory


def test_reads_a_pair(tmp_path: Path) -> None:
    made = leaf(ROOT, names=[x509.IPAddress(ipaddress.ip_address("::1")), x509.DNSName(NAME), x509.DNSName("b")])
    write(tmp_path, made.pem, made.key_pem, ROOT.pem)

    pair = load_pair(tmp_path, names=[NAME, "::1"], now=NOW)

    assert pair.certificate == made.pem
    assert pair.private_key == made.key_pem
    assert pair.authorities == ROOT.pem
    assert (pair.not_before, pair.not_after) == (NOW - DAY, NOW + 30 * DAY)
    assert pair.fingerprint == made.certificate.fingerprint(hashes.SHA256()).hex()
    assert pair.names == (NAME, "b", "::1")
    assert "PRIVATE" not in repr(pair)


@pytest.mark.parametrize(
    ("certificate", "key", "authorities"),
    [
        pytest.param(LEAF.pem, LEAF.key_pem, b"", id="no authorities, not checked"),
        pytest.param(LEAF.pem, LEAF.key_pem, OTHER_ROOT.pem + ROOT.pem, id="second of two of one name"),
        pytest.param(LEAF.pem, LEAF.key_pem, EXPIRED_ROOT.pem + ROOT.pem, id="an expired one beside it"),
    ],
)
def test_accepts(certificate: bytes, key: bytes, authorities: bytes) -> None:
    check_pair(certificate, key, authorities, now=NOW)


def test_accepts_a_chain_through_an_intermediate() -> None:
    made = leaf(MIDDLE)
    check_pair(made.pem + MIDDLE.pem, made.key_pem, ROOT.pem, now=NOW)
    check_pair(made.pem, made.key_pem, MIDDLE.pem, now=NOW)


def test_accepts_a_self_signed_leaf_that_is_its_own_authority() -> None:
    made = leaf(None)
    check_pair(made.pem, made.key_pem, made.pem, now=NOW)


def test_accepts_ed25519_as_the_api_server_does() -> None:
    root = Made("root", ca=True, key=ed25519.Ed25519PrivateKey.generate())
    made = leaf(root, key=ed25519.Ed25519PrivateKey.generate())
    server_context(check_pair(made.pem, made.key_pem, root.pem, now=NOW))


CLIENT_LEAF = leaf(ROOT, uses=[ExtendedKeyUsageOID.CLIENT_AUTH])
NAMELESS_LEAF = leaf(ROOT, names=())
FUTURE_LEAF = leaf(ROOT, start=DAY)
PAST_LEAF = leaf(ROOT, end=timedelta())
EXPIRED_LEAF = leaf(EXPIRED_ROOT)
NO_CA_LEAF = leaf(NO_CA)
MIDDLE_LEAF = leaf(MIDDLE)
ENCRYPTED_KEY = LEAF.key.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
)


@pytest.mark.parametrize(
    ("certificate", "key", "authorities", "message"),
    [
        pytest.param(LEAF.pem, ROOT.key_pem, ROOT.pem, "tls.key is not the key of tls.crt", id="other key"),
        pytest.param(b"", LEAF.key_pem, ROOT.pem, "tls.crt is empty", id="no certificate"),
        pytest.param(b"x", LEAF.key_pem, ROOT.pem, "tls.crt is not a PEM certificate", id="garbage"),
        pytest.param(LEAF.pem[:200], LEAF.key_pem, ROOT.pem, "tls.crt is not a PEM certificate", id="cut off"),
        pytest.param(LEAF.pem, b" \n", ROOT.pem, "tls.key is empty", id="no key"),
        pytest.param(LEAF.pem, LEAF.pem, ROOT.pem, "tls.key is not a PEM private key", id="key is a certificate"),
        pytest.param(
            LEAF.pem,
            ENCRYPTED_KEY,
            ROOT.pem,
            "tls.key is encrypted; a key without a passphrase is needed",
            id="encrypted key",
        ),
        pytest.param(LEAF.pem, LEAF.key_pem, b"x", "ca.crt is not a PEM certificate", id="garbage authorities"),
        pytest.param(
            FUTURE_LEAF.pem,
            FUTURE_LEAF.key_pem,
            ROOT.pem,
            "tls.crt is not valid before 2026-03-02T12:00:00Z",
            id="future",
        ),
        pytest.param(
            PAST_LEAF.pem, PAST_LEAF.key_pem, ROOT.pem, "tls.crt has expired at 2026-03-01T12:00:00Z", id="expired"
        ),
        pytest.param(
            CLIENT_LEAF.pem,
            CLIENT_LEAF.key_pem,
            ROOT.pem,
            "tls.crt is not meant for servers: its extended key usage lacks serverAuth",
            id="client certificate",
        ),
        pytest.param(
            NAMELESS_LEAF.pem,
            NAMELESS_LEAF.key_pem,
            ROOT.pem,
            "tls.crt has no subject alternative name, and clients do not look at the common name",
            id="no names",
        ),
        *(
            pytest.param(
                made.pem, made.key_pem, authorities, "tls.crt does not chain to a valid certificate of ca.crt", id=title
            )
            for title, made, authorities in [
                ("other authority of the same name", LEAF, OTHER_ROOT.pem),
                ("expired authority", EXPIRED_LEAF, EXPIRED_ROOT.pem),
                ("issuer is no authority", NO_CA_LEAF, NO_CA.pem),
                ("intermediate not sent", MIDDLE_LEAF, ROOT.pem),
            ]
        ),
    ],
)
def test_refuses(certificate: bytes, key: bytes, authorities: bytes, message: str) -> None:
    with pytest.raises(PairError) as caught:
        check_pair(certificate, key, authorities, now=NOW)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("found", "wanted", "covered"),
    [
        (NAME, NAME, True),
        (NAME, NAME.upper(), True),
        (NAME, f"{NAME}.", True),
        (NAME, "mps-webhook.mps-system", False),
        ("*.mps-system.svc", NAME, True),
        ("*.svc", NAME, False),
        ("*.mps-system.svc", "mps-system.svc", False),
    ],
)
def test_names(found: str, wanted: str, covered: bool) -> None:
    made = leaf(ROOT, names=[x509.DNSName(found)])
    if covered:
        check_pair(made.pem, made.key_pem, ROOT.pem, names=[wanted], now=NOW)
    else:
        with pytest.raises(PairError, match=f"^tls.crt is for {found}, not for {wanted}$".replace("*", r"\*")):
            check_pair(
                made.pem, made.key_pem, ROOT.pem, names=["*.svc" if found == "*.svc" else found, wanted], now=NOW
            )


def test_missing_file_names_the_directory(tmp_path: Path) -> None:
    write(tmp_path, LEAF.pem)
    with pytest.raises(PairError) as caught:
        load_pair(tmp_path)
    assert str(caught.value) == f"{tmp_path}: tls.key is missing"


def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").mkdir()
    with pytest.raises(PairError) as caught:
        load_pair(tmp_path)
    assert str(caught.value) == f"{tmp_path}: tls.crt cannot be read: Is a directory"


def test_file_without_bound(tmp_path: Path) -> None:
    write(tmp_path, b"x" * (MAX_FILE_BYTES + 1))
    with pytest.raises(PairError, match=r": tls\.crt is larger than 256 KiB$"):
        load_pair(tmp_path)


class Volume:
    """A Secret volume as kubelet makes it: files link through `..data` to a directory of one generation."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.generation = 0

    def publish(self, made: Made, authorities: bytes) -> Path:
        self.generation += 1
        target = write(self.directory / f"..{self.generation}", made.pem, made.key_pem, authorities)
        link = self.directory / "..data_tmp"
        link.symlink_to(target.name)
        link.rename(self.directory / "..data")
        for name in ("tls.crt", "tls.key", "ca.crt"):
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"..data/{name}")
        return target


def test_swap_between_two_reads_gives_one_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = Volume(tmp_path / "volume")
    first, second = leaf(ROOT), leaf(OTHER_ROOT)
    old = volume.publish(first, ROOT.pem)
    swapped = False

    def swap_after_the_certificate(path: Path, *, required: bool = True) -> bytes:
        nonlocal swapped
        if path.name == "tls.key" and not swapped:
            swapped = True
            volume.publish(second, OTHER_ROOT.pem)
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
        return READ_FILE(path, required=required)

    monkeypatch.setattr("certs.pair._read_file", swap_after_the_certificate)
    pair = load_pair(volume.directory, now=NOW)

    assert swapped
    assert (pair.certificate, pair.private_key, pair.authorities) == (second.pem, second.key_pem, OTHER_ROOT.pem)


def test_swap_while_the_old_directory_stays_gives_the_old_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = Volume(tmp_path / "volume")
    first, second = leaf(ROOT), leaf(OTHER_ROOT)
    volume.publish(first, ROOT.pem)

    def swap(path: Path, *, required: bool = True) -> bytes:
        if path.name == "tls.key":
            volume.publish(second, OTHER_ROOT.pem)
        return READ_FILE(path, required=required)

    with monkeypatch.context() as patch:
        patch.setattr("certs.pair._read_file", swap)
        assert load_pair(volume.directory, now=NOW).certificate == first.pem
    assert load_pair(volume.directory, now=NOW).certificate == second.pem


def test_server_context_without_memory_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.memfd_create")
    server_context(check_pair(LEAF.pem, LEAF.key_pem, ROOT.pem, now=NOW))


def test_server_context_where_nothing_can_be_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.memfd_create", refuse)
    with pytest.raises(PairError, match=r"^the pair cannot be handed to the TLS library: Operation not permitted$"):
        server_context(check_pair(LEAF.pem, LEAF.key_pem, ROOT.pem, now=NOW))


def test_server_context_serves_what_was_checked() -> None:
    context = server_context(check_pair(LEAF.pem, LEAF.key_pem, ROOT.pem, now=NOW))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ROOT.pem.decode())
    client.verify_flags |= 0x200000  # X509_V_FLAG_NO_CHECK_TIME: the certificates live in the test's own time
    assert handshake(context, client, NAME) == LEAF.certificate.public_bytes(serialization.Encoding.DER)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bytes | None:
    """Do a TLS handshake in memory and return the certificate that the client saw, as DER."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    return ends[0].getpeercert(binary_form=True)


def test_weak_key_is_refused_by_the_context() -> None:
    made = leaf(ROOT, key=rsa.generate_private_key(65537, 1024))
    pair = check_pair(made.pem, made.key_pem, ROOT.pem, now=NOW)
    with pytest.raises(PairError, match=r"^the TLS library refuses the pair: "):
        server_context(pair)
