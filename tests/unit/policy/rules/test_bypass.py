"""Rules about what leads past MPS or past the device plugin."""

from __future__ import annotations

import pytest

from tests.builders import PodBuilder, inventory, pod
from tests.unit.policy.judging import case_of, lines, told
from webhook.policy.pod import read_container
from webhook.policy.rules import bypass as rules

HIDE = "CUDA_VISIBLE_DEVICES"
DEVICES = "NVIDIA_VISIBLE_DEVICES"
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
MIG = "nvidia.com/mig-1g.10gb"


def app(name: str) -> str:
    return f"spec.containers[0].env[{name}] (app)"


@pytest.mark.parametrize(
    ("subject", "hidden"),
    [
        pytest.param(pod().gpu().env(HIDE, "1"), True, id="1"),
        pytest.param(pod().gpu().env(HIDE, ""), True, id="empty"),
        pytest.param(pod().gpu().env(HIDE, "0,1"), True, id="a list"),
        pytest.param(pod().gpu().env(HIDE, "-1"), True, id="negative"),
        pytest.param(pod().gpu().env(HIDE, "GPU-0123"), True, id="UUID"),
        pytest.param(pod().gpu().entry({"name": HIDE, "valueFrom": {"fieldRef": {}}}), True, id="from elsewhere"),
        pytest.param(pod().gpu().env(HIDE, "0").env(HIDE, "1"), True, id="the last one holds"),
        pytest.param(pod().gpu().env(HIDE, "1").env(HIDE, "0"), False, id="the last one is right"),
        pytest.param(pod().gpu().env(HIDE, "0"), False, id="0"),
        pytest.param(pod().gpu(2).env(HIDE, "1"), False, id="two GPUs"),
        pytest.param(pod().gpu(1, MIG).env(HIDE, "MIG-0123"), False, id="a MIG device"),
        pytest.param(pod().env(HIDE, ""), False, id="no GPU"),
    ],
)
def test_cuda_devices_hidden(subject: PodBuilder, hidden: bool) -> None:
    message = (
        f"deny: {app(HIDE)}: the only device in a container with one GPU is 0, so CUDA would find none: drop it or"
        " write 0 [cuda-devices-hidden]"
    )
    assert lines(rules.cuda_devices_hidden, subject) == ([message] if hidden else [])


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        (PIPE, "it leads away from the MPS daemon, so no limit holds"),
        ("CUDA_MPS_LOG_DIRECTORY", "the device plugin sets the daemon's directories"),
        ("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "it switches the share's thread limit off"),
    ],
)
@pytest.mark.parametrize("value", ["/tmp/mps", "", "1"])
def test_daemon_bypass(name: str, effect: str, value: str) -> None:
    message = f"deny: {app(name)}: not to be set: {effect}: drop it [daemon-bypass]"
    assert lines(rules.daemon_bypass, pod().gpu().env(name, value)) == [message]
    assert lines(rules.daemon_bypass, pod().env(name, value)) == []


def test_daemon_bypass_from_elsewhere_and_in_every_container() -> None:
    entry = {"name": PIPE, "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}
    subject = pod().gpu().entry(entry).init("load").gpu().entry(entry).sidecar("serve").gpu().entry(entry)
    assert [line.split(": ")[1] for line in lines(rules.daemon_bypass, subject)] == [
        f"spec.initContainers[0].env[{PIPE}] (load)",
        f"spec.initContainers[1].env[{PIPE}] (serve)",
        app(PIPE),
    ]


def test_harmless_variables() -> None:
    subject = pod().gpu().env("CUDA_MPS_CLIENT_PRIORITY", "1").env("CUDA_MPS_PIPE_DIRECTORY_X", "1")
    assert lines(rules.daemon_bypass, subject) == []


def bypassed(severity: str) -> str:
    return (
        f"{severity}: {app(DEVICES)}: it opens cards past the device plugin, other pods' shares too: drop it and"
        " request nvidia.com/gpu, or write none [device-bypass]"
    )


@pytest.mark.parametrize("value", ["all", "0", "GPU-0123", " none", "None", "none,0"])
def test_device_bypass(value: str) -> None:
    assert lines(rules.device_bypass, pod().gpu().env(DEVICES, value)) == [bypassed("deny")]
    assert lines(rules.device_bypass, pod().env(DEVICES, value)) == [bypassed("warn")]


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(pod().gpu().env(DEVICES, ""), id="empty"),
        pytest.param(pod().gpu().env(DEVICES, "none"), id="none"),
        pytest.param(pod().gpu().env(DEVICES, "void"), id="void"),
        pytest.param(pod().gpu().entry({"name": DEVICES}), id="no value"),
        pytest.param(pod().gpu(), id="absent"),
    ],
)
def test_no_device_bypass(subject: PodBuilder) -> None:
    assert lines(rules.device_bypass, subject) == []


