"""Objects by chance: JSON of any shape, pods nearly as people write them, recordings with parts replaced."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.builders import CONFIGS, LIMIT, THREADS
from webhook.policy import Inventory, Namespace, Settings, project_node
from webhook.policy.fleet import Fleet
from webhook.policy.nodes import CONFIG_LABEL, MEMORY_LABEL

FIXTURES = Path(__file__).parents[2] / "fixtures"
NODES: list[dict[str, Any]] = json.loads((FIXTURES / "cases" / "nodes.json").read_text())["items"]
RECORDINGS: list[dict[str, Any]] = [
    json.loads(p.read_text())["request"] for p in sorted((FIXTURES / "admission-reviews").glob("*.json"))
]

RESOURCES = ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "tke.cloud.tencent.com/qgpu-core"]
KEYS = [
    f"mps.nvidia.com/{n}" for n in ("memory-limit", "active-thread-percentage", "processes", "host-ipc", "memory")
] + [f"{n}.mps.nvidia.com/{c}" for n in ("memory-limit", "active-thread-percentage", "processes") for c in "ab"]
WORDS = [
    "", "0", "1", "2", "4", "25", "100", "101", "-1", "0.5", "1000m", "3Gi", "3G", "300Mi", "40Gi", "3GiB", "true",
    "false", "all", "none", "0=3G", "0=3072M", "4G", "4294967296", "0=0", "1=2G", "$(X)", "\n", "\u202e", "a",
    "b", "Always", "In", "mps-2x", "mps-4x", "linux", "/dev/shm", *RESOURCES, *KEYS, LIMIT, THREADS,
    CONFIG_LABEL, "NVIDIA_VISIBLE_DEVICES",
]  # fmt: skip

scalars = st.none() | st.booleans() | st.integers(-3, 70) | st.floats(allow_nan=False) | st.sampled_from(WORDS)
texts = st.sampled_from(WORDS) | st.text(max_size=8)
anything = st.recursive(
    scalars | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def absent_or(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Now and then null instead."""
    return st.one_of(strategy, strategy, strategy, st.none())


