"""Placement: the affinity that leaves only the nodes that fit, literally; and where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CONFIGS, GPU, PodBuilder, expression, node, pod, where
from tests.unit.policy.judging import admits, codes, judge, names, patched, told
from webhook.policy import DeviceConfig, ExpectedProfile, Verdict
from webhook.policy.nodes import CONFIG_LABEL, MAJOR_LABEL, MEMORY_LABEL, MINOR_LABEL, PRODUCT_LABEL
from webhook.policy.placement import MAX_TERMS
from webhook.policy.scheduling import required_affinity

INSTANCE = "node.kubernetes.io/instance-type"

T4_4X = node("t4-4x")
T4_2X = node("t4-2x", config="mps-2x")
A100_2X = node("a100-2x", config="mps-2x", memory=40960, cards=2, capability="8.0", product="A100")
A100_4X = node("a100-4x", config="mps-4x", memory=40960, cards=2, capability="8.0", product="A100")
A100_1X = node("a100-1x", config="mps-1x", memory=81920, cards=8, capability="8.0", product="A100")
L40S_10X = node("l40s-10x", config="mps-10x", memory=46068, capability="8.9", product="L40S")
V100_4X = node("v100-4x", memory=16384, capability="7.0", product="V100")
P100_4X = node("p100-4x", memory=16384, capability="6.0", product="P100")
DEFAULT = node("default", config=None, memory=40960, capability="8.0", product="A100", labels={
    "nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "2",
}, allocatable={GPU: "2"})  # fmt: skip


def config(*names: str) -> dict[str, Any]:
    return expression(CONFIG_LABEL, "In", *names)


def memory_over(mib: int) -> dict[str, Any]:
    return expression(MEMORY_LABEL, "Gt", str(mib))


def unlabelled(key: str) -> dict[str, Any]:
    return expression(key, "DoesNotExist")


def memory(value: str) -> PodBuilder:
    return pod().gpu().memory(value)


def terms_of(subject: PodBuilder, verdict: Verdict) -> Any:
    required = required_affinity(patched(subject, verdict)["spec"])
    return None if required is None else required["nodeSelectorTerms"]


STEERED: list[Any] = [
    pytest.param(memory("5Gi"), [T4_4X, T4_2X], {}, [where(config("mps-2x"))], id="by config"),
    pytest.param(
        memory("3Gi").spec(nodeSelector={"x": "y"}),
        [n | {"metadata": n["metadata"] | {"labels": n["metadata"]["labels"] | {"x": "y"}}} for n in (A100_1X, T4_2X)],
        {},
        [where(config("mps-2x"))],
        id="beside a node selector",
    ),
    pytest.param(
        memory("4Gi"),
        [A100_1X, T4_2X, L40S_10X, node("t4-4x", memory=40960)],
        {},
        [where(config("mps-10x", "mps-2x", "mps-4x"))],
        id="configs with equal terms share one",
    ),
    pytest.param(
        memory("8Gi"),
        [T4_4X, A100_4X],
        {},
        [where(config("mps-4x"), memory_over(8192 * 4 - 1))],
        id="by memory within a config",
    ),
    pytest.param(
        memory("8Gi"),
        [T4_4X, A100_4X, T4_2X, A100_2X],
        {},
        [where(config("mps-4x"), memory_over(32767)), where(config("mps-2x"), memory_over(16383))],
        id="by memory in two configs",
    ),
    pytest.param(
        memory("8Gi"),
        [T4_4X, A100_4X, L40S_10X, A100_2X],
        {},
        [where(config("mps-4x"), memory_over(32767)), where(config("mps-2x"))],
        id="only as much as separates",
    ),
    pytest.param(
        memory("3Gi"),
        [P100_4X, T4_4X],
        {},
        [where(config("mps-4x"), expression(MAJOR_LABEL, "Gt", "6"))],
        id="pre-Volta",
    ),
    pytest.param(
        pod().gpu().threads("20"),
        [P100_4X, T4_4X],
        {},
        [where(config("mps-4x"), expression(MAJOR_LABEL, "Gt", "6"))],
        id="pre-Volta, no memory asked",
    ),
    pytest.param(
        memory("3Gi").processes("5"),
        [V100_4X, T4_4X, A100_4X],
        {},
        [
            where(config("mps-4x"), expression(MAJOR_LABEL, "Gt", "7")),
            where(config("mps-4x"), expression(MAJOR_LABEL, "In", "7"), expression(MINOR_LABEL, "Gt", "4")),
        ],
        id="by 7.5",
    ),
    pytest.param(
        memory("4Gi").processes("5"),
        [V100_4X, A100_4X, T4_4X],
        {},
        [
            where(config("mps-4x"), memory_over(16383), expression(MAJOR_LABEL, "Gt", "7")),
            where(
                config("mps-4x"),
                memory_over(16383),
                expression(MAJOR_LABEL, "In", "7"),
                expression(MINOR_LABEL, "Gt", "4"),
            ),
        ],
        id="memory and capability together",
    ),
    pytest.param(
        memory("3Gi"),
        [P100_4X, node("unknown", capability=None)],
        {},
        [
            where(config("mps-4x"), expression(MAJOR_LABEL, "Gt", "6")),
            where(config("mps-4x"), unlabelled(MAJOR_LABEL)),
        ],
        id="unknown capability stays",
    ),
    pytest.param(
        memory("8Gi"),
        [T4_4X, node("nomem", memory=None)],
        {},
        [where(config("mps-4x"), memory_over(32767)), where(config("mps-4x"), unlabelled(MEMORY_LABEL))],
        id="unlabelled memory stays",
    ),
    pytest.param(
        memory("8Gi"),
        [node("small", memory=None), node("big", memory=None, product="A100")],
        {"gpu_memory": {"Tesla-T4": 15360, "A100": 40960}},
        [
            where(config("mps-4x"), memory_over(32767)),
            where(config("mps-4x"), unlabelled(MEMORY_LABEL), expression(PRODUCT_LABEL, "In", "A100-SHARED")),
        ],
        id="unlabelled memory by product",
    ),
    pytest.param(
        memory("8Gi"),
        [
            node("small", memory=None, product=None, labels={INSTANCE: "GN6"}),
            node("big", memory=None, product=None, labels={INSTANCE: "GN7"}),
        ],
        {"gpu_memory": {"GN6": 15360, "GN7": 40960}},
        [
            where(config("mps-4x"), memory_over(32767)),
            where(config("mps-4x"), unlabelled(MEMORY_LABEL), expression(INSTANCE, "In", "GN7")),
        ],
        id="unlabelled memory by instance type",
    ),
    pytest.param(
        memory("8Gi"),
        [T4_4X, DEFAULT],
        {"default_config": "mps-2x"},
        [where(config("mps-2x")), where(unlabelled(CONFIG_LABEL))],
        id="the default config, by absence",
    ),
    pytest.param(
        memory("8Gi"),
        [T4_4X, A100_2X],
        {"default_config": "mps-2x"},
        [where(config("mps-2x")), where(unlabelled(CONFIG_LABEL))],
        id="the default config, by name",
    ),
    pytest.param(
        memory("8Gi"),
        [node("small", config=None), A100_2X],
        {"default_config": "mps-2x"},
        [where(config("mps-2x"))],
        id="the default config fits by name only",
    ),
    pytest.param(pod().gpu(2), [T4_4X, A100_1X], {}, [where(config("mps-1x")), where(unlabelled(CONFIG_LABEL))],
                 id="two GPUs go where cards are whole"),
    pytest.param(
        pod().gpu().env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=5G"),
        [T4_4X, T4_2X],
        {},
        [where(config("mps-2x"))],
        id="by variable",
    ),
    pytest.param(pod().gpu().threads("50"), [T4_4X, T4_2X], {}, [where(config("mps-2x"))], id="by threads"),
    pytest.param(
        memory("15Gi"),
        [T4_4X],
        {"expected_profiles": (ExpectedProfile("mps-2x", 40960),)},
        [where(config("mps-2x"))],
        id="to an expected pool",
    ),
    pytest.param(
        memory("3Gi"),
        [T4_4X],
        {"expected_profiles": (ExpectedProfile("mps-10x", 15360),)},
        [where(config("mps-4x"))],
        id="away from an expected pool",
    ),
    pytest.param(
        memory("5Gi").terms(where(expression("os", "Exists")), where(expression("zone", "In", "a"))),
        [n | {"metadata": n["metadata"] | {"labels": n["metadata"]["labels"] | {"os": "x"}}} for n in (T4_4X, T4_2X)],
        {},
        [
            where(expression("os", "Exists"), config("mps-2x")),
            where(expression("zone", "In", "a"), config("mps-2x")),
        ],
        id="ANDed into each of the user's terms",
    ),
    pytest.param(
        memory("8Gi").terms(where(names=["t4-4x", "a100-4x", "a100-2x"]), {}, {"matchExpressions": []}),
        [T4_4X, A100_4X, A100_2X],
        {},
        [
            where(config("mps-4x"), memory_over(32767), names=["t4-4x", "a100-4x", "a100-2x"]),
            where(config("mps-2x"), names=["t4-4x", "a100-4x", "a100-2x"]),
        ],
        id="matchFields stay, empty terms go, cross product",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("subject", "nodes", "settings", "terms"), STEERED)
def test_steered(subject: PodBuilder, nodes: list[Any], settings: dict[str, Any], terms: list[Any]) -> None:
    verdict = judge(subject, *nodes, **settings)
    assert verdict.allowed, verdict.denial()
    assert "steered" in codes(verdict, "warn")
    assert terms_of(subject, verdict) == terms
    after = patched(subject, verdict)
    assert {n["metadata"]["name"] for n in nodes if admits(after, n)} == names(verdict.fit)
    again = judge(after, *nodes, **settings)
    assert (again.allowed, again.patch, again.unfit) == (True, (), ())


def test_the_message_names_what_remains() -> None:
    assert told(judge(memory("8Gi"), T4_4X, A100_4X, A100_2X).findings, "steered") == [
        (
            "warn: spec.affinity: restricted to nodes of config mps-2x, mps-4x (cards from 32768Mi); elsewhere it fails"
            " memory-over-budget: pin nvidia.com/device-plugin.config to choose yourself [steered]"
        )
    ]
    assert told(judge(memory("3Gi").processes("5"), V100_4X, T4_4X).findings, "steered") == [
        (
            "warn: spec.affinity: restricted to nodes of config mps-4x (newer cards); elsewhere it fails"
            " too-many-clients: pin nvidia.com/device-plugin.config to choose yourself [steered]"
        )
    ]


@pytest.mark.parametrize(
    ("subject", "nodes"),
    [
        pytest.param(pod().gpu(), [T4_4X, A100_1X, P100_4X], id="no quota"),
        pytest.param(
            pod().gpu().env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50"), [T4_4X, A100_1X], id="thread variable"
        ),
        pytest.param(memory("3Gi"), [T4_4X, T4_2X], id="all fit"),
        pytest.param(memory("5Gi").config("mps-2x"), [T4_4X, T4_2X], id="pinned"),
        pytest.param(memory("5Gi").spec(nodeName="t4-2x"), [T4_4X, T4_2X], id="named"),
        pytest.param(
            memory("5Gi"), [T4_2X, node("t", taints=[{"key": "k", "effect": "NoSchedule"}])], id="no candidate"
        ),
    ],
)
def test_not_steered(subject: PodBuilder, nodes: list[Any]) -> None:
    verdict = judge(subject, *nodes)
    assert verdict.allowed
    assert "steered" not in verdict.codes
    assert terms_of(subject, verdict) is None
    assert all(not op["path"].startswith("/spec/affinity") for op in verdict.patch)


MIXED = (
    "spec.nodeSelector: it fits nodes of config mps-2x, but may land on config mps-4x, where it fails"
    " memory-over-budget: pin a config: nvidia.com/device-plugin.config: mps-2x [mixed-candidates]"
)


def test_placement_deny() -> None:
    verdict = judge(memory("5Gi"), T4_4X, T4_2X, placement="deny")
    assert told(verdict.findings) == [f"deny: {MIXED}"]
    assert (names(verdict.fit), names(verdict.unfit), verdict.patch) == ({"t4-2x"}, {"t4-4x"}, ())


def test_placement_off() -> None:
    subject = memory("5Gi")
    verdict = judge(subject, T4_4X, T4_2X, placement="off")
    assert told(verdict.findings) == [f"warn: {MIXED}"]
    assert "affinity" not in patched(subject, verdict)["spec"]
    assert verdict.patch


@pytest.mark.parametrize("placement", ["steer", "deny", "off"])
def test_where_every_candidate_fails_placement_says_nothing(placement: str) -> None:
    assert judge(memory("50Gi"), T4_4X, T4_2X, placement=placement).codes == ("memory-over-budget",)


def test_labels_that_can_and_that_cannot_say_it() -> None:
    small = node("small", memory=None, labels={INSTANCE: "GN6"})
    big = node("big", memory=None, labels={INSTANCE: "GN7"})
    verdict = judge(memory("8Gi"), small, big, gpu_memory={"GN6": 15360})
    assert terms_of(memory("8Gi"), verdict)[1] == where(
        config("mps-4x"), unlabelled(MEMORY_LABEL), expression(INSTANCE, "In", "GN7")
    )
    qgpu = node("qgpu", allocatable={"tke.cloud.tencent.com/qgpu-core": "100"})
    verdict = judge(memory("3Gi"), T4_4X, qgpu)
    assert told(verdict.findings) == [
        (
            "deny: spec.nodeSelector: it fits nodes of config mps-4x, but may land on config mps-4x, where it fails"
            " qgpu-excluded: pin nodes that fit by another label [mixed-candidates]"
        )
    ]


def test_drift_that_labels_cannot_say() -> None:
    grown = node("grown", labels={"nvidia.com/gpu.replicas": "10"})
    verdict = judge(memory("3Gi"), T4_4X, grown)
    assert codes(verdict, "deny") == {"mixed-candidates"}


def test_other_denials_leave_no_patch_and_no_steering() -> None:
    verdict = judge(memory("5Gi").env("CUDA_MPS_PIPE_DIRECTORY", "/x"), T4_4X, T4_2X)
    assert codes(verdict, "deny") == {"daemon-bypass"}
    assert "steered" not in verdict.codes
    assert verdict.patch == ()


def test_host_names_are_never_listed() -> None:
    verdict = judge(memory("8Gi"), *(T4_4X, A100_4X, A100_2X, L40S_10X, V100_4X))
    text = str(verdict.patch)
    assert "hostname" not in text
    assert "metadata.name" not in text
    assert "a100-4x" not in text


def test_the_number_of_terms_is_bounded() -> None:
    """What tells the nodes apart takes two terms, so each of the user's own becomes two."""
    nodes = [P100_4X, node("unknown", capability=None)]

    def own(count: int) -> PodBuilder:
        return memory("3Gi").terms(*(where(expression("x", "NotIn", str(i))) for i in range(count)))

    most = own(MAX_TERMS // 2)
    assert len(terms_of(most, judge(most, *nodes))) == MAX_TERMS
    assert codes(judge(own(MAX_TERMS // 2 + 1), *nodes), "deny") == {"mixed-candidates"}


def test_many_configs_with_equal_terms_stay_one() -> None:
    configs = {f"c-{i}": DeviceConfig("mps", 2, GPU, fail_greater_than_one=True) for i in range(200)}
    nodes = [node(f"n-{i}", labels={CONFIG_LABEL: f"c-{i}", "nvidia.com/gpu.replicas": "2"}) for i in range(200)]
    verdict = judge(memory("5Gi"), T4_4X, *nodes, configs={**CONFIGS, **configs})
    (term,) = terms_of(memory("5Gi"), verdict)
    assert term == where(config(*sorted(configs)))


RAW_AFFINITY: list[Any] = [
    pytest.param(None, id="null"),
    pytest.param({}, id="empty"),
    pytest.param({"nodeAffinity": None}, id="nodeAffinity null"),
    pytest.param({"nodeAffinity": {}}, id="nodeAffinity empty"),
    pytest.param({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}, id="required null"),
    pytest.param({"podAntiAffinity": {"a": [1]}}, id="pod affinity only"),
    pytest.param(
        {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}, id="preferences only"
    ),
    pytest.param(
        {
            "podAffinity": {"b": 2},
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "future": True,
                    "nodeSelectorTerms": [where(expression(MEMORY_LABEL, "Exists"))],
                },
            },
        },
        id="everything",
    ),
]


@pytest.mark.parametrize("affinity", RAW_AFFINITY)
def test_what_the_user_has_in_affinity_stays(affinity: dict[str, Any] | None) -> None:
    subject = memory("5Gi").spec(affinity=affinity)
    verdict = judge(subject, T4_4X, T4_2X)
    after = patched(subject, verdict)["spec"]["affinity"]
    required = after["nodeAffinity"].pop("requiredDuringSchedulingIgnoredDuringExecution")
    own = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    expressions = [e for t in own.get("nodeSelectorTerms", []) for e in t["matchExpressions"]]
    assert required == {**own, "nodeSelectorTerms": [{"matchExpressions": [*expressions, config("mps-2x")]}]}
    kept = {k: v for k, v in (affinity or {}).items() if k != "nodeAffinity"}
    kept_of_nodes = {k: v for k, v in ((affinity or {}).get("nodeAffinity") or {}).items() if k.startswith("preferred")}
    assert after == {**kept, "nodeAffinity": kept_of_nodes}


@pytest.mark.parametrize("odd", [5, "text", {"key": "x"}, [None], True])
def test_expressions_of_no_shape_neither_raise_nor_come_alive(odd: object) -> None:
    fields = [expression("metadata.name", "In", "t4-4x", "t4-2x")]
    subject = memory("5Gi").terms({"matchExpressions": odd, "matchFields": fields})
    assert judge(subject, T4_4X, T4_2X).allowed
    dead = memory("5Gi").terms({"matchExpressions": odd}, where(names=["t4-4x", "t4-2x"]))
    verdict = judge(dead, T4_4X, T4_2X)
    if not isinstance(odd, list):
        assert terms_of(dead, verdict) == [{**where(names=["t4-4x", "t4-2x"]), "matchExpressions": [config("mps-2x")]}]