@pytest.mark.parametrize(
    ("setting", "without", "beside"),
    [("warn", "warn", "deny"), ("deny", "deny", "deny"), ("off", None, "deny")],
)
def test_device_bypass_setting(setting: str, without: str | None, beside: str) -> None:
    at = inventory(device_bypass=setting)
    assert lines(rules.device_bypass, pod().env(DEVICES, "all"), at) == ([bypassed(without)] if without else [])
    assert lines(rules.device_bypass, pod().gpu().env(DEVICES, "all"), at) == [bypassed(beside)]


def test_device_bypass_anywhere_in_the_list_and_from_elsewhere() -> None:
    twice = pod().gpu().env(DEVICES, "all").env(DEVICES, "none")
    elsewhere = pod().gpu().entry({"name": DEVICES, "valueFrom": {"fieldRef": {}}})
    for subject in (twice, elsewhere, pod().gpu().env(DEVICES, "$(X)")):
        assert lines(rules.device_bypass, subject) == [bypassed("deny")]


@pytest.mark.parametrize(
    ("value", "connections", "clients"),
    [
        ("3", 3, "fewer than 48 clients"),
        ("4", 4, "31 clients"),
        ("5", 5, "fewer than 31 clients"),
        ("8", 8, "15 clients"),
        ("12", 12, "fewer than 15 clients"),
        ("16", 16, "7 clients"),
        ("17", 17, "fewer than 7 clients"),
        ("32", 32, "3 clients"),
        ("0032", 32, "3 clients"),
        ("0000000000032", 32, "3 clients"),
        ("64", 64, "fewer than 3 clients"),
    ],
)
def test_connections_raised(value: str, connections: int, clients: str) -> None:
    assert lines(rules.connections_raised, pod().gpu().env(CONNECTIONS, value)) == [
        (
            f"warn: {app(CONNECTIONS)}: at {connections}, {clients} fit on a card instead of 48 (measured on an H200):"
            " leave it at 2 or unset [connections-raised]"
        )
    ]


@pytest.mark.parametrize("value", ["", "0", "1", "2", "-4", "many", "٤", "²"])
def test_connections_not_raised(value: str) -> None:
    assert lines(rules.connections_raised, pod().gpu().env(CONNECTIONS, value)) == []


def test_connections_without_a_gpu() -> None:
    assert lines(rules.connections_raised, pod().env(CONNECTIONS, "32")) == []
    assert lines(rules.connections_raised, pod().gpu().entry({"name": CONNECTIONS, "valueFrom": {"x": {}}})) == []


HOST_IPC = "deny: metadata.annotations[mps.nvidia.com/host-ipc]: "
DROP = "drop the annotation, MPS works without hostIPC [host-ipc-forbidden]"
NAMESPACES = {"team-a": None, "locked": "baseline", "vault": "restricted", "open": "privileged"}


