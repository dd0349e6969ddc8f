"""Rules about the annotations themselves."""

from __future__ import annotations

import pytest

from tests.builders import PodBuilder, pod
from tests.unit.policy.judging import judge, lines
from webhook.policy.rules import annotations as rules

WIDE = "metadata.annotations[mps.nvidia.com"


def gpu() -> PodBuilder:
    return pod().gpu()


def memory(problem: str) -> str:
    return f"deny: {WIDE}/memory-limit]: {problem} [invalid-memory-limit]"


def threads(value: str, hint: str) -> str:
    return (
        f'deny: {WIDE}/active-thread-percentage]: "{value}" is no whole number from 1 to 100: {hint}'
        " [invalid-thread-percentage]"
    )


QUANTITY = "write a quantity such as 3Gi or 3072Mi"
PERCENT = "write a whole number from 1 to 100"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("2000mb", '"2000mb" is no Kubernetes quantity: write 2000Mi'),
        ("3 Gi", '"3 Gi" is no Kubernetes quantity: write 3Gi'),
        ("3GiB", '"3GiB" is no Kubernetes quantity: write 3Gi'),
        ("3.5gb", '"3.5gb" is no Kubernetes quantity: write 3.5Gi'),
        (" 3Gi", '" 3Gi" is no Kubernetes quantity: write 3Gi'),
        ("3Gi\n", '"3Gi\ufffd" is no Kubernetes quantity: write 3Gi'),
        ("", f'"" is no Kubernetes quantity: {QUANTITY}'),
        ("lots", f'"lots" is no Kubernetes quantity: {QUANTITY}'),
        ("0x10Gi", f'"0x10Gi" is no Kubernetes quantity: {QUANTITY}'),
        ("3Gi,4Gi", f'"3Gi,4Gi" is no Kubernetes quantity: {QUANTITY}'),
        ("٣Gi", f'"٣Gi" is no Kubernetes quantity: {QUANTITY}'),
        ("0", f'"0" is not above zero: {QUANTITY}'),
        ("-3Gi", f'"-3Gi" is not above zero: {QUANTITY}'),
        ("1023Ki", f'"1023Ki" is less than 1Mi: {QUANTITY}'),
        ("1000m", f'"1000m" is less than 1Mi: {QUANTITY}'),
        ("x" * 60, f'"{"x" * 47}…" is no Kubernetes quantity: {QUANTITY}'),
    ],
)
def test_invalid_memory_limit(value: str, problem: str) -> None:
    assert lines(rules.invalid_value, gpu().memory(value)) == [memory(problem)]


@pytest.mark.parametrize(
    "value", ["1Mi", "1048576", "3Gi", "3072Mi", "3G", "1e9", "1.5Gi", "+3Gi", "8Ei", "3221225473"]
)
def test_valid_memory_limit(value: str) -> None:
    assert lines(rules.invalid_value, gpu().memory(value)) == []


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("50%", "write 50"),
        (" 50", "write 50"),
        ("050", "write 50"),
        ("12.5", "write 12"),
        ("0", PERCENT),
        ("-5", PERCENT),
        ("101", PERCENT),
        ("150%", PERCENT),
        ("", PERCENT),
        ("abc", PERCENT),
        ("1e1", PERCENT),
        ("٥٠", PERCENT),
    ],
)
def test_invalid_thread_percentage(value: str, hint: str) -> None:
    assert lines(rules.invalid_value, gpu().threads(value)) == [threads(value, hint)]


@pytest.mark.parametrize("value", ["1", "25", "100"])
def test_valid_thread_percentage(value: str) -> None:
    assert lines(rules.invalid_value, gpu().threads(value)) == []


@pytest.mark.parametrize("value", ["two", "0", "-1", "1.5", "01", "", " 2", "²", "10000000000"])
def test_invalid_processes(value: str) -> None:
    assert lines(rules.invalid_value, gpu().memory("4Gi").processes(value)) == [
        (
            f'deny: {WIDE}/processes]: "{value}" is no whole number of 1 or more: write how many CUDA processes the'
            " container runs [invalid-processes]"
        )
    ]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("yes", 'write "true"'),
        ("TRUE", 'write "true"'),
        (" 1 ", 'write "true"'),
        ("no", 'write "false"'),
        ("False", 'write "false"'),
        ("", 'write "true" or "false"'),
        ("maybe", 'write "true" or "false"'),
    ],
)
def test_invalid_host_ipc(value: str, hint: str) -> None:
    assert lines(rules.invalid_value, gpu().host_ipc(value)) == [
        f'deny: {WIDE}/host-ipc]: "{value}" is neither "true" nor "false": {hint} [invalid-host-ipc]'
    ]