sizes = st.tuples(st.integers(1, 24), st.sampled_from(["Gi", "G"])).map(lambda p: f"{p[0]}{p[1]}") | st.tuples(
    st.integers(200, 20000), st.sampled_from(["Mi", "M", "000000"])
).map(lambda p: f"{p[0]}{p[1]}")
quotas: st.SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {},
    optional={
        "mps.nvidia.com/memory-limit": sizes,
        "memory-limit.mps.nvidia.com/a": sizes,
        "memory-limit.mps.nvidia.com/b": sizes,
        "mps.nvidia.com/active-thread-percentage": st.integers(1, 60).map(str),
        "active-thread-percentage.mps.nvidia.com/a": st.integers(1, 60).map(str),
        "mps.nvidia.com/processes": st.integers(1, 6).map(str),
        "mps.nvidia.com/host-ipc": st.sampled_from(["true", "false"]),
        "example.com/x": st.text(max_size=4),
    },
)
variables = st.one_of(
    st.fixed_dictionaries({"name": st.sampled_from(["A", "B", "PATH"]), "value": st.text(max_size=5)}),
    st.fixed_dictionaries({"name": st.just("C"), "valueFrom": st.just({"fieldRef": {"fieldPath": "metadata.name"}})}),
    st.fixed_dictionaries(
        {"name": st.just(LIMIT), "value": st.sampled_from(["", "0=3G", "0=1024M", "4G", "4294967296", "0=2GiB"])}
    ),
    st.fixed_dictionaries({"name": st.just(LIMIT)}),
    st.fixed_dictionaries({"name": st.just(THREADS), "value": st.sampled_from(["", "10", "12.5", "20.0", "100"])}),
)
expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.just(CONFIG_LABEL),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(["mps-1x", "mps-2x", "mps-4x", "ts-4x"]), min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries(
        {"key": st.just("kubernetes.io/os"), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
    ),
    st.fixed_dictionaries(
        {"key": st.just(MEMORY_LABEL), "operator": st.sampled_from(["Gt", "Lt"]), "values": st.just(["20000"])}
    ),
)
names = st.lists(st.sampled_from([n["metadata"]["name"] for n in NODES]), min_size=1, max_size=4, unique=True)
terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(expressions, max_size=2),
        "matchFields": names.map(lambda n: [{"key": "metadata.name", "operator": "In", "values": n}]),
    },
)
affinities: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.just({"podAffinity": {"x": []}}),
    st.just({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
    st.lists(terms, min_size=1, max_size=3).map(
        lambda t: {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": t}}}
    ),
)


def containers(name: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A container that mostly asks for one GPU."""
    limits = st.sampled_from([{RESOURCES[0]: 1}] * 6 + [{RESOURCES[0]: "1"}, {RESOURCES[1]: 1}, {RESOURCES[0]: 2}, {}])
    required: dict[str, st.SearchStrategy[Any]] = {
        "name": st.just(name),
        "resources": limits.map(lambda one: {"limits": one}),
        **more,
    }
    return st.fixed_dictionaries(
        required,
        optional={"env": absent_or(st.lists(variables, max_size=4))},
    )


pods: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": quotas.map(lambda q: {"name": "p", "annotations": q}),
        "spec": st.fixed_dictionaries(
            {
                "containers": st.one_of(st.tuples(containers("a")), st.tuples(containers("a"), containers("b"))).map(
                    list
                )
            },
            optional={
                "initContainers": absent_or(
                    st.tuples(containers("i", restartPolicy=st.sampled_from([None, "Always"]))).map(list)
                ),
                "affinity": affinities,
                "nodeSelector": st.sampled_from([None, {}, {CONFIG_LABEL: "mps-4x"}, {"kubernetes.io/os": "linux"}]),
                "tolerations": st.sampled_from([None, [{"operator": "Exists"}]]),
                "hostIPC": st.sampled_from([None, False, True]),
                "nodeName": st.sampled_from([None, "", "t4-4x", "a100-2x"]),
            },
        ),
    }
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [p for k, v in inner for p in _paths(v, (*path, k))]


def _replace(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


@st.composite
def mutated(draw: st.DrawFn, source: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """An object with one to three parts replaced by anything."""
    value = copy.deepcopy(draw(source))
    for _ in range(draw(st.integers(1, 3))):
        if paths := _paths(value):
            _replace(value, draw(st.sampled_from(paths)), draw(anything))
    return value


recordings = st.sampled_from([r["object"] for r in RECORDINGS if r["object"]])
odd_objects = st.one_of(
    mutated(pods), mutated(recordings), st.dictionaries(texts, anything, max_size=4), recordings.map(copy.deepcopy)
)


def _inventory(nodes: list[dict[str, Any]], placement: Any) -> Inventory:
    fleet = Fleet(map(project_node, nodes), CONFIGS, Settings(placement=placement))
    return Inventory(fleet, {"locked": Namespace("locked", "baseline")})


steerable: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda memory, more, affinity: {
        "metadata": {"annotations": {"mps.nvidia.com/memory-limit": memory, **more}},
        "spec": {"containers": [{"name": "a", "resources": {"limits": {RESOURCES[0]: 1}}}], "affinity": affinity},
    },
    sizes,
    st.fixed_dictionaries({}, optional={"mps.nvidia.com/processes": st.integers(1, 6).map(str)}),
    affinities,
)
"""Pods whose memory limit is all that decides where they fit, besides affinity of their own."""

fleets = st.lists(st.sampled_from(NODES), max_size=8, unique_by=lambda n: n["metadata"]["name"])
placements = st.sampled_from(["steer", "steer", "steer", "deny", "off"])
inventories = st.builds(_inventory, fleets, placements)
