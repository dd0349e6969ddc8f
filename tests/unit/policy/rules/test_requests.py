"""Rules about the GPU resources that containers ask for."""

from __future__ import annotations

import pytest

from tests.builders import GPU, LIMIT, PodBuilder, pod
from tests.unit.policy.judging import case_of, lines
from webhook.policy.rules import requests as rules

MIG = "nvidia.com/mig-1g.10gb"
QGPU = "tke.cloud.tencent.com/qgpu-core"


def invalid(problem: str, resource: str = GPU) -> str:
    return (
        f"deny: spec.containers[0].resources (app): {resource}: {problem}: write a whole number under"
        f" limits[{resource}], and the same or nothing under requests [gpu-request-invalid]"
    )


WHOLE = "and GPUs are handed out whole"


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        pytest.param(pod().gpu("0.5"), f"0.5 is a fraction, {WHOLE}", id="fraction"),
        pytest.param(pod().gpu(0.5), f"0.5 is a fraction, {WHOLE}", id="fraction as a number"),
        pytest.param(pod().gpu("500m"), f"500m is a fraction, {WHOLE}", id="milli"),
        pytest.param(pod().gpu("1500m"), f"1500m is a fraction, {WHOLE}", id="one and a half"),
        pytest.param(pod().gpu("-1"), "-1 is negative", id="negative"),
        pytest.param(pod().gpu("one"), "one is no number", id="a word"),
        pytest.param(pod().gpu(True), "true is no number", id="a truth value"),
        pytest.param(pod().gpu({"a": 1}), "a map is no number", id="a map"),
        pytest.param(pod().gpu([[1]]), "a list is no number", id="a list"),
        pytest.param(
            pod().resources(requests={GPU: 1}), "requests ask for 1, but limits say nothing", id="requests alone"
        ),
        pytest.param(
            pod().resources(limits={GPU: None}, requests={GPU: 2}),
            "requests say 2 and limits say 0",
            id="limits null",
        ),
        pytest.param(
            pod().resources(limits={GPU: 3}, requests={GPU: 1}), "requests say 1 and limits say 3", id="different"
        ),
        pytest.param(
            pod().resources(limits={GPU: 0}, requests={GPU: 1}), "requests say 1 and limits say 0", id="limit zero"
        ),
        pytest.param(
            pod().resources(limits={GPU: 1}, requests={GPU: "x"}), "x is no number", id="requests that are none"
        ),
    ],
)
def test_gpu_request_invalid(subject: PodBuilder, problem: str) -> None:
    assert lines(rules.gpu_request_invalid, subject) == [invalid(problem)]
    (container,) = case_of(subject).pod.gpu_containers
    assert container.gpus == 1


@pytest.mark.parametrize("resource", ["nvidia.com/gpu.shared", MIG])
def test_every_gpu_resource(resource: str) -> None:
    assert lines(rules.gpu_request_invalid, pod().gpu("0.5", resource)) == [
        invalid(f"0.5 is a fraction, {WHOLE}", resource)
    ]


@pytest.mark.parametrize(
    ("subject", "gpus"),
    [
        pytest.param(pod().gpu(1), 1, id="number"),
        pytest.param(pod().gpu("2"), 2, id="text"),
        pytest.param(pod().gpu("1000m"), 1, id="1000m is 1"),
        pytest.param(pod().gpu("2k"), 2000, id="kilo"),
        pytest.param(pod().gpu(1.0), 1, id="a float that is whole"),
        pytest.param(pod().resources(limits={GPU: 1}, requests={GPU: "1"}), 1, id="equal"),
        pytest.param(pod().resources(limits={GPU: 1}, requests={GPU: "1000m"}), 1, id="equal in value"),
        pytest.param(pod().gpu(0), 0, id="zero"),
        pytest.param(pod().gpu("0m"), 0, id="zero milli"),
        pytest.param(pod().gpu(5, "amd.com/gpu"), 0, id="another maker's"),
        pytest.param(pod().resources(requests={"cpu": "500m"}), 0, id="no GPU"),
        pytest.param(pod().put(resources=None), 0, id="resources null"),
        pytest.param(pod().put(resources={"limits": [], "requests": "x"}), 0, id="resources of no shape"),
    ],
)
def test_gpu_request_valid(subject: PodBuilder, gpus: int) -> None:
    assert lines(rules.gpu_request_invalid, subject) == []
    assert sum(c.gpus for c in case_of(subject).pod.gpu_containers) == gpus


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        pytest.param(pod().gpu(2).memory("4Gi"), ["memory-limit 4Gi on 2 GPUs"], id="annotation"),
        pytest.param(pod().gpu(3).env(LIMIT, "0=4G"), [f"{LIMIT} 0=4G on 3 GPUs"], id="variable"),
        pytest.param(
            pod().gpu(1).gpu(1, "nvidia.com/gpu.shared").memory("4Gi"), ["memory-limit 4Gi on 2 GPUs"], id="together"
        ),
        pytest.param(pod().gpu(2).threads("20"), [], id="threads alone"),
        pytest.param(pod().gpu(2).env(LIMIT, ""), [], id="empty variable"),
        pytest.param(pod().gpu(1).memory("4Gi").container("b").gpu(1), [], id="one each"),
        pytest.param(pod().gpu(2).container("b").gpu().memory("4Gi", "b"), [], id="another container's limit"),
    ],
)
def test_limit_multi_gpu(subject: PodBuilder, found: list[str]) -> None:
    assert lines(rules.limit_multi_gpu, subject) == [
        f"deny: spec.containers[0] (app): {lead} would hold on the first one only: ask for one GPU a container, or drop"
        " the memory limit [limit-multi-gpu]"
        for lead in found
    ]


