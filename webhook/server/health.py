"""Liveness, readiness and metrics, over plain HTTP on a port of their own: they work while a certificate does not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.cluster import Source
    from webhook.server.lifecycle import Lifecycle
    from webhook.server.metrics import Metrics

MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of readiness. `detail` is for people, also when `ok`."""

    name: str
    ok: bool
    detail: str


def drain_check(lifecycle: Lifecycle) -> Check:
    """Whether this replica is not about to leave."""
    return Check("drain", not lifecycle.leaving, lifecycle.phase.value)


def inventory_check(source: Source) -> Check:
    """Whether the cluster has been read. What cannot be used or is old shows in the detail and does not fail it:
    the last good state is served, and no other replica would know better.
    """
    status = source.status()
    if not status.synced:
        detail = "nodes and configurations have not been read yet"
    else:
        detail = f"{status.nodes} nodes, {len(status.configs)} configurations, heard of {status.age_seconds:.0f} s ago"
    return Check("inventory", status.synced, "; ".join([detail, *status.problems[:MAX_PROBLEMS]]))


def create_health_app(checks: Sequence[Callable[[], Check]], metrics: Metrics) -> FastAPI:
    """Return the application of the plain port.

    `/livez` answers while the event loop turns. `/readyz` is 200 or 503; it names what fails, and with `?verbose` says
    more about every check, as JSON where `Accept` asks for it.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.api_route("/livez", methods=["GET", "HEAD"])
    async def livez() -> Response:
        return PlainTextResponse("ok")

    @app.api_route("/readyz", methods=["GET", "HEAD"])
    async def readyz(request: Request) -> Response:
        found = [check() for check in checks]
        ready = all(check.ok for check in found)
        code = 200 if ready else 503
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"ready": ready, "checks": [asdict(check) for check in found]}, code)
        if "verbose" in request.query_params:
            return PlainTextResponse("".join(f"[{'+' if c.ok else '-'}] {c.name}: {c.detail}\n" for c in found), code)
        return PlainTextResponse("ok" if ready else "; ".join(f"{c.name}: {c.detail}" for c in found if not c.ok), code)

    @app.get("/metrics")
    async def exposition() -> Response:
        return Response(metrics.exposition(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return app
