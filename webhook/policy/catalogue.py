"""Every code a finding can carry: how severe it is, what leads to it and what would do.

A message tells one person about one pod; an entry here tells the rest of the story once. ``docs/findings.md`` is made
from this table, and a test holds it against the codes that the policy can emit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from webhook.policy.findings import Severity

Topic = Literal["annotations", "variables", "requests", "nodes", "placement", "pod"]

TOPICS: Mapping[Topic, str] = MappingProxyType(
    {
        "annotations": "What the annotations say",
        "variables": "What the MPS variables say",
        "requests": "What the containers request",
        "nodes": "What the nodes can give",
        "placement": "Where the pod may land",
        "pod": "What leads past MPS or the device plugin",
    }
)
"""Headings by topic, in the order in which they are to be read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One code. ``severities`` are those it can come with; where there are two, ``cause`` says when which."""

    code: str
    topic: Topic
    severities: tuple[Severity, ...]
    cause: str
    way_out: str


_DENY: tuple[Severity, ...] = ("deny",)
_WARN: tuple[Severity, ...] = ("warn",)
_BOTH: tuple[Severity, ...] = ("deny", "warn")

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "invalid-memory-limit",
        "annotations",
        _DENY,
        "A memory-limit annotation that is no Kubernetes quantity above zero of at least 1Mi, or no string.",
        "Write a quantity such as `3Gi` or `3072Mi`.",
    ),
    Entry(
        "invalid-thread-percentage",
        "annotations",
        _DENY,
        "An active-thread-percentage annotation that is no whole number from 1 to 100, or no string.",
        'Write a whole number in quotes, such as `"25"`.',
    ),
    Entry(
        "invalid-processes",
        "annotations",
        _DENY,
        "A processes annotation that is no whole number of 1 or more or no string, that has no memory-limit "
        "annotation to divide, or that leaves each process less than 1Mi or less than 1 % of the threads.",
        "Write how many CUDA processes the container runs, beside a memory limit that is enough for all of them.",
    ),
    Entry(
        "invalid-host-ipc",
        "annotations",
        _DENY,
        "A host-ipc annotation that is neither `true` nor `false`, or no string.",
        'Write `"true"` or `"false"` in quotes; or leave it out, MPS works without host IPC.',
    ),
    Entry(
        "unknown-annotation",
        "annotations",
        _DENY,
        "A key of the domain mps.nvidia.com, in any case of letters, that is none of its annotations. Ignored, it "
        "would leave the pod without the limit that its author believes in.",
        "Correct the key; the message names the nearest one.",
    ),
    Entry(
        "unknown-container",
        "annotations",
        _DENY,
        "An annotation for one container that the pod does not have, or that requests no GPU.",
        "Name a container with a GPU; the message lists them.",
    ),
    Entry(
        "quota-without-gpu",
        "annotations",
        _DENY,
        "A pod-wide annotation on a pod of which no container requests a GPU.",
        "Request `nvidia.com/gpu: 1` under the limits of the container that is meant, or drop the annotation.",
    ),
    Entry(
        "misplaced-annotation",
        "annotations",
        _DENY,
        "A key of the domain on the metadata of a workload, from where it does not reach the pods, or as a label.",
        "Write it under the annotations of the pod, in a workload of its pod template.",
    ),
    Entry(
        "quota-immutable",
        "annotations",
        _DENY,
        "An update adds, changes or removes a key of the domain on a pod that exists. The variables of a running pod "
        "cannot be changed, so the annotation would no longer say what is enforced.",
        "Delete the pod and create it anew.",
    ),
    Entry(
        "invalid-limit-variable",
        "variables",
        _DENY,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in a form that MPS ignores or misreads. Ignored, it removes every limit, the "
        "default of the share included (measured).",
        "Write `0=<whole number>M`, such as `0=3072M`, or use the annotation `mps.nvidia.com/memory-limit`.",
    ),
    Entry(
        "limit-rewritten",
        "variables",
        _WARN,
        "The same variable with a plain size and no device (`4G`, `4294967296`), which would remove every limit: it is "
        "rewritten to `0=<n>M`.",
        "Write it that way yourself.",
    ),
    Entry(
        "invalid-thread-variable",
        "variables",
        _DENY,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE that is neither empty nor a plain decimal number above 0 and up to 100.",
        "Write a number such as `25`.",
    ),
    Entry(
        "env-conflict",
        "variables",
        _DENY,
        "An annotation and what the spec already says (a variable, or `hostIPC`) differ in value. Another spelling of "
        "the same value is no conflict. With several processes the variable is compared with one process's part.",
        "Drop one of the two.",
    ),
    Entry(
        "env-duplicate",
        "variables",
        _DENY,
        "An MPS variable is set more than once in one container.",
        "Keep one of them.",
    ),
    Entry(
        "env-unverifiable",
        "variables",
        _DENY,
        "The value of an MPS variable cannot be seen at admission: it comes by `valueFrom`, or refers to another "
        "variable with `$(...)`.",
        "Write the value itself, or use the annotations.",
    ),
    Entry(
        "limit-without-gpu",
        "variables",
        _WARN,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT on a container that requests no GPU, where it limits nothing.",
        "Move it to the container with the GPU, or drop it.",
    ),
    Entry(
        "memory-below-minimum",
        "variables",
        _BOTH,
        "Denied: the limit of one process is below the setting `minimum_memory`, or not above what the CUDA context "
        "takes on a card where that was measured. Warned about: it is less than 1Gi, of which the context and a "
        "framework leave little.",
        "Ask for 1Gi or more for each process, or measure what the program needs.",
    ),
    Entry(
        "undone",
        "variables",
        _DENY,
        "Between mutation and validation somebody removed or changed what the webhook had set.",
        "Find the other admission webhook that changes it.",
    ),
    Entry(
        "gpu-request-invalid",
        "requests",
        _DENY,
        "A GPU resource with a fraction, a negative or unreadable amount, requests without limits, or requests that "
        "differ from limits.",
        "Write a whole number under limits, and the same or nothing under requests.",
    ),
    Entry(
        "limit-multi-gpu",
        "requests",
        _DENY,
        "A memory limit on a container with more than one GPU: the enforced form names device 0, the others would stay "
        "without a limit.",
        "Ask for one GPU a container, or drop the memory limit.",
    ),
    Entry(
        "mig-excluded",
        "requests",
        _DENY,
        "A quota in a pod that asks for a MIG device, or on nodes that are cut with MIG, where MPS does not run.",
        "Drop the quota, since the MIG device is the limit; or ask for `nvidia.com/gpu` on nodes that share with MPS.",
    ),
    Entry(
        "qgpu-excluded",
        "requests",
        _DENY,
        "qGPU beside `nvidia.com/gpu` or beside a quota in one pod, or a quota on nodes that offer qGPU. The two "
        "exclude each other on a node.",
        "Use one of the two in a pod, and nodes that share with MPS for a quota.",
    ),
    Entry(
        "memory-over-budget",
        "nodes",
        _DENY,
        "The memory limit times the number of shares is more than the card has: one pod would take its neighbours' "
        "memory.",
        "Ask for at most what the message names, or use a config with fewer shares.",
    ),
    Entry(
        "threads-over-share",
        "nodes",
        _BOTH,
        "Denied for an annotation, warned about for a variable of the user's own: more threads than 100 divided by the "
        "number of shares. The MPS daemon would cap it without a word.",
        "Ask for at most what the message names, or use a config with fewer shares.",
    ),
    Entry(
        "gpu-count-over-share",
        "nodes",
        _DENY,
        "More than one GPU in a container where the config hands out one share a container "
        "(`failRequestsGreaterThanOne`). The kubelet would fail the pod after it was placed.",
        "Ask for 1, or use a config that hands out whole cards.",
    ),
    Entry(
        "too-many-clients",
        "nodes",
        _DENY,
        "Shares times processes is more than one MPS daemon serves: 48, and 16 below compute capability 7.5.",
        "Run fewer processes a container, or use a config with fewer shares.",
    ),
    Entry(
        "not-shared",
        "nodes",
        _DENY,
        "A quota on nodes whose config does not share with MPS. Nothing would enforce it.",
        "Pin a config that shares with MPS, or drop the quota.",
    ),
    Entry(
        "pre-volta",
        "nodes",
        _DENY,
        "A quota on cards of a compute capability below 7.0, where MPS knows no limits.",
        "Use newer cards, or drop the quota.",
    ),
    Entry(
        "memory-unknown",
        "nodes",
        _WARN,
        "The memory of the card is not known on some of the nodes, so the budget could not be checked there.",
        "Label the nodes with `nvidia.com/gpu.memory`, or set `gpu_memory` in the webhook's settings.",
    ),
    Entry(
        "config-drift",
        "nodes",
        _WARN,
        "A node's labels disagree with the config it is labelled with: it is switching, or one of its components is "
        "stuck. Judged by the config, with the larger number of shares.",
        "Wait a minute; if it stays, look at the device plugin and at GPU feature discovery on that node.",
    ),
    Entry(
        "unknown-config",
        "nodes",
        _WARN,
        "A node is labelled with a config that the ConfigMap does not have. Judged by its other labels, and as a node "
        "that does not share where those say nothing.",
        "Correct the node's label, or add the config to the ConfigMap.",
    ),
    Entry(
        "shm-shadowed",
        "nodes",
        _WARN,
        "A GPU container mounts a volume of its own at /dev/shm, where the device plugin mounts the MPS daemon's.",
        "Mount it elsewhere.",
    ),
    Entry(
        "steered",
        "placement",
        _WARN,
        "The pod fits only some of the nodes that it could land on: node affinity was added, so that only those "
        "remain.",
        "Nothing has to be done. To choose yourself, pin `nvidia.com/device-plugin.config` in the nodeSelector.",
    ),
    Entry(
        "mixed-candidates",
        "placement",
        _BOTH,
        "The pod fits only some of the nodes that it could land on. Denied: the setting `placement` is `deny`, or node "
        "labels cannot tell the nodes apart, or it is a DaemonSet, whose pods go to every node. Warned about: "
        "`placement` is `off`.",
        "Pin a config that fits in the nodeSelector, or another label that only fitting nodes have.",
    ),
    Entry(
        "no-candidate-node",
        "placement",
        _BOTH,
        "No known GPU node can take the pod at the moment. Denied where the setting `no_candidate` is `deny` and no "
        "expected profile of the settings matches, else warned about.",
        "Check nodeSelector, affinity, tolerations and the number of GPUs; or wait for a node to join.",
    ),
    Entry(
        "daemon-bypass",
        "pod",
        _DENY,
        "CUDA_MPS_PIPE_DIRECTORY, CUDA_MPS_LOG_DIRECTORY or CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING "
        "on a GPU container, or on a debug container beside one: they lead away from the MPS daemon or switch its "
        "thread limit off.",
        "Drop the variable; the device plugin sets the directories.",
    ),
    Entry(
        "device-bypass",
        "pod",
        _BOTH,
        "NVIDIA_VISIBLE_DEVICES other than empty, `none` or `void`: it opens cards that the device plugin did not hand "
        "out. Denied on a GPU container and on a debug container beside one; elsewhere the setting `device_bypass` "
        "says.",
        "Drop it and request a GPU, or write `none`.",
    ),
    Entry(
        "cuda-devices-hidden",
        "pod",
        _DENY,
        "CUDA_VISIBLE_DEVICES other than `0` on a container with one GPU, which is device 0: CUDA would find none.",
        "Drop it, or write `0`.",
    ),
    Entry(
        "connections-raised",
        "pod",
        _WARN,
        "CUDA_DEVICE_MAX_CONNECTIONS above 2 on a GPU container: fewer MPS clients fit on the card, and its "
        "neighbours are among them (measured).",
        "Leave it at 2 or unset.",
    ),
    Entry(
        "host-ipc-forbidden",
        "pod",
        _DENY,
        "The host-ipc annotation in a namespace where Pod Security enforces baseline or restricted, or that the "
        "setting `host_ipc_namespaces` leaves out.",
        "Drop the annotation; MPS works without host IPC.",
    ),
    Entry(
        "host-ipc-not-needed",
        "pod",
        _WARN,
        "`hostIPC: true` in the spec of a GPU pod, without the annotation. MPS works without it (measured).",
        "Drop it.",
    ),
    Entry(
        "privileged-container",
        "pod",
        _WARN,
        "A privileged container in a pod with a quota: it reaches every card of the node, past any quota.",
        "Drop privileged.",
    ),
)
"""All of them, by topic."""

CATALOGUE: Mapping[str, Entry] = MappingProxyType({entry.code: entry for entry in ENTRIES})
"""The same by code."""
