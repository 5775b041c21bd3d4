"""oodshape serve: parses and calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import LIMITS, Costs
from oodshape.cli.terminal import check_out


def serve(
    file: Annotated[Path, typer.Argument(metavar="GUARDED.ONNX", help="The file that export wrote.")],
    costs: Costs,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with the network in its memory.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Images judged at once in each \\[default: cores / workers].")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Watch the p-values; a shift shows in metrics and log.")
    ] = False,
    state: Annotated[Path | None, typer.Option(help="Keep what the watch saw here, and go on from it.")] = None,
    delta: Annotated[float, typer.Option(help="The chance of a false alarm, over all time.")] = 0.01,
    max_bytes: Annotated[int, typer.Option(min=1, help="Of one request.", rich_help_panel=LIMITS)] = 32 << 20,
    max_images: Annotated[int, typer.Option(min=1, help="In one request.", rich_help_panel=LIMITS)] = 32,
    max_seconds: Annotated[
        float, typer.Option(min=0.1, help="For a request to arrive, and for its answer.", rich_help_panel=LIMITS)
    ] = 30.0,
    max_requests: Annotated[
        int, typer.Option(min=1, help="At the same time, in each worker; more get a 503.", rich_help_panel=LIMITS)
    ] = 64,
) -> None:
    """Serve an exported guard over HTTP: POST /predict, GET /health, /ready, /metrics, /openapi.json.

    It needs onnxruntime and FastAPI (the extra serve), and no torch. Logs are JSON lines on standard output. SIGTERM
    and Ctrl-C stop it when what is in hand is answered.
    """
    from oodshape.core.machine import cores
    from oodshape.guard.service.run import serve as run
    from oodshape.guard.service.settings import Settings

    check_out(state)
    run(
        Settings(
            str(file),
            host=host,
            port=port,
            workers=workers,
            threads=threads or max(1, cores() // workers),
            watch=watch,
            state="" if state is None else str(state),
            delta=delta,
            max_bytes=max_bytes,
            max_images=max_images,
            max_pixels=costs.max_pixels,
            max_aspect=costs.max_aspect,
            max_seconds=max_seconds,
            max_requests=max_requests,
        )
    )
