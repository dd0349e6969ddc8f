"""``kubectl mps doctor``: is the installation sound, and if not, which command mends it."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.connection import FILE, cluster_options, connect, given_settings
from webhook.cluster.source import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from webhook.cli.checks import Cluster, Result

_MARKS = {
    "ok": ("✓", "green"),
    "hint": ("!", "cyan"),
    "problem": ("✗", "bold red"),
    "unseen": ("?", "yellow"),
    "skipped": ("-", "dim"),
}
_FOLDED = 3
"""So many sound things of one check are named each; more are counted."""


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Examine the objects in files, as if they were all there is, instead of a cluster.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the dry-run pods.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@cluster_options
def doctor(
    *,
    files: tuple[Path, ...],
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    settings: Path | None,
) -> None:
    """Examine the installation: runtime, configs, nodes, running pods, webhook, certificates.

    Nothing is changed: the canary pods are dry runs. Exits with 0 where all is well, 1 where there is a problem, 2
    where something could not be looked at and what could is well.
    """
    from webhook.cli.checks import examine

    try:
        cluster = _cluster(files, namespace, kubeconfig, context, settings)
    except InputError as error:
        for line in str(error).splitlines():
            click.echo(f"kubectl mps: {line}", err=True)
        sys.exit(2)
    results = list(examine(cluster))
    if output == "json":
        click.echo(json.dumps([dataclasses.asdict(r) for r in results], indent=2, ensure_ascii=False))
    else:
        _print(results)
    found = {r.status for r in results}
    sys.exit(1 if "problem" in found else 2 if "unseen" in found else 0)


def _cluster(
    files: Sequence[Path], namespace: str, kubeconfig: Path | None, context: str | None, settings: Path | None
) -> Cluster:
    from webhook.cli.checks import Cluster
    from webhook.cluster.objects import Answer, FileObjects

    now, given = datetime.now(UTC), given_settings(settings)
    if files:
        return Cluster(FileObjects(files), now, given)
    client = connect(kubeconfig, context)
    from webhook.cluster.look import LiveObjects, dry_run

    def ask(pod: Mapping[str, Any]) -> Answer:
        return dry_run(client, pod, namespace)

    return Cluster(LiveObjects(client), now, given, ask, namespace)


def _print(results: Sequence[Result]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
    for line in render(results):
        console.print(line)


def render(results: Iterable[Result]) -> Iterator[Text]:
    """One line for each result and one for its command, then the count; what is sound and alike is counted."""
    from rich.text import Text

    results = list(results)
    sound = Counter(r.check for r in results if r.status == "ok")
    width = max((len(r.check) for r in results), default=0)
    folded: set[str] = set()
    for result in results:
        mark, style = _MARKS[result.status]
        line = Text(f"{mark} ", style).append(f"{result.check:<{width}}  ", "bold")
        if result.status == "ok" and sound[result.check] > _FOLDED:
            if result.check not in folded:
                folded.add(result.check)
                yield line.append(f"{sound[result.check]} are in order")
            continue
        yield line.append(f"{result.subject}: {result.message}")
        if result.mend:
            yield Text(" " * (width + 4)).append("→ ", style).append(result.mend)
    yield Text(_count(Counter(r.status for r in results)), "bold")


def _count(statuses: Mapping[str, int]) -> str:
    words = {
        "problem": ("problem", "problems"),
        "unseen": ("not looked at", "not looked at"),
        "hint": ("hint", "hints"),
        "skipped": ("skipped", "skipped"),
        "ok": ("in order", "in order"),
    }
    return ", ".join(f"{n} {words[s][n != 1]}" for s in words if (n := statuses.get(s, 0))) or "nothing to look at"
