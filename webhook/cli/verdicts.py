"""Verdicts as a person wants to read them: the answer first, then why, where, and what is changed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from webhook import kubeyaml
from webhook.cli.manifest import Manifest
from webhook.policy import Finding, Group, Verdict

_NAMES_SHOWN = 4
_DIFF_CONTEXT = 2


def print_verdicts(judged: Iterable[tuple[Manifest, Verdict]]) -> None:
    """Print one block for each object, in colour on a terminal."""
    console = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
    for number, (manifest, verdict) in enumerate(judged):
        if number:
            console.print()
        for line in render(manifest, verdict):
            console.print(line)


def render(manifest: Manifest, verdict: Verdict) -> Iterator[Text]:
    """The lines of one block."""
    yield _headline(manifest, verdict)
    for finding in sorted(verdict.findings, key=lambda f: f.severity):
        yield from _finding(finding)
    if verdict.fit or verdict.unfit:
        yield _candidates("fit", verdict.fit, "green")
        yield _candidates("unfit", verdict.unfit, "red")
    yield from _diff(manifest)


def _headline(manifest: Manifest, verdict: Verdict) -> Text:
    answer = ("allowed, patched" if verdict.patch else "allowed") if verdict.allowed else "denied"
    mark, style = ("✓", "bold green") if verdict.allowed else ("✗", "bold red")
    line = Text(f"{mark} ", style)
    line.append(f"{manifest.kind} {manifest.namespace}/{manifest.name or '(no name)'}", "bold")
    line.append(f"  {answer}", style)
    line.append(f"  {manifest.source}", "dim")
    return line


def _finding(finding: Finding) -> Iterator[Text]:
    style = "red" if finding.severity == "deny" else "yellow"
    line = Text(f"  {finding.severity}  ", style)
    line.append(f"[{finding.code}] ", f"bold {style}")
    line.append(finding.field, "cyan")
    if finding.container:
        line.append(f" ({finding.container})")
    yield line
    yield Text(f"        {finding.problem}")
    if finding.hint:
        yield Text("        → ", style).append(finding.hint)


def _candidates(word: str, groups: Sequence[Group], style: str) -> Text:
    line = Text(f"  {word:<5} ", style if groups else "dim")
    by_config: dict[str, list[str]] = {}
    for group in groups:
        by_config.setdefault(group.config, []).extend(group.names or ("no node now",))
    parts = []
    for config, names in by_config.items():
        more = f" (+{len(names) - _NAMES_SHOWN} more)" if len(names) > _NAMES_SHOWN else ""
        parts.append(f"{config}: {', '.join(names[:_NAMES_SHOWN])}{more}")
    return line.append("; ".join(parts) or "none", "" if groups else "dim")


def _diff(manifest: Manifest) -> Iterator[Text]:
    before, after = (kubeyaml.dump(o).splitlines() for o in (manifest.object, manifest.patched()))
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in list(difflib.unified_diff(before, after, lineterm="", n=_DIFF_CONTEXT))[2:]:
        yield Text(f"    {line}", styles.get(line[:1], "dim"))
