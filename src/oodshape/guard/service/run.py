"""Start the service and stop it: everything that can be wrong is told before the first worker begins."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import replace
from importlib import import_module
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from oodshape.core.errors import InputError
from oodshape.guard.guarded_file import GuardedFile
from oodshape.guard.service.settings import VARIABLE, Settings
from oodshape.guard.service.watching import check_watchable


def serve(settings: Settings) -> None:
    """Answer until a signal comes, then finish what is in hand."""
    libraries = {name: _library(name) for name in ("fastapi", "uvicorn", "python_multipart", "onnxruntime")}
    guarded = GuardedFile(settings.file, threads=1)
    if settings.watch:
        check_watchable(guarded)
    del guarded
    _check_free(settings)
    with TemporaryDirectory(prefix="oodshape-serve-") as folder:
        os.environ[VARIABLE] = replace(settings, folder=folder).text
        # the server gives a signal on when it has ended; a stop that was asked for is no failure
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, _ignored)
        libraries["uvicorn"].run(
            "oodshape.guard.service.app:create",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, int(settings.max_seconds)),
            timeout_keep_alive=max(1, int(settings.max_seconds)),
        )


def _ignored(number: int, frame: FrameType | None) -> None:
    return None


def _check_free(settings: Settings) -> None:
    """Refuse an address that cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise InputError(
                f"cannot serve at {settings.host} port {settings.port}: {error.strerror}; give another --host or --port"
            ) from None


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"serving needs the extra: pip install 'oodshape[serve]' ({error})") from None
