"""``kubectl mps nodes``: what GPU nodes share, how much of it is taken, and by whom."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli.connection import FILE, cluster_options, connect, given_settings
from webhook.cluster import objects
from webhook.cluster.files import CONFIG_MAP, read_configs, read_nodes
from webhook.cluster.objects import CannotLookError, FileObjects, Objects
from webhook.cluster.source import InputError
from webhook.policy import DeviceConfig, Fleet, Node, Settings, project_node
from webhook.policy.occupancy import Holder, Occupancy, all_holders, occupy

if TYPE_CHECKING:
    from webhook.settings import WebhookSettings


@click.command()
@click.option("--pods", is_flag=True, help="Show who holds each share, and the limit.")
@click.option("--nodes", "nodes_file", type=FILE, help="Nodes from a file (kubectl get nodes -o yaml).")
@click.option("--configs", "configs_file", type=FILE, help="The device-plugin ConfigMap from a file.")
@click.option("--pods-file", type=FILE, help="Pods from a file (kubectl get pods -A -o yaml).")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="All of it from files, as if they were all there is.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@cluster_options
def nodes(
    *,
    pods: bool,
    nodes_file: Path | None,
    configs_file: Path | None,
    pods_file: Path | None,
    files: tuple[Path, ...],
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    settings: Path | None,
) -> None:
    """Show GPU nodes: config, shares, what a share has, and how much of the cards' memory is promised.

    Promised is the sum of the limits of those who hold shares; a holder without a limit has its part of the card.
    Which card of a node a share is on only the node knows, so the bar is the mean over its cards. Nodes, the ConfigMap
    and pods come from the files named, else from the current cluster.
    """
    sources = _Sources(nodes_file, configs_file, pods_file, files, kubeconfig, context)
    try:
        found = sources.occupancies(given_settings(settings))
    except (InputError, CannotLookError) as error:
        for line in str(error).splitlines():
            click.echo(f"kubectl mps: {line}", err=True)
        sys.exit(2)
    for warning in sources.warnings:
        click.echo(f"kubectl mps: {warning}", err=True)
    if output == "json":
        from webhook.cli.nodetable import report

        click.echo(json.dumps([report(o) for o in found], indent=2, ensure_ascii=False))
    else:
        from webhook.cli.nodetable import print_nodes

        print_nodes(found, pods=pods)


class _Sources:
    """Where nodes, configurations and pods come from. ``warnings`` says what could not be looked at."""

    def __init__(
        self,
        nodes: Path | None,
        configs: Path | None,
        pods: Path | None,
        files: Sequence[Path],
        kubeconfig: Path | None,
        context: str | None,
    ) -> None:
        self._nodes, self._configs, self._pods = nodes, configs, pods
        self._files = files
        self._where = kubeconfig, context
        self._found: Objects | None = None
        self.warnings: list[str] = []

    def occupancies(self, given: WebhookSettings | None) -> tuple[Occupancy, ...]:
        """The GPU nodes with their holders. Raises InputError and CannotLookError."""
        settings, config_map = self._settings(given)
        return occupy(Fleet(self._read_nodes(), self._read_configs(config_map), settings), self._read_holders())

    @property
    def _objects(self) -> Objects:
        if self._found is None:
            if self._files:
                self._found = FileObjects(self._files)
            else:
                from webhook.cluster.look import LiveObjects

                self._found = LiveObjects(connect(*self._where))
        return self._found

    @property
    def _only_files(self) -> bool:
        """Nodes and configurations both are named, so that there is no cluster to ask for the rest."""
        return self._nodes is not None and self._configs is not None and not self._files

    def _settings(self, given: WebhookSettings | None) -> tuple[Settings, str]:
        if given is None and not self._only_files:
            from webhook.cli.installed import settings_of

            try:
                given, _ = settings_of(self._objects)
            except CannotLookError as error:
                self.warnings.append(f"the webhook's settings could not be read, taking the defaults: {error}")
        return (Settings(), CONFIG_MAP) if given is None else (given.policy(), given.config_map)

    def _read_nodes(self) -> Sequence[Node]:
        if self._nodes is not None:
            return read_nodes(self._nodes)
        try:
            return [project_node(raw) for raw in self._objects.each(objects.NODE)]
        except ValueError as error:
            raise InputError(f"nodes: {error}") from None

    def _read_configs(self, config_map: str) -> dict[str, DeviceConfig]:
        if self._configs is not None:
            return read_configs(self._configs, config_map)
        from webhook.cli.installed import configs_of

        namespace, _, name = config_map.partition("/")
        try:
            found = self._objects.get(objects.CONFIG_MAP, namespace, name)
        except CannotLookError as error:
            self.warnings.append(f"the configs could not be read, going by the nodes' labels: {error}")
            return {}
        configs, problems = configs_of(found)
        self.warnings += [f"config {name} does not parse: {problem}" for name, problem in problems.items()]
        return configs

    def _read_holders(self) -> tuple[Holder, ...] | None:
        if self._pods is not None:
            return tuple(all_holders(FileObjects([self._pods]).each(objects.POD)))
        if self._only_files:
            return None
        try:
            return tuple(all_holders(self._objects.each(objects.POD)))
        except CannotLookError as error:
            self.warnings.append(f"pods could not be listed, so nobody knows what is used: {error}")
            return None
