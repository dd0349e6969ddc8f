"""The Dockerfile, as far as it can be judged without building it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest


@pytest.fixture
def instructions(root: Path) -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (root / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(None, 1)[0], " ".join(line.split(None, 1)[1].split())) for line in lines]


def final(instructions: list[tuple[str, str]]) -> list[tuple[str, str]]:
    start = max(i for i, (word, _) in enumerate(instructions) if word == "FROM")
    return instructions[start:]


def test_bases_are_pinned(instructions: list[tuple[str, str]]) -> None:
    assert [v for w, v in instructions if w == "FROM"] == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]
    (base,) = (v for w, v in instructions if w == "ARG" and v.startswith("PYTHON_IMAGE="))
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+", base)


def test_runs_without_root_and_without_a_shell(instructions: list[tuple[str, str]]) -> None:
    last = final(instructions)
    (user,) = (v for w, v in last if w == "USER")
    assert user == "65532:65532"
    for word in ("ENTRYPOINT", "CMD"):
        (value,) = (v for w, v in last if w == word)
        assert json.loads(value)
    for word, value in last:
        if word == "RUN":
            assert json.loads(value), "the final stage needs no shell"


def test_user_is_the_one_of_the_manifests(instructions: list[tuple[str, str]], root: Path) -> None:
    for part in ("serving", "certs"):
        text = (root / f"deploy/webhook/{part}/deployment.yaml").read_text()
        assert "runAsUser: 65532" in text
        assert "runAsGroup: 65532" in text


def test_every_package_is_checked_against_the_lock(instructions: list[tuple[str, str]]) -> None:
    installs = [
        command
        for word, value in instructions
        if word == "RUN"
        for command in value.split(" && ")
        if " install " in command and "pip" in command
    ]
    assert len(installs) == 3
    assert all(("--require-hashes" in c and "--only-binary :all:" in c) or "--no-index" in c for c in installs)


def test_labels(instructions: list[tuple[str, str]]) -> None:
    labels = " ".join(v for w, v in final(instructions) if w == "LABEL")
    for name in ("title", "description", "licenses", "version", "revision", "created"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_the_context_holds_all_that_is_copied(instructions: list[tuple[str, str]], root: Path) -> None:
    allowed = set(re.findall(r"^!(\S+)$", (root / ".dockerignore").read_text(), re.MULTILINE))
    copied = {
        source.rstrip("/")
        for word, value in instructions
        if word == "COPY" and not value.startswith("--from")
        for source in value.split()[:-1]
    }
    assert copied == allowed
    assert all((root / name).exists() for name in copied)
