"""The envelope: what arrives as an AdmissionReview, and what leaves as one.

Only the envelope is validated. The object inside is whatever the user sent (mutating webhooks see it before any schema
validation), and judging it is the policy's business.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import orjson

from webhook.server.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

API_VERSION = "admission.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Review:
    """An AdmissionRequest of admission.k8s.io/v1, as far as it matters here.

    `kind` is group and kind (`("apps", "Deployment")`, the core group is `""`). `object` and `old_object` are as
    decoded, None where the request has none. `namespace` and `name` may be empty, as the API server leaves them.
    """

    uid: str
    operation: str
    kind: tuple[str, str]
    subresource: str
    namespace: str
    name: str
    dry_run: bool
    object: Any
    old_object: Any

    @property
    def shown_name(self) -> str:
        """The name to log: the request's, else the object's, else what the API server will make a name of."""
        if self.name:
            return self.name
        metadata = self.object.get("metadata") if isinstance(self.object, dict) else None
        if not isinstance(metadata, dict):
            return ""
        name, prefix = metadata.get("name"), metadata.get("generateName")
        if isinstance(name, str) and name:
            return name[:253]
        return f"{prefix[:253]}*" if isinstance(prefix, str) and prefix else ""


def parse_review(body: bytes) -> Review:
    """Decode and validate the envelope. Raises Fault 400, which names the field, for what no API server sends."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise _malformed("the body is not JSON in UTF-8") from None
    if not isinstance(review, dict):
        raise _malformed("the body is not an AdmissionReview but no object at all")
    if review.get("apiVersion") != API_VERSION:
        raise _malformed(f"apiVersion has to be {API_VERSION}")
    if review.get("kind") != "AdmissionReview":
        raise _malformed("kind has to be AdmissionReview")
    request = review.get("request")
    if not isinstance(request, dict):
        raise _malformed("request has to be an object")
    uid = _text(request, "uid")
    if not uid:
        raise _malformed("request.uid has to be a string that is not empty")
    operation = _text(request, "operation")
    if not operation:
        raise _malformed("request.operation has to be a string that is not empty")
    kind = request.get("kind")
    if not isinstance(kind, dict):
        raise _malformed("request.kind has to be an object")
    group, name = kind.get("group") or "", kind.get("kind")
    if not isinstance(group, str) or not isinstance(name, str):
        raise _malformed("request.kind.group and request.kind.kind have to be strings")
    dry_run = request.get("dryRun")
    if dry_run is not None and not isinstance(dry_run, bool):
        raise _malformed("request.dryRun has to be true or false")
    return Review(
        uid=uid,
        operation=operation,
        kind=(group, name),
        subresource=_text(request, "subResource"),
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        dry_run=bool(dry_run),
        object=request.get("object"),
        old_object=request.get("oldObject"),
    )


def require_object(value: Any, field: str) -> dict[str, Any]:
    """Return the object under judgement. Raises Fault 400 where the request came without it."""
    if not is_object(value):
        raise _malformed(f"{field} has to be an object")
    return value


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded value is a JSON object; the decoder makes no other mapping."""
    return isinstance(value, dict)


def allow(
    uid: str, *, patch: bytes = b"", warnings: Sequence[str] = (), annotations: Mapping[str, str] | None = None
) -> bytes:
    """Return the AdmissionReview that allows. `patch` is a JSON patch as JSON, empty for none."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(patch).decode()
    return _answer(response, warnings, annotations)


def deny(
    uid: str,
    message: str,
    causes: Sequence[Mapping[str, str]],
    *,
    warnings: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> bytes:
    """Return the AdmissionReview that denies.

    403 with the reason Forbidden is the one form in which kubectl prints the message whole and the webhook's name
    (tried with the API server 1.36; a code below 400 would be made 400, and 422 loses the message).
    """
    response = {
        "uid": uid,
        "allowed": False,
        "status": {
            "status": "Failure",
            "message": message,
            "reason": "Forbidden",
            "code": 403,
            "details": {"causes": list(causes)},
        },
    }
    return _answer(response, warnings, annotations)


def _answer(response: dict[str, Any], warnings: Sequence[str], annotations: Mapping[str, str] | None) -> bytes:
    if warnings:
        response["warnings"] = list(warnings)
    if annotations:
        response["auditAnnotations"] = dict(annotations)
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _malformed(f"request.{key} has to be a string")
    return value


def _malformed(message: str) -> Fault:
    return Fault(400, f"malformed AdmissionReview: {message}", counted="malformed")
