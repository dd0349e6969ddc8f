"""What is remembered of the reviews that came by: no more than a bounded part of the memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import pod
from tests.http.support import review
from tests.unit.server.asgi import Nodes, endpoint, post
from webhook.server.admission import MAX_REMEMBERED
from webhook.server.decide import MAX_KEPT, _kept, tried


@pytest.mark.parametrize(("padding", "kept"), [(0, 1), (MAX_REMEMBERED, 0)])
async def test_verdicts_on_large_reviews_are_not_remembered(padding: int, kept: int) -> None:
    source = Nodes()
    subject = pod().gpu().memory("1Gi").annotate("example.com/padding", "x" * padding).build()
    code, answer = await post(endpoint(source=source), review(subject))
    assert (code, answer["response"]["allowed"]) == (200, True)
    assert "patch" in answer["response"]
    assert len(source.inventory().memory._known) == kept


@pytest.mark.parametrize(("length", "more"), [(10, 1), (MAX_KEPT, 0)])
def test_large_patches_are_not_kept(length: int, more: int) -> None:
    before = _kept.cache_info().currsize
    target: dict[str, Any] = {"spec": {}}
    tried(({"op": "add", "path": "/spec/affinity", "value": "x" * length},), target)
    assert target == {"spec": {"affinity": "x" * length}}
    assert _kept.cache_info().currsize == before + more