@pytest.mark.parametrize(
    ("subject", "denied"),
    [
        pytest.param(pod().gpu(1, MIG).memory("4Gi"), True, id="annotation"),
        pytest.param(pod().gpu(1, MIG).threads("20"), True, id="threads"),
        pytest.param(pod().gpu(1, MIG).env(LIMIT, "0=4G"), True, id="variable"),
        pytest.param(pod().gpu(1, MIG).container("b").gpu().memory("4Gi", "b"), True, id="quota in another container"),
        pytest.param(pod().gpu(1, MIG), False, id="no quota"),
        pytest.param(pod().gpu(1, MIG).host_ipc("true"), False, id="host-ipc is no quota"),
        pytest.param(pod().gpu(0, MIG).gpu().memory("4Gi"), False, id="zero devices"),
        pytest.param(pod().gpu().memory("4Gi"), False, id="no MIG device"),
    ],
)
def test_mig_beside_quota(subject: PodBuilder, denied: bool) -> None:
    message = (
        f"deny: spec.containers[0] (app): an MPS quota beside {MIG}, a MIG device, where MPS does not run: drop the"
        " quota, the MIG device is the limit; or ask for nvidia.com/gpu [mig-excluded]"
    )
    assert lines(rules.mig_beside_quota, subject) == ([message] if denied else [])


@pytest.mark.parametrize(
    ("subject", "beside"),
    [
        pytest.param(pod().gpu(20, QGPU).container("b").gpu(), GPU, id="a GPU in another container"),
        pytest.param(pod().gpu(20, QGPU).gpu(), GPU, id="a GPU in the same container"),
        pytest.param(pod().gpu(20, QGPU).init("b").gpu(1, "nvidia.com/gpu.shared"), "nvidia.com/gpu.shared", id="init"),
        pytest.param(pod().gpu(20, QGPU).memory("4Gi"), "an MPS quota", id="annotation"),
        pytest.param(pod().gpu(20, QGPU).env(LIMIT, "0=4G"), "an MPS quota", id="variable"),
        pytest.param(pod().resources(requests={QGPU: 20}).memory("4Gi"), "an MPS quota", id="requests"),
        pytest.param(pod().gpu(20, QGPU), None, id="alone"),
        pytest.param(pod().gpu(20, QGPU).container("b").gpu(1, MIG), None, id="beside a MIG device"),
        pytest.param(pod().gpu(0, QGPU).gpu(), None, id="zero qGPU is none"),
        pytest.param(pod().gpu().memory("4Gi"), None, id="no qGPU"),
    ],
)
def test_qgpu_beside_gpu(subject: PodBuilder, beside: str | None) -> None:
    message = (
        f"deny: spec.containers[0] (app): qGPU beside {beside} in one pod: no node offers both: use one of the two in a"
        " pod [qgpu-excluded]"
    )
    assert lines(rules.qgpu_beside_gpu, subject) == ([message] if beside else [])


def test_resource_names_are_quoted_in_one_short_line() -> None:
    resource = "nvidia.com/mig-1g\n" + "x" * 500
    subject = pod().gpu("0.5", resource).memory("4Gi")
    for rule in (rules.gpu_request_invalid, rules.mig_beside_quota):
        (line,) = lines(rule, subject)
        assert line.isprintable()
        assert len(line) < 500
