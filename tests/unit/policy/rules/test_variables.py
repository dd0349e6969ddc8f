"""Rules about the MPS variables that a pod carries already."""

from __future__ import annotations

import pytest

from tests.builders import LIMIT, THREADS, PodBuilder, inventory, pod
from tests.unit.policy.judging import lines
from webhook.policy.rules import variables as rules

APP = f"spec.containers[0].env[{LIMIT}] (app)"
APP_THREADS = f"spec.containers[0].env[{THREADS}] (app)"


def limit(value: str) -> PodBuilder:
    return pod().gpu().env(LIMIT, value)


def threads(value: str) -> PodBuilder:
    return pod().gpu().env(THREADS, value)


@pytest.mark.parametrize(
    "value",
    [
        "0=4096",
        "0=4294967296",
        "0=4194304K",
        "0=2T",
        "0=1.5G",
        "0=4 G",
        "0 = 4G",
        " 0=4G",
        "0=4G ",
        "0=4G\n",
        ",0=4G",
        "0=4G,",
        "0=4G,1=4G",
        "0=4G,0=2G",
        "0=4G;1=4G",
        "1=4G",
        "00=4G",
        "0:4G",
        "0=0",
        "0=0M",
        "0=000G",
        "0=-1G",
        "0=+1G",
        "0",
        "0M",
        "1048575",
        "-4294967296",
        "4.5G",
        "4T",
        "4K",
        "4 G",
        "garbage",
        "''0=5GB''",
        "“0=1G”",
        "GPU-01234567-89ab-cdef-0123-456789abcdef=4G",
        "0=99999999999G",
        "99999999999G",
        "0=٤G",
        "0=4GiBs",
        "0=M",
        " ",
    ],
)
def test_invalid_limit_variable(value: str) -> None:
    shown = value.replace("\n", "\ufffd")
    assert lines(rules.invalid_limit_variable, limit(value)) == [
        (
            f'deny: {APP}: "{shown}" is not a form that MPS enforces; it would remove or shrink every limit: write'
            " 0=<whole number>M, such as 0=3072M, or use the annotation mps.nvidia.com/memory-limit"
            " [invalid-limit-variable]"
        )
    ]


@pytest.mark.parametrize(
    "value",
    ["0=3072M", "0=3072m", "0=3072MB", "0=3072Mi", "0=3072MiB", "0=3G", "0=3gb", "0=3Gi", "0=3gIb", "0=03G", "0=1M"],
)
def test_enforced_limit_variable(value: str) -> None:
    for rule in (rules.invalid_limit_variable, rules.limit_rewritten):
        assert lines(rule, limit(value)) == []


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(limit(""), id="empty counts as unset"),
        pytest.param(pod().gpu().entry({"name": LIMIT}), id="no value"),
        pytest.param(pod().gpu().entry({"name": LIMIT, "value": None}), id="value null"),
        pytest.param(pod().gpu().entry({"name": LIMIT, "valueFrom": None}), id="valueFrom null"),
        pytest.param(pod().env(LIMIT, "garbage"), id="no GPU"),
        pytest.param(pod().gpu().env(LIMIT + "X", "garbage"), id="another variable"),
    ],
)
def test_unset_limit_variable(subject: PodBuilder) -> None:
    assert lines(rules.invalid_limit_variable, subject) == []
    assert lines(rules.limit_rewritten, subject) == []
    assert lines(rules.env_unverifiable, subject) == []


@pytest.mark.parametrize(
    ("value", "mib"),
    [
        ("4294967296", 4096),
        ("2147483648", 2048),
        ("1048576", 1),
        ("2097151", 1),
        ("4G", 4096),
        ("4GB", 4096),
        ("4Gi", 4096),
        ("4gib", 4096),
        ("4096MB", 4096),
        ("4096m", 4096),
    ],
)
def test_limit_rewritten(value: str, mib: int) -> None:
    assert lines(rules.limit_rewritten, limit(value)) == [
        (
            f'warn: {APP}: "{value}" names no device, so MPS would drop every limit; it becomes 0={mib}M: write it that'
            " way yourself [limit-rewritten]"
        )
    ]
    assert lines(rules.invalid_limit_variable, limit(value)) == []


def test_a_conflicting_limit_is_not_rewritten() -> None:
    assert lines(rules.limit_rewritten, limit("4G").memory("3Gi")) == []
    assert len(lines(rules.limit_rewritten, limit("3G").memory("3Gi"))) == 1


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "0.0",
        "00",
        "-5",
        "101",
        "100.1",
        "150",
        "1000",
        "abc",
        "25%",
        "025",
        "+25",
        "0x19",
        "1e1",
        ".5",
        "5.",
        "25,5",
        "nan",
        "inf",
        "٢٥",
        " 25",
        "25 ",
        "25\n",
    ],
)
def test_invalid_thread_variable(value: str) -> None:
    shown = value.replace("\n", "\ufffd")
    assert lines(rules.invalid_thread_variable, threads(value)) == [
        (
            f'deny: {APP_THREADS}: "{shown}" is no plain number above 0 and up to 100: write a number such as 25'
            " [invalid-thread-variable]"
        )
    ]


