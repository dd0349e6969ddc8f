"""One JSON object per line on standard error.

What may be logged: who asked for what and what came of it. What may not: an object, a value of a variable or an
annotation, or a message that may quote one. The formatter keeps to that for exceptions too: it gives the type and the
place, and leaves the text out.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

LOGGER = logging.getLogger("webhook")

FIELDS = "fields"
"""The key of `extra` under which a record carries its own fields."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time (RFC 3339, UTC), level, logger, message, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, in ASCII and without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, FIELDS, ()))
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["at"] = places(record.exc_info[2])
        return json.dumps(line, default=str)


def places(trace: TracebackType | None, limit: int = 12) -> list[str]:
    """Return the innermost frames as `file:line function`, outermost first: no text of the exception, no values."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)[-limit:]]


def configure(level: str = "info") -> None:
    """Send every logger's records to standard error as JSON; `level` as in logging, in any case."""
    # What no line of ours shows need not be found out for every record: the caller, the thread, the process.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(level.upper())
