"""The application of the HTTPS port."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from webhook.server.admission import Admission
from webhook.server.body import BodyReader
from webhook.server.decide import Decide, Endpoint, Policy, Workloads
from webhook.server.faults import status_body

if TYPE_CHECKING:
    from webhook.cluster import Source
    from webhook.server.lifecycle import Lifecycle
    from webhook.server.metrics import Metrics


def create_app(
    source: Source,
    policy: Policy,
    *,
    lifecycle: Lifecycle,
    metrics: Metrics,
    workloads: Workloads = "warn",
    bodies: BodyReader | None = None,
) -> FastAPI:
    """Return the application: POST /mutate, /validate and /validate-workloads, and nothing else.

    `policy` is the module `webhook.policy` or what stands in for it.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    bodies = bodies or BodyReader()
    decide = Decide(policy, workloads)
    for endpoint in get_args(Endpoint):
        admission = Admission(
            endpoint, decide.at(endpoint), source=source, lifecycle=lifecycle, bodies=bodies, metrics=metrics
        )
        app.router.routes.append(Route(endpoint, endpoint=admission, methods=["POST"]))

    @app.exception_handler(HTTPException)
    async def not_ours(_: Request, error: HTTPException) -> Response:
        """404 and 405 as a Status: the API server shows a misspelt path to the user word for word."""
        text = f"{error.detail}; the paths are {', '.join(get_args(Endpoint))}, all of them for POST"
        return Response(status_body(error.status_code, text), error.status_code, error.headers, "application/json")

    return app
