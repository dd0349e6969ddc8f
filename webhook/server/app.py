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
    from starlette.types import Receive, Scope, Send

    from webhook.cluster import Source
    from webhook.server.lifecycle import Lifecycle
    from webhook.server.metrics import Metrics


class WebhookApp(FastAPI):
    """FastAPI with a shorter way to the endpoints.

    Router, exception handlers and exit stacks cost a tenth of what a review does (measured), and the endpoints handle
    their own errors. Everything else, and every mistake in path or method, goes the usual way.
    """

    def __init__(self) -> None:
        super().__init__(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
        self._admissions: dict[str, Admission] = {}

    def serve(self, endpoint: Endpoint, admission: Admission) -> None:
        """Answer POST requests for a path with an endpoint."""
        self._admissions[endpoint] = admission
        self.router.routes.append(Route(endpoint, endpoint=admission, methods=["POST"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "http" and scope["method"] == "POST":
            admission = self._admissions.get(scope["path"])
            if admission is not None:
                await admission(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


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
    app = WebhookApp()
    bodies = bodies or BodyReader()
    decide = Decide(policy, workloads)
    for endpoint in get_args(Endpoint):
        admission = Admission(
            endpoint, decide.at(endpoint), source=source, lifecycle=lifecycle, bodies=bodies, metrics=metrics
        )
        app.serve(endpoint, admission)

    @app.exception_handler(HTTPException)
    async def not_ours(_: Request, error: HTTPException) -> Response:
        """404 and 405 as a Status: the API server shows a misspelt path to the user word for word."""
        text = f"{error.detail}; the paths are {', '.join(get_args(Endpoint))}, all of them for POST"
        return Response(status_body(error.status_code, text), error.status_code, error.headers, "application/json")

    return app
