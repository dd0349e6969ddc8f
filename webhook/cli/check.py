"""``kubectl mps check``: what the webhook would say to manifests, without applying them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from webhook import kubeyaml
from webhook.cli.inputs import Files
from webhook.cli.manifest import Manifest
from webhook.cluster.files import parse_documents, read_documents
from webhook.cluster.source import InputError
from webhook.policy import Inventory, Verdict, judge_pod, judge_workload
from webhook.policy.workloads import read_template

_FILE = click.Path(path_type=Path)


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help="Manifests; - for stdin.")
@click.option("-n", "--namespace", default="default", help="Namespace of objects that name none.")
@click.option("--nodes", type=_FILE, help="Nodes from a file (kubectl get nodes -o yaml).")
@click.option("--configs", type=_FILE, help="The device-plugin ConfigMap from a file.")
@click.option("--namespaces", type=_FILE, help="Namespaces from a file.")
@click.option("--settings", type=_FILE, help="The webhook's settings.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
def check(
    *,
    files: tuple[str, ...],
    namespace: str,
    nodes: Path | None,
    configs: Path | None,
    namespaces: Path | None,
    settings: Path | None,
    output: str,
) -> None:
    """Say what the webhook would say to the pods and workloads in files.

    Nodes, the ConfigMap and namespaces come from the files named, else from the current cluster. Exits with 0 where
    everything is allowed, 1 where something is denied, 2 where the input cannot be used.
    """
    try:
        documents = [(source, document) for source in files for document in _read(source)]
        inventory = Files(nodes, configs, namespaces, settings).inventory()
        manifests = [m for source, document in documents for m in _judged(source, document, namespace, inventory)]
    except InputError as error:
        _unusable(*str(error).splitlines())
    judged = [(m, m.verdict) for m in manifests if m.verdict is not None]
    if not judged:
        _unusable(f"{', '.join(files)}: no Pod and no workload with a pod template in it")
    if output == "json":
        click.echo(json.dumps([m.report(v) for m, v in judged], indent=2, ensure_ascii=False))
    elif output == "yaml":
        _print_yaml(manifests)
    else:
        from webhook.cli.verdicts import print_verdicts

        print_verdicts(judged)
    sys.exit(0 if all(v.allowed for _, v in judged) else 1)


def _read(source: str) -> list[Any]:
    if source != "-":
        return read_documents(source)
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("stdin: not a UTF-8 text") from None
    return parse_documents(text, "stdin")


def _judged(source: str, document: object, namespace: str, inventory: Inventory) -> Iterator[Manifest]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise InputError(f"{source}: not a Kubernetes object, it has no kind")
    items = document.get("items")
    if document["kind"].endswith("List") and isinstance(items, list):
        for item in items:
            yield from _judged(source, item, namespace, inventory)
        return
    metadata = document.get("metadata")
    named = metadata.get("namespace") if isinstance(metadata, dict) else None
    namespace = named if isinstance(named, str) and named else namespace
    yield Manifest(source, document, namespace, _verdict(document, namespace, inventory))


def _verdict(document: dict[str, Any], namespace: str, inventory: Inventory) -> Verdict | None:
    if document["kind"] == "Pod":
        return judge_pod(document, namespace, inventory)
    return None if read_template(document) is None else judge_workload(document, namespace, inventory)


def _print_yaml(manifests: list[Manifest]) -> None:
    """Every object that would be stored, as it would be stored; what is denied is told on standard error instead."""
    allowed = [m for m in manifests if m.verdict is None or m.verdict.allowed]
    click.echo("---\n".join(kubeyaml.dump(m.patched()) for m in allowed), nl=False)
    for manifest in manifests:
        for finding in manifest.verdict.findings if manifest.verdict else ():
            word = "denied" if finding.severity == "deny" else "warning"
            click.echo(f"{manifest.source}: {manifest.kind} {manifest.name}: {word}: {finding.message}", err=True)


def _unusable(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(f"kubectl mps: {line}", err=True)
    sys.exit(2)
