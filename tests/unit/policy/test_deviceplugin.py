"""Device-plugin configurations: what the upstream binary made of each file, and what it is unforgiving about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from webhook.policy import ConfigError, DeviceConfig, parse_config, parse_config_map

FOLDER = Path(__file__).parents[2] / "fixtures" / "device-plugin-configs"
OUTCOMES: dict[str, dict[str, Any]] = json.loads((FOLDER / "outcomes.json").read_text())
GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("name", OUTCOMES)
def test_as_upstream(name: str) -> None:
    outcome, text = OUTCOMES[name], (FOLDER / name).read_text()
    if not outcome["valid"]:
        with pytest.raises(ConfigError) as caught:
            parse_config(text)
        assert str(caught.value).isprintable()
    else:
        assert parse_config(text) == expected(outcome)


def test_every_file_has_an_outcome() -> None:
    assert {p.name for p in FOLDER.glob("*.yaml")} == set(OUTCOMES)


def expected(outcome: dict[str, Any]) -> DeviceConfig:
    """What an outcome means for nvidia.com/gpu; other resources, such as MIG devices, leave it exclusive."""
    sharing, strategy = outcome["sharing"], outcome["strategy"]
    block = sharing.get("mps") if strategy == "mps" else sharing.get("timeSlicing", {})
    own = next((r for r in block.get("resources", []) if r["name"] == GPU), None) if block else None
    if own is None:
        return DeviceConfig()
    return DeviceConfig(
        strategy, own["replicas"], own.get("rename", GPU), block.get("failRequestsGreaterThanOne", False)
    )


@pytest.mark.parametrize(
    ("text", "config"),
    [
        pytest.param("null", DeviceConfig(), id="null"),
        pytest.param("version: ''", DeviceConfig(), id="empty version"),
        pytest.param("{VERSION: v1, SHARING: {}}", DeviceConfig(), id="struct fields in any case"),
        pytest.param("sharing: null", DeviceConfig(), id="sharing null"),
        pytest.param(
            "sharing: {MPS: {resources: [{name: gpu, replicas: 3}]}}",
            DeviceConfig("mps", 3, GPU, fail_greater_than_one=True),
            id="block in another case, name without a prefix",
        ),
        pytest.param(
            "sharing: {mps: {resources: [{name: gpu, replicas: 4.0}]}}",
            DeviceConfig("mps", 4, GPU, fail_greater_than_one=True),
            id="a float that is whole",
        ),
        pytest.param(
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 8}]},"
            " mps: {resources: [{name: gpu, replicas: 2}]}}",
            DeviceConfig("mps", 2, GPU, fail_greater_than_one=True),
            id="MPS wins over time-slicing",
        ),
        pytest.param(
            "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: gpu, replicas: 8}]}}",
            DeviceConfig("time-slicing", 8, GPU, fail_greater_than_one=True),
            id="time-slicing, singly",
        ),
        pytest.param(
            "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 8}]}}",
            DeviceConfig("time-slicing", 8, "nvidia.com/gpu.shared"),
            id="time-slicing, renamed",
        ),
        pytest.param(
            "sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: ['0', '1:0', 3,"
            " GPU-01234567-89ab-cdef-0123-456789abcdef]}]}}",
            DeviceConfig("mps", 2, GPU, fail_greater_than_one=True),
            id="devices listed",
        ),
        pytest.param(
            "sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: 2}]}}",
            DeviceConfig("mps", 2, GPU, fail_greater_than_one=True),
            id="devices counted",
        ),
    ],
)
def test_reads(text: str, config: DeviceConfig) -> None:
    assert parse_config(text) == config


def mps(resource: str, block: str = "") -> str:
    return f"sharing: {{mps: {{{block}resources: [{resource}]}}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "no YAML: line ", id="broken YAML"),
        pytest.param("[]", "the configuration is no map", id="a list"),
        pytest.param("version: v2", "unknown version: v2", id="another version"),
        pytest.param("sharing: []", "sharing is no map", id="sharing a list"),
        pytest.param("sharing: {mps: []}", "mps is no map", id="mps a list"),
        pytest.param("sharing: {mps: {resources: {a: b}}}", "sharing.mps.resources is no list", id="resources a map"),
        pytest.param(mps("3"), "sharing.mps.resources is no map", id="a resource that is none"),
        pytest.param("sharing: {timeSlicing: null}", "no resources specified", id="timeSlicing null"),
        pytest.param(mps("{name: 3, replicas: 2}"), "a resource name is no string", id="a number for a name"),
        pytest.param(
            mps("{name: GPU, replicas: 2}"), "incorrect format for resource name 'nvidia.com/GPU'", id="upper case"
        ),
        pytest.param(mps("{name: gpu}"), "no replicas specified", id="no replicas"),
        pytest.param(mps("{name: gpu, replicas: true}"), "replicas True is no whole number", id="replicas true"),
        pytest.param(
            mps("{name: gpu, replicas: 1}"),
            "number of replicas must be >= 2 (leave sharing out for one pod a card)",
            id="one replica",
        ),
        pytest.param(mps("{name: gpu, replicas: 2, devices: 0}"), "unrecognized devices: 0", id="no device"),
        pytest.param(mps("{name: gpu, replicas: 2, devices: true}"), "unrecognized devices: True", id="devices true"),
        pytest.param(mps("{name: gpu, replicas: 2, devices: some}"), "unrecognized devices: 'some'", id="a word"),
        pytest.param(mps("{name: gpu, replicas: 2, devices: [-1]}"), "unrecognized devices: [-1]", id="negative"),
        pytest.param(mps("{name: gpu, replicas: 2, devices: [x]}"), "unrecognized devices: ['x']", id="no such device"),
        pytest.param(
            mps("{name: gpu, replicas: 2}", "renameByDefault: maybe, "),
            "renameByDefault is neither true nor false",
            id="no truth value",
        ),
        pytest.param(
            "sharing: {timeSlicing: {resources: []}, mps: {resources: [{name: gpu, replicas: 2}]}}",
            "no resources specified",
            id="a fault in the block that is not in force",
        ),
    ],
)
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert str(caught.value).startswith(message)


def test_config_map_names_the_key() -> None:
    good = {"mps-1x": "", "mps-2x": mps("{name: gpu, replicas: 2}")}
    assert parse_config_map(good) == {
        "mps-1x": DeviceConfig(),
        "mps-2x": DeviceConfig("mps", 2, GPU, fail_greater_than_one=True),
    }
    with pytest.raises(ConfigError, match=r"^config bad: unknown version: v3$"):
        parse_config_map({**good, "bad": "version: v3"})
