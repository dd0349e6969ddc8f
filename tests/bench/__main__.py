"""``make bench``: figures, never a test.

Everything runs on this machine and over loopback, for a bounded time, in processes that end with it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import click
from rich.console import Console

from tests.bench.plan import FULL, QUICK, Part, measure
from tests.bench.traffic import Reference

PARTS: tuple[Part, ...] = get_args(Part)
NARROWEST = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every round and the versions there.")
@click.option("--reference", help="https://127.0.0.1:PORT/PATH of another webhook, measured in turn with ours.")
@click.option("--reference-ca", default="", help="File of its CA; without one its certificate is not checked.")
@click.option("--reference-pid", type=int, help="Its process, to tell what CPU time it takes.")
@click.option("--only", default=",".join(PARTS), show_default=True, help="Some of the parts, with commas between.")
@click.option("--seconds", type=click.FloatRange(0.1, 60), help="Of each measurement of an endpoint; 1 by default.")
@click.option("--rounds", type=click.IntRange(1, 100), help="Of each measurement of an endpoint; 5 by default.")
@click.option("--pin/--no-pin", default=False, help="One CPU for the client, another for our servers.")
@click.option("--quick", is_flag=True, help="Less of everything, done in under 40 seconds.")
def main(
    *,
    json_file: Path | None,
    reference: str | None,
    reference_ca: str,
    reference_pid: int | None,
    only: str,
    seconds: float | None,
    rounds: int | None,
    pin: bool,
    quick: bool,
) -> None:
    """Measure verdicts, requests over TLS, memory and start, and print one table."""
    scale = QUICK if quick else FULL
    scale = replace(scale, seconds=seconds or scale.seconds, rounds=rounds or scale.rounds)
    parts = [part for part in PARTS if part in only.split(",")]
    if unknown := set(only.split(",")).difference(PARTS):
        raise click.UsageError(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    other = Reference(reference, reference_ca, reference_pid) if reference else None
    console = Console()
    if not console.is_terminal and console.width < NARROWEST:
        console = Console(width=NARROWEST)  # a pipe has no width, and a table cut off has no use
    with console.status("") as status:
        try:
            report = measure(scale, parts, status.update, reference=other, pin=pin)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    console.print(report.table())
    for line in report.caption():
        console.print(line, highlight=False)
    if json_file is not None:
        json_file.write_text(json.dumps(report.raw(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
