"""Logs as JSON lines on standard output: one object per event."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

LOGGER = logging.getLogger("oodshape.service")


class JsonLines(logging.Formatter):
    """A record as one JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logs() -> None:
    """Write all logs of this process as JSON lines, those of the web server too."""
    logging.raiseExceptions = False  # a closed standard output is not a failure of the service
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # other libraries' notes are left out
    LOGGER.setLevel(logging.INFO)


def log_event(event: str, *, level: int = logging.INFO, **facts: Any) -> None:
    """Log an event with its facts."""
    LOGGER.log(level, event, extra={"facts": facts})
