"""An API server in memory and a clock that stands still, for rotations of years in milliseconds."""

from __future__ import annotations

import base64
import copy
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from certs.cluster import JSON, KubernetesCluster
from certs.controller import Controller
from certs.rotation import Policy, Target
from certs.transport import interpret

if TYPE_CHECKING:
    from collections.abc import Callable

    from certs.rotation import Action

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = ("hook.system.svc", "hook.system")
POLICY = Policy(NAMES)
MUTATING = Target("mutating", "hook")
VALIDATING = Target("validating", "hook")
TARGETS = (MUTATING, VALIDATING)

SECRET_PATH = "/api/v1/namespaces/system/secrets/hook-tls"
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/system/leases/hook-certs"


def path_of(target: Target) -> str:
    return f"/apis/admissionregistration.k8s.io/v1/{target.kind}webhookconfigurations/{target.name}"


class CrashError(BaseException):
    """The process dies here: nothing of its own may catch it."""


class Clock:
    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, span: timedelta) -> None:
        self.now += span


class ApiServer:
    """`Transport` on a dict of objects, with the versions and conflicts of a real API server.

    `before` and `after` are called around each request with method and path; what they raise reaches the caller,
    from `after` with the write done.
    """

    def __init__(self) -> None:
        self.objects: dict[str, JSON] = {}
        self.version = 100
        self.writes: list[str] = []
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.after: Callable[[str, str], None] = lambda method, path: None

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> JSON | None:
        self.before(method, path)
        body = json.loads(json.dumps(body))
        status, answer = self.answer(method, path, body, content_type)
        if method != "GET":
            self.writes.append(f"{method} {path} {status}")
        self.after(method, path)
        return interpret(method, path, status, json.dumps(answer).encode())

    def answer(self, method: str, path: str, body: Any, content_type: str) -> tuple[int, JSON]:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return 409, {"message": "already exists"}
            return 201, self.put(path, body)
        found = self.objects.get(path)
        if found is None:
            return 404, {"message": "not found"}
        if method == "GET":
            return 200, found
        expected = body["metadata"].get("resourceVersion")
        if expected is not None and expected != found["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        patched = copy.deepcopy(found)
        if content_type == "application/strategic-merge-patch+json":
            by_name = {webhook["name"]: webhook for webhook in patched["webhooks"]}
            for webhook in body["webhooks"]:
                by_name[webhook["name"]]["clientConfig"].update(webhook["clientConfig"])
        else:
            assert content_type == "application/merge-patch+json"
            merge(patched, body)
        return 200, self.put(path, patched)

    def put(self, path: str, found: JSON) -> JSON:
        self.version += 1
        found.setdefault("metadata", {})["resourceVersion"] = str(self.version)
        self.objects[path] = found
        return found

    # What tests look at and tamper with.

    def install(self, *targets: Target, bundle: bytes = b"", webhooks: int = 2) -> None:
        for target in targets:
            self.put(
                path_of(target),
                {
                    "metadata": {"name": target.name},
                    "webhooks": [
                        {"name": f"{index}.hook", "clientConfig": {"caBundle": encode(bundle)}, "futureField": index}
                        for index in range(webhooks)
                    ],
                },
            )

    def bundles(self, target: Target) -> list[bytes]:
        found = self.objects[path_of(target)]["webhooks"]
        return [base64.b64decode(webhook["clientConfig"].get("caBundle") or "") for webhook in found]

    @property
    def secret(self) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.objects[SECRET_PATH]["data"].items()}

    def tamper(self, **changes: bytes | None) -> None:
        """Change keys of the Secret; `_` in a name stands for `.`, None takes the key away."""
        found = copy.deepcopy(self.objects[SECRET_PATH])
        for name, value in changes.items():
            key = name.replace("_", ".")
            if value is None:
                found["data"].pop(key, None)
            else:
                found["data"][key] = encode(value)
        self.put(SECRET_PATH, found)


def merge(into: JSON, patch: JSON) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            into[key] = into.get(key) or {}
            merge(into[key], value)
        else:
            into[key] = value


def encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


def controller(
    server: ApiServer,
    clock: Clock,
    policy: Policy = POLICY,
    acted: Callable[[Action], None] = lambda _: None,
) -> Controller:
    return Controller(KubernetesCluster(server, "system", "hook-tls", {}), TARGETS, policy, clock, acted)
