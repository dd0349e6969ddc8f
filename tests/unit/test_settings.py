"""Settings: what wins, what is refused, and the line each problem gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from webhook import policy
from webhook.settings import SettingsError, WebhookSettings


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MPS_WEBHOOK_"):
            monkeypatch.delenv(name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def problems(path: Path | None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        WebhookSettings.load(path)
    assert str(caught.value).splitlines() == list(caught.value.problems)
    return [line.removeprefix(f"{path}: ") for line in caught.value.problems]


def test_defaults() -> None:
    settings = WebhookSettings.load()
    assert settings.policy() == policy.Settings()
    assert (settings.config_map, settings.workloads) == ("kube-system/nvidia-device-plugin-configs", "warn")
    assert (settings.port, settings.health_port, settings.keep_alive_seconds) == (8443, 8080, 120)


def test_whole_file(path: Path) -> None:
    path.write_text("""
default_config: mps-2x
config_map: gpu-system/configs
placement: off
minimum_memory: 512Mi
gpu_memory: {Tesla-T4: 15Gi, ecs.gn6i: 16106127360, odd: 1.5Gi}
host_ipc_namespaces: [team-a, team-b]
workloads: off
no_candidate: deny
device_bypass: off
expected_profiles:
- {config: mps-4x, memory: 15Gi, compute_capability: 7.5, product: Tesla-T4}
- {config: mps-2x}
port: 9443
health_port: 0
tls_dir: /tls
keep_alive_seconds: 100
drain_seconds: 2.5
max_in_flight: 7
client_ca_file: /ca.crt
client_names: [apiserver]
log_level: debug
""")
    settings = WebhookSettings.load(path)
    assert settings.policy() == policy.Settings(
        default_config="mps-2x",
        placement="off",
        minimum_memory_mib=512,
        gpu_memory={"Tesla-T4": 15360, "ecs.gn6i": 15360, "odd": 1536},
        host_ipc_namespaces=frozenset({"team-a", "team-b"}),
        no_candidate="deny",
        device_bypass="off",
        expected_profiles=(
            policy.ExpectedProfile("mps-4x", 15360, (7, 5), "Tesla-T4"),
            policy.ExpectedProfile("mps-2x"),
        ),
    )
    assert settings.config_map == "gpu-system/configs"
    assert settings.workloads == "off"
    assert (settings.port, settings.health_port, settings.tls_dir) == (9443, 0, Path("/tls"))
    assert (settings.keep_alive_seconds, settings.drain_seconds, settings.max_in_flight) == (100, 2.5, 7)
    assert (settings.client_ca_file, settings.client_names) == (Path("/ca.crt"), frozenset({"apiserver"}))
    assert settings.log_level == "debug"


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        pytest.param("PORT", "9000", "port", 9000, id="number"),
        pytest.param("PLACEMENT", "off", "placement", "off", id="word"),
        pytest.param("MINIMUM_MEMORY", "1G", "minimum_memory", 953, id="quantity rounds down"),
        pytest.param("MINIMUM_MEMORY", "0", "minimum_memory", 0, id="no minimum"),
        pytest.param("GPU_MEMORY", '{"Tesla-T4": "15Gi"}', "gpu_memory", {"Tesla-T4": 15360}, id="JSON map"),
        pytest.param("GPU_MEMORY", "{Tesla-T4: 15Gi}", "gpu_memory", {"Tesla-T4": 15360}, id="YAML map"),
        pytest.param("HOST_IPC_NAMESPACES", "a, b,", "host_ipc_namespaces", {"a", "b"}, id="names with commas"),
        pytest.param("HOST_IPC_NAMESPACES", "[a, b]", "host_ipc_namespaces", {"a", "b"}, id="names as a list"),
        pytest.param("HOST_IPC_NAMESPACES", "[]", "host_ipc_namespaces", set(), id="no namespace at all"),
        pytest.param("HOST_IPC_NAMESPACES", "", "host_ipc_namespaces", None, id="empty is not set"),
        pytest.param("EXPECTED_PROFILES", "[{config: mps-4x}]", "expected_profiles", 1, id="profiles"),
    ],
)
def test_variables(monkeypatch: pytest.MonkeyPatch, name: str, text: str, field: str, value: Any) -> None:
    monkeypatch.setenv(f"MPS_WEBHOOK_{name}", text)
    got = getattr(WebhookSettings.load(), field)
    assert (len(got) if field == "expected_profiles" else got) == value


def test_variable_beats_file_and_argument_beats_both(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("port: 1001\nhealth_port: 1002\nplacement: deny\ngpu_memory: {a: 1Gi}\n")
    monkeypatch.setenv("MPS_WEBHOOK_PORT", "2001")
    monkeypatch.setenv("MPS_WEBHOOK_HEALTH_PORT", "2002")
    monkeypatch.setenv("MPS_WEBHOOK_GPU_MEMORY", "{b: 2Gi}")
    settings = WebhookSettings.load(path, port=3001, log_level=None)
    assert (settings.port, settings.health_port, settings.placement) == (3001, 2002, "deny")
    assert settings.gpu_memory == {"b": 2048}
    assert settings.log_level == "info"


def test_a_bad_value_in_the_file_counts_for_nothing_where_a_variable_wins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("port: nine\n")
    monkeypatch.setenv("MPS_WEBHOOK_PORT", "2001")
    assert WebhookSettings.load(path).port == 2001


def test_empty_file_is_all_defaults(path: Path) -> None:
    path.write_text("# nothing\n")
    assert WebhookSettings.load(path) == WebhookSettings.load()


NO_QUANTITY = "not a quantity such as 256Mi or 16Gi"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("placment: deny", "placment: no such setting; did you mean placement?", id="misspelt"),
        pytest.param("zzz: 1", "zzz: no such setting", id="unknown"),
        pytest.param("placement: on", "placement: input should be 'steer', 'deny' or 'off'", id="on is true"),
        pytest.param("placement: maybe", "placement: input should be 'steer', 'deny' or 'off'", id="word"),
        pytest.param(
            "no_candidate: off", "no_candidate: input should be 'warn' or 'deny'", id="off where there is none"
        ),
        pytest.param("minimum_memory: much", f"minimum_memory: {NO_QUANTITY}", id="no quantity"),
        pytest.param("minimum_memory: 256MB", f"minimum_memory: {NO_QUANTITY}", id="no unit of Kubernetes"),
        pytest.param("minimum_memory: yes", f"minimum_memory: {NO_QUANTITY}", id="truth for a quantity"),
        pytest.param("minimum_memory:", f"minimum_memory: {NO_QUANTITY}", id="nothing for a quantity"),
        pytest.param("minimum_memory: .nan", f"minimum_memory: {NO_QUANTITY}", id="nan"),
        pytest.param("minimum_memory: -1Gi", "minimum_memory: a quantity below zero", id="negative"),
        pytest.param("gpu_memory: {T4: 15}", "gpu_memory.T4: less than 1Mi, which no card has", id="forgotten unit"),
        pytest.param("gpu_memory: [T4]", "gpu_memory: input should be a valid dictionary", id="list for a map"),
        pytest.param("port: true", "port: not a number", id="truth for a port"),
        pytest.param("port: 70000", "port: input should be less than or equal to 65535", id="port too large"),
        pytest.param(
            "keep_alive_seconds: .inf", "keep_alive_seconds: input should be less than or equal to 3600", id="endless"
        ),
        pytest.param("max_in_flight: 0", "max_in_flight: input should be greater than or equal to 1", id="no calls"),
        pytest.param("config_map: configs", "config_map: not of the form namespace/name", id="no namespace"),
        pytest.param("default_config: mps 1x", "default_config: not a name that a node label can hold", id="blank"),
        pytest.param(
            "expected_profiles: [{config: a, compute_capability: new}]",
            "expected_profiles.0.compute_capability: not a compute capability such as 7.5",
            id="capability",
        ),
        pytest.param(
            "expected_profiles: [{config: a, memroy: 1Gi}]",
            "expected_profiles.0.memroy: no such setting; did you mean memory?",
            id="misspelt within a profile",
        ),
        pytest.param("expected_profiles: [{memory: 1Gi}]", "expected_profiles.0.config: field required", id="missing"),
        pytest.param("port: 80\nhealth_port: 80", "port and health_port are the same", id="ports alike"),
        pytest.param(
            "client_names: [a]", "client_names without client_ca_file: no name could be trusted", id="names without CA"
        ),
        pytest.param("- a", "not a map of settings", id="a list"),
        pytest.param("a: b: c", "no YAML: line 1: mapping values are not allowed in this context", id="broken YAML"),
    ],
)
def test_one_line_for_a_problem(path: Path, text: str, line: str) -> None:
    path.write_text(text + "\n")
    assert problems(path) == [line]


def test_every_problem_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("placement: x\nport: nine\nzzz: 1\n")
    monkeypatch.setenv("MPS_WEBHOOK_LOG_LEVEL", "loud")
    monkeypatch.setenv("MPS_WEBHOOK_DEFAULT_CONFG", "x")
    assert sorted(problems(path)) == [
        "MPS_WEBHOOK_DEFAULT_CONFG: no such setting; did you mean default_config?",
        "MPS_WEBHOOK_LOG_LEVEL: input should be 'debug', 'info', 'warning' or 'error'",
        "placement: input should be 'steer', 'deny' or 'off'",
        "port: input should be a valid integer, unable to parse string as an integer",
        "zzz: no such setting",
    ]


def test_a_variables_value_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPS_WEBHOOK_GPU_MEMORY", "{T4: hunter2}")
    assert problems(None) == [f"MPS_WEBHOOK_GPU_MEMORY: gpu_memory.T4: {NO_QUANTITY}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("MPS_WEBHOOK_PORT", "tcp://10.0.0.1:443", id="url"),
        pytest.param("MPS_WEBHOOK_SERVICE_HOST", "10.0.0.1", id="host"),
        pytest.param("MPS_WEBHOOK_SERVICE_PORT", "443", id="port"),
        pytest.param("MPS_WEBHOOK_SERVICE_PORT_HTTPS", "443", id="named port"),
        pytest.param("MPS_WEBHOOK_PORT_443_TCP_ADDR", "10.0.0.1", id="address"),
        pytest.param("MPS_WEBHOOK_CERTS_NAMESPACE", "mps-system", id="of the certs command"),
    ],
)
def test_variables_that_are_not_ours(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert WebhookSettings.load().port == 8443


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "No such file or directory", id="absent"),
        pytest.param(b"\xff\xfe", "not a UTF-8 text", id="binary"),
    ],
)
def test_unreadable_file(path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        path.write_bytes(content)
    assert problems(path) == [message]


def test_every_setting_is_described() -> None:
    assert [name for name, field in WebhookSettings.model_fields.items() if not field.description] == []
