"""The serving certificate: what the Secret holds, how long it lasts, whether the API server trusts it.

The private key is read with the rest of the Secret, checked against its certificate, and kept nowhere.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import timedelta

from certs.authority import renewal_time
from certs.pair import Pair, PairError, check_pair
from webhook.cli.checks.admission import managed_by_cert_manager
from webhook.cli.checks.cluster import Cluster
from webhook.cli.checks.result import Result
from webhook.cli.installed import NAMESPACE, REGISTRATIONS, ROTATING, SECRET_NAME, SERVICE_NAME, SERVING, at, objects_in
from webhook.cluster.objects import SECRET, CannotLookError, Object

_OVERDUE = timedelta(days=1)
"""How long after its time a renewal may be missing before it is a problem."""

_SUBJECT = f"Secret {NAMESPACE}/{SECRET_NAME}"


def certificate(cluster: Cluster) -> Iterator[Result]:
    """The serving pair is whole, for the Service's name, and renewed in time."""
    found = cluster.objects.get(SECRET, NAMESPACE, SECRET_NAME)
    mend = _mend(cluster)
    if found is None:
        message = "does not exist: the serving pods wait for it"
        yield Result("certificate", _SUBJECT, "problem", message, mend)
        return
    try:
        pair = _pair(found, cluster)
    except PairError as error:
        yield Result("certificate", _SUBJECT, "problem", str(error), mend)
        return
    left = (pair.not_after - cluster.now).days
    due = renewal_time(pair.not_before, pair.not_after)
    if cluster.now > due + _OVERDUE:
        message = f"{left} days left, and it was to be renewed on {due:%Y-%m-%d}"
        yield Result("certificate", _SUBJECT, "problem", message, mend)
    else:
        message = f"{left} days left, to be renewed on {due:%Y-%m-%d}"
        yield Result("certificate", _SUBJECT, "ok", message)


def trust(cluster: Cluster) -> Iterator[Result]:
    """Every caBundle leads to the certificate that is served."""
    secret = cluster.objects.get(SECRET, NAMESPACE, SECRET_NAME)
    mend = _mend(cluster)
    for kind in REGISTRATIONS:
        found = cluster.objects.get(kind, "", SERVING)
        for webhook in objects_in((found or {}).get("webhooks")):
            subject = f"{kind.name} {SERVING}, {webhook.get('name')}"
            problem = _distrust(webhook, secret, cluster)
            if problem is None:
                yield Result("ca-bundle", subject, "ok", f"caBundle leads to the certificate in {_SUBJECT}")
            else:
                yield Result("ca-bundle", subject, "problem", problem, mend)


def _distrust(webhook: Object, secret: Object | None, cluster: Cluster) -> str | None:
    bundle = _decoded(at(webhook, "clientConfig").get("caBundle"))
    if bundle is None or not bundle.strip():
        return "caBundle is empty: the API server trusts no certificate of the webhook, every call fails"
    if secret is None:
        return f"there is no certificate to compare its caBundle with: {_SUBJECT} does not exist"
    try:
        _pair(secret, cluster)
    except PairError:
        return "its caBundle cannot be compared, the certificate itself is not in order"
    try:
        _pair(secret, cluster, bundle)
    except PairError:
        return f"caBundle does not lead to the certificate in {_SUBJECT}: every call fails"
    return None


def _pair(secret: Object, cluster: Cluster, authorities: bytes | None = None) -> Pair:
    """Check what the Secret holds, with its own authorities or others. Raises PairError."""
    data = at(secret, "data")
    parts = {key: _decoded(data.get(key)) for key in ("tls.crt", "tls.key", "ca.crt")}
    for key, part in parts.items():
        if part is None:
            raise PairError(f"{key} is missing")
    own = parts["ca.crt"] or b""
    return check_pair(
        parts["tls.crt"] or b"",
        parts["tls.key"] or b"",
        own if authorities is None else authorities,
        names=(SERVICE_NAME,),
        now=cluster.now,
    )


def _decoded(text: object) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _mend(cluster: Cluster) -> str:
    try:
        if managed_by_cert_manager(cluster):
            return f"kubectl -n {NAMESPACE} describe certificate {SERVING}"
    except CannotLookError:
        pass  # the way it is shipped, then
    return f"kubectl -n {NAMESPACE} rollout restart deployment/{ROTATING}"