@pytest.mark.parametrize("value", ["true", "false"])
def test_valid_host_ipc(value: str) -> None:
    assert lines(rules.invalid_value, gpu().host_ipc(value)) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        pytest.param(
            "mps.nvidia.com/host-ipc",
            True,
            f'deny: {WIDE}/host-ipc]: true is no string: put it in quotes: "true" [invalid-host-ipc]',
            id="a truth value",
        ),
        pytest.param(
            "mps.nvidia.com/active-thread-percentage",
            25,
            f"deny: {WIDE}/active-thread-percentage]: 25 is no string: put it in quotes:"
            ' "25" [invalid-thread-percentage]',
            id="a number",
        ),
        pytest.param(
            "memory-limit.mps.nvidia.com/app",
            None,
            "deny: metadata.annotations[memory-limit.mps.nvidia.com/app]: null is no string: write it as one"
            " [invalid-memory-limit]",
            id="null",
        ),
        pytest.param(
            "mps.nvidia.com/processes",
            {"a": ["secret"]},
            f"deny: {WIDE}/processes]: a map is no string: write it as one [invalid-processes]",
            id="a map",
        ),
    ],
)
def test_value_that_is_no_string(key: str, value: object, message: str) -> None:
    assert lines(rules.invalid_value, gpu().annotate(key, value)) == [message]


def test_every_invalid_value_at_once() -> None:
    verdict = judge(gpu().memory("lots").threads("200").processes("two").host_ipc("yes"))
    assert {f.code for f in verdict.findings if f.severity == "deny"} == {
        "invalid-memory-limit",
        "invalid-thread-percentage",
        "invalid-processes",
        "invalid-host-ipc",
    }


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("mps.nvidia.com/memory-limits", "mps.nvidia.com/memory-limit"),
        ("mps.nvidia.com/memory", "mps.nvidia.com/memory-limit"),
        ("mps.nvidia.com/threads", "mps.nvidia.com/active-thread-percentage"),
        ("mps.nvidia.com/Processes", "mps.nvidia.com/processes"),
        ("mps.nvidia.com/hostIPC", "mps.nvidia.com/host-ipc"),
        ("mps.nvidia.com/", "mps.nvidia.com/memory-limit"),
        ("MPS.NVIDIA.com/memory-limit", "mps.nvidia.com/memory-limit"),
        ("memory.mps.nvidia.com/app", "memory-limit.mps.nvidia.com/app"),
        ("Memory-Limit.mps.nvidia.com/app", "memory-limit.mps.nvidia.com/app"),
        ("app.mps.nvidia.com/memory-limit", "memory-limit.mps.nvidia.com/app"),
        ("host-ipc.mps.nvidia.com/app", "processes.mps.nvidia.com/app"),
        ("a.memory-limit.mps.nvidia.com/app", "memory-limit.mps.nvidia.com/app"),
    ],
)
def test_unknown_annotation(key: str, meant: str) -> None:
    found = lines(rules.unknown_annotation, gpu().annotate(key, "3Gi"))
    if key in ("mps.nvidia.com/", "host-ipc.mps.nvidia.com/app"):  # nothing is near: any real key will do
        assert len(found) == 1
        assert found[0].startswith(f"deny: metadata.annotations[{key}]: no such annotation: did you mean ")
    else:
        assert found == [
            f"deny: metadata.annotations[{key}]: no such annotation: did you mean {meant}? [unknown-annotation]"
        ]


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/use-gputype",
        "xmps.nvidia.com/memory-limit",
        "mps.nvidia.com.example.org/memory-limit",
        "mps.nvidia.com",
        "memory-limit.mps.nvidia.com",
        "example.com/mps.nvidia.com",
    ],
)
def test_other_domains_are_left_alone(key: str) -> None:
    verdict = judge(gpu().annotate(key, "3Gi"))
    assert {f.code for f in verdict.findings} == {"no-candidate-node"}


