"""Rules that depend on the node, judged per profile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CONFIGS, GPU, LIMIT, THREADS, PodBuilder, mig_node, node, pod
from tests.unit.policy.judging import codes, judge, names, told
from webhook.policy import DeviceConfig, ExpectedProfile
from webhook.policy.nodes import CONFIG_LABEL, REPLICAS_LABEL, STRATEGY_LABEL

SHARED = "nvidia.com/gpu.shared"
MIG = "nvidia.com/mig-1g.10gb"
QGPU = "tke.cloud.tencent.com/qgpu-core"

T4_4X = node("t4-4x")
T4_2X = node("t4-2x", config="mps-2x")
A100_2X = node("a100-2x", config="mps-2x", memory=40960, cards=2, capability="8.0", product="A100")
A100_4X = node("a100-4x", config="mps-4x", memory=40960, cards=2, capability="8.0", product="A100")
A100_1X = node("a100-1x", config="mps-1x", memory=81920, cards=8, capability="8.0", product="A100")
L40S_10X = node("l40s-10x", config="mps-10x", memory=46068, capability="8.9", product="L40S")
V100_4X = node("v100-4x", memory=16384, capability="7.0", product="V100")
P100_4X = node("p100-4x", memory=16384, capability="6.0", product="P100")
TS_4X = node("ts-4x", config="ts-4x", memory=24576, capability="8.6", product="A10")
MULTI = node("multi", config="mps-2x-multi", memory=40960, cards=2, capability="8.0", product="A100")
RENAMED = node("renamed", config="mps-4x-renamed", memory=40960, capability="8.0", product="A100")
QGPU_NODE = node("qgpu", config=None, allocatable={QGPU: "100"})
NO_MEMORY = node("no-memory", config="mps-2x", memory=None, capability="8.0", product="A100")
APP = "spec.containers[0] (app): "


def memory(value: str) -> PodBuilder:
    return pod().gpu().memory(value)


@pytest.mark.parametrize(
    ("subject", "nodes", "message"),
    [
        pytest.param(
            pod("cuda-app").gpu().memory("5Gi"),
            [T4_4X],
            "spec.containers[0] (cuda-app): memory-limit 5Gi × 4 shares = 20480Mi, but a card of config mps-4x has"
            " 15360Mi (1 node, Tesla-T4): ask for at most 3840Mi; pin nvidia.com/device-plugin.config: mps-2x to wait"
            " for such a pool",
            id="a config that no node has",
        ),
        pytest.param(
            pod("cuda-app").gpu().memory("5Gi").config("mps-4x"),
            [T4_4X, T4_2X],
            "spec.containers[0] (cuda-app): memory-limit 5Gi × 4 shares = 20480Mi, but a card of config mps-4x has"
            " 15360Mi (1 node, Tesla-T4): ask for at most 3840Mi, or use mps-2x",
            id="another config fits",
        ),
        pytest.param(
            memory("4607Mi").config("mps-10x"),
            [L40S_10X],
            f"{APP}memory-limit 4607Mi × 10 shares = 46070Mi, but a card of config mps-10x has 46068Mi (1 node, L40S):"
            " ask for at most 4606Mi",
            id="one over the floor",
        ),
        pytest.param(
            pod().gpu().env(LIMIT, "0=9G").spec(nodeName="t4-4x"),
            [T4_4X, T4_2X],
            f"{APP}{LIMIT} 0=9G × 4 shares = 36864Mi, but a card of config mps-4x has 15360Mi (1 node, Tesla-T4): ask"
            " for at most 3840Mi",
            id="variable, named node",
        ),
        pytest.param(
            pod().gpu().env(LIMIT, "9663676416").spec(nodeName="t4-4x"),
            [T4_4X],
            f"{APP}{LIMIT} 9663676416 × 4 shares = 36864Mi, but a card of config mps-4x has 15360Mi (1 node, Tesla-T4):"
            " ask for at most 3840Mi",
            id="variable to be rewritten",
        ),
        pytest.param(
            memory("40Gi").processes("10").config("mps-4x"),
            [A100_4X],
            f"{APP}memory-limit 40Gi × 4 shares = 163840Mi, but a card of config mps-4x has 40960Mi (1 node, A100): ask"
            " for at most 10Gi",
            id="the undivided limit counts",
        ),
        pytest.param(
            memory("30Gi"),
            [T4_4X, node("t4-4x-b"), A100_2X, L40S_10X],
            f"{APP}memory-limit 30Gi × 4 shares = 122880Mi, but a card of config mps-4x has 15360Mi (2 nodes,"
            " Tesla-T4), × 2 shares = 61440Mi, but a card of config mps-2x has 40960Mi (1 node, A100), × 10 shares ="
            " 307200Mi, but a card of config mps-10x has 46068Mi (1 node, L40S): ask for at most 20Gi (config mps-2x)",
            id="every profile's reason",
        ),
        pytest.param(
            memory("30Gi"),
            [T4_4X, A100_2X, A100_4X, T4_2X],
            f"{APP}memory-limit 30Gi × 4 shares = 122880Mi, but a card of config mps-4x has 15360Mi (1 node, Tesla-T4),"
            " × 2 shares = 61440Mi, but a card of config mps-2x has 40960Mi (1 node, A100), × 4 shares = 122880Mi, but"
            " a card of config mps-4x has 40960Mi (1 node, A100) and 1 more like it: ask for at most 20Gi"
            " (config mps-2x)",
            id="three reasons and a count",
        ),
        pytest.param(
            pod().gpu(1, SHARED).memory("11Gi").config("mps-4x-renamed"),
            [RENAMED],
            f"{APP}memory-limit 11Gi × 4 shares = 45056Mi, but a card of config mps-4x-renamed has 40960Mi (1 node,"
            " A100): ask for at most 10Gi",
            id="renamed resource",
        ),
        pytest.param(
            pod().container("b").gpu().memory("9Gi", "b").config("mps-4x"),
            [T4_4X],
            "spec.containers[1] (b): memory-limit 9Gi × 4 shares = 36864Mi, but a card of config mps-4x has 15360Mi"
            " (1 node, Tesla-T4): ask for at most 3840Mi",
            id="another container",
        ),
        pytest.param(
            pod().gpu().sidecar("s").gpu().memory("9Gi", "s").config("mps-4x"),
            [T4_4X],
            "spec.initContainers[0] (s): memory-limit 9Gi × 4 shares = 36864Mi, but a card of config mps-4x has 15360Mi"
            " (1 node, Tesla-T4): ask for at most 3840Mi",
            id="a sidecar",
        ),
    ],
)
def test_memory_over_budget(subject: PodBuilder, nodes: list[Any], message: str) -> None:
    verdict = judge(subject, *nodes)
    assert told(verdict.findings, "memory-over-budget") == [f"deny: {message} [memory-over-budget]"]
    assert codes(verdict, "deny") == {"memory-over-budget"}
    assert verdict.patch == ()


@pytest.mark.parametrize(
    ("products", "shown"),
    [
        ((None,), "1 node"),
        (("A10",), "1 node, A10"),
        (("A10", "A10"), "2 nodes, A10"),
        (("A10", "A16"), "2 nodes, A10, A16"),
        (("A10", "A16", "A2"), "3 nodes, A10, A16, …"),
    ],
)
def test_nodes_are_counted_and_two_products_named(products: tuple[str | None, ...], shown: str) -> None:
    nodes = [node(f"n-{i}", product=product) for i, product in enumerate(products)]
    assert f"has 15360Mi ({shown}): ask" in judge(memory("9Gi").config("mps-4x"), *nodes).denial()


@pytest.mark.parametrize(
    ("subject", "nodes"),
    [
        pytest.param(memory("4606Mi"), [L40S_10X], id="exactly the floor"),
        pytest.param(memory("10Gi"), [A100_4X], id="exactly the share"),
        pytest.param(memory("3840Mi").container("b").gpu(), [T4_4X], id="each container on its own share"),
        pytest.param(memory("50Gi"), [NO_MEMORY], id="memory not known"),
        pytest.param(memory("5Gi").memory("3Gi", "app"), [T4_4X], id="the container's own beats the pod's"),
        pytest.param(memory("50Gi"), [A100_1X], id="not shared is another finding"),
        pytest.param(pod().gpu().threads("20"), [T4_4X], id="no memory asked"),
    ],
)
def test_within_budget(subject: PodBuilder, nodes: list[Any]) -> None:
    assert "memory-over-budget" not in judge(subject, *nodes).codes


@pytest.mark.parametrize(
    ("subject", "nodes", "settings", "over"),
    [
        pytest.param(memory("21Gi"), [NO_MEMORY], {"gpu_memory": {"A100": 40960}}, True, id="by product"),
        pytest.param(memory("20Gi"), [NO_MEMORY], {"gpu_memory": {"A100": 40960}}, False, id="by product, fits"),
        pytest.param(
            memory("21Gi"), [NO_MEMORY], {"gpu_memory": {"A100-SHARED": 40960}}, True, id="by the whole label"
        ),
        pytest.param(
            memory("21Gi"),
            [node("x", config="mps-2x", memory=None, product=None, labels={"node.kubernetes.io/instance-type": "GN7"})],
            {"gpu_memory": {"GN7": 40960}},
            True,
            id="by instance type",
        ),
        pytest.param(memory("8Gi"), [T4_2X], {"gpu_memory": {"Tesla-T4": 1024}}, True, id="the label wins over none"),
        pytest.param(memory("7Gi"), [T4_2X], {"gpu_memory": {"Tesla-T4": 1024}}, False, id="the label wins"),
    ],
)
def test_memory_from_settings(subject: PodBuilder, nodes: list[Any], settings: dict[str, Any], over: bool) -> None:
    verdict = judge(subject, *nodes, **settings)
    assert ("memory-over-budget" in verdict.codes) is over
    assert "memory-unknown" not in verdict.codes


@pytest.mark.parametrize(
    ("subject", "nodes", "message"),
    [
        pytest.param(
            pod().gpu().threads("26").config("mps-4x"),
            [T4_4X],
            "active-thread-percentage 26, but a share of config mps-4x has 25%, where the daemon would cap it silently"
            " (1 node, Tesla-T4): ask for at most 25",
            id="one over",
        ),
        pytest.param(
            pod().gpu().threads("50").spec(nodeName="t4-4x"),
            [T4_4X, T4_2X],
            "active-thread-percentage 50, but a share of config mps-4x has 25%, where the daemon would cap it silently"
            " (1 node, Tesla-T4): ask for at most 25, or use mps-2x",
            id="another config fits",
        ),
        pytest.param(
            pod().gpu().threads("60").memory("1Gi").processes("10").config("mps-2x"),
            [T4_2X],
            "active-thread-percentage 60, but a share of config mps-2x has 50%, where the daemon would cap it silently"
            " (1 node, Tesla-T4): ask for at most 50",
            id="undivided",
        ),
    ],
)
def test_threads_over_share(subject: PodBuilder, nodes: list[Any], message: str) -> None:
    verdict = judge(subject, *nodes)
    assert told(verdict.findings, "threads-over-share") == [f"deny: {APP}{message} [threads-over-share]"]


def test_threads_of_three_shares_are_floored() -> None:
    configs = {**CONFIGS, "mps-3x": DeviceConfig("mps", 3, GPU, fail_greater_than_one=True)}
    three = node("three", labels={CONFIG_LABEL: "mps-3x", REPLICAS_LABEL: "3"})
    assert "threads-over-share" in judge(pod().gpu().threads("34"), three, configs=configs).codes
    assert "threads-over-share" not in judge(pod().gpu().threads("33"), three, configs=configs).codes


def test_threads_at_the_share() -> None:
    assert judge(pod().gpu().threads("10"), L40S_10X).codes == ()


@pytest.mark.parametrize(
    ("value", "nodes", "message"),
    [
        pytest.param(
            "100",
            [T4_4X],
            "100 will be capped, config mps-4x gives a share 25% (1 node, Tesla-T4): ask for at most 25",
            id="100 by habit",
        ),
        pytest.param(
            "25.5",
            [T4_4X],
            "25.5 will be capped, config mps-4x gives a share 25% (1 node, Tesla-T4): ask for at most 25",
            id="a fraction",
        ),
        pytest.param(
            "60",
            [T4_4X, A100_2X],
            "60 will be capped, config mps-4x gives a share 25% (1 node, Tesla-T4), config mps-2x gives a share 50%"
            " (1 node, A100): ask for at most 50",
            id="two configs",
        ),
        pytest.param("25", [T4_4X], None, id="at the share"),
        pytest.param("50", [A100_1X], None, id="no MPS there"),
        pytest.param("50", [A100_2X], None, id="a larger share"),
    ],
)
def test_threads_over_share_by_variable_only_warns(value: str, nodes: list[Any], message: str | None) -> None:
    verdict = judge(pod().gpu().env(THREADS, value), *nodes)
    assert told(verdict.findings) == (
        [f"warn: spec.containers[0].env[{THREADS}] (app): {message} [threads-over-share]"] if message else []
    )
    assert (verdict.allowed, verdict.patch, verdict.unfit) == (True, (), ())


@pytest.mark.parametrize(
    ("subject", "nodes", "message"),
    [
        pytest.param(
            pod().gpu(2).config("mps-4x"),
            [T4_4X],
            "2 GPUs, but config mps-4x hands out one share a container (1 node, Tesla-T4): ask for 1",
            id="alone",
        ),
        pytest.param(
            pod().gpu(2).spec(nodeName="t4-4x"),
            [T4_4X, A100_1X, TS_4X],
            "2 GPUs, but config mps-4x hands out one share a container (1 node, Tesla-T4): ask for 1, or use mps-1x",
            id="whole cards elsewhere",
        ),
        pytest.param(
            pod().gpu(2, SHARED),
            [RENAMED],
            "2 GPUs, but config mps-4x-renamed hands out one share a container (1 node, A100): ask for 1",
            id="renamed",
        ),
    ],
)
def test_gpu_count_over_share(subject: PodBuilder, nodes: list[Any], message: str) -> None:
    verdict = judge(subject, *nodes)
    assert told(verdict.findings) == [f"deny: {APP}{message} [gpu-count-over-share]"]


@pytest.mark.parametrize(
    ("subject", "nodes"),
    [
        pytest.param(pod().gpu(2), [MULTI], id="the config allows it"),
        pytest.param(pod().gpu(2), [TS_4X], id="time-slicing allows it"),
        pytest.param(pod().gpu(4), [A100_1X], id="whole cards"),
        pytest.param(pod().gpu(1).container("b").gpu(1), [T4_4X], id="one each"),
        pytest.param(pod().gpu(2, MIG), [mig_node()], id="MIG devices"),
    ],
)
def test_gpu_count_within_share(subject: PodBuilder, nodes: list[Any]) -> None:
    assert judge(subject, *nodes).codes == ()


def test_two_of_too_few_is_no_candidate() -> None:
    verdict = judge(pod().gpu(2), node("one", config="mps-1x"), T4_4X)
    assert (names(verdict.fit), names(verdict.unfit)) == (set(), {"t4-4x"})


@pytest.mark.parametrize(
    ("subject", "nodes", "message"),
    [
        pytest.param(
            memory("10Gi").processes("13"),
            [A100_4X],
            "13 processes × 4 shares = 52 MPS clients, but a card of config mps-4x serves 48 (1 node, A100): run at"
            " most 12 processes a container",
            id="48",
        ),
        pytest.param(
            memory("4Gi").processes("5"),
            [V100_4X],
            "5 processes × 4 shares = 20 MPS clients, but a card of config mps-4x serves 16 (1 node, V100): run at most"
            " 4 processes a container",
            id="16 below 7.5",
        ),
    ],
)
def test_too_many_clients(subject: PodBuilder, nodes: list[Any], message: str) -> None:
    verdict = judge(subject, *nodes)
    assert told(verdict.findings, "too-many-clients") == [f"deny: {APP}{message} [too-many-clients]"]


@pytest.mark.parametrize(
    ("processes", "at", "denied"),
    [
        pytest.param("12", A100_4X, False, id="exactly 48"),
        pytest.param("4", V100_4X, False, id="exactly 16"),
        pytest.param("5", node("t4", memory=40960, capability="7.5"), False, id="7.5 takes 48"),
        pytest.param("5", node("x", memory=40960, capability="7.2"), True, id="7.2 takes 16"),
        pytest.param("12", node("x", memory=40960, capability=None), False, id="unknown capability takes 48"),
        pytest.param("13", node("x", memory=40960, capability=None), True, id="unknown capability takes no more"),
    ],
)
def test_client_cap(processes: str, at: Any, denied: bool) -> None:
    verdict = judge(memory("4Gi").processes(processes), at)
    assert ("too-many-clients" in verdict.codes) is denied


def test_more_shares_than_clients() -> None:
    configs = {"mps-49x": DeviceConfig("mps", 49, GPU, fail_greater_than_one=True)}
    at = node("x", memory=102400, labels={CONFIG_LABEL: "mps-49x", REPLICAS_LABEL: "49"}, allocatable={GPU: "49"})
    assert told(judge(memory("2Gi"), at, configs=configs).findings) == [
        (
            f"deny: {APP}1 process × 49 shares = 49 MPS clients, but a card of config mps-49x serves 48 (1 node,"
            " Tesla-T4): use a config with fewer shares [too-many-clients]"
        )
    ]
    assert judge(pod().gpu(), at, configs=configs).allowed


@pytest.mark.parametrize(
    ("subject", "nodes", "message"),
    [
        pytest.param(
            memory("4Gi").config("mps-1x"),
            [A100_1X],
            "but config mps-1x does not share cards, the limit would do nothing (1 node, A100): drop the quota",
            id="exclusive",
        ),
        pytest.param(
            memory("4Gi").config("mps-1x"),
            [A100_1X, A100_2X],
            "but config mps-1x does not share cards, the limit would do nothing (1 node, A100): use mps-2x"
            " (nvidia.com/device-plugin.config), or drop the quota",
            id="another config fits",
        ),
        pytest.param(
            memory("4Gi").config("ts-4x"),
            [TS_4X],
            "but config ts-4x shares by time-slicing, the limit would do nothing (1 node, A10): drop the quota",
            id="time-slicing",
        ),
        pytest.param(
            pod().gpu().threads("10").config("mps-1x"),
            [A100_1X],
            "but config mps-1x does not share cards, the limit would do nothing (1 node, A100): drop the quota",
            id="threads by annotation are a quota",
        ),
        pytest.param(
            pod().gpu().env(LIMIT, "0=4G").config("mps-1x"),
            [A100_1X],
            "but config mps-1x does not share cards, the limit would do nothing (1 node, A100): drop the quota",
            id="memory by variable is a quota",
        ),
        pytest.param(
            memory("4Gi"),
            [node("plain", config=None)],
            "but config mps-1x does not share cards, the limit would do nothing (1 node, Tesla-T4): drop the quota;"
            " pin nvidia.com/device-plugin.config: mps-2x to wait for such a pool",
            id="a node without the label runs the default",
        ),
    ],
)
def test_not_shared(subject: PodBuilder, nodes: list[Any], message: str) -> None:
    assert told(judge(subject, *nodes).findings) == [f"deny: {APP}an MPS quota, {message} [not-shared]"]


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(pod().gpu(), id="no quota"),
        pytest.param(pod().gpu().env(THREADS, "50"), id="a thread variable alone is none"),
        pytest.param(pod().gpu().env(LIMIT, ""), id="an empty variable is none"),
        pytest.param(pod().gpu().host_ipc("false"), id="host-ipc is none"),
    ],
)
def test_no_quota_where_nothing_is_shared(subject: PodBuilder) -> None:
    assert judge(subject, A100_1X, TS_4X).codes == ()


def test_the_default_config_is_a_setting() -> None:
    assert judge(memory("4Gi"), node("plain", config=None), default_config="mps-2x").allowed


@pytest.mark.parametrize(
    ("at", "version"),
    [
        pytest.param(P100_4X, "6.0", id="6.0"),
        pytest.param(node("x", memory=16384, capability="6.1"), "6.1", id="6.1"),
        pytest.param(V100_4X, None, id="7.0"),
        pytest.param(node("x", memory=16384, capability=None), None, id="unknown"),
    ],
)
def test_pre_volta(at: Any, version: str | None) -> None:
    product = "P100" if at is P100_4X else "Tesla-T4"
    message = (
        f"deny: {APP}an MPS quota, but compute capability {version} of config mps-4x is below 7.0, where MPS knows no"
        f" limits (1 node, {product}): use a card of compute capability 7.0 or newer, or drop the quota [pre-volta]"
    )
    assert told(judge(memory("4Gi"), at).findings) == ([message] if version else [])
    assert judge(pod().gpu(), at).codes == ()


def test_mig_node() -> None:
    at = node("mig", config="mps-2x", product="A100-MIG-1g.10gb", labels={REPLICAS_LABEL: "0"})
    assert told(judge(memory("4Gi").config("mps-2x"), at).findings) == [
        (
            f"deny: {APP}an MPS quota, but nodes of config mps-2x are cut with MIG, where MPS does not run (1 node,"
            " A100-MIG-1g.10gb): use nodes that share with MPS, or drop the quota [mig-excluded]"
        )
    ]
    assert judge(pod().gpu(), at).codes == ()
    capable = node("capable", config="mps-2x", labels={"nvidia.com/mig.capable": "true"}, allocatable={MIG: "0"})
    assert judge(memory("4Gi"), capable).codes == ()
    cut = node("cut", config="mps-2x", allocatable={MIG: "3"})
    assert judge(memory("4Gi"), cut).codes == ("mig-excluded",)


def test_qgpu_node() -> None:
    assert told(judge(memory("4Gi").config("mps-1x").spec(nodeSelector={}), QGPU_NODE).findings) == [
        (
            f"deny: {APP}an MPS quota, but nodes of config mps-1x offer qGPU, which excludes MPS (1 node, Tesla-T4):"
            " use nodes that share with MPS, or drop the quota [qgpu-excluded]"
        )
    ]
    assert judge(pod().gpu(), QGPU_NODE).codes == ()


def test_every_rule_a_container_fails_is_told() -> None:
    verdict = judge(memory("9Gi").threads("60").processes("20"), P100_4X)
    assert [f.code for f in verdict.findings if f.severity == "deny"] == [
        "memory-over-budget",
        "threads-over-share",
        "too-many-clients",
        "pre-volta",
    ]


def test_memory_unknown() -> None:
    assert told(judge(memory("8Gi"), NO_MEMORY).findings) == [
        (
            "warn: spec: the card's memory is not known, so the budget was not checked on config mps-2x (1 node, A100):"
            " label the nodes nvidia.com/gpu.memory, or set gpu_memory [memory-unknown]"
        )
    ]
    assert judge(pod().gpu().threads("20"), NO_MEMORY).codes == ()


def test_shm_shadowed() -> None:
    mount = [{"name": "shm", "mountPath": "/dev/shm"}]
    message = (
        "warn: spec.containers[0].volumeMounts (app): a volume at /dev/shm hides the one the MPS daemon shares with its"
        " clients: mount it elsewhere [shm-shadowed]"
    )
    assert told(judge(pod().gpu().put(volumeMounts=mount), T4_4X).findings) == [message]
    assert told(judge(pod().gpu().put(volumeMounts=[{"mountPath": "/dev/shm/"}]), T4_4X).findings) == [message]
    assert judge(pod().gpu().put(volumeMounts=mount), A100_1X).codes == ()
    assert judge(pod().gpu().put(volumeMounts=mount), TS_4X).codes == ()
    assert judge(pod().gpu().container("b").put(volumeMounts=mount), T4_4X).codes == ()
    for other in ([{"mountPath": "/dev/shm/x"}], [{"mountPath": None}, None, 3], "text", None):
        assert judge(pod().gpu().put(volumeMounts=other), T4_4X).codes == ()


@pytest.mark.parametrize(
    ("labels", "drift"),
    [
        pytest.param({REPLICAS_LABEL: "2"}, f"{REPLICAS_LABEL} is 2, the configuration says 4", id="fewer replicas"),
        pytest.param({REPLICAS_LABEL: "10"}, f"{REPLICAS_LABEL} is 10, the configuration says 4", id="more replicas"),
        pytest.param(
            {STRATEGY_LABEL: "none", REPLICAS_LABEL: "1"},
            f"{STRATEGY_LABEL} is none, the configuration says mps",
            id="another strategy",
        ),
        pytest.param({REPLICAS_LABEL: None, STRATEGY_LABEL: None}, None, id="no GFD labels"),
        pytest.param({REPLICAS_LABEL: "many"}, None, id="unreadable"),
        pytest.param({}, None, id="agree"),
    ],
)
def test_config_drift(labels: dict[str, str | None], drift: str | None) -> None:
    at = node("x", labels=labels)
    message = (
        f"warn: spec: labels and configuration disagree on config mps-4x: {drift} (1 node, Tesla-T4): judged by the"
        " configuration with the larger number of shares; wait, or look at the node [config-drift]"
    )
    assert told(judge(memory("1Gi"), at).findings) == ([message] if drift else [])
    assert judge(pod().gpu(), at).codes == ()


def test_drift_is_judged_with_the_larger_replicas() -> None:
    grown = node("grown", labels={REPLICAS_LABEL: "10"})
    shrunk = node("shrunk", labels={REPLICAS_LABEL: "2"})
    assert "memory-over-budget" in judge(memory("1537Mi"), grown).codes
    assert "memory-over-budget" not in judge(memory("1536Mi"), grown).codes
    assert "memory-over-budget" in judge(memory("3841Mi"), shrunk).codes
    assert "memory-over-budget" not in judge(memory("3840Mi"), shrunk).codes


UNKNOWN: dict[str, str | None] = {CONFIG_LABEL: "gone"}


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        pytest.param({STRATEGY_LABEL: "mps", REPLICAS_LABEL: "4"}, {"unknown-config"}, id="MPS by the GFD labels"),
        pytest.param(
            {STRATEGY_LABEL: "mps", REPLICAS_LABEL: "10"},
            {"unknown-config", "memory-over-budget"},
            id="MPS with more shares",
        ),
        pytest.param(
            {STRATEGY_LABEL: "time-slicing", REPLICAS_LABEL: "4"}, {"unknown-config", "not-shared"}, id="time-slicing"
        ),
        pytest.param({STRATEGY_LABEL: "none", REPLICAS_LABEL: "1"}, {"unknown-config", "not-shared"}, id="exclusive"),
        pytest.param({STRATEGY_LABEL: None, REPLICAS_LABEL: None}, {"unknown-config", "not-shared"}, id="no labels"),
        pytest.param({STRATEGY_LABEL: "mps", REPLICAS_LABEL: None}, {"unknown-config", "not-shared"}, id="no replicas"),
    ],
)
def test_unknown_config(labels: dict[str, str | None], found: set[str]) -> None:
    verdict = judge(memory("3Gi"), node("x", labels={**UNKNOWN, **labels}))
    assert set(verdict.codes) == found
    assert told(verdict.findings, "unknown-config") == [
        (
            "warn: spec: the ConfigMap has no config gone (1 node, Tesla-T4): judged by the node's other labels; mend"
            " the label or add the configuration [unknown-config]"
        )
    ]


def test_unknown_config_hands_out_shares_singly() -> None:
    mps = node("x", labels={**UNKNOWN, STRATEGY_LABEL: "mps", REPLICAS_LABEL: "4"})
    sliced = node("y", labels={**UNKNOWN, STRATEGY_LABEL: "time-slicing", REPLICAS_LABEL: "4"})
    assert codes(judge(pod().gpu(2), mps), "deny") == {"gpu-count-over-share"}
    assert codes(judge(pod().gpu(2), sliced), "deny") == set()


def test_unknown_config_of_a_renamed_resource() -> None:
    at = node("x", labels={**UNKNOWN, STRATEGY_LABEL: "mps", REPLICAS_LABEL: "4"}, allocatable={SHARED: "4"})
    assert judge(pod().gpu(1, SHARED).memory("3Gi"), at).allowed


def test_plain_pods_hear_nothing_of_unknown_configs() -> None:
    assert judge(pod().gpu(), node("x", labels=UNKNOWN)).codes == ()


@pytest.mark.parametrize(
    ("subject", "nodes", "settings", "message"),
    [
        pytest.param(
            memory("3Gi").config("mps-4x"),
            [T4_2X],
            {},
            "warn: spec: no GPU node can take it now (it asks for 1 nvidia.com/gpu): it stays Pending until one joins;"
            " check nodeSelector, affinity and tolerations",
            id="config pinned",
        ),
        pytest.param(
            pod().gpu(9).config("mps-1x"),
            [A100_1X],
            {"no_candidate": "deny"},
            "deny: spec: no GPU node can take it now (it asks for 9 nvidia.com/gpu): it stays Pending until one joins;"
            " check nodeSelector, affinity and tolerations",
            id="too many",
        ),
        pytest.param(
            pod().gpu().config("mps-3x"),
            [T4_4X],
            {},
            "warn: spec: no GPU node can take it now (it asks for 1 nvidia.com/gpu): there is no config mps-3x; there"
            " are mps-10x, mps-1x, mps-2x, mps-2x-multi, mps-4x, mps-4x-renamed, ts-4x",
            id="no such config",
        ),
        pytest.param(
            pod().gpu().config("mps-3x"),
            [],
            {"configs": {}},
            "warn: spec: no GPU node can take it now (it asks for 1 nvidia.com/gpu): there is no config mps-3x; there"
            " are none",
            id="no config at all",
        ),
        pytest.param(
            pod().gpu().spec(nodeName="gone"),
            [T4_4X],
            {},
            "warn: spec: no GPU node can take it now (it asks for 1 nvidia.com/gpu): check spec.nodeName",
            id="node name",
        ),
    ],
)
def test_no_candidate_node(subject: PodBuilder, nodes: list[Any], settings: dict[str, Any], message: str) -> None:
    verdict = judge(subject, *nodes, **settings)
    assert told(verdict.findings) == [f"{message} [no-candidate-node]"]
    assert (verdict.fit, verdict.unfit) == ((), ())


def test_without_a_candidate_the_pinned_config_decides() -> None:
    pinned = pod().gpu().config("mps-4x")
    verdict = judge(pinned.threads("60"), T4_2X)
    assert told(verdict.findings, "threads-over-share") == [
        (
            f"deny: {APP}active-thread-percentage 60, but a share of config mps-4x has 25%, where the daemon would cap"
            " it silently (no node now): ask for at most 25 [threads-over-share]"
        )
    ]
    assert codes(judge(pod().gpu().memory("4Gi").config("mps-1x"), T4_2X), "deny") == {"not-shared"}
    assert codes(judge(pod().gpu(2).config("mps-4x"), T4_2X), "deny") == {"gpu-count-over-share"}
    assert codes(judge(pod().gpu().memory("99Gi").config("mps-4x"), T4_2X), "deny") == set()
    by_affinity = pod().gpu().threads("60")
    by_affinity.terms({"matchExpressions": [{"key": CONFIG_LABEL, "operator": "In", "values": ["mps-4x", "mps-10x"]}]})
    assert codes(judge(by_affinity, T4_2X), "deny") == {"threads-over-share"}


EXPECTED: dict[str, Any] = {"expected_profiles": (ExpectedProfile("mps-2x", 40960, (8, 0), "A100"),)}


def test_a_pod_that_only_an_expected_pool_can_take_waits_for_it() -> None:
    verdict = judge(memory("15Gi"), T4_4X, **EXPECTED)
    assert codes(verdict, "warn") == {"steered"}
    assert (len(verdict.fit), names(verdict.fit), names(verdict.unfit)) == (1, set(), {"t4-4x"})
    alone = judge(memory("15Gi"), **EXPECTED)
    assert codes(alone, "warn") == {"no-candidate-node"}
    assert judge(memory("15Gi"), **EXPECTED, no_candidate="deny").allowed


def test_an_expected_pool_is_judged_like_any_other() -> None:
    assert "(no node now, A100)" in judge(memory("21Gi"), **EXPECTED).denial()
    assert codes(judge(memory("21Gi"), **EXPECTED), "deny") == {"memory-over-budget"}


def test_an_expected_pool_of_unknown_memory_takes_any_limit() -> None:
    verdict = judge(memory("99Gi"), expected_profiles=(ExpectedProfile("mps-2x"),))
    assert (verdict.allowed, codes(verdict, "warn")) == (True, {"no-candidate-node"})
    assert len(verdict.fit) == 1


def test_an_expected_pool_counts_only_while_no_node_has_its_config() -> None:
    assert codes(judge(memory("15Gi"), T4_2X, **EXPECTED), "deny") == {"memory-over-budget"}


@pytest.mark.parametrize(
    ("subject", "admitted"),
    [
        pytest.param(memory("15Gi").config("mps-2x"), True, id="its config"),
        pytest.param(memory("15Gi").select(zone="a"), True, id="labels it says nothing of"),
        pytest.param(memory("15Gi").config("mps-4x"), False, id="another config"),
        pytest.param(memory("15Gi").spec(nodeName="x"), False, id="a named node"),
        pytest.param(pod().gpu(1, SHARED).memory("15Gi"), False, id="another resource"),
        pytest.param(
            memory("15Gi").terms(
                {"matchExpressions": [{"key": "nvidia.com/gpu.compute.major", "operator": "Gt", "values": ["7"]}]}
            ),
            True,
            id="affinity that it meets",
        ),
        pytest.param(
            memory("15Gi").terms(
                {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["T4"]}]}
            ),
            False,
            id="affinity that it does not meet",
        ),
        pytest.param(memory("15Gi").terms({}), False, id="a term that matches nothing"),
    ],
)
def test_whom_an_expected_pool_admits(subject: PodBuilder, admitted: bool) -> None:
    assert bool(judge(subject, **EXPECTED).fit) is admitted


@pytest.mark.parametrize(
    ("subject", "nodes", "message"),
    [
        pytest.param(
            memory("512Mi"),
            [T4_4X],
            "memory-limit 512Mi gives 512Mi; the CUDA context takes 145Mi at 25% of the threads (measured on an H200),"
            " PyTorch about 150Mi more: ask for 1Gi or more, or measure it",
            id="another card",
        ),
        pytest.param(
            pod().gpu().env(LIMIT, "0=1023M").env(THREADS, "10"),
            [T4_4X],
            f"{LIMIT} 0=1023M gives 1023Mi; the CUDA context takes 72Mi at 10% of the threads (measured on an H200),"
            " PyTorch about 150Mi more: ask for 1Gi or more, or measure it",
            id="by variables",
        ),
        pytest.param(
            memory("2Gi").processes("4"),
            [node("h200", config="mps-2x", memory=143771, capability="9.0", product="NVIDIA-H200")],
            "memory-limit 2Gi gives 512Mi a process; the CUDA context takes 271Mi at 50% of the threads, PyTorch about"
            " 150Mi more: ask for 4Gi or more, or measure it",
            id="the measured card, each process",
        ),
        pytest.param(
            memory("512Mi"),
            [],
            "memory-limit 512Mi gives 512Mi; the CUDA context takes up to 514Mi, PyTorch about 150Mi more: ask for 1Gi"
            " or more, or measure it",
            id="no node",
        ),
        pytest.param(memory("1Gi"), [T4_4X], None, id="a GiB"),
    ],
)
def test_memory_tight(subject: PodBuilder, nodes: list[Any], message: str | None) -> None:
    verdict = judge(subject, *nodes)
    assert told(verdict.findings, "memory-below-minimum") == (
        [f"warn: {APP}{message} [memory-below-minimum]"] if message else []
    )


def test_limit_below_context() -> None:
    h200 = node("h200", config="mps-2x", memory=143771, capability="9.0", product="NVIDIA-H200")
    assert told(judge(memory("271Mi").config("mps-2x"), h200).findings, "memory-below-minimum")[0] == (
        f"deny: {APP}memory-limit 271Mi gives 271Mi, but the CUDA context alone takes 271Mi at 50% of the threads on"
        " config mps-2x (1 node, NVIDIA-H200): ask for at least 1Gi [memory-below-minimum]"
    )
    assert judge(memory("272Mi"), h200).allowed
    assert judge(memory("271Mi").threads("33"), h200).allowed
    assert judge(memory("271Mi"), T4_4X).allowed
