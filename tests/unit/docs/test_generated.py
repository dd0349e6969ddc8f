"""Pages that are made from the code say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from docs import generate
from webhook.policy.catalogue import ENTRIES
from webhook.settings import ExpectedProfile, WebhookSettings


def test_the_checked_in_pages_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_not_is_told_and_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    (tmp_path / "findings.md").write_text("old")
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "docs/findings.md is out of date, run: make docs\ndocs/settings.md is out of date, run: make docs\n"
    )
    assert (tmp_path / "findings.md").read_text() == "old"
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_every_code_has_a_heading_to_link_to() -> None:
    text = generate.pages()["findings.md"]
    for entry in ENTRIES:
        assert text.count(f"\n### {entry.code}\n") == 1


@pytest.mark.parametrize("model", [WebhookSettings, ExpectedProfile])
def test_every_setting_is_there_with_its_meaning(model: type[BaseModel]) -> None:
    plain = " ".join(generate.pages()["settings.md"].split())
    for name, field in model.model_fields.items():
        assert field.description, f"{name} has no description"
        assert re.search(rf"- \*\*`{name}`\*\*( \([^)]+\))?: {re.escape(field.description)}", plain), name


def test_lines_are_of_a_readable_length() -> None:
    assert [line for text in generate.pages().values() for line in text.splitlines() if len(line) > 120] == []