@pytest.mark.parametrize(
    "key", [f"mps.nvidia.com/{'x' * 9000}", f"memory.mps.nvidia.com/{'x' * 9000}", "a.mps.nvidia.com/b\nc"]
)
def test_a_key_of_any_kind_makes_one_short_line(key: str) -> None:
    (line,) = lines(rules.unknown_annotation, gpu().annotate(key, "3Gi"))
    assert line.isprintable()
    assert len(line) < 400


@pytest.mark.parametrize("key", ["mps.nvidia.com/memory-limit", "memory-limit.mps.nvidia.com/app", "MPS.nvidia.com/x"])
def test_misplaced_label(key: str) -> None:
    assert lines(rules.misplaced_label, gpu().label(key, "3Gi")) == [
        (
            f"deny: metadata.labels[{key}]: a label asks for nothing: write it under metadata.annotations"
            " [misplaced-annotation]"
        )
    ]


def test_other_labels_are_left_alone() -> None:
    assert lines(rules.misplaced_label, gpu().label("nvidia.com/gpu", "x").label("app", "mps.nvidia.com/x")) == []


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        pytest.param(
            gpu().memory("1Gi", "z"),
            "metadata.annotations[memory-limit.mps.nvidia.com/z]: there is no container z: the container with a GPU is"
            " app",
            id="absent",
        ),
        pytest.param(
            gpu().container("proxy").threads("5", "proxy"),
            "metadata.annotations[active-thread-percentage.mps.nvidia.com/proxy]: container proxy requests no GPU: the"
            " container with a GPU is app",
            id="no GPU",
        ),
        pytest.param(
            gpu().container("b").gpu().container("c").gpu(0).processes("2", "c"),
            "metadata.annotations[processes.mps.nvidia.com/c]: container c requests no GPU: containers with a GPU are"
            " app, b",
            id="zero GPUs",
        ),
        pytest.param(
            pod().memory("1Gi", "app"),
            "metadata.annotations[memory-limit.mps.nvidia.com/app]: container app requests no GPU: no container of the"
            " pod requests a GPU",
            id="no GPU in the pod",
        ),
        pytest.param(
            gpu().memory("1Gi", "APP"),
            "metadata.annotations[memory-limit.mps.nvidia.com/APP]: there is no container APP: the container with a GPU"
            " is app",
            id="names are compared as they are",
        ),
    ],
)
def test_unknown_container(subject: PodBuilder, message: str) -> None:
    assert lines(rules.unknown_container, subject) == [f"deny: {message} [unknown-container]"]


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(gpu().memory("1Gi", "app"), id="container"),
        pytest.param(gpu().init("load").gpu().memory("1Gi", "load"), id="init container"),
        pytest.param(gpu().sidecar("serve").gpu().memory("1Gi", "serve"), id="sidecar"),
        pytest.param(pod().memory("1Gi"), id="pod-wide"),
    ],
)
def test_known_container(subject: PodBuilder) -> None:
    assert lines(rules.unknown_container, subject) == []


