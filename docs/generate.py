"""Makes ``findings.md`` and ``settings.md`` from the code: ``python -m docs.generate [--check]``.

With ``--check`` nothing is written; the exit status is 1 where a page is not what the code says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from webhook.policy.catalogue import ENTRIES, TOPICS
from webhook.settings import PREFIX, ExpectedProfile, WebhookSettings

FOLDER = Path(__file__).parent
WIDTH = 120

_SEVERITIES = {("deny",): "Denied", ("warn",): "Warning", ("deny", "warn"): "Denied or warning"}

_FINDINGS_HEAD = """\
# Findings

<!-- Made by `make docs` from webhook/policy/catalogue.py. -->

Every message of the webhook ends in one of these codes, in brackets. *Denied* means that the object is rejected,
*warning* that it passes and `kubectl` prints a `Warning:` line. What is found on a Deployment, Job and so on is a
warning, unless the setting `workloads` says `deny` (or `off`); the pods they make are judged in any case.

The same codes are in the log, in the metric `mps_webhook_findings_total` and in the audit annotation `codes`.
"""

_SETTINGS_HEAD = f"""\
# Settings

<!-- Made by `make docs` from webhook/settings.py. -->

`mps-webhook serve --settings FILE` reads them from a YAML file, in the cluster `deploy/webhook/serving/settings.yaml`.
Each is also a variable, `{PREFIX}` and the name in capitals (`{PREFIX}PLACEMENT`); lists and maps are
written there as YAML or JSON. An argument of the command beats a variable, a variable beats the file. Unknown names are
refused at start, all problems at once. Settings are read at start only. Defaults are in brackets.
"""

_EXPECTED_HEAD = """\
## expected_profiles

A list; each item says as much as is known of a kind of node that may be scaled to zero.
"""


def pages() -> Mapping[str, str]:
    """Contents by file name."""
    return {"findings.md": "".join(_findings()), "settings.md": "".join(_settings())}


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or look whether they are current; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description="Make the generated pages.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a page is out of date")
    check = parser.parse_args(arguments).check
    stale = [name for name, text in pages().items() if not _is(FOLDER / name, text)]
    for name in stale:
        if check:
            sys.stderr.write(f"docs/{name} is out of date, run: make docs\n")
        else:
            (FOLDER / name).write_text(pages()[name], encoding="utf-8")
    return int(check and bool(stale))


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _findings() -> Iterator[str]:
    yield _FINDINGS_HEAD
    for topic, heading in TOPICS.items():
        yield f"\n## {heading}\n"
        for entry in ENTRIES:
            if entry.topic == topic:
                severity = _SEVERITIES[entry.severities]
                yield f"\n### {entry.code}\n\n{_wrapped(f'*{severity}.* {entry.cause}')}\n"
                yield f"\n{_wrapped(f'Way out: {entry.way_out}')}\n"


def _settings() -> Iterator[str]:
    yield f"{_SETTINGS_HEAD}\n"
    yield from _items(WebhookSettings)
    yield f"\n{_EXPECTED_HEAD}\n"
    yield from _items(ExpectedProfile)


def _items(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        words = _words(field)
        values = f" One of {', '.join(f'`{w}`' for w in words)}." if words else ""
        yield _wrapped(f"- **`{name}`**{_default(field)}: {field.description}{values}", hanging="  ") + "\n"


def _words(field: FieldInfo) -> tuple[str, ...]:
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return " (required)"
    value = field.get_default(call_default_factory=True)
    return "" if value is None or value in ({}, (), frozenset()) else f" (`{value}`)"


def _wrapped(text: str, hanging: str = "") -> str:
    return fill(text, WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
