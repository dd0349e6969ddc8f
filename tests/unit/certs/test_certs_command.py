"""`mps-webhook certs` as a person or a manifest calls it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner, Result

from certs import load_pair
from webhook.cli.certs import Duration, certs

if TYPE_CHECKING:
    from pathlib import Path


def call(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(certs, [str(one) for one in arguments], env=variables)


def test_issue(tmp_path: Path) -> None:
    result = call("issue", "--out", tmp_path / "out", "--dns", "hook.system.svc", "--dns", "127.0.0.1", "--days", 3)
    assert result.output == "".join(
        f"{tmp_path / 'out' / name}\n" for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")
    )
    assert result.exit_code == 0
    pair = load_pair(tmp_path / "out", names=["hook.system.svc", "127.0.0.1"])
    assert pair.not_after - pair.not_before == timedelta(days=3, hours=1)


def test_issue_overwrites_only_when_asked(tmp_path: Path) -> None:
    call("issue", "--out", tmp_path, "--dns", "a")
    before = load_pair(tmp_path)
    result = call("issue", "--out", tmp_path, "--dns", "a")
    assert result.exit_code == 2
    assert result.output == f"Error: {tmp_path} has ca.crt, ca.key, tls.crt, tls.key already; nothing was written\n"
    assert load_pair(tmp_path) == before
    assert call("issue", "--out", tmp_path, "--dns", "a", "--force").exit_code == 0
    assert load_pair(tmp_path) != before


def test_issue_with_a_name_that_is_none(tmp_path: Path) -> None:
    result = call("issue", "--out", tmp_path, "--dns", "https://a")
    assert (result.exit_code, result.output) == (2, "Error: 'https://a' is neither a DNS name nor an IP address\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90d", timedelta(days=90)),
        ("36h", timedelta(hours=36)),
        ("15m", timedelta(minutes=15)),
        ("90s", timedelta(seconds=90)),
        ("7", timedelta(seconds=7)),
        (timedelta(seconds=1), timedelta(seconds=1)),
    ],
    ids=str,
)
def test_duration(text: object, expected: timedelta) -> None:
    assert Duration().convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["", "-1s", "1.5h", "1w", "1 d", "٣d", "9999999999d"])
def test_no_duration(text: str) -> None:
    with pytest.raises(click.UsageError):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--poll", "11s"], "Error: --poll has to be between 1s and 10s"),
        (
            ["--leaf-lifetime", "9s"],
            "Error: leaf lifetime 9s is too short: a third of it is left at renewal, and that has to be at least",
        ),
        (["--service", "a_b"], "Error: 'a_b.mps-system.svc' is neither a DNS name nor an IP address"),
        (["--kubeconfig", "/nonexistent"], "Error: no cluster to talk to: Invalid kube-config file."),
        (["--settle", "soon"], "Error: Invalid value for '--settle'"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else None,
)
def test_run_refuses(arguments: list[str], message: str) -> None:
    result = call("run", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_run_takes_variables() -> None:
    result = call("run", MPS_WEBHOOK_CERTS_POLL="0s")
    assert (result.exit_code, result.output) == (2, "Error: --poll has to be between 1s and 10s\n")