@pytest.mark.parametrize("value", ["", "1", "25", "25.0", "12.5", "0.5", "99.99", "100", "100.0"])
def test_valid_thread_variable(value: str) -> None:
    assert lines(rules.invalid_thread_variable, threads(value)) == []


def test_thread_variable_without_a_gpu_is_nobody_s_business() -> None:
    assert lines(rules.invalid_thread_variable, pod().env(THREADS, "25%")) == []


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        pytest.param(
            limit("0=2G").memory("3Gi"),
            [f"deny: {APP}: 2Gi here, but memory-limit 3Gi asks for 3Gi: drop one of the two [env-conflict]"],
            id="memory",
        ),
        pytest.param(
            limit("0=4G").memory("4Gi").processes("4"),
            [
                (
                    f"deny: {APP}: 4Gi here, but memory-limit 4Gi over 4 processes asks for 1Gi: drop one of the two"
                    " [env-conflict]"
                )
            ],
            id="the undivided memory",
        ),
        pytest.param(
            limit("4294967296").memory("4095Mi"),
            [f"deny: {APP}: 4Gi here, but memory-limit 4095Mi asks for 4095Mi: drop one of the two [env-conflict]"],
            id="bytes",
        ),
        pytest.param(
            threads("12.5").threads("25"),
            [f"deny: {APP_THREADS}: 12.5 here, but the annotation asks for 25: drop one of the two [env-conflict]"],
            id="threads",
        ),
        pytest.param(
            threads("20").threads("20").memory("4Gi").processes("4"),
            [
                (
                    f"deny: {APP_THREADS}: 20 here, but the annotation over 4 processes asks for 5: drop one of the two"
                    " [env-conflict]"
                )
            ],
            id="the undivided threads",
        ),
        pytest.param(
            limit("0=2G").env(THREADS, "10").memory("3Gi").threads("20"),
            [
                f"deny: {APP}: 2Gi here, but memory-limit 3Gi asks for 3Gi: drop one of the two [env-conflict]",
                f"deny: {APP_THREADS}: 10 here, but the annotation asks for 20: drop one of the two [env-conflict]",
            ],
            id="both",
        ),
        pytest.param(
            limit("0=1G").memory("3Gi").memory("2Gi", "app"),
            [f"deny: {APP}: 1Gi here, but memory-limit 2Gi asks for 2Gi: drop one of the two [env-conflict]"],
            id="the container's own annotation",
        ),
        pytest.param(limit("0=3G").memory("3Gi"), [], id="another spelling"),
        pytest.param(limit("3G").memory("3072Mi"), [], id="without a device"),
        pytest.param(limit("0=2861M").memory("3G"), [], id="the floor of a decimal quantity"),
        pytest.param(limit("0=1G").memory("4Gi").processes("4"), [], id="the divided memory"),
        pytest.param(threads("25.0").threads("25"), [], id="threads spelled otherwise"),
        pytest.param(limit("").memory("3Gi").env(THREADS, "").threads("20"), [], id="empty"),
        pytest.param(limit("garbage").memory("3Gi"), [], id="unreadable variable has its own finding"),
        pytest.param(limit("0=2G").memory("lots"), [], id="unreadable annotation has its own finding"),
        pytest.param(limit("0=2G").threads("20"), [], id="different things"),
        pytest.param(limit("0=2G").container("b").gpu().memory("3Gi", "b"), [], id="another container's annotation"),
    ],
)
def test_env_conflict(subject: PodBuilder, found: list[str]) -> None:
    assert lines(rules.env_conflict, subject) == found


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        pytest.param(limit("0=1G").env(LIMIT, "0=2G"), [(APP, 2)], id="different"),
        pytest.param(limit("0=1G").env(LIMIT, "0=1G").env(LIMIT, ""), [(APP, 3)], id="three times"),
        pytest.param(
            limit("0=1G").env(LIMIT, "0=1G").env(THREADS, "5").env(THREADS, "5"),
            [(APP, 2), (APP_THREADS, 2)],
            id="both",
        ),
        pytest.param(limit("0=1G").env("X", "1").env("X", "1"), [], id="others are nobody's business"),
        pytest.param(limit("0=1G").container("b").gpu().env(LIMIT, "0=1G"), [], id="once in each container"),
        pytest.param(pod().env(LIMIT, "0=1G").env(LIMIT, "0=1G"), [], id="no GPU"),
    ],
)
def test_env_duplicate(subject: PodBuilder, found: list[tuple[str, int]]) -> None:
    assert lines(rules.env_duplicate, subject) == [
        f"deny: {where}: set {times} times, and which one holds depends: keep one of them [env-duplicate]"
        for where, times in found
    ]


