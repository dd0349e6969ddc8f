"""One endpoint called as an ASGI server calls it, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tests.builders import inventory, node
from webhook import policy
from webhook.cluster import SourceStatus
from webhook.server.admission import Admission
from webhook.server.body import BodyReader
from webhook.server.decide import Decide
from webhook.server.lifecycle import Lifecycle
from webhook.server.metrics import Metrics

if TYPE_CHECKING:
    from webhook.server.tracing import Trace


class Nodes:
    """A source of one node cut in four."""

    def __init__(self) -> None:
        self._inventory = inventory(node("a", config="mps-4x"))

    def inventory(self) -> Any:
        return self._inventory

    def status(self) -> SourceStatus:
        return SourceStatus(synced=True)

    async def run(self) -> None:
        return


def endpoint(trace: Trace | None = None, *, source: Any = None, judge: Any = policy) -> Admission:
    """`/mutate`, with the real policy unless another is given."""
    source = source or Nodes()
    lifecycle = Lifecycle()
    return Admission(
        "/mutate",
        Decide(judge).at("/mutate"),
        source=source,
        lifecycle=lifecycle,
        bodies=BodyReader(),
        metrics=Metrics(source, lifecycle),
        trace=trace,
    )


async def post(application: Admission, body: Any, *headers: tuple[str, str]) -> tuple[int, Any]:
    """Code and decoded body of the answer."""
    content = orjson.dumps(body)
    given = [("content-type", "application/json"), ("content-length", str(len(content))), *headers]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mutate",
        "query_string": b"timeout=5s",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return sent[0]["status"], orjson.loads(sent[1]["body"])
