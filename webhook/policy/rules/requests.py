"""Rules about the GPU resources that containers ask for."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.policy import mps
from webhook.policy.annotations import HOST_IPC
from webhook.policy.case import Case, Rule
from webhook.policy.deviceplugin import GPU, GPU_SHARED, MIG_PREFIX
from webhook.policy.findings import Finding
from webhook.policy.pod import Container, shown


def gpu_request_invalid(case: Case) -> Iterator[Finding]:
    """A fraction, a negative number, requests without limits or unlike them. The other rules then judge one GPU."""
    for container in case.pod.gpu_containers:
        for request in container.requests:
            if request.problem:
                yield Finding(
                    "gpu-request-invalid",
                    "deny",
                    f"{container.path}.resources",
                    f"{shown(request.resource)}: {request.problem}",
                    f"write a whole number under limits[{shown(request.resource)}], and the same or nothing under "
                    "requests",
                    shown(container.name),
                )


def limit_multi_gpu(case: Case) -> Iterator[Finding]:
    """A memory limit on a container with several GPUs: the form that is sure to be enforced names device 0 alone."""
    for quota in case.quotas:
        if quota.memory_mib and quota.container.gpus > 1:
            yield Finding(
                "limit-multi-gpu",
                "deny",
                quota.container.path,
                f"{quota.memory_source} on {quota.container.gpus} GPUs would hold on the first one only",
                "ask for one GPU a container, or drop the memory limit",
                shown(quota.container.name),
            )


def mig_beside_quota(case: Case) -> Iterator[Finding]:
    """mig-excluded: a quota in a pod that asks for MIG devices; MPS does not run on them."""
    if case.has_quota:
        for container in case.pod.gpu_containers:
            for request in container.requests:
                if request.resource.startswith(MIG_PREFIX):
                    yield Finding(
                        "mig-excluded",
                        "deny",
                        container.path,
                        f"an MPS quota beside {shown(request.resource)}, a MIG device, where MPS does not run",
                        "drop the quota, the MIG device is the limit; or ask for nvidia.com/gpu",
                        shown(container.name),
                    )


def qgpu_beside_gpu(case: Case) -> Iterator[Finding]:
    """qgpu-excluded: qGPU beside nvidia.com/gpu or beside a quota in one pod; they exclude each other on a node."""
    for container in case.pod.containers:
        if container.qgpu and (beside := _beside_qgpu(case, container)):
            yield Finding(
                "qgpu-excluded",
                "deny",
                container.path,
                f"qGPU beside {beside} in one pod: no node offers both",
                "use one of the two in a pod",
                shown(container.name),
            )


def _beside_qgpu(case: Case, container: Container) -> str | None:
    for request in (r for c in case.pod.gpu_containers for r in c.requests):
        if request.resource in (GPU, GPU_SHARED):
            return request.resource
    asked = any(key.name != HOST_IPC for key in case.annotations.values)
    return "an MPS quota" if asked or container.variables(mps.MEMORY_LIMIT) else None


RULES: tuple[Rule, ...] = (gpu_request_invalid, limit_multi_gpu, mig_beside_quota, qgpu_beside_gpu)
