"""Files as a source: what is read, and the one line for each that cannot be used."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from webhook.cluster import FileSource, InputError, read_configs, read_documents, read_namespaces, read_nodes
from webhook.policy import DeviceConfig, Namespace

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu-1", "labels": {"nvidia.com/device-plugin.config": "mps-4x"}},
    "status": {"allocatable": {"nvidia.com/gpu": "4", "cpu": "8"}},
}
BARE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
CONFIGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: nvidia-device-plugin-configs, namespace: kube-system}
data:
  mps-1x: |
    version: v1
  mps-4x: |
    version: v1
    sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(name: str, content: object) -> Path:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.mark.parametrize(
    ("name", "content", "names"),
    [
        pytest.param("n.json", NODE, ["gpu-1"], id="one object"),
        pytest.param("n.json", {"kind": "List", "items": [NODE, BARE]}, ["gpu-1", "bare"], id="list"),
        pytest.param("n.json", {"kind": "NodeList", "items": [{"metadata": {"name": "x"}}]}, ["x"], id="typed list"),
        pytest.param("n.json", {"kind": "NodeList", "items": None}, [], id="empty list"),
        pytest.param(
            "n.yaml",
            f"{json.dumps(NODE)}\n---\n# nothing\n---\nkind: Node\nmetadata: {{name: second}}",
            ["gpu-1", "second"],
            id="documents",
        ),
        pytest.param("n.yaml", "{kind: Node, metadata: {name: flow}}", ["flow"], id="flow style is no JSON"),
        pytest.param("n.yaml", "\ufeffkind: Node\nmetadata: {name: bom}", ["bom"], id="byte order mark"),
        pytest.param("n.yaml", "", [], id="empty file"),
    ],
)
def test_reads_nodes(write: Any, name: str, content: object, names: list[str]) -> None:
    assert [node.name for node in read_nodes(write(name, content))] == names


def test_projects_nodes(write: Any) -> None:
    (node, bare) = read_nodes(write("n.json", {"kind": "List", "items": [NODE, BARE]}))
    assert node.allocatable == (("nvidia.com/gpu", 4),)
    assert dict(node.labels) == {"nvidia.com/device-plugin.config": "mps-4x"}
    assert (dict(bare.labels), bare.taints, bare.allocatable) == ({}, (), ())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("n.yaml", "a: [", "no YAML: line ", id="broken YAML"),
        pytest.param("n.json", '{"kind": "Node",', "no JSON: Expecting property name", id="broken JSON"),
        pytest.param("n.json", "[" * 100_000, "", id="nested without end"),
        pytest.param("n.yaml", b"\xff\xfe\x00", "not a UTF-8 text", id="binary"),
        pytest.param("n.yaml", "just words", "document 1 is no Kubernetes object", id="no object"),
        pytest.param("n.json", [NODE], "document 1 is no Kubernetes object", id="bare JSON list"),
        pytest.param("n.yaml", "metadata: {name: x}", "document 1 has no kind", id="no kind"),
        pytest.param("n.yaml", "kind: Node\n---\nkind: Pod", "document 1: not a Node object with a name", id="no name"),
        pytest.param("n.yaml", "kind: Pod\nmetadata: {name: x}", "document 1 is a Pod, not a Node", id="another kind"),
        pytest.param(
            "n.json",
            {"kind": "List", "items": [NODE, {"kind": "Ingress"}]},
            "document 1, items[1] is an Ingress, not a Node",
            id="another kind in a list",
        ),
        pytest.param(
            "n.json",
            {"kind": "List", "items": [3]},
            "document 1, items[0] is no Kubernetes object",
            id="a number in a list",
        ),
        pytest.param(
            "n.json",
            {"kind": "List", "items": [{}]},
            "document 1, items[0] has no kind that a list can hold",
            id="no kind in a list",
        ),
        pytest.param("n.json", {"kind": "List", "items": {"a": 1}}, "document 1: items is no list", id="items no list"),
        pytest.param(
            "n.json",
            {"kind": "List", "items": [NODE, NODE]},
            "document 1, items[1]: a second Node called gpu-1",
            id="twice",
        ),
    ],
)
def test_unusable_nodes_get_one_line(write: Any, name: str, content: object, message: str) -> None:
    path = write(name, content)
    with pytest.raises(InputError) as caught:
        read_nodes(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("absent.yaml", "No such file or directory", id="no such file"),
        pytest.param(".", "Is a directory", id="directory"),
    ],
)
def test_unreadable_file(tmp_path: Path, name: str, message: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(InputError) as caught:
        read_documents(path)
    assert str(caught.value) == f"{path}: {message}"


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(InputError) as caught:
        read_documents("a\0b")
    assert str(caught.value) == "'a\\x00b': embedded null byte"


def test_reads_configs_beside_other_kinds(write: Any) -> None:
    path = write("c.yaml", f"kind: Namespace\nmetadata: {{name: kube-system}}\n---{CONFIGS}")
    assert read_configs(path) == {
        "mps-1x": DeviceConfig(),
        "mps-4x": DeviceConfig("mps", 4, "nvidia.com/gpu", fail_greater_than_one=True),
    }


def test_one_config_map_is_read_whatever_its_name(write: Any) -> None:
    assert list(read_configs(write("c.yaml", CONFIGS), "elsewhere/other")) == ["mps-1x", "mps-4x"]


def test_of_several_config_maps_the_named_one_is_read(write: Any) -> None:
    other = "\n---\nkind: ConfigMap\nmetadata: {name: other}\ndata: {mps-2x: 'version: v1'}\n"
    assert list(read_configs(write("c.yaml", CONFIGS + other), "default/other")) == ["mps-2x"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("kind: Secret\nmetadata: {name: x}", "no ConfigMap in it", id="none"),
        pytest.param("", "no ConfigMap in it", id="empty"),
        pytest.param(
            CONFIGS.replace("replicas: 4", "replicas: 1"),
            "config mps-4x: number of replicas must be >= 2 (leave sharing out for one pod a card)",
            id="config",
        ),
        pytest.param(
            "kind: ConfigMap\ndata: {mps-1x: {version: v1}}",
            "the ConfigMap's data is no map of texts",
            id="object for a text",
        ),
        pytest.param("kind: ConfigMap\ndata: [x]", "the ConfigMap's data is no map of texts", id="data no map"),
        pytest.param(
            "kind: ConfigMap\n---\nkind: ConfigMap",
            "several ConfigMaps, and not exactly one is kube-system/nvidia-device-plugin-configs",
            id="several",
        ),
    ],
)
def test_unusable_configs_get_one_line(write: Any, content: str, message: str) -> None:
    path = write("c.yaml", content)
    with pytest.raises(InputError) as caught:
        read_configs(path)
    assert str(caught.value) == f"{path}: {message}"


def test_reads_namespaces(write: Any) -> None:
    labels = "{pod-security.kubernetes.io/enforce: baseline}"
    first, second = f"metadata: {{name: a, labels: {labels}}}", "metadata: {name: b}"
    path = write("ns.yaml", f"kind: Namespace\n{first}\n---\nkind: Namespace\n{second}")
    assert read_namespaces(path) == {"a": Namespace("a", "baseline"), "b": Namespace("b", None)}


def test_source_is_complete_at_once(write: Any) -> None:
    source = FileSource(write("n.json", {"kind": "List", "items": [NODE, BARE]}), write("c.yaml", CONFIGS))
    assert len(source.inventory().fleet) == 2
    assert source.inventory() is source.inventory()
    assert dict(source.inventory().namespaces) == {}
    status = source.status()
    assert (status.synced, status.age_seconds, status.problems) == (True, 0.0, ())
    assert (status.nodes, status.configs) == (2, ("mps-1x", "mps-4x"))
    asyncio.run(source.run())


def test_source_is_refused_as_a_whole(write: Any) -> None:
    with pytest.raises(InputError):
        FileSource(write("n.json", NODE), write("c.yaml", CONFIGS), write("ns.yaml", "kind: Pod"))
