"""One JSON object per line on standard error.

What may be logged: who asked for what and what came of it. What may not: an object, a value of a variable or an
annotation, or a message that may quote one. The formatter keeps to that for exceptions too: it gives the type and the
place, and leaves the text out.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from types import TracebackType

LOGGER = logging.getLogger("webhook")

FIELDS = "fields"
"""The key of `extra` under which a record carries its own fields."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time (RFC 3339, UTC), level, logger, message, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        return self.encode(record).decode()

    def encode(self, record: logging.LogRecord) -> bytes:
        """Return the line as UTF-8, without its end."""
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
        try:
            return orjson.dumps(line, default=str)
        except TypeError:  # a text that is no Unicode, such as the name of a file: told in ASCII
            return json.dumps(line, default=str).encode()


class JsonHandler(logging.Handler):
    """Writes each record to a file descriptor in one system call."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._formatter = JsonFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a log that cannot be written ends no request."""
        try:
            os.write(self._descriptor, self._formatter.encode(record) + b"\n")
        except OSError:
            self.handleError(record)


def places(trace: TracebackType | None, limit: int = 12) -> list[str]:
    """Return the innermost frames as `file:line function`, outermost first: no text of the exception, no values."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)[-limit:]]


def configure(level: str = "info") -> None:
    """Send every logger's records to standard error as JSON; `level` as in logging, in any case."""
    # What no line of ours shows need not be found out for every record: the caller, the thread, the process.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [JsonHandler(sys.stderr.fileno())]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(level.upper())
