"""Device-plugin configurations: what one key of the ConfigMap makes of a node.

Follows the NVIDIA device plugin v0.20.0 (``api/config/v1``), down to what it ignores: unknown keys, ``rename``, and
time-slicing beside MPS (MPS wins). What it refuses to start with is refused here, so that nothing is judged by a
configuration that no node can run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from webhook import kubeyaml

Strategy = Literal["mps", "time-slicing", "none"]

GPU = "nvidia.com/gpu"
GPU_SHARED = "nvidia.com/gpu.shared"
MIG_PREFIX = "nvidia.com/mig-"

_PREFIX = "nvidia.com/"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DEVICE = re.compile(r"[0-9]+(:[0-9]+)?|(GPU|MIG)-[0-9a-fA-F-]{36}|MIG-GPU-[0-9a-fA-F-]{36}/[0-9]+/[0-9]+")


class ConfigError(ValueError):
    """The device plugin would not start with this configuration; the message says why, on one line."""


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """One named configuration, reduced to what decides about ``nvidia.com/gpu``.

    ``replicas`` are shares per card, 1 where the card is not shared; ``resource`` is the name under which a share is
    offered; ``fail_greater_than_one`` says whether one container may hold only one share.
    """

    strategy: Strategy = "none"
    replicas: int = 1
    resource: str = GPU
    fail_greater_than_one: bool = False


def parse_config(text: str) -> DeviceConfig:
    """A configuration from the text of its ConfigMap key. Raises ConfigError."""
    try:
        document = kubeyaml.load(text)
    except kubeyaml.YAMLError as error:
        raise ConfigError(f"no YAML: {error}") from None
    top = _fields(document, "the configuration")
    version = _folded(top, "version")
    if version not in (None, "", "v1"):
        raise ConfigError(f"unknown version: {version}")
    sharing = _fields(_folded(top, "sharing"), "sharing")
    # Both blocks are read, since the plugin refuses a faulty one even where the other is in force.
    sliced = _Sharing.read(sharing, "timeSlicing", null_is_absent=False)
    mps = _Sharing.read(sharing, "mps", null_is_absent=True)
    if mps is not None:
        return mps.config("mps", fails_by_default=True)
    if sliced is not None:
        return sliced.config("time-slicing", fails_by_default=False)
    return DeviceConfig()


def parse_config_map(data: Mapping[str, str]) -> dict[str, DeviceConfig]:
    """Every configuration of a ConfigMap's ``data``. Raises ConfigError that names the key."""
    configs = {}
    for name, text in data.items():
        try:
            configs[name] = parse_config(text)
        except ConfigError as error:
            raise ConfigError(f"config {name}: {error}") from None
    return configs


@dataclass(frozen=True, slots=True)
class _Sharing:
    """One of the two sharing blocks: replicas by resource name."""

    replicas: Mapping[str, int]
    rename_by_default: bool
    fail_greater_than_one: bool | None

    @classmethod
    def read(cls, sharing: Mapping[str, Any], name: str, *, null_is_absent: bool) -> _Sharing | None:
        # Go matches the field names of its structs in any case of letters ...
        key = next((k for k in sharing if k.lower() == name.lower()), None)
        if key is None or (sharing[key] is None and null_is_absent):
            return None
        # ... but this block is unpacked by hand upstream (replicas.go), in the exact spelling.
        block = _fields(sharing[key], name)
        resources = block.get("resources")
        if not resources:
            raise ConfigError("no resources specified")
        if not isinstance(resources, list):
            raise ConfigError(f"sharing.{name}.resources is no list")
        return cls(
            replicas=dict(_resource(_fields(r, f"sharing.{name}.resources")) for r in resources),
            rename_by_default=_boolean(block, "renameByDefault") or False,
            fail_greater_than_one=_boolean(block, "failRequestsGreaterThanOne"),
        )

    def config(self, strategy: Strategy, *, fails_by_default: bool) -> DeviceConfig:
        if GPU not in self.replicas:
            return DeviceConfig()
        fail = fails_by_default if self.fail_greater_than_one is None else self.fail_greater_than_one
        return DeviceConfig(strategy, self.replicas[GPU], GPU_SHARED if self.rename_by_default else GPU, fail)


def _resource(entry: Mapping[str, Any]) -> tuple[str, int]:
    if "name" not in entry:
        raise ConfigError("no resource name specified")
    name = entry["name"]
    if not isinstance(name, str):
        raise ConfigError("a resource name is no string")
    name = name if name.startswith(_PREFIX) else _PREFIX + name
    short = name.removeprefix(_PREFIX)
    if not _SUBDOMAIN.fullmatch(short) or len(name) > 253:
        raise ConfigError(f"incorrect format for resource name {name!r}")
    _check_devices(entry.get("devices", "all"))
    if "replicas" not in entry:
        raise ConfigError("no replicas specified")
    replicas = entry["replicas"]
    if isinstance(replicas, float) and replicas.is_integer():
        replicas = int(replicas)  # 4.0 is 4 once YAML has become JSON
    if replicas is not None and (not isinstance(replicas, int) or isinstance(replicas, bool)):
        raise ConfigError(f"replicas {replicas!r} is no whole number")
    if replicas is None or replicas < 2:
        raise ConfigError("number of replicas must be >= 2 (leave sharing out for one pod a card)")
    return name, replicas


def _check_devices(devices: object) -> None:
    match devices:
        case "all":
            return
        case bool():
            pass
        case int() if devices > 0:
            return
        case list() if all(_is_device(d) for d in devices):
            return
        case _:
            pass
    raise ConfigError(f"unrecognized devices: {devices!r}")


def _is_device(device: object) -> bool:
    if isinstance(device, int) and not isinstance(device, bool):
        return device >= 0
    return isinstance(device, str) and _DEVICE.fullmatch(device) is not None


def _boolean(block: Mapping[str, Any], name: str) -> bool | None:
    value = block.get(name)
    if value is not None and not isinstance(value, bool):
        raise ConfigError(f"{name} is neither true nor false")
    return value


def _fields(value: object, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is no map")
    return value


def _folded(block: Mapping[str, Any], name: str) -> Any:
    """A struct field as Go's JSON decoder finds it: the exact name first, else any case of letters."""
    if name in block:
        return block[name]
    return next((v for k, v in block.items() if k.lower() == name.lower()), None)
