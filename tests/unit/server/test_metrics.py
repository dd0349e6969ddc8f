from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from webhook.cluster import SourceStatus
from webhook.server.lifecycle import Lifecycle
from webhook.server.metrics import MAX_CONFIGS, Metrics


@dataclass
class Empty:
    def inventory(self) -> Any:
        return None

    def status(self) -> SourceStatus:
        return SourceStatus(synced=False)

    async def run(self) -> None:
        return


def test_labels_are_bounded() -> None:
    metrics = Metrics(Empty(), Lifecycle())
    for number in range(MAX_CONFIGS * 3):
        group: Any = SimpleNamespace(config=f"mps-{number}x")
        verdict: Any = SimpleNamespace(findings=(), fit=(group,), unfit=())
        metrics.decision("/mutate", "allowed", verdict)
        metrics.request("/mutate", f"OPERATION-{number}", 200, 0.001)
    text = metrics.exposition().decode()
    assert text.count("mps_webhook_judged_profiles_total{") == MAX_CONFIGS + 1
    assert f'mps_webhook_judged_profiles_total{{config="other",outcome="fit"}} {MAX_CONFIGS * 2:.1f}' in text
    assert text.count("mps_webhook_requests_total{") == 1
    assert "mps_webhook_inventory_synced 0.0" in text
