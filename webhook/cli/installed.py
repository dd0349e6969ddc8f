"""What ``deploy/`` installs: the names to look for, the webhooks as shipped, the settings in force."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webhook import kubeyaml
from webhook.cluster.objects import CONFIG_MAP, DAEMON_SET, DEPLOYMENT, MUTATING, VALIDATING, Kind, Object, Objects
from webhook.policy import ConfigError, DeviceConfig, parse_config

if TYPE_CHECKING:
    from webhook.settings import WebhookSettings

RUNTIME_NAMESPACE = "kube-system"
POD_LABEL = "qcloud-app"
NAMESPACE = "mps-system"
SERVING = "mps-webhook"
ROTATING = "mps-webhook-certs"
SECRET_NAME = "mps-webhook-tls"  # noqa: S105 - the name of a Secret
SETTINGS_NAME = "mps-webhook-settings"
SERVICE_NAME = f"{SERVING}.{NAMESPACE}.svc"
"""The name the API server calls."""
POD_WEBHOOK = "pods.mps.nvidia.com"
CERT_MANAGER = "cert-manager.io/inject-ca-from"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A DaemonSet of the GPU side; its pods carry its name as the label ``qcloud-app``."""

    name: str
    container: str

    @property
    def logs(self) -> str:
        """Where its logs are."""
        return f"kubectl -n {RUNTIME_NAMESPACE} logs -l {POD_LABEL}={self.name} -c {self.container}"


DEVICE_PLUGIN = Runtime("nvidia-device-plugin-daemonset", "nvidia-device-plugin-ctr")
MPS_DAEMON = Runtime("nvidia-mps-control-daemon", "mps-control-daemon-ctr")
FEATURE_DISCOVERY = Runtime("gpu-feature-discovery", "gpu-feature-discovery-ctr")

Rules = frozenset[tuple[frozenset[str], frozenset[str], frozenset[str]]]
"""API groups, operations and resources of each rule."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One webhook of a configuration, as far as it decides what is sent to the service and what a failure means.

    ``left_out`` are the namespaces that its selector leaves out; ``conditions`` has the SHA-256 of each
    matchCondition's expression, blanks collapsed, by name.
    """

    name: str
    path: str
    failure_policy: str
    rules: Rules
    conditions: Mapping[str, str]
    left_out: frozenset[str] = frozenset((RUNTIME_NAMESPACE, NAMESPACE))


def _rule(group: str, operations: str, resources: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    return frozenset((group,)), frozenset(operations.split()), frozenset(resources.split())


_OF_PODS = {"uses-a-gpu-or-mps": "e2f8882a44e970575380572ac305cbfe9d68ce347928da9e4ba03e03d9e94dd0"}

REGISTRATIONS: Mapping[Kind, tuple[Registration, ...]] = {
    MUTATING: (Registration(POD_WEBHOOK, "/mutate", "Fail", frozenset((_rule("", "CREATE", "pods"),)), _OF_PODS),),
    VALIDATING: (
        Registration(
            POD_WEBHOOK,
            "/validate",
            "Fail",
            frozenset(
                (
                    _rule("", "CREATE UPDATE", "pods"),
                    _rule("", "UPDATE", "pods/ephemeralcontainers pods/resize"),
                )
            ),
            _OF_PODS,
        ),
        Registration(
            "workloads.mps.nvidia.com",
            "/validate-workloads",
            "Ignore",
            frozenset(
                (
                    _rule("apps", "CREATE UPDATE", "deployments statefulsets daemonsets replicasets"),
                    _rule("batch", "CREATE UPDATE", "jobs cronjobs"),
                )
            ),
            {
                "uses-a-gpu-or-mps": "e5dfbded72db4acf8cb23c2843bcfe653e722c52e0160039fe7550e5092496e9",
                "not-made-from-a-judged-workload": "c7a110bb268475fbb946a2248cb29726b4a2b94eedcc505b8b68a60305bf6145",
            },
        ),
    ),
}
"""The webhooks as deploy/webhook/serving has them, by the kind of their configuration."""


def digest(expression: str) -> str:
    """The SHA-256 of a matchCondition's expression, however it is broken into lines."""
    return hashlib.sha256(" ".join(expression.split()).encode()).hexdigest()


def settings_of(objects: Objects) -> tuple[WebhookSettings, tuple[str, ...]]:
    """The settings that the webhook of this cluster runs with, and what is wrong with them. Raises CannotLookError.

    Where it is not installed, or does not start with what is set, the defaults; nodes without a label run what the
    device plugin's own default says, whatever the webhook takes it for.
    """
    import pydantic

    from webhook.settings import WebhookSettings

    found = objects.get(CONFIG_MAP, NAMESPACE, SETTINGS_NAME)
    given: dict[str, Any] = {}
    problems: tuple[str, ...] = ()
    try:
        document = kubeyaml.load(str(at(found, "data").get("settings.yaml") or ""))
        if isinstance(document, dict):
            given = {str(k): v for k, v in document.items()}
        elif document is not None:
            problems = ("not a map of settings",)
    except kubeyaml.YAMLError as error:
        problems = (f"no YAML: {error}",)
    default = runtime_default(objects) or webhook_default(objects)
    if default:
        given["default_config"] = default
    try:
        return WebhookSettings(**given), problems
    except pydantic.ValidationError as error:
        found_wrong = error.errors(include_url=False, include_context=False, include_input=False)
        problems = tuple(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found_wrong)
        return WebhookSettings.load(default_config=default), problems


def configs_of(config_map: Object | None) -> tuple[dict[str, DeviceConfig], dict[str, str]]:
    """The configurations of a ConfigMap, by name, and what is wrong with the keys that are none."""
    configs, problems = {}, {}
    for name, text in sorted(at(config_map, "data").items()):
        try:
            configs[str(name)] = parse_config(str(text))
        except ConfigError as error:
            problems[str(name)] = str(error)
    return configs, problems


def runtime_default(objects: Objects) -> str | None:
    """The config of nodes without a label, as the device plugin's config manager has it. Raises CannotLookError."""
    found = objects.get(DAEMON_SET, RUNTIME_NAMESPACE, DEVICE_PLUGIN.name)
    return next((v for v in variables(found, "DEFAULT_CONFIG") if v), None) if found else None


def webhook_default(objects: Objects) -> str | None:
    """The same as the webhook's Deployment is told it, None where it is not. Raises CannotLookError."""
    found = objects.get(DEPLOYMENT, NAMESPACE, SERVING)
    return next((v for v in variables(found, "MPS_WEBHOOK_DEFAULT_CONFIG") if v), None) if found else None


def variables(workload: Object, name: str) -> Iterator[str]:
    """The plain values of a variable over all containers of a workload's pods."""
    spec = at(workload, "spec", "template", "spec")
    for group in ("initContainers", "containers"):
        for container in objects_in(spec.get(group)):
            for entry in objects_in(container.get("env")):
                if entry.get("name") == name:
                    yield str(entry.get("value") or "")


def at(found: Object | None, *path: str) -> Mapping[str, Any]:
    """The map at a path of an object; empty where there is none."""
    value: Any = found
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[dict[str, Any]]:
    """The maps of a list, whatever it is."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
