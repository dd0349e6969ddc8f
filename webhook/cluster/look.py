"""Objects of a running cluster, looked at once, and what the API server would say to a pod."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import urllib3

from webhook.cluster.client import ApiClient, ApiError
from webhook.cluster.objects import POD, Answer, CannotLookError, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAGE = 100
_TIMEOUT = 30.0
_MAX_ANSWER = 4 << 20


class LiveObjects:
    """The objects of a cluster, asked for when they are looked at."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def reach(self) -> None:
        """Make sure that a server answers and knows who asks. Raises CannotLookError."""
        try:
            self._client.get("/version", {}, timeout=_TIMEOUT)
        except ApiError as error:
            if error.status in (0, 401):
                raise CannotLookError(str(error)) from None

    def get(self, kind: Kind, namespace: str, name: str) -> Mapping[str, Any] | None:
        """See ``Objects``."""
        try:
            return self._client.get(f"{kind.path(namespace)}/{name}", {}, timeout=_TIMEOUT)
        except ApiError as error:
            if error.status == 404:
                return None
            raise CannotLookError(str(error)) from None

    def each(self, kind: Kind, namespace: str = "") -> Iterator[Mapping[str, Any]]:
        """See ``Objects``. Page by page, so that no more than one page is in memory; finished pods are left out."""
        query = {"limit": str(_PAGE)}
        if kind == POD:
            query["fieldSelector"] = "status.phase!=Succeeded,status.phase!=Failed"
        while True:
            try:
                page = self._client.get(kind.path(namespace), query, timeout=_TIMEOUT)
            except ApiError as error:
                raise CannotLookError(str(error)) from None
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token


def dry_run(client: ApiClient, pod: Mapping[str, Any], namespace: str) -> Answer:
    """Have a pod admitted, webhooks included, and not stored. Raises CannotLookError where no answer comes.

    The client itself only reads, and so it should: this is the one request that is not a GET, and ``dryRun`` is part
    of it.
    """
    path = f"{POD.path(namespace)}?dryRun=All"
    url, headers, pool = client.address()
    try:
        response = pool.request(
            "POST",
            f"{url}{path}",
            body=json.dumps(pod).encode(),
            headers={**headers, "Content-Type": "application/json"},
            timeout=urllib3.Timeout(connect=10.0, read=_TIMEOUT),
            preload_content=False,
            redirect=False,
            retries=False,
        )
        try:
            body = response.read(_MAX_ANSWER)
        finally:
            response.close()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise CannotLookError(f"POST {path}: no answer: {type(error).__name__}") from None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    found = found if isinstance(found, dict) else {}
    if response.status in (200, 201):
        return Answer(response.status, object=found)
    return Answer(response.status, " ".join(str(found.get("message") or response.reason or "").split()))
