"""Findings as text: one line each, within what an Event and a warning take."""

from __future__ import annotations

import pytest

from tests.builders import pod
from tests.unit.policy.judging import judge
from webhook.policy import Finding
from webhook.policy.findings import MAX_DENIAL, MAX_OF_ONE_RULE, MAX_WARNING, MAX_WARNINGS, denial, warnings
from webhook.policy.pod import shown


def deny(problem: str = "is wrong", code: str = "some-code") -> Finding:
    return Finding(code, "deny", "spec.containers[0]", problem, "mend it", "app")


def warn(problem: str = "is odd") -> Finding:
    return Finding("some-code", "warn", "spec", problem)


@pytest.mark.parametrize(
    ("finding", "message"),
    [
        pytest.param(deny(), "spec.containers[0] (app): is wrong: mend it [some-code]", id="everything"),
        pytest.param(warn(), "spec: is odd [some-code]", id="no container, no hint"),
        pytest.param(
            deny().below("spec.template."),
            "spec.template.spec.containers[0] (app): is wrong: mend it [some-code]",
            id="deeper in an object",
        ),
    ],
)
def test_message(finding: Finding, message: str) -> None:
    assert finding.message == message


def test_denial_joins_what_denies() -> None:
    assert denial([deny("a"), warn("b"), deny("c")]) == (
        "spec.containers[0] (app): a: mend it [some-code]; spec.containers[0] (app): c: mend it [some-code]"
    )
    assert denial([warn()]) == ""
    assert denial([]) == ""


def test_denial_counts_what_does_not_fit() -> None:
    text = denial([deny("x" * 250) for _ in range(10)])
    assert len(text) < MAX_DENIAL
    assert text.count("[some-code]") == 3
    assert text.endswith("[some-code] (+7 more)")


@pytest.mark.parametrize("length", range(880, 960))
def test_denial_stays_below_its_bound(length: int) -> None:
    assert len(denial([deny("x" * length)])) < MAX_DENIAL
    assert len(denial([deny("x" * length), deny()])) < MAX_DENIAL


def test_one_enormous_message_is_cut_before_its_code() -> None:
    alone = denial([deny("x" * 5000)])
    assert len(alone) == MAX_DENIAL - 1
    assert alone.endswith("x… [some-code]")
    first = denial([deny("x" * 5000), deny(), deny()])
    assert len(first) == MAX_DENIAL - 1
    assert first.endswith("x… [some-code] (+2 more)")


def test_a_bracket_in_the_text_is_not_taken_for_the_code() -> None:
    assert denial([deny("[a] " * 2000, "last-code")]).endswith("… [last-code]")


def test_warnings_are_those_that_warn() -> None:
    assert warnings([deny("a"), warn("b"), warn("c")]) == ["spec: b [some-code]", "spec: c [some-code]"]


def test_a_long_warning_is_cut_before_its_code() -> None:
    (line,) = warnings([warn("x" * 1000)])
    assert len(line) == MAX_WARNING
    assert line.endswith("x… [some-code]")


def test_warnings_together_are_bounded() -> None:
    lines = warnings([warn("x" * 1000) for _ in range(100)])
    assert len(lines) == MAX_WARNINGS // MAX_WARNING == 16
    assert sum(map(len, lines)) <= MAX_WARNINGS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("a\nb\tc\x00", "a\ufffdb\ufffdc\ufffd"),
        ("\u202eevil\u2028", "\ufffdevil\ufffd"),
        ("x" * 48, "x" * 48),
        ("x" * 49, "x" * 47 + "…"),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        ([1], "a list"),
        ({"a": 1}, "a map"),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text


def test_many_findings_of_a_real_pod_stay_within_every_bound() -> None:
    subject = pod()
    for i in range(200):
        subject.container(f"c-{i}\n").gpu().env("CUDA_MPS_PIPE_DIRECTORY", "/x").env("CUDA_DEVICE_MAX_CONNECTIONS", "8")
    verdict = judge(subject)
    assert len(verdict.findings) == 2 * MAX_OF_ONE_RULE + 1
    assert len(verdict.denial()) < MAX_DENIAL
    assert verdict.denial().endswith("more)")
    assert verdict.denial().isprintable()
    warned = verdict.warnings()
    assert all(len(w) <= MAX_WARNING and w.isprintable() for w in warned)
    assert sum(map(len, warned)) <= MAX_WARNINGS


def test_values_of_other_variables_are_never_told() -> None:
    subject = pod().gpu().env("TOKEN", "hunter2").env("CUDA_MPS_PIPE_DIRECTORY", "/hunter2")
    subject.env("NVIDIA_VISIBLE_DEVICES", "hunter2").env("CUDA_VISIBLE_DEVICES", "hunter2")
    verdict = judge(subject)
    assert len(verdict.findings) == 4
    assert "hunter2" not in "".join(f.message for f in verdict.findings)
