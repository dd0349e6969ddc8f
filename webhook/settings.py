"""Settings of the service: one YAML file and ``MPS_WEBHOOK_*`` variables, checked once at start.

A variable beats the file, an argument beats both. Lists and maps in a variable are written as YAML or JSON. Every
problem is reported at once, one line each, named by the file or the variable it is in.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from webhook import kubeyaml, policy
from webhook.cluster.source import InputError
from webhook.policy.quantity import MIB, parse_quantity

PREFIX = "MPS_WEBHOOK_"
"""What every variable of ours begins with."""

_OF_THE_CERTS_COMMAND = "MPS_WEBHOOK_CERTS_"

_SERVICE_LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.*")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NAMESPACED_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_COMPUTE_CAPABILITY = re.compile(r"([0-9]{1,2})(?:\.([0-9]))?")


class SettingsError(InputError):
    """The settings cannot be used; ``problems`` has one line each, and so has the text."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _mebibytes(value: object) -> int:
    """A quantity in MiB, rounded down."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("not a quantity such as 256Mi or 16Gi")  # noqa: TRY004 - pydantic reports a ValueError
    try:
        amount = parse_quantity(str(value))
    except ValueError:
        raise ValueError("not a quantity such as 256Mi or 16Gi") from None
    if amount < 0:
        raise ValueError("a quantity below zero")
    return int(amount) // MIB


def _card_mebibytes(value: object) -> int:
    amount = _mebibytes(value)
    if amount == 0:
        raise ValueError("less than 1Mi, which no card has")
    return amount


def _capability(value: object) -> tuple[int, int]:
    match = _COMPUTE_CAPABILITY.fullmatch(str(value))
    if match is None or isinstance(value, bool):
        raise ValueError("not a compute capability such as 7.5")
    return int(match[1]), int(match[2] or 0)


def _label_value(value: str) -> str:
    if not _LABEL_VALUE.fullmatch(value):
        raise ValueError("not a name that a node label can hold")
    return value


def _namespaced_name(value: str) -> str:
    if not _NAMESPACED_NAME.fullmatch(value):
        raise ValueError("not of the form namespace/name")
    return value


def _off(value: object) -> object:
    """YAML reads a plain ``off`` as false; here it is a word."""
    return "off" if value is False else value


def _number(value: object) -> object:
    """YAML reads a plain ``yes`` as true, which would pass for the number 1."""
    if isinstance(value, bool):
        raise ValueError("not a number")  # noqa: TRY004 - pydantic reports a ValueError
    return value


def _structure(value: object) -> object:
    """A list or map as the text of a variable."""
    return kubeyaml.load(value) if isinstance(value, str) else value


def _names(value: object) -> object:
    """Names as a list, or as the text of a variable: ``a,b`` or ``[a, b]``; an empty text is an empty list."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return kubeyaml.load(value)
    return [name for part in value.split(",") if (name := part.strip())]


MiB = Annotated[int, BeforeValidator(_mebibytes)]
CardMiB = Annotated[int, BeforeValidator(_card_mebibytes)]
ConfigName = Annotated[str, AfterValidator(_label_value)]
NamespacedName = Annotated[str, AfterValidator(_namespaced_name)]
Port = Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)]
Seconds = Annotated[float, BeforeValidator(_number), Field(ge=0, le=3600, allow_inf_nan=False)]


