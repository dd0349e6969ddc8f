"""The serving certificate from the process that rotates it, by way of the Secret and the volume, to the handshake."""

from __future__ import annotations

import base64
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from certs.issue import self_signed
from tests.e2e.harness.api import STRATEGIC, Object, eventually
from tests.e2e.harness.load import Dialler, Load, burst, created
from tests.e2e.harness.manifests import NAMESPACE, SERVICE
from tests.e2e.harness.metrics import Watched, total
from tests.e2e.harness.objects import env_of, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness.api import Api
    from tests.e2e.harness.installation import Installation

SECRET = "mps-webhook-tls"
KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def bundles(api: Api) -> set[bytes]:
    """The caBundles of all our webhooks."""
    return {
        base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
        for kind in KINDS
        for webhook in api.get(kind, SERVICE)["webhooks"]
    }


def published(api: Api) -> bytes:
    """The authorities of the Secret."""
    return base64.b64decode(api.get("Secret", SECRET, NAMESPACE)["data"]["ca.crt"])


def put(api: Api, bundle: bytes) -> None:
    """Overwrite every caBundle, as somebody might by hand."""
    for kind in KINDS:
        names = [webhook["name"] for webhook in api.get(kind, SERVICE)["webhooks"]]
        config = {"caBundle": base64.b64encode(bundle).decode()}
        patch = {"webhooks": [{"name": name, "clientConfig": config} for name in names]}
        api.patch(kind, SERVICE, patch, content_type=STRATEGIC)


@contextmanager
def rotating(installation: Installation, *options: str) -> Iterator[None]:
    """Run the process with other times, and after it the one of the manifests again."""
    installation.stop_certs()
    installation.start_certs(*options)
    try:
        yield
    finally:
        installation.stop_certs()
        installation.start_certs()
        eventually(lambda: lasting(installation), "certificates of the usual lifetime and no others", 60.0)


def lasting(installation: Installation) -> bool:
    """Whether no certificate that is served or trusted ends today."""
    day = time.time() + 86400.0
    authorities = x509.load_pem_x509_certificates(b"".join(bundles(installation.cluster.api)))
    ends = [
        *(one.not_valid_after_utc.timestamp() for one in authorities),
        total(installation.certs_metrics(), "certs_not_after_timestamp_seconds", certificate="leaf"),
        *(total(r.metrics(), "mps_webhook_certificate_expiry_timestamp_seconds") for r in installation.replicas),
    ]
    return min(ends) > day


def test_18_leaf_and_authority_rotate_under_load_without_a_failed_call(
    installation: Installation, api: Api, watched: Watched
) -> None:
    """A certificate's year in a minute: several leaves, a new authority beside the old, the switch, the old dropped.

    Pooled connections hide what is wrong with a certificate, so there are new ones all the time: bursts that the pool
    is too small for, and calls on connections of their own, which trust nothing but the caBundle of the moment.
    """
    dialler = Dialler(api, installation.service.port)
    call = created(api)
    seen: set[str] = set()
    failed: list[str] = []
    opened = installation.service.accepted
    times = ("--leaf-lifetime", "18s", "--ca-lifetime", "36s", "--settle", "4s")
    with (
        Load(call, 50.0).running() as pooled,
        Load(dialler.new_connection, 5.0, workers=2).running() as fresh,
        rotating(installation, *times),
    ):
        # The present authority has a year: without its key there has to be another one, with all the care of a
        # rotation. From there on everything comes by itself.
        api.patch("Secret", SECRET, {"data": {"ca.key": None}}, NAMESPACE)
        deadline = time.monotonic() + 120.0
        while not (complete := rotated(installation) and bool(seen - trusted(api))) and time.monotonic() < deadline:
            failed += [o.error for o in burst(call, 40) if o.error]
            seen |= trusted(api)
            time.sleep(1.0)
        assert complete, "no authority was replaced and dropped in time"
    pooled.assert_flawless(1000)
    fresh.assert_flawless(50)
    assert not failed, failed[0]
    watched.assert_quiet()
    assert len(seen) >= 3
    assert installation.service.accepted - opened > 200, "too few new connections to show anything"
    assert all(
        total(r.metrics(), "mps_webhook_tls_reloads", result="ok") >= 3
        and total(r.metrics(), "mps_webhook_tls_reloads", result="failed") == 0
        for r in installation.replicas
    )


def trusted(api: Api) -> set[str]:
    """The authorities that any webhook is told to trust, as PEM."""
    end = "-----END CERTIFICATE-----\n"
    return {one + end for bundle in bundles(api) for one in bundle.decode().split(end) if one}


