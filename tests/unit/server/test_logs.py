from __future__ import annotations

import json
import logging
import sys

from webhook.server.logs import FIELDS, JsonFormatter


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("webhook", logging.INFO, __file__, 1, message, (), None)
    made.__dict__.update(extra)
    return made


def test_one_line_of_ascii_json() -> None:
    line = JsonFormatter().format(record("decision", **{FIELDS: {"name": 'ü\n"\ud800', "codes": ("a", "b")}}))
    assert line.isascii()
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "info",
        "logger": "webhook",
        "message": "decision",
        "name": 'ü\n"\ud800',
        "codes": ["a", "b"],
    }


def test_exceptions_give_their_type_and_place_and_not_their_text() -> None:
    try:
        raise KeyError("the value of a variable")  # noqa: TRY301 - to have a traceback
    except KeyError:
        made = record("it failed", exc_info=sys.exc_info())
    line = JsonFormatter().format(made)
    assert "the value of a variable" not in line
    found = json.loads(line)
    assert found["exception"] == "KeyError"
    assert found["at"][-1].startswith(f"{__file__}:")
    assert found["at"][-1].endswith(" test_exceptions_give_their_type_and_place_and_not_their_text")
