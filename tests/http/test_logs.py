"""What the log says of a request, and what it never says."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.support import DENIED, WARNED, Fixed, Fleetless, Running, pod, review, verdict
from webhook.server import service
from webhook.server.logs import FIELDS, JsonFormatter

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "hunter2-in-a-variable"


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    found = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    return [line for line in found if line["message"] == message]


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="webhook")


def test_one_line_per_decision(serve: Callable[..., Running], caplog: pytest.LogCaptureFixture) -> None:
    running = serve(policy=Fixed(verdict(DENIED, WARNED)))
    running.post("/mutate", review(dryRun=True))
    (line,) = lines(caplog, "decision")
    assert line.pop("duration_ms") > 0
    line.pop("time")
    assert line == {
        "level": "info",
        "logger": "webhook",
        "message": "decision",
        "endpoint": "/mutate",
        "uid": "0f1e2d3c-uid",
        "namespace": "team-a",
        "name": "p",
        "kind": "Pod",
        "operation": "CREATE",
        "dryRun": True,
        "decision": "denied",
        "codes": ["memory-over-budget", "memory-unknown"],
        "fit": 0,
        "unfit": 0,
    }


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"name": "from-object"}, "from-object"),
        ({"name": "", "generateName": "job-"}, "job-*"),
        ({"name": 7, "generateName": []}, ""),
        ({"name": "x" * 5000}, "x" * 253),
        (None, ""),
    ],
)
def test_the_name_where_the_request_has_none(
    serve: Callable[..., Running], caplog: pytest.LogCaptureFixture, metadata: Any, name: str
) -> None:
    serve().post("/mutate", review({"metadata": metadata}, name="", subResource="resize"))
    (line,) = lines(caplog, "decision")
    assert (line["name"], line["subresource"]) == (name, "resize")


def test_no_value_and_no_object_is_ever_logged(serve: Callable[..., Running], caplog: pytest.LogCaptureFixture) -> None:
    secret = pod(annotations={"a": SECRET})
    secret["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": SECRET}]
    policy = Fixed(verdict(DENIED))
    running = serve(policy=policy)
    running.post("/mutate", review(secret))
    policy.raises = ValueError(SECRET)
    running.post("/mutate", review(secret))
    running.post("/mutate", review(secret, dryRun=SECRET))
    policy.raises = None
    policy.finds = verdict(patch=({"op": "test", "path": "/spec", "value": SECRET},))
    running.post("/mutate", review(secret))
    logged = [JsonFormatter().format(record) for record in caplog.records]
    assert len([line for line in logged if '"endpoint"' in line]) == 4
    assert SECRET not in "".join(logged)


def test_an_exception_is_logged_with_uid_type_and_place(
    serve: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    serve(policy=Fixed(raises=KeyError())).post("/mutate", review())
    (line,) = lines(caplog, "internal error, see the log of the webhook")
    assert {key: line[key] for key in ("level", "uid", "exception", "code")} == {
        "level": "error",
        "uid": "0f1e2d3c-uid",
        "exception": "KeyError",
        "code": 500,
    }
    assert line["at"][-1].endswith(" _answer")


class Failing(Fleetless):
    runs = 0

    async def run(self) -> None:
        self.runs += 1
        if self.runs < 3:
            raise RuntimeError


def test_a_source_that_fails_is_run_again_and_the_service_goes_on(
    serve: Callable[..., Running], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RESTART_SECONDS", 0.0)
    source = Failing()
    running = serve(source)
    assert running.post("/mutate", review()).status_code == 200
    assert source.runs == 3
    assert [line["exception"] for line in lines(caplog, "the inventory is no longer kept current, trying again")] == [
        "RuntimeError",
        "RuntimeError",
    ]


def test_ready_is_said_once_everything_is(serve: Callable[..., Running], caplog: pytest.LogCaptureFixture) -> None:
    running = serve()
    for _ in range(100):
        if lines(caplog, "ready"):
            break
        running.post("/mutate", review())
    (line,) = lines(caplog, "ready")
    assert (line["port"], line["healthPort"]) == (running.service.port, running.service.health_port)
    assert FIELDS not in line