@pytest.mark.parametrize("name", ["memory-limit", "active-thread-percentage", "processes", "host-ipc"])
@pytest.mark.parametrize("subject", [pod(), pod().gpu(0), pod().gpu("0"), pod().gpu(1, "amd.com/gpu")])
def test_quota_without_gpu(name: str, subject: PodBuilder) -> None:
    annotated = PodBuilder()
    annotated._pod = subject.build()
    assert lines(rules.quota_without_gpu, annotated.annotate(f"mps.nvidia.com/{name}", "1")) == [
        (
            f"deny: {WIDE}/{name}]: no container of the pod requests a GPU: add resources.limits[nvidia.com/gpu]: 1 to"
            " the container it is meant for, or drop the annotation [quota-without-gpu]"
        )
    ]


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(pod().memory("1Gi").container("b").gpu(), id="a GPU in any container"),
        pytest.param(pod().memory("1Gi").init("b").gpu(), id="a GPU in an init container"),
        pytest.param(pod().memory("1Gi").gpu(1, "nvidia.com/gpu.shared"), id="renamed"),
        pytest.param(pod().memory("1Gi").gpu(1, "nvidia.com/mig-1g.10gb"), id="a MIG device"),
        pytest.param(pod(), id="no annotation"),
        pytest.param(pod().annotate("mps.nvidia.com/other", "1"), id="an unknown key has its own finding"),
    ],
)
def test_quota_with_gpu(subject: PodBuilder) -> None:
    assert lines(rules.quota_without_gpu, subject) == []


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        pytest.param(
            gpu().processes("4"),
            [
                (
                    f"deny: {WIDE}/processes]: container app has no memory-limit annotation to divide among its"
                    " processes: add mps.nvidia.com/memory-limit, or drop processes [invalid-processes]"
                )
            ],
            id="alone",
        ),
        pytest.param(
            gpu().processes("4").env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G").container("b").gpu(),
            [
                (
                    f"deny: {WIDE}/processes]: container app, b has no memory-limit annotation to divide among its"
                    " processes: add mps.nvidia.com/memory-limit, or drop processes [invalid-processes]"
                )
            ],
            id="a variable is none",
        ),
        pytest.param(
            gpu().processes("4", "app").container("b").gpu().memory("4Gi", "b"),
            [
                (
                    "deny: metadata.annotations[processes.mps.nvidia.com/app]: container app has no memory-limit"
                    " annotation to divide among its processes: add mps.nvidia.com/memory-limit, or drop processes"
                    " [invalid-processes]"
                )
            ],
            id="another container's",
        ),
        pytest.param(gpu().processes("4").memory("4Gi"), [], id="beside memory"),
        pytest.param(gpu().processes("4", "app").memory("4Gi"), [], id="own processes, pod-wide memory"),
        pytest.param(gpu().processes("4").memory("4Gi", "app"), [], id="pod-wide processes, own memory"),
        pytest.param(gpu().processes("4").memory("lots"), [], id="unreadable memory has its own finding"),
    ],
)
def test_processes_without_memory(subject: PodBuilder, found: list[str]) -> None:
    assert lines(rules.processes_without_memory, subject) == found


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        pytest.param(
            gpu().memory("3Mi").processes("4"),
            [
                (
                    "deny: spec.containers[0] (app): among 4 processes, memory-limit 3Mi leaves each less than 1Mi: ask"
                    " for at most 3 processes [invalid-processes]"
                )
            ],
            id="memory",
        ),
        pytest.param(
            gpu().memory("4Gi").threads("3").processes("4"),
            [
                (
                    "deny: spec.containers[0] (app): among 4 processes, 3% of the threads leaves each less than 1%: ask"
                    " for at most 3 processes [invalid-processes]"
                )
            ],
            id="threads",
        ),
        pytest.param(gpu().memory("4Mi").threads("4").processes("4"), [], id="exactly one each"),
        pytest.param(gpu().memory("1Mi"), [], id="one process"),
    ],
)
def test_division_gives_zero(subject: PodBuilder, found: list[str]) -> None:
    assert lines(rules.division_gives_zero, subject) == found


@pytest.mark.parametrize(
    ("subject", "conflict"),
    [
        pytest.param(gpu().host_ipc("false").spec(hostIPC=True), True, id="false beside true"),
        pytest.param(gpu().host_ipc("false"), False, id="false alone"),
        pytest.param(gpu().host_ipc("false").spec(hostIPC=False), False, id="false beside false"),
        pytest.param(gpu().host_ipc("true").spec(hostIPC=True), False, id="true beside true"),
        pytest.param(gpu().spec(hostIPC=True), False, id="no annotation"),
        pytest.param(gpu().host_ipc("nope").spec(hostIPC=True), False, id="unreadable"),
    ],
)
def test_host_ipc_contradiction(subject: PodBuilder, conflict: bool) -> None:
    message = (
        f'deny: {WIDE}/host-ipc]: the annotation says "false" and spec.hostIPC is true: drop one of the two'
        " [env-conflict]"
    )
    assert lines(rules.host_ipc_contradiction, subject) == ([message] if conflict else [])
