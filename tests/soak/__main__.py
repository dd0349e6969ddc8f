"""``make soak``: overload, hostile clients, a rolling restart, minutes of load, against real serving processes.

Everything runs on this machine and over loopback, for a bounded time, in processes that end with it. One line for each
scenario; exit status 1 if one has failed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from tests.bench import machine
from tests.bench.processes import Files, client
from tests.soak import hostile, overload, replica, restart, steady
from tests.soak.ground import Ground
from tests.soak.outcome import Outcome

SCENARIOS: dict[str, Callable[[Ground], list[Outcome]]] = {
    "overload": overload.run,
    "hostile": hostile.run,
    "restart": restart.run,
    "steady": steady.run,
}
"""In the order in which they run, the long one last."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", type=click.FloatRange(0.5, 120), default=10.0, show_default=True, help="Of steady load.")
@click.option("--only", default=",".join(SCENARIOS), show_default=True, help="Some of them, with commas between.")
def main(*, minutes: float, only: str) -> None:
    """Try what the service promises under load; exit with 1 where a promise is not kept."""
    if unknown := set(only.split(",")).difference(SCENARIOS):
        raise click.UsageError(f"--only knows {', '.join(SCENARIOS)}, not {', '.join(sorted(unknown))}")
    console = Console()
    chosen = [run for name, run in SCENARIOS.items() if name in only.split(",")]
    with tempfile.TemporaryDirectory(prefix="mps-webhook-soak-") as folder, client() as asking:
        files = Files(Path(folder))
        with console.status("writing the fleet") as status:
            replica.write(files)
            ground = Ground(files, asking, minutes, status.update)
            failed = [outcome for run in chosen for outcome in _tell(console, run, ground) if not outcome.ok]
    console.print(", ".join(f"{key} {value}" for key, value in machine.described().items()), highlight=False)
    sys.exit(1 if failed else 0)


def _tell(console: Console, run: Callable[[Ground], list[Outcome]], ground: Ground) -> list[Outcome]:
    began = time.monotonic()
    outcomes = run(ground)
    for outcome in outcomes:
        console.print(outcome.line(), highlight=False, markup=False, soft_wrap=True)
    console.print(f"  in {time.monotonic() - began:.0f} s", highlight=False)
    return outcomes


if __name__ == "__main__":
    main()
