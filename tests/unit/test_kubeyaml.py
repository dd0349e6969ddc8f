"""YAML as kubectl reads it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from webhook import kubeyaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("2024-01-01", "2024-01-01", id="a date stays a string"),
        pytest.param("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z", id="a time stays a string"),
        pytest.param("1:30", "1:30", id="no base 60"),
        pytest.param("190:20:30", "190:20:30", id="no base 60, three parts"),
        pytest.param("yes", True, id="yes"),
        pytest.param("No", False, id="No"),
        pytest.param("on", True, id="on"),
        pytest.param("OFF", False, id="OFF"),
        pytest.param("y", True, id="y"),
        pytest.param("N", False, id="N"),
        pytest.param("True", True, id="True"),
        pytest.param("tRue", "tRue", id="odd case is a string"),
        pytest.param('"yes"', "yes", id="quoted"),
        pytest.param("~", None, id="tilde"),
        pytest.param("Null", None, id="Null"),
        pytest.param("nULL", "nULL", id="odd null is a string"),
        pytest.param("0", 0, id="zero"),
        pytest.param("-5", -5, id="negative"),
        pytest.param("+5", 5, id="plus"),
        pytest.param("0644", 420, id="octal of old"),
        pytest.param("-0644", -420, id="negative octal"),
        pytest.param("0o17", 15, id="octal of now"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("0b101", 5, id="binary"),
        pytest.param("1_000", 1000, id="underscores"),
        pytest.param("08", 8.0, id="no octal"),
        pytest.param("1.5", 1.5, id="decimal"),
        pytest.param(".5", 0.5, id="leading point"),
        pytest.param("1e3", 1000.0, id="exponent without a point"),
        pytest.param("1E-3", 0.001, id="negative exponent"),
        pytest.param("-.inf", -math.inf, id="infinity"),
        pytest.param("1e", "1e", id="half an exponent"),
        pytest.param("3Gi", "3Gi", id="a quantity"),
        pytest.param("1.2.3", "1.2.3", id="a version"),
        pytest.param("=", "=", id="no value tag"),
        pytest.param("0=3072M", "0=3072M", id="a memory limit"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    read = kubeyaml.load(f"key: {text}")["key"]
    assert read == value
    assert type(read) is type(value)


def test_not_a_number() -> None:
    assert math.isnan(kubeyaml.load(".nan"))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        pytest.param("{1: a, 2.5: b}", ["1", "2.5"], id="numbers"),
        pytest.param("{yes: a, off: b}", ["true", "false"], id="truth values"),
        pytest.param("{2024-01-01: a}", ["2024-01-01"], id="a date"),
    ],
)
def test_keys_are_strings(text: str, keys: list[str]) -> None:
    assert list(kubeyaml.load(text)) == keys


def test_a_later_duplicate_wins() -> None:
    assert kubeyaml.load("{a: 1, b: 2, a: 3}") == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("{base: &b {p: 1, q: 2}, use: {<<: *b}}", {"p": 1, "q": 2}, id="merged"),
        pytest.param("{base: &b {p: 1, q: 2}, use: {<<: *b, q: 3}}", {"p": 1, "q": 3}, id="own key after"),
        pytest.param("{base: &b {p: 1, q: 2}, use: {q: 3, <<: *b}}", {"p": 1, "q": 3}, id="own key before"),
        pytest.param("{base: &b {x: 1}, use: {<<: [*b, {x: 2, z: 4}]}}", {"x": 1, "z": 4}, id="the first of several"),
    ],
)
def test_merge_keys(text: str, value: dict[str, Any]) -> None:
    assert kubeyaml.load(text)["use"] == value


def test_documents() -> None:
    assert kubeyaml.load_all("a: 1\n---\n---\n# nothing\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]
    assert kubeyaml.load_all("") == []
    assert kubeyaml.load("") is None
    assert kubeyaml.load("# nothing\n") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: 1\n---\nb: 2", "more than one document", id="several documents"),
        pytest.param("{[a]: 1}", "a map's key is no plain value", id="a list for a key"),
        pytest.param("{~: 1}", "a map's key is no plain value", id="null for a key"),
        pytest.param("a: *gone", "line 1: found undefined alias", id="undefined alias"),
        pytest.param("a: !!python/object:x {}", "line 1: could not determine a constructor for the tag", id="a tag"),
        pytest.param("a: \x00", "characters are not allowed", id="a control character"),
        pytest.param("a: !!int many", "invalid literal for int()", id="no integer"),
    ],
)
def test_refuses_in_one_line(text: str, message: str) -> None:
    with pytest.raises(kubeyaml.YAMLError) as caught:
        kubeyaml.load(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t- a", "- a\nb: 1", "'", "[" * 5000])
def test_broken_text_is_one_line(text: str) -> None:
    with pytest.raises(kubeyaml.YAMLError) as caught:
        kubeyaml.load_all(text)
    assert str(caught.value).strip()
    assert "\n" not in str(caught.value)
