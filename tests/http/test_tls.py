"""The serving certificate while the service runs."""

from __future__ import annotations

import ssl
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from certs.authority import Authority
from certs.issue import self_signed
from tests.http.support import Running, issue, read_answer, review

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fingerprint(connection: ssl.SSLSocket) -> bytes:
    certificate = connection.getpeercert(binary_form=True)
    assert certificate
    return certificate


def ask(connection: ssl.SSLSocket) -> bytes:
    connection.sendall(b"GET /mutate HTTP/1.1\r\nhost: x\r\n\r\n")
    return read_answer(connection)


def as_secret_volume(folder: Path, generation: str) -> None:
    """Lay a new pair out as kubelet does: files are links through `..data`, which is exchanged at once."""
    issue(folder / generation)
    (folder / "..tmp").symlink_to(generation)
    (folder / "..tmp").rename(folder / "..data")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def test_a_new_pair_is_for_new_handshakes_and_open_connections_live_on(serve: Callable[..., Running]) -> None:
    running = serve()
    old = running.context()
    with running.connect() as before:
        first = fingerprint(before)
        assert ask(before).startswith(b"HTTP/1.1 405 ")
        issue(running.tls_dir)
        running.call(running.service.certificate.poll)
        with running.connect() as after:
            assert fingerprint(after) != first
            assert ask(after).startswith(b"HTTP/1.1 405 ")
        assert ask(before).startswith(b"HTTP/1.1 405 "), "the old connection is as good as before"
    with pytest.raises(httpx.ConnectError), httpx.Client(verify=old) as client:
        client.post(f"{running.https}/mutate")
    assert running.metric('mps_webhook_tls_reloads_total{result="ok"}') == 2


def test_the_swap_of_a_secret_volume_is_noticed_by_itself(tmp_path: Path, serve: Callable[..., Running]) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    as_secret_volume(folder, "..1")
    running = serve(certificate=False)
    with running.connect() as connection:
        first = fingerprint(connection)
    as_secret_volume(folder, "..2")
    for _ in range(100):
        try:
            with running.connect() as connection:  # trusts the new authority alone
                assert fingerprint(connection) != first
                return
        except ssl.SSLCertVerificationError:
            time.sleep(0.1)
    pytest.fail("the new pair was not taken up within ten seconds")


@pytest.mark.parametrize("break_it", ["key of another pair", "no file", "cut off"])
def test_a_bad_pair_keeps_the_last_good_one(serve: Callable[..., Running], tmp_path: Path, break_it: str) -> None:
    running = serve()
    context = running.context()
    expiry = running.metric("mps_webhook_certificate_expiry_timestamp_seconds")
    assert expiry > time.time() + 86400
    certificate = running.tls_dir / "tls.crt"
    problem = {
        "key of another pair": "tls.key is not the key of tls.crt",
        "no file": "tls.crt is missing",
        "cut off": "tls.crt is not a PEM certificate",
    }[break_it]
    if break_it == "key of another pair":
        certificate.write_bytes((issue(tmp_path / "other") / "tls.crt").read_bytes())
    elif break_it == "no file":
        certificate.unlink()
    else:
        certificate.write_bytes(certificate.read_bytes()[:200])
    for _ in range(2):
        running.call(running.service.certificate.poll)
    with httpx.Client(verify=context) as client:
        answer = client.post(f"{running.https}/mutate", json=review())
        assert answer.status_code == 200
    assert running.metric('mps_webhook_tls_reloads_total{result="failed"}') == 1, "said once, however often it is seen"
    assert running.metric("mps_webhook_certificate_expiry_timestamp_seconds") == expiry
    detail = running.get("/readyz?verbose")
    assert detail.status_code == 200
    assert f"keeping it, since what came after cannot be used: {running.tls_dir}: {problem}\n" in detail.text
    issue(running.tls_dir)
    running.call(running.service.certificate.poll)
    assert "keeping it" not in running.get("/readyz?verbose").text


def test_without_server_name(serve: Callable[..., Running]) -> None:
    running = serve()
    with running.connect(server_name=None) as connection:
        assert ask(connection).startswith(b"HTTP/1.1 405 ")
        assert connection.version() == "TLSv1.3"


def test_tls_1_1_is_refused_and_1_2_is_not(serve: Callable[..., Running]) -> None:
    running = serve()
    context = running.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with httpx.Client(verify=context) as client:
        assert client.post(f"{running.https}/mutate", json=review()).status_code == 200
    context = running.context()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(httpx.ConnectError), httpx.Client(verify=context) as client:
        client.post(f"{running.https}/mutate")


def test_before_the_first_pair_the_service_is_up_and_not_ready(tmp_path: Path, serve: Callable[..., Running]) -> None:
    (tmp_path / "tls").mkdir()
    running = serve(certificate=False)
    assert running.get("/livez").status_code == 200
    answer = running.get("/readyz")
    assert (answer.status_code, answer.text) == (503, f"certificate: {tmp_path / 'tls'}: tls.crt is missing")
    with pytest.raises(httpx.ConnectError):
        running.client.post(f"{running.https}/mutate")
    issue(tmp_path / "tls")
    running.call(running.service.certificate.poll)
    assert running.get("/readyz").status_code == 200
    with running.connect() as connection:
        assert ask(connection).startswith(b"HTTP/1.1 405 ")


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """An authority for clients, with a certificate of it for each of two names."""
    folder = tmp_path / "clients"
    folder.mkdir()
    now = datetime.now(UTC)
    authority = Authority.new("clients", lifetime=timedelta(hours=1), now=now)
    (folder / "ca.crt").write_bytes(authority.certificate_pem)
    for name in ("apiserver", "somebody"):
        (folder / f"{name}.pem").write_bytes(client_pair(authority, name, now))
    return folder


def client_pair(authority: Authority, name: str, now: datetime) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(minutes=30))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private


def post_as(running: Running, pair: Path | None) -> httpx.Response:
    context = running.context()
    if pair is not None:
        context.load_cert_chain(pair)
    with httpx.Client(verify=context) as client:
        return client.post(f"{running.https}/mutate", json=review())


@pytest.mark.parametrize("reloaded", [False, True], ids=["first pair", "after a reload"])
def test_client_certificates(serve: Callable[..., Running], clients: Path, reloaded: bool) -> None:
    running = serve(client_ca_file=clients / "ca.crt", client_names=frozenset({"apiserver"}))
    if reloaded:
        issue(running.tls_dir)
        running.call(running.service.certificate.poll)
    assert post_as(running, clients / "apiserver.pem").status_code == 200
    refused = post_as(running, clients / "somebody.pem")
    assert refused.status_code == 403
    assert refused.json()["message"] == "mps-webhook: the client certificate carries none of the allowed names"
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, httpx.ConnectError)):
        post_as(running, None)
    assert running.get("/livez").status_code == 200, "probes need no certificate"


def test_any_client_of_the_authority_where_no_name_is_asked_for(serve: Callable[..., Running], clients: Path) -> None:
    running = serve(client_ca_file=clients / "ca.crt")
    assert post_as(running, clients / "somebody.pem").status_code == 200
    stranger = clients / "stranger.pem"
    other = self_signed(["stranger"])
    stranger.write_bytes(client_pair(other.authority, "apiserver", datetime.now(UTC)))
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, httpx.ConnectError)):
        post_as(running, stranger)
