"""The monitoring component: every query reads series that are there, every alert fires when it should.

Prometheus itself parses and evaluates where its ``promtool`` is found, in the folder PROMETHEUS_ASSETS or on the PATH
(Debian: package prometheus). Elsewhere the queries are held against the series alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.deploy.monitoring.expositions import Grown, Scraped, cluster
from tests.unit.deploy.monitoring.promql import Selector, Series, grouping, missing, selectors

ROOT = Path(__file__).parents[3]
COMPONENT = ROOT / "deploy/components/monitoring"
ALERTS = Path(__file__).parent / "monitoring" / "alerts.yaml"
PROMTOOL = shutil.which("promtool", path=os.environ.get("PROMETHEUS_ASSETS")) or shutil.which("promtool")
DASHBOARD = json.loads((COMPONENT / "mps-webhook.json").read_text())
RULES: dict[str, Any] = yaml.safe_load((COMPONENT / "prometheusrule.yaml").read_text())["spec"]
MONITOR: dict[str, Any] = yaml.safe_load((COMPONENT / "servicemonitor.yaml").read_text())["spec"]

Objects = list[dict[str, Any]]

needs_prometheus = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard, with Grafana's variable as Grafana would fill it in."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield f"{panel['title']}, {target['refId']}", target["expr"].replace("$__rate_interval", "5m")


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


QUERIES = dict(queries())
EXPRESSIONS = QUERIES | {rule["alert"]: rule["expr"] for rule in rules()}


def promtool(*arguments: str | Path, stdin: str = "") -> str:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *map(str, arguments)], input=stdin, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Scraped:
    (endpoint,) = MONITOR["endpoints"]
    return cluster(tmp_path_factory.mktemp("tls") / "tls", honor_labels=endpoint["honorLabels"])


# What the queries read


@pytest.mark.parametrize("query", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_every_selector_and_every_label_is_in_the_exposition(query: str, scraped: Scraped) -> None:
    assert selectors(query)
    assert missing(query, [one.series for one in scraped.series]) == []


@needs_prometheus
def test_prometheus_evaluates_every_query_of_the_dashboard_to_something(tmp_path: Path, scraped: Scraped) -> None:
    test = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": _written(g.series), "values": _values(g)} for g in scraped.series],
                "promql_expr_test": [
                    {
                        "expr": f"count({query}) > bool 0",
                        "eval_time": "8m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                    for query in QUERIES.values()
                ],
            }
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(json.dumps(test))
    assert "SUCCESS" in promtool("test", "rules", path)


@needs_prometheus
@pytest.mark.parametrize("which", [0, 1], ids=["webhook", "certs"])
def test_prometheus_finds_nothing_to_object_to_in_the_metrics(which: int, scraped: Scraped) -> None:
    """Conventional names and units, help, types."""
    promtool("check", "metrics", stdin=scraped.texts[which])


# Alerts


@needs_prometheus
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(RULES))
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", path)


@needs_prometheus
def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    (tmp_path / "alerts.yaml").write_text(ALERTS.read_text())
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "alerts.yaml")


def test_every_alert_is_tested_to_fire_and_to_be_silent() -> None:
    firing: set[str] = set()
    silent: set[str] = set()
    for case in yaml.safe_load(ALERTS.read_text())["tests"]:
        for one in case["alert_rule_test"]:
            (firing if one["exp_alerts"] else silent).add(one["alertname"])
    names = {rule["alert"] for rule in rules()}
    assert firing == names
    assert silent == names


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r["alert"])
def test_an_alert_says_what_is_wrong_and_where_to_look(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    for text in rule["annotations"].values():
        assert text.endswith(".")
    for page in re.findall(r"docs/[\w-]+\.md", rule["annotations"]["description"]):
        assert (ROOT / page).is_file()
    grouped = grouping(rule["expr"])
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    if grouped:
        assert used <= grouped, "the alert's query drops a label that its text shows"


# Manifests


@pytest.fixture
def rendered(render: Callable[[str | Path], Objects], tmp_path: Path) -> Objects:
    webhook, component = (os.path.relpath(ROOT / p, tmp_path) for p in ("deploy/webhook", COMPONENT))
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{webhook}]\ncomponents: [{component}]\n")
    return render(tmp_path)


def test_the_monitor_finds_the_ports_of_the_pods(rendered: Objects, find: Callable[..., dict[str, Any]]) -> None:
    service = find(rendered, "Service", "mps-webhook-metrics")
    monitor = find(rendered, "ServiceMonitor", "mps-webhook")["spec"]
    assert monitor["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    others = [o for o in rendered if o["kind"] == "Service" and o is not service]
    assert not any(monitor["selector"]["matchLabels"].items() <= o["metadata"]["labels"].items() for o in others)
    (port,) = service["spec"]["ports"]
    assert [e["port"] for e in monitor["endpoints"]] == [port["name"]]
    jobs = []
    for deployment in (o for o in rendered if o["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert {p["name"]: p["containerPort"] for p in container["ports"]}[port["targetPort"]] == port["port"]
        jobs.append(pod["metadata"]["labels"]["app.kubernetes.io/name"])
    assert sorted(jobs) == ["mps-webhook", "mps-webhook-certs"]


def test_the_dashboard_is_where_grafana_looks(rendered: Objects, find: Callable[..., dict[str, Any]]) -> None:
    config_map = find(rendered, "ConfigMap", "mps-webhook-dashboard")
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config_map["data"]["mps-webhook.json"]) == DASHBOARD


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({p["id"] for p in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


# The helpers


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("up", [Selector("up", ())]),
        ('absent(up{job="a"} == 1)', [Selector("up", (("job", "=", "a"),))]),
        ('a{x=~"b{2}", y!="(c)"} offset 10m', [Selector("a", (("x", "=~", "b{2}"), ("y", "!=", "(c)")))]),
        ("sum by (le) (rate(a_bucket[5m])) / b", [Selector("a_bucket", ()), Selector("b", ())]),
        ("a * on (pod) group_left (hash) b - time()", [Selector("a", ()), Selector("b", ())]),
    ],
)
def test_selectors(query: str, expected: list[Selector]) -> None:
    assert selectors(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('a{x="1"}', []),
        ('a{x="2"}', ["Selector(name='a', matchers=(('x', '=', '2'),))"]),
        ("b", ["Selector(name='b', matchers=())"]),
        ("sum by (x, z) (a)", ["z"]),
    ],
)
def test_what_is_missing_is_told(query: str, expected: list[str]) -> None:
    assert missing(query, [Series("a", {"x": "1", "y": "2"})]) == expected


def _written(series: Series) -> str:
    labels = ", ".join(f'{k}="{v}"' for k, v in sorted(series.labels.items()))
    return f"{series.name}{{{labels}}}"


def _values(grown: Grown) -> str:
    """Ten minutes, one sample each: growing from the first value as it grew between the two scrapes."""
    step = grown.second - grown.first
    return f"{grown.first}{'+' if step >= 0 else ''}{step}x10"
