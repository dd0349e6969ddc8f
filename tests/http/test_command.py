"""`mps-webhook serve` with input it cannot use: one clear line, exit 2, nothing half done."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.http.test_drain import CONFIGS, NODES
from webhook.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "configs.yaml").write_text(CONFIGS)
    (tmp_path / "settings.yaml").write_text("placment: steer\n")
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "empty").mkdir()
    return tmp_path


FILES = ["--nodes", "nodes.yaml", "--configs", "configs.yaml"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--nodes", "nodes.yaml"], "--nodes and --configs go together, and --namespaces with them"),
        (["--namespaces", "n.yaml"], "--nodes and --configs go together, and --namespaces with them"),
        ([*FILES, "--self-signed", "--tls-dir", "empty"], "--self-signed and --tls-dir exclude each other"),
        ([*FILES, "--tls-dir", "no"], "no: no such directory; name it with --tls-dir, or try --self-signed"),
        ([*FILES, "--self-signed", "--settings", "settings.yaml"], "settings.yaml: placment: no such setting"),
        (["--nodes", "broken.yaml", "--configs", "configs.yaml", "--self-signed"], "broken.yaml: "),
        (["--nodes", "nodes.yaml", "--configs", "none.yaml", "--self-signed"], "none.yaml: "),
        (["--nodes", "configs.yaml", "--configs", "configs.yaml", "--self-signed"], "configs.yaml: "),
    ],
)
def test_one_line_and_exit_2(folder: Path, arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(main, ["serve", "--port", "0", "--health-port", "0", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"mps-webhook: {line}")
    assert result.stderr.count("\n") == 1


def test_a_port_that_is_taken(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = [*FILES, "--self-signed", "--host", "127.0.0.1", "--port", str(port), "--health-port", "0"]
        result = CliRunner().invoke(main, ["serve", *arguments])
    assert result.exit_code == 2
    assert result.stderr == f"mps-webhook: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_help_names_both_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "certs" in result.stdout
    assert "serve" in result.stdout
