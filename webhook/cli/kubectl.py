"""``kubectl-mps``, which kubectl finds as ``kubectl mps``: what a cluster's users and operators ask."""

from __future__ import annotations

import importlib

import click

from webhook import __version__

_COMMANDS = {
    "check": "webhook.cli.check",
    "doctor": "webhook.cli.doctor",
    "nodes": "webhook.cli.nodes",
}


class _Commands(click.Group):
    """Loads a command when it is asked for, so that each starts as quickly as it can."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(importlib.import_module(module), cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kubectl-mps")
def main() -> None:
    """See what the MPS admission webhook says, and what it sees."""


if __name__ == "__main__":
    main(prog_name="kubectl mps")
