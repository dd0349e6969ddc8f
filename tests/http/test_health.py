from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.http.support import DENIED, Fixed, Fleetless, Running, review, verdict
from webhook import __version__

if TYPE_CHECKING:
    from collections.abc import Callable


def test_ready(serve: Callable[..., Running]) -> None:
    running = serve()
    assert (running.get("/livez").text, running.get("/readyz").text) == ("ok", "ok")
    assert running.client.head(f"{running.health}/readyz").status_code == 200
    lines = running.get("/readyz?verbose").text.splitlines()
    assert lines[:2] == [
        "[+] drain: serving",
        "[+] inventory: 3 nodes, 2 configurations, heard of 0 s ago",
    ]
    assert re.fullmatch(r"\[\+\] certificate: localhost, 127\.0\.0\.1 until \S+Z \([0-9.]+ days\)", lines[2])
    found = running.get("/readyz", headers={"accept": "application/json"}).json()
    assert (found["ready"], [check["name"] for check in found["checks"]]) == (
        True,
        ["drain", "inventory", "certificate"],
    )


def test_not_synced_is_not_ready_and_alive(serve: Callable[..., Running]) -> None:
    source = Fleetless(synced=False)
    running = serve(source)
    answer = running.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "inventory: nodes and configurations have not been read yet")
    assert running.get("/readyz", headers={"accept": "application/json"}).status_code == 503
    assert running.get("/livez").status_code == 200
    assert running.metric("mps_webhook_inventory_synced") == 0
    source.synced = True
    assert running.get("/readyz").status_code == 200


def test_what_is_old_or_in_part_unusable_is_served_and_said(serve: Callable[..., Running]) -> None:
    problem = "config mps-4x does not parse, keeping the last good one: no such field"
    running = serve(Fleetless(problems=(problem,), age_seconds=400.0))
    answer = running.get("/readyz?verbose")
    assert answer.status_code == 200
    assert f"[+] inventory: 3 nodes, 2 configurations, heard of 400 s ago; {problem}\n" in answer.text
    assert running.metric("mps_webhook_inventory_problems") == 1
    assert running.metric("mps_webhook_inventory_age_seconds") == 400


def test_names_of_the_metrics(serve: Callable[..., Running]) -> None:
    running = serve(policy=Fixed(verdict(DENIED)))
    running.post("/mutate", review())
    running.post("/validate", review(operation="ENCHANT" * 100))
    running.post("/validate-workloads", {})
    for name, value in {
        'mps_webhook_requests_total{code="200",endpoint="/mutate",operation="CREATE"}': 1,
        'mps_webhook_requests_total{code="200",endpoint="/validate",operation="other"}': 1,
        'mps_webhook_requests_total{code="400",endpoint="/validate-workloads",operation="other"}': 1,
        'mps_webhook_request_duration_seconds_count{endpoint="/mutate"}': 1,
        'mps_webhook_request_duration_seconds_bucket{endpoint="/mutate",le="2.5"}': 1,
        "mps_webhook_in_flight": 0,
        'mps_webhook_decisions_total{decision="denied",endpoint="/mutate"}': 1,
        'mps_webhook_decisions_total{decision="untouched",endpoint="/validate"}': 1,
        'mps_webhook_findings_total{code="memory-over-budget",endpoint="/mutate",severity="deny"}': 1,
        'mps_webhook_faults_total{endpoint="/validate-workloads",fault="malformed"}': 1,
        "mps_webhook_panics_total": 0,
        "mps_webhook_inventory_synced": 1,
        "mps_webhook_inventory_age_seconds": 0,
        "mps_webhook_inventory_nodes": 3,
        "mps_webhook_inventory_configs": 2,
        "mps_webhook_inventory_problems": 0,
        'mps_webhook_watch_restarts_total{resource="nodes"}': 2,
        'mps_webhook_tls_reloads_total{result="ok"}': 1,
        'mps_webhook_tls_reloads_total{result="failed"}': 0,
        "mps_webhook_draining": 0,
    }.items():
        assert f"\n{name} {value:.1f}\n" in running.get("/metrics").text
    text = running.get("/metrics").text
    assert 'le="0.0005"' in text
    assert "_created" not in text
    assert re.search(rf'mps_webhook_build_info{{python="3[0-9.]+",version="{re.escape(__version__)}"}} 1\.0', text)
    assert re.search(r'mps_webhook_settings_info{hash="[0-9a-f]{12}"} 1\.0', text)
    assert "process_resident_memory_bytes" in text
