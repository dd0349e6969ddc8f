"""The catalogue holds what the policy can say, all of it and nothing else."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from tests.unit.policy.emitted import Emitted, emitted
from webhook import policy
from webhook.policy.catalogue import CATALOGUE, ENTRIES, TOPICS, Entry

FOLDER = Path(policy.__file__).parent


@pytest.fixture(scope="module")
def found() -> Emitted:
    return emitted(FOLDER)


def test_every_place_that_makes_a_finding_was_understood(found: Emitted) -> None:
    assert found.unread == []


def test_it_holds_every_code_and_no_other(found: Emitted) -> None:
    assert set(CATALOGUE) == set(found.severities)


def test_it_holds_the_severities_that_each_code_can_come_with(found: Emitted) -> None:
    assert {code: set(entry.severities) for code, entry in CATALOGUE.items()} == dict(found.severities)


def test_no_code_comes_twice() -> None:
    assert len(CATALOGUE) == len(ENTRIES)


def test_entries_come_topic_by_topic() -> None:
    assert list(dict.fromkeys(e.topic for e in ENTRIES)) == list(TOPICS)
    assert sorted(ENTRIES, key=lambda e: list(TOPICS).index(e.topic)) == list(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.code)
def test_an_entry_is_whole_sentences_on_one_line(entry: Entry) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", entry.code)
    for text in (entry.cause, entry.way_out):
        assert text.endswith(".")
        assert "  " not in text
        assert text.isprintable()


@pytest.mark.parametrize("entry", [e for e in ENTRIES if len(e.severities) > 1], ids=lambda e: e.code)
def test_a_code_of_two_severities_says_when_which(entry: Entry) -> None:
    assert "enied" in entry.cause


def test_nobody_changes_it() -> None:
    with pytest.raises(FrozenInstanceError):
        ENTRIES[0].code = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        CATALOGUE["other"] = ENTRIES[0]  # type: ignore[index]
