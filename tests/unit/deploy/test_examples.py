"""The examples are listed, valid, and show what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "deploy/examples"
FILES = sorted(p.name for p in FOLDER.glob("*.yaml"))


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return document


def template(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document if document["kind"] == "Pod" else document["spec"]["template"]
    return found


def test_every_example_is_listed() -> None:
    listed = re.findall(r"^\| \[([^]]+)\]\(([^)]+)\)", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert [text for text, _ in listed] == [target for _, target in listed]
    assert sorted(target for _, target in listed) == FILES


@pytest.mark.parametrize("name", FILES)
def test_valid(name: str) -> None:
    kubernetes_validate.validate(load(name), "1.36", strict=True)


@pytest.mark.parametrize("name", FILES)
def test_says_what_it_shows(name: str) -> None:
    assert (FOLDER / name).read_text().startswith("# ")


@pytest.mark.parametrize("name", FILES)
def test_asks_for_one_share_in_a_container(name: str) -> None:
    spec = template(load(name))["spec"]
    gpus = [c["resources"]["limits"]["nvidia.com/gpu"] for c in spec["containers"] if "resources" in c]
    assert gpus
    assert set(gpus) == {1}


@pytest.mark.parametrize("name", FILES)
def test_images_have_a_version(name: str) -> None:
    for container in template(load(name))["spec"]["containers"]:
        repository, _, tag = container["image"].partition(":")
        assert repository
        assert re.search(r"\d", tag)


def test_documented_variables_are_kept_as_documented() -> None:
    (container,) = load("limits-by-variable.yaml")["spec"]["containers"]
    assert container["env"] == [
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "4294967296"},
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "25"},
    ]


def test_documented_selector() -> None:
    assert load("pinned-config.yaml")["spec"]["nodeSelector"] == {"nvidia.com/device-plugin.config": "mps-4x"}


@pytest.mark.parametrize("name", ["inference.yaml", "jupyter.yaml", "batch-job.yaml", "ci-job.yaml"])
def test_annotations_are_on_the_pod(name: str) -> None:
    document = load(name)
    assert "mps.nvidia.com/memory-limit" in template(document)["metadata"]["annotations"]
    if document["kind"] != "Pod":
        assert "annotations" not in document["metadata"]


def test_quotas_for_containers_name_containers() -> None:
    pod = load("per-container.yaml")
    named = {k.partition("/")[2] for k in pod["metadata"]["annotations"] if not k.startswith("mps.")}
    assert named == {"generator", "embedder"}
    assert named <= {c["name"] for c in pod["spec"]["containers"]}


def test_the_rejected_one_quotes_its_message() -> None:
    comment = " ".join(
        line.removeprefix("#").strip()
        for line in (FOLDER / "rejected.yaml").read_text().splitlines()
        if line[:1] == "#"
    )
    assert (
        'admission webhook "pods.mps.nvidia.com" denied the request: spec.containers[0] (cuda-app): '
        "memory-limit 5Gi × 4 shares = 20480Mi, but a card of config mps-4x has 15360Mi (1 node, Tesla-T4): "
        "ask for at most 3840Mi, or use mps-2x [memory-over-budget]"
    ) in comment