def rotated(installation: Installation) -> bool:
    """Whether the running process has made two authorities and several leaves."""
    found = installation.certs_metrics()
    return (
        total(found, "certs_rotations", certificate="leaf") >= 4
        and total(found, "certs_rotations", certificate="authority") >= 2
    )


def test_18_a_new_leaf_by_hand(installation: Installation, api: Api, watched: Watched) -> None:
    """Emptying `tls.crt` asks for a new one; the replicas keep theirs until it is there."""
    before = api.get("Secret", SECRET, NAMESPACE)["data"]["tls.crt"]
    with Load(created(api), 30.0).running() as load:
        api.patch("Secret", SECRET, {"data": {"tls.crt": ""}}, NAMESPACE)
        after = eventually(
            lambda: (data := api.get("Secret", SECRET, NAMESPACE)["data"]["tls.crt"]) and data != before and data, "it"
        )
        not_after = total(installation.certs_metrics(), "certs_not_after_timestamp_seconds", certificate="leaf")
        eventually(
            lambda: all(
                total(r.metrics(), "mps_webhook_certificate_expiry_timestamp_seconds") == not_after
                for r in installation.replicas
            ),
            "every replica serves it",
        )
    assert after != before
    load.assert_flawless(30)
    watched.assert_quiet()


def test_24_a_wrong_ca_is_noticed_and_repaired(installation: Installation, api: Api) -> None:
    """While nobody repairs it, GPU pods are refused with the reason, and the doctor's and the metrics' place to look
    says so; once the process runs, the bundle is put right.
    """
    right = published(api)
    wrong = self_signed(("elsewhere.example.com",)).pair.authorities
    installation.stop_certs()
    watched = Watched(api)
    try:
        put(api, wrong)

        def refused() -> Object | None:
            reply = api.try_create(pod(), dry_run=True)
            return reply.body if reply.code == 500 else None

        message = eventually(refused, "the API server uses the wrong bundle")["message"]
        assert 'failed calling webhook "pods.mps.nvidia.com"' in message
        assert "x509: certificate signed by unknown authority" in message
        assert watched.webhook_errors() > 0
    finally:
        installation.start_certs()
    assert bundles(api) == {right} == {published(api)}
    assert total(installation.certs_metrics(), "certs_publications") == 2
    installation.wait_ready()
    assert env_of(api.create(pod({"mps.nvidia.com/memory-limit": "1Gi"}), dry_run=True))


@pytest.mark.usefixtures("watched")
def test_24_drift_is_repaired_within_seconds(installation: Installation, api: Api) -> None:
    """One more certificate in the bundle hurts nobody, and goes all the same: whoever added it could sign for us."""
    right = published(api)
    put(api, right + self_signed(("elsewhere.example.com",)).pair.authorities)
    eventually(lambda: bundles(api) == {right}, "the bundle is put right", 10.0)
    eventually(
        lambda: total(installation.certs_metrics(), "certs_bundle_in_step") == len(KINDS), "its metrics say so", 10.0
    )


@pytest.mark.usefixtures("watched")
def test_24_a_pair_that_does_not_fit_keeps_the_last_good_one(installation: Installation, api: Api) -> None:
    """Key and certificate of two pairs in the volume: served is what was before, and readiness and metrics tell."""
    assert installation.volume is not None
    good, other = (self_signed((name,)).pair for name in ("a.example.com", "b.example.com"))
    failures = [total(r.metrics(), "mps_webhook_tls_reloads", result="failed") for r in installation.replicas]
    installation.volume.hold()
    try:
        installation.volume.write(
            {"tls.crt": good.certificate, "tls.key": other.private_key, "ca.crt": good.authorities},
        )
        eventually(
            lambda: all(
                total(r.metrics(), "mps_webhook_tls_reloads", result="failed") > before
                for r, before in zip(installation.replicas, failures, strict=True)
            ),
            "the replicas have refused it",
        )
        assert all(r.ready for r in installation.replicas)
        detail = installation.replicas[0].health("/readyz?verbose").text
        assert "keeping it, since what came after cannot be used" in detail
        dialler = Dialler(api, installation.service.port)
        assert not [o.error for o in burst(dialler.new_connection, 4) if o.error]
    finally:
        installation.volume.resume()
    eventually(
        lambda: all("keeping it" not in r.health("/readyz?verbose").text for r in installation.replicas), "in order"
    )


def test_the_authoritys_key_stays_out_of_the_serving_processes(installation: Installation) -> None:
    """It lies in the same Secret, and not among the items of the volume."""
    assert sorted(p.name for p in (installation.folder / "tls").iterdir() if not p.name.startswith("..")) == [
        "ca.crt",
        "tls.crt",
        "tls.key",
    ]