FROM_MAP = {"valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(FROM_MAP, id="valueFrom"),
        pytest.param({"value": "0=1G", **FROM_MAP}, id="valueFrom beside a value"),
        pytest.param({"value": "$(L)"}, id="a reference"),
        pytest.param({"value": "0=$(GB)G"}, id="a reference inside"),
        pytest.param({"value": 3}, id="a number"),
    ],
)
@pytest.mark.parametrize(("name", "where"), [(LIMIT, APP), (THREADS, APP_THREADS)])
def test_env_unverifiable(entry: dict[str, object], name: str, where: str) -> None:
    assert lines(rules.env_unverifiable, pod().gpu().entry({"name": name, **entry})) == [
        (
            f"deny: {where}: its value comes from elsewhere (valueFrom or $(...)) and cannot be checked: write the"
            " value itself as a string, or use the annotations of mps.nvidia.com [env-unverifiable]"
        )
    ]


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(limit("0=1G"), id="plain"),
        pytest.param(pod().gpu().entry({"name": "X", **FROM_MAP}), id="another variable"),
        pytest.param(pod().entry({"name": LIMIT, **FROM_MAP}), id="no GPU"),
        pytest.param(pod().gpu().put(envFrom=[{"configMapRef": {"name": "x"}}]), id="envFrom is not judged"),
        pytest.param(pod().gpu().put(env="text"), id="env is no list"),
        pytest.param(pod().gpu().put(env=[None, 3, {"value": "x"}, {"name": None}]), id="entries that are none"),
    ],
)
def test_env_verifiable(subject: PodBuilder) -> None:
    assert lines(rules.env_unverifiable, subject) == []


@pytest.mark.parametrize(
    ("subject", "where"),
    [
        pytest.param(pod().env(LIMIT, "0=1G"), f"{APP}", id="container"),
        pytest.param(pod().gpu(0).env(LIMIT, "0=1G"), f"{APP}", id="zero GPUs"),
        pytest.param(
            pod().gpu().container("b").env(LIMIT, "x"), f"spec.containers[1].env[{LIMIT}] (b)", id="beside a GPU"
        ),
        pytest.param(
            pod().gpu().init("load").env(LIMIT, "0=1G"), f"spec.initContainers[0].env[{LIMIT}] (load)", id="init"
        ),
        pytest.param(limit("0=1G"), None, id="with a GPU"),
        pytest.param(limit("0=1G").gpu(0).gpu(1, "nvidia.com/mig-1g.10gb"), None, id="with a MIG device"),
        pytest.param(pod().env(THREADS, "25"), None, id="threads are harmless"),
    ],
)
def test_limit_without_gpu(subject: PodBuilder, where: str | None) -> None:
    message = (
        f"warn: {where}: the container requests no GPU, so the limit limits nothing: move it to the container with the"
        " GPU, or drop it [limit-without-gpu]"
    )
    assert lines(rules.limit_without_gpu, subject) == ([message] if where else [])


BEGIN = "spec.containers[0] (app): "
END = "[memory-below-minimum]"


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        pytest.param(
            pod().gpu().memory("100Mi"),
            [
                (
                    f"deny: {BEGIN}memory-limit 100Mi gives 100Mi, but the minimum is 256Mi: ask for at least 256Mi,"
                    f" the CUDA context comes off it {END}"
                )
            ],
            id="annotation",
        ),
        pytest.param(
            limit("0=255M"),
            [
                (
                    f"deny: {BEGIN}{LIMIT} 0=255M gives 255Mi, but the minimum is 256Mi: ask for at least 256Mi, the"
                    f" CUDA context comes off it {END}"
                )
            ],
            id="variable",
        ),
        pytest.param(
            pod().gpu().memory("1Gi").processes("8"),
            [
                (
                    f"deny: {BEGIN}memory-limit 1Gi gives 128Mi a process, but the minimum is 256Mi: ask for at least"
                    f" 2Gi, the CUDA context comes off it {END}"
                )
            ],
            id="each process",
        ),
        pytest.param(
            pod().gpu().memory("500Mi").processes("2"),
            [
                (
                    f"deny: {BEGIN}memory-limit 500Mi gives 250Mi a process, but the minimum is 256Mi: ask for at least"
                    f" 512Mi, the CUDA context comes off it {END}"
                )
            ],
            id="each of two processes",
        ),
        pytest.param(pod().gpu().memory("256Mi"), [], id="exactly the minimum"),
        pytest.param(pod().gpu().memory("1Gi"), [], id="exactly a GiB"),
        pytest.param(limit(""), [], id="unset"),
        pytest.param(pod().gpu().threads("10"), [], id="no memory asked"),
        pytest.param(pod().memory("100Mi"), [], id="no GPU"),
    ],
)
def test_memory_below_minimum(subject: PodBuilder, found: list[str]) -> None:
    assert lines(rules.memory_below_minimum, subject) == found


def test_the_minimum_is_a_setting() -> None:
    at = inventory(minimum_memory_mib=64)
    assert lines(rules.memory_below_minimum, pod().gpu().memory("63Mi"), at)[0].startswith("deny: ")
    assert lines(rules.memory_below_minimum, pod().gpu().memory("64Mi"), at) == []
