"""Findings: one thing noticed about a pod, told to the person at ``kubectl apply``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["deny", "warn"]

MAX_DENIAL = 1000
"""The whole denial stays below this many characters, so that it fits an Event (1,024 bytes) with its preamble."""

MAX_OF_ONE_RULE = 100
"""Findings that are taken from one rule. A denial has room for a dozen, and an object of 3 MiB for 60,000 mistakes."""

MAX_WARNING, MAX_WARNINGS = 256, 4096
"""The API server cuts warnings at these lengths, one and all together."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing noticed. ``problem`` and ``hint`` (the way out) are phrases; ``message`` is the whole line."""

    code: str
    severity: Severity
    field: str
    problem: str
    hint: str = ""
    container: str = ""

    @property
    def message(self) -> str:
        """One line: the field and the container, the numbers, the way out, the code in brackets."""
        who = f"{self.field} ({self.container})" if self.container else self.field
        return f"{who}: {self.problem}{': ' if self.hint else ''}{self.hint} [{self.code}]"

    def below(self, prefix: str) -> Finding:
        """The same finding where the pod sits deeper in an object: ``spec.template.`` in a Deployment."""
        return replace(self, field=prefix + self.field)


def denial(findings: Iterable[Finding]) -> str:
    """The deny findings in one line under MAX_DENIAL characters; what does not fit is counted: ``(+3 more)``."""
    denying = [f for f in findings if f.severity == "deny"]
    messages: list[str] = []
    length = 0
    for finding in denying:
        messages.append(finding.message)
        length += len(messages[-1]) + len("; ")
        if length > MAX_DENIAL:
            break
    for kept in range(len(messages), 0, -1):
        more = f" (+{len(denying) - kept} more)" if kept < len(denying) else ""
        text = "; ".join(messages[:kept]) + more
        if len(text) < MAX_DENIAL:
            return text
    more = f" (+{len(denying) - 1} more)" if len(denying) > 1 else ""
    return _cut(messages[0], MAX_DENIAL - 1 - len(more)) + more if messages else ""


def warnings(findings: Iterable[Finding], *, severities: frozenset[Severity] = frozenset(("warn",))) -> list[str]:
    """The messages as ``Warning:`` lines, within what the API server passes on, longest ones cut before their code."""
    lines: list[str] = []
    room = MAX_WARNINGS
    for finding in findings:
        if finding.severity in severities:
            line = _cut(finding.message, MAX_WARNING)
            if len(line) > room:
                break
            room -= len(line)
            lines.append(line)
    return lines


def _cut(message: str, limit: int) -> str:
    if len(message) <= limit:
        return message
    code = message[message.rindex(" [") :]
    return message[: limit - len(code) - 1] + "…" + code
