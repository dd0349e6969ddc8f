"""Options of commands that look at a whole cluster: files instead of it, or which one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from webhook.cluster.source import InputError

if TYPE_CHECKING:
    from webhook.cluster.client import ApiClient
    from webhook.settings import WebhookSettings

FILE = click.Path(path_type=Path)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def cluster_options(command: _Command) -> _Command:
    """``--kubeconfig`` and ``--context``, as kubectl has them, and ``--settings``."""
    for option in (
        click.option("--settings", type=FILE, help="The webhook's settings.  [default: the cluster's own]"),
        click.option("--context", help="The kubeconfig's context to use."),
        click.option("--kubeconfig", type=FILE, help="The kubeconfig to use.  [default: as kubectl finds it]"),
    ):
        command = option(command)
    return command


def connect(kubeconfig: Path | None, context: str | None) -> ApiClient:
    """A client of the current cluster. Raises InputError where there is none or it does not answer."""
    from webhook.cluster.client import from_environment
    from webhook.cluster.look import LiveObjects
    from webhook.cluster.objects import CannotLookError

    client = from_environment(kubeconfig, context)
    try:
        LiveObjects(client).reach()
    except CannotLookError as error:
        raise InputError(str(error)) from None
    return client


def given_settings(path: Path | None) -> WebhookSettings | None:
    """Settings named by a file or by variables; None where none are. Raises InputError."""
    if path is None and not any(name.startswith("MPS_WEBHOOK_") for name in os.environ):
        return None
    from webhook.settings import WebhookSettings

    return WebhookSettings.load(path)
