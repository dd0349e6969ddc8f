"""`mps-webhook`: the commands of the service. What is heavy is imported by the command that needs it."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from webhook import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cluster import Source
    from webhook.server import Service
    from webhook.settings import WebhookSettings

SELF_SIGNED_NAMES = ("localhost", "127.0.0.1", "::1", "mps-webhook.mps-system.svc")


class _Commands(click.Group):
    """Knows `certs` by name and loads it when it is asked for: it has its own container, which serves nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), "certs"})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "certs":
            from webhook.cli.certs import certs

            return certs
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mps-webhook")
def main() -> None:
    """Admission control for pods on NVIDIA GPUs that are shared with MPS."""


@main.command()
@click.option("--port", type=click.IntRange(0, 65535), help="HTTPS port, 8443 by default; 0 for any free one.")
@click.option("--health-port", type=click.IntRange(0, 65535), help="Plain port, 8080 by default; 0 for any free one.")
@click.option("--host", default="", help="Address to listen on; every address by default.")
@click.option("--nodes", type=click.Path(path_type=Path), help="Nodes from a file, in place of a cluster.")
@click.option("--configs", type=click.Path(path_type=Path), help="The device-plugin ConfigMap from a file.")
@click.option("--namespaces", type=click.Path(path_type=Path), help="Namespaces from a file.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="Settings, a YAML file.")
@click.option("--tls-dir", type=click.Path(path_type=Path), help="Directory of tls.crt, tls.key and ca.crt.")
@click.option("--self-signed", is_flag=True, help="Make throwaway certificates, and print the path of their CA.")
def serve(
    *,
    port: int | None,
    health_port: int | None,
    host: str,
    nodes: Path | None,
    configs: Path | None,
    namespaces: Path | None,
    settings_file: Path | None,
    tls_dir: Path | None,
    self_signed: bool,
) -> None:
    """Serve /mutate, /validate and /validate-workloads over HTTPS, and /livez, /readyz and /metrics on a plain port.

    Nodes, configurations and namespaces come from the cluster, or from files where --nodes and --configs name them.
    SIGTERM drains: readiness fails, requests are served for the drain time, then the process exits with 0.
    """
    from webhook.cluster import InputError
    from webhook.server import ListenError
    from webhook.server.logs import configure
    from webhook.settings import SettingsError, WebhookSettings

    if (nodes is None) != (configs is None) or (namespaces is not None and nodes is None):
        _unusable("--nodes and --configs go together, and --namespaces with them")
    if self_signed and tls_dir is not None:
        _unusable("--self-signed and --tls-dir exclude each other")
    with ExitStack() as stack:
        if self_signed:
            tls_dir = stack.enter_context(_throwaway())
        try:
            settings = WebhookSettings.load(settings_file, port=port, health_port=health_port, tls_dir=tls_dir)
            _check_paths(settings)
            service = _service(settings, _source(settings, nodes, configs, namespaces), host)
        except SettingsError as error:
            _unusable(*error.problems)
        except (InputError, ListenError) as error:
            _unusable(str(error))
        configure(settings.log_level)
        if self_signed:
            click.echo(f"ca: {settings.tls_dir / 'ca.crt'}")
        click.echo(f"https: https://{_shown(host)}:{service.port}")
        click.echo(f"health: http://{_shown(host)}:{service.health_port}")
        _run(service, stack)


def _run(service: Service, stack: ExitStack) -> None:
    """Run until the end. An end that is not orderly closes `stack` and leaves with 1 at once."""
    import asyncio
    import os
    import signal

    import uvloop

    async def run() -> bool:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, service.terminate)
        loop.add_signal_handler(signal.SIGINT, service.stop)
        return await service.run(lambda: click.echo("ready"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if not runner.run(run()):
            # Closing the loop would wait for its threads, and those may wait for the network.
            stack.close()
            sys.stdout.flush()
            os._exit(1)


def _service(settings: WebhookSettings, source: Source, host: str) -> Service:
    from webhook import policy
    from webhook.server import Service

    return Service(settings, source, policy, host=host)


def _source(settings: WebhookSettings, nodes: Path | None, configs: Path | None, namespaces: Path | None) -> Source:
    from webhook.cluster import FileSource

    if nodes is not None and configs is not None:
        return FileSource(nodes, configs, namespaces, settings=settings.policy(), config_map=settings.config_map)
    from webhook.cluster.client import from_environment
    from webhook.cluster.live import ClusterSource

    return ClusterSource(from_environment(), settings.policy(), settings.config_map)


def _check_paths(settings: WebhookSettings) -> None:
    """A path that is wrong shows now. What lies there may still come, or be mended: readiness waits for that."""
    if not settings.tls_dir.is_dir():
        _unusable(f"{settings.tls_dir}: no such directory; name it with --tls-dir, or try --self-signed")
    if settings.client_ca_file is not None and not settings.client_ca_file.is_file():
        _unusable(f"{settings.client_ca_file}: no such file")


@contextmanager
def _throwaway() -> Iterator[Path]:
    """Give a temporary directory with an authority and a pair, for use on this machine."""
    from tempfile import TemporaryDirectory

    from certs.issue import self_signed, write_files

    with TemporaryDirectory(prefix="mps-webhook-") as folder:
        write_files(self_signed(SELF_SIGNED_NAMES), folder)
        yield Path(folder)


def _shown(host: str) -> str:
    """The address to call: the one listened on, or this machine."""
    if host in ("", "0.0.0.0", "::"):
        return "localhost"
    return f"[{host}]" if ":" in host else host


def _unusable(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(f"mps-webhook: {line}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