@pytest.mark.parametrize(
    ("namespace", "allowed", "problem"),
    [
        pytest.param("team-a", None, None, id="not labelled"),
        pytest.param("open", None, None, id="privileged"),
        pytest.param("unheard-of", None, None, id="unknown namespace"),
        pytest.param(
            "locked", None, "Pod Security enforces baseline in namespace locked, which forbids hostIPC", id="baseline"
        ),
        pytest.param(
            "vault", None, "Pod Security enforces restricted in namespace vault, which forbids hostIPC", id="restricted"
        ),
        pytest.param("team-a", {"team-a"}, None, id="listed"),
        pytest.param(
            "team-a",
            {"team-b"},
            "namespace team-a is not among those that may use it (setting host_ipc_namespaces)",
            id="left out",
        ),
        pytest.param(
            "open",
            set(),
            "namespace open is not among those that may use it (setting host_ipc_namespaces)",
            id="none may",
        ),
        pytest.param(
            "locked",
            {"locked"},
            "Pod Security enforces baseline in namespace locked, which forbids hostIPC",
            id="listed and locked",
        ),
    ],
)
def test_host_ipc_forbidden(namespace: str, allowed: set[str] | None, problem: str | None) -> None:
    at = inventory(namespaces=NAMESPACES, host_ipc_namespaces=None if allowed is None else frozenset(allowed))
    found = told(rules.host_ipc_forbidden(case_of(pod().gpu().host_ipc("true"), at, namespace)))
    assert found == ([f"{HOST_IPC}{problem}: {DROP}"] if problem else [])
    for value in ("false", "nope"):
        assert told(rules.host_ipc_forbidden(case_of(pod().gpu().host_ipc(value), at, namespace))) == []
    assert told(rules.host_ipc_forbidden(case_of(pod().gpu().spec(hostIPC=True), at, namespace))) == []


@pytest.mark.parametrize(
    ("subject", "warned"),
    [
        pytest.param(pod().gpu().spec(hostIPC=True), True, id="by habit"),
        pytest.param(pod().init("load").gpu().spec(hostIPC=True), True, id="GPU in an init container"),
        pytest.param(pod().gpu().spec(hostIPC=True).host_ipc("true"), False, id="asked for"),
        pytest.param(pod().gpu().spec(hostIPC=True).host_ipc("false"), False, id="a contradiction is its own finding"),
        pytest.param(pod().gpu().spec(hostIPC=False), False, id="false"),
        pytest.param(pod().gpu().spec(hostIPC=None), False, id="null"),
        pytest.param(pod().spec(hostIPC=True), False, id="no GPU"),
    ],
)
def test_host_ipc_not_needed(subject: PodBuilder, warned: bool) -> None:
    message = "warn: spec.hostIPC: MPS works without it: drop it [host-ipc-not-needed]"
    assert lines(rules.host_ipc_not_needed, subject) == ([message] if warned else [])


PRIVILEGED = {"privileged": True}


@pytest.mark.parametrize(
    ("subject", "where"),
    [
        pytest.param(
            pod().gpu().memory("3Gi").put(securityContext=PRIVILEGED), ["spec.containers[0]", "app"], id="with the GPU"
        ),
        pytest.param(
            pod().gpu().memory("3Gi").container("b").put(securityContext=PRIVILEGED),
            ["spec.containers[1]", "b"],
            id="beside the GPU",
        ),
        pytest.param(
            pod().gpu().threads("20").init("b").put(securityContext=PRIVILEGED),
            ["spec.initContainers[0]", "b"],
            id="init container",
        ),
        pytest.param(pod().gpu().put(securityContext=PRIVILEGED), [], id="no quota"),
        pytest.param(pod().gpu().memory("3Gi").put(securityContext={"privileged": False}), [], id="not privileged"),
        pytest.param(pod().gpu().memory("3Gi").put(securityContext=None), [], id="null"),
        pytest.param(pod().gpu().memory("3Gi").spec(securityContext=PRIVILEGED), [], id="no such field of a pod"),
    ],
)
def test_privileged_container(subject: PodBuilder, where: list[str]) -> None:
    assert lines(rules.privileged_container, subject) == (
        [
            (
                f"warn: {where[0]}.securityContext ({where[1]}): a privileged container reaches every card of the node,"
                " past any quota: drop privileged [privileged-container]"
            )
        ]
        if where
        else []
    )


def test_a_container_s_name_is_quoted_in_one_short_line() -> None:
    container = read_container({"name": "a\nb" * 100, "env": [{"name": PIPE}]}, "spec.x[0]", "/spec/x/0", "ephemeral")
    (line,) = told(rules.daemon_bypass_of(container))
    assert line.isprintable()
    assert len(line) < 300