class ExpectedProfile(BaseModel):
    """A kind of node that an autoscaler can bring although none is there now."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: ConfigName = Field(description="Name of the device-plugin configuration such nodes are labelled with.")
    memory: CardMiB | None = Field(None, description="Memory of one card, a quantity (15Gi).")
    compute_capability: Annotated[tuple[int, int], BeforeValidator(_capability)] | None = Field(
        None, description='Compute capability of the card ("7.5").'
    )
    product: str | None = Field(None, description="Product name as GPU feature discovery labels it (Tesla-T4).")


class WebhookSettings(BaseSettings):
    """Everything that can be set. Memory is written as a Kubernetes quantity and kept in MiB, rounded down."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )

    default_config: ConfigName = Field(
        "mps-1x", description="Configuration of nodes without the label nvidia.com/device-plugin.config."
    )
    config_map: NamespacedName = Field(
        "kube-system/nvidia-device-plugin-configs",
        description="The ConfigMap of device-plugin configurations, as namespace/name.",
    )
    placement: Annotated[Literal["steer", "deny", "off"], BeforeValidator(_off)] = Field(
        "steer",
        description="What becomes of a pod whose quota holds on some of its nodes only: steer adds node affinity, "
        "deny rejects it, off lets it pass with a warning.",
    )
    minimum_memory: MiB = Field(  # type: ignore[assignment] # validated like what a file says
        "256Mi", description="A memory limit of less than this for one process is rejected. A quantity."
    )
    gpu_memory: Annotated[dict[str, CardMiB], BeforeValidator(_structure)] = Field(
        default_factory=dict,
        description="Memory of one card by product or instance type, for nodes without the label "
        "nvidia.com/gpu.memory. A map to quantities.",
    )
    host_ipc_namespaces: Annotated[frozenset[str] | None, BeforeValidator(_names)] = Field(
        None, description="Namespaces whose pods may ask for host IPC. Not set: every namespace."
    )
    workloads: Annotated[Literal["warn", "deny", "off"], BeforeValidator(_off)] = Field(
        "warn",
        description="What becomes of a Deployment, Job and so on whose pods would be rejected: warn lets it pass with "
        "warnings, deny rejects it, off does not look.",
    )
    no_candidate: Literal["warn", "deny"] = Field(
        "warn", description="What becomes of a GPU pod that no known node matches."
    )
    device_bypass: Annotated[Literal["warn", "deny", "off"], BeforeValidator(_off)] = Field(
        "warn",
        description="What becomes of a container without a GPU that sets NVIDIA_VISIBLE_DEVICES. On a container with "
        "a GPU it is always rejected.",
    )
    expected_profiles: Annotated[tuple[ExpectedProfile, ...], BeforeValidator(_structure)] = Field(
        (), description="Kinds of node that may be scaled to zero, so that pods only they can take are not rejected."
    )

    port: Port = Field(8443, description="HTTPS port of the webhook. 0 picks a free one.")
    health_port: Port = Field(8080, description="Plain HTTP port of /livez, /readyz and /metrics. 0 picks a free one.")
    tls_dir: Path = Field(
        Path("/etc/mps-webhook/tls"), description="Folder of tls.crt and tls.key; read again when they change."
    )
    keep_alive_seconds: Seconds = Field(
        120,
        description="How long an idle connection is kept. The API server pools idle ones for 90 s and does not repeat "
        "a call on one that was closed under it, so stay above.",
    )
    drain_seconds: Seconds = Field(
        15, description="How long calls are still served after SIGTERM, while endpoints forget this replica."
    )
    max_in_flight: Annotated[int, BeforeValidator(_number), Field(ge=1, le=100_000)] = Field(
        64,
        description="Calls taken on at once; more are answered 503 with Retry-After: 1. So is, beyond 16, one "
        "that the calls before it would keep waiting for more than 12 ms.",
    )
    client_ca_file: Path | None = Field(
        None, description="CA that callers' certificates must come from. Not set: callers need no certificate."
    )
    client_names: Annotated[frozenset[str], BeforeValidator(_names)] = Field(
        frozenset(), description="Names that a caller's certificate may carry. Empty: any that the CA vouches for."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is logged."
    )

    @model_validator(mode="after")
    def _agree(self) -> WebhookSettings:
        if self.port == self.health_port != 0:
            raise ValueError("port and health_port are the same")
        if self.client_names and self.client_ca_file is None:
            raise ValueError("client_names without client_ca_file: no name could be trusted")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then variables; a file's contents are given as arguments by ``load``."""
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, _Variables(settings_cls)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None, **arguments: Any) -> WebhookSettings:
        """Settings from a file (all defaults where None), the variables and the arguments that are not None.

        Raises SettingsError with every problem found.
        """
        document = {} if path is None else _read(path)
        variables = _variables()
        given = {name: value for name, value in arguments.items() if value is not None}
        problems = [
            f"{name}: no such setting{_nearest(field, cls)}"
            for field, name in variables.items()
            if field not in cls.model_fields
        ]
        settings = None
        try:
            settings = cls(**{k: v for k, v in document.items() if k not in variables} | given)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_context=False, include_input=False):
                field = str(problem["loc"][0]) if problem["loc"] else ""
                origin = None if field in given else variables.get(field) or path
                problems.append(_line(origin, problem["loc"], problem["type"], problem["msg"]))
        if settings is None or problems:
            raise SettingsError(*problems)
        return settings

    def policy(self) -> policy.Settings:
        """The part that decides about pods."""
        return policy.Settings(
            default_config=self.default_config,
            placement=self.placement,
            minimum_memory_mib=self.minimum_memory,
            gpu_memory=MappingProxyType(dict(self.gpu_memory)),
            host_ipc_namespaces=self.host_ipc_namespaces,
            no_candidate=self.no_candidate,
            device_bypass=self.device_bypass,
            expected_profiles=tuple(
                policy.ExpectedProfile(p.config, p.memory, p.compute_capability, p.product)
                for p in self.expected_profiles
            ),
        )


class _Variables(PydanticBaseSettingsSource):
    """Variables as they are, texts; the fields' own validators read lists and maps, as YAML instead of JSON."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The text of a field's variable, None where it is not set."""
        del field
        name = _variables().get(field_name)
        return None if name is None else os.environ[name], field_name, False

    def __call__(self) -> dict[str, Any]:
        """The text of every field whose variable is set."""
        values = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in values.items() if value is not None}


def _variables() -> dict[str, str]:
    """Our variables by field. An empty one is not set, as an empty value in a manifest is meant.

    For a Service called ``mps-webhook`` the kubelet puts ``MPS_WEBHOOK_PORT=tcp://…`` and its like into every pod of
    the namespace: those are none of ours.
    """
    return {
        name.removeprefix(PREFIX).lower(): name
        for name, value in os.environ.items()
        if name.startswith(PREFIX)
        and not name.startswith(_OF_THE_CERTS_COMMAND)
        and value
        and not _SERVICE_LINK.fullmatch(name)
        and not _SERVICE_URL.fullmatch(value)
    }


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        document = kubeyaml.load(Path(path).read_text(encoding="utf-8-sig"))
    except kubeyaml.YAMLError as error:
        raise SettingsError(f"{path}: no YAML: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or type(error).__name__}") from None
    except ValueError:
        raise SettingsError(f"{path}: not a UTF-8 text") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: not a map of settings")
    return document


def _line(origin: object, loc: tuple[int | str, ...], kind: str, message: str) -> str:
    where = ".".join(str(part) for part in loc)
    if kind == "extra_forbidden":
        message = f"no such setting{_nearest(str(loc[-1]), WebhookSettings if len(loc) == 1 else ExpectedProfile)}"
    message = " ".join(message.removeprefix("Value error, ").split())
    message = message[:1].lower() + message[1:]
    # A variable is named like its setting.
    prefix = [str(origin)] if origin else []
    parts = prefix if origin and str(origin).startswith(PREFIX) and len(loc) == 1 else [*prefix, where]
    return ": ".join([*filter(None, parts), message])


def _nearest(name: str, model: type[BaseModel]) -> str:
    near = difflib.get_close_matches(name, model.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else ""
