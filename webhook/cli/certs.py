"""`mps-webhook certs`: keeps the serving certificate and the caBundle in order, or makes files once."""

from __future__ import annotations

import re
import signal
import socket
import threading
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    DurationBase = click.ParamType[timedelta]
else:
    DurationBase = click.ParamType  # takes a parameter in recent versions only

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(DurationBase):
    """A time span: `90d`, `36h`, `15m`, `90s` or plain seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the span; fails with a usage error for anything else."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"([0-9]{1,10})([smhd]?)", str(value).strip())
        if not found:
            self.fail(f"{value!r} is not a duration: write 90d, 36h, 15m or 90s", param, ctx)
        try:
            return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


class InputError(click.ClickException):
    """Unusable input: one line on standard error, exit status 2."""

    exit_code = 2


def _option(name: str, **kwargs: Any) -> Callable[[_Command], _Command]:
    variable = "MPS_WEBHOOK_CERTS_" + name.strip("-").replace("-", "_").upper()
    return click.option(
        name, envvar=variable, show_default=kwargs.pop("show_default", True), show_envvar=True, **kwargs
    )


@click.group("certs")
def certs() -> None:
    """Serving certificate, its authority and the caBundle of the webhook configurations."""


@certs.command("run")
@_option("--namespace", help="Namespace of Secret, Service and Lease.  [default: the pod's own, else mps-system]")
@_option("--secret", default="mps-webhook-tls", help="Secret that holds the pair and the authority.")
@_option("--service", default="mps-webhook", help="Service that the API server calls.")
@_option("--mutating", multiple=True, default=("mps-webhook",), help="MutatingWebhookConfiguration; repeatable.")
@_option("--validating", multiple=True, default=("mps-webhook",), help="ValidatingWebhookConfiguration; repeatable.")
@_option("--lease", default="mps-webhook-certs", help="Lease that the acting replica holds.")
@_option("--ca-lifetime", type=Duration(), default="365d", help="Lifetime of an authority.")
@_option("--leaf-lifetime", type=Duration(), default="90d", help="Lifetime of a serving certificate.")
@_option("--settle", type=Duration(), default="90s", help="From the confirmed caBundle to the leaf that needs it.")
@_option("--poll", type=Duration(), default="5s", help="Time between two looks at the cluster, 1 to 10 seconds.")
@_option("--health-port", type=click.IntRange(0, 65535), default=8080, help="/livez, /readyz and /metrics.")
@_option("--health-host", default="", help="Address of the health port.  [default: all]", show_default=False)
@_option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Cluster to talk to.  [default: as kubectl, or the pod's]"
)
def run(
    *,
    namespace: str | None,
    secret: str,
    service: str,
    mutating: tuple[str, ...],
    validating: tuple[str, ...],
    lease: str,
    ca_lifetime: timedelta,
    leaf_lifetime: timedelta,
    settle: timedelta,
    poll: timedelta,
    health_port: int,
    health_host: str,
    kubeconfig: str | None,
) -> None:
    """Rotate the certificates for good, without a gap; ends on SIGTERM.

    All certificates are renewed at two thirds of their lifetime. A caBundle that somebody has changed is put right
    within the time of --poll.
    """
    from certs.authority import general_name, service_names
    from certs.cluster import ClusterError, KubernetesCluster
    from certs.controller import Controller
    from certs.lease import KubernetesLease, Leadership
    from certs.loop import now_utc
    from certs.loop import run as run_loop
    from certs.rotation import Policy, Target
    from certs.status import Status, serve
    from certs.transport import KubernetesTransport, service_account_namespace

    _log_to_stderr()
    namespace = namespace or service_account_namespace() or "mps-system"
    if not timedelta(seconds=1) <= poll <= timedelta(seconds=10):
        raise InputError("--poll has to be between 1s and 10s")
    names = service_names(service, namespace)
    try:
        for name in names:
            general_name(name)
        policy = Policy(names, ca_lifetime, leaf_lifetime, settle)
    except ValueError as error:
        raise InputError(str(error)) from None
    targets = [
        *(Target("mutating", name) for name in dict.fromkeys(mutating)),
        *(Target("validating", name) for name in dict.fromkeys(validating)),
    ]
    try:
        transport = KubernetesTransport(kubeconfig)
    except ClusterError as error:
        raise InputError(str(error)) from None
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    status = Status(targets, now_utc, patience=timedelta(seconds=60))
    try:
        server = serve(status, health_port, health_host)
    except OSError as error:
        raise InputError(f"--health-port {health_port}: {error.strerror}") from None
    labels = {"app.kubernetes.io/name": "mps-webhook", "app.kubernetes.io/managed-by": "mps-webhook-certs"}
    controller = Controller(
        KubernetesCluster(transport, namespace, secret, labels), targets, policy, now_utc, status.acted
    )
    identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    leadership = Leadership(KubernetesLease(transport, namespace, lease), identity)
    try:
        run_loop(controller, leadership, status, stop, poll=poll)
    finally:
        server.shutdown()
        server.server_close()
        transport.close()


@certs.command("issue")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Directory to write to.")
@click.option("--dns", "names", multiple=True, required=True, help="DNS name or IP address of the server; repeatable.")
@click.option("--days", type=click.IntRange(1, 36500), default=365, show_default=True, help="Lifetime of both.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
def issue(out: Path, names: tuple[str, ...], days: int, force: bool) -> None:
    """Make ca.crt, ca.key, tls.crt and tls.key in a directory, for those who manage certificates on their own.

    The API server calls a webhook as <service>.<namespace>.svc.
    """
    from certs.issue import IssueError, self_signed, write_files

    try:
        paths = write_files(self_signed(names, lifetime=timedelta(days=days)), out, overwrite=force)
    except IssueError as error:
        raise InputError(str(error)) from None
    for path in paths:
        click.echo(path)


def _log_to_stderr() -> None:
    import logging

    # No effect where the program has set its own logging up.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
