"""Logs as JSON lines on standard output: one object per event, for machines to read."""

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
        """The time in UTC, the level, what happened, and its own facts."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said: dict[str, Any] = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
        said |= getattr(record, "facts", {})
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said)


def configure(level: int = logging.INFO) -> None:
    """Let this process write JSON lines, the web server's own notes too."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # what others have to say in passing is left out
    LOGGER.setLevel(level)


def say(event: str, *, level: int = logging.INFO, **facts: Any) -> None:
    """Log an event with its facts."""
    LOGGER.log(level, event, extra={"facts": facts})
