"""What the pages point at is there: files, headings, metrics, alerts, settings, codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from certs.status import Status
from tests.http.support import Fleetless
from webhook.policy.catalogue import CATALOGUE
from webhook.server.lifecycle import Lifecycle
from webhook.server.metrics import Metrics

ROOT = Path(__file__).parents[3]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy/README.md"])
WRAPPED = sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs/measurements.md", ROOT / "docs/performance.md"})

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        path = (page.parent / target) if target else page
        assert path.exists(), target
        if anchor:
            readme = path / "README.md" if path.is_dir() else path
            assert anchor in map(_anchor, re.findall(r"^#+ (.+)$", readme.read_text(), re.MULTILINE)), anchor


@each_page
def test_metrics_are_exposed(page: Path) -> None:
    named = set(re.findall(r"`((?:mps_webhook|certs|process)_\w+)", page.read_text()))
    assert named <= _metrics()


@each_page
def test_alerts_exist(page: Path) -> None:
    rules = yaml.safe_load((ROOT / "deploy/components/monitoring/prometheusrule.yaml").read_text())["spec"]["groups"]
    alerts = {rule["alert"] for group in rules for rule in group["rules"]}
    assert set(re.findall(r"`(MpsWebhook\w+)`", page.read_text())) <= alerts


@each_page
def test_codes_in_brackets_exist(page: Path) -> None:
    assert set(re.findall(r" \[([a-z]+(?:-[a-z]+)+)\]", page.read_text())) <= set(CATALOGUE)


@pytest.mark.parametrize("page", WRAPPED, ids=lambda p: p.stem)
def test_lines_outside_tables_are_of_a_readable_length(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if len(line) > 120 and not line.startswith("|")] == []


@pytest.mark.parametrize(("index", "folder"), [("docs/README.md", ""), ("README.md", "docs/")])
def test_both_lists_have_every_page(index: str, folder: str) -> None:
    pages = {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(rf"\]\({folder}([\w-]+\.md)\)", (ROOT / index).read_text()))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _metrics() -> set[str]:
    from datetime import UTC, datetime, timedelta

    status = Status((), lambda: datetime.now(UTC), timedelta(seconds=60))
    registries: tuple[CollectorRegistry, ...] = (Metrics(Fleetless(), Lifecycle()).registry, status.registry)
    text = "".join(generate_latest(registry).decode() for registry in registries)
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
