"""oodshape serve: parses and calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.shared_options import ProviderOption
from oodshape.core.files import check_writable


def serve(
    file: Annotated[Path, typer.Argument(metavar="GUARDED.ONNX")],
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    provider: ProviderOption = "CPU",
    watch: bool = False,
    state: Path | None = None,
    delta: float = 0.01,
    token_file: Path | None = None,
    max: Annotated[str, typer.Option(metavar="LIMITS")] = "",
) -> None:
    """Serve an exported guard over HTTP: a page at /, POST /predict, GET /health, /ready, /metrics, /openapi.json.

    It needs onnxruntime and FastAPI (the extra serve), and no torch. Logs are JSON lines on standard output. SIGTERM
    and Ctrl-C stop it after running requests are answered, within the `seconds` of --max and 5 more.

    Args:
        file: The file that export wrote.
        host: The address to listen at; 0.0.0.0 for all.
        port: The port to listen at; 0 for any.
        workers: Processes that score images, each with the network in memory [default: cores].
        watch: Watch the p-values; a shift shows in metrics and log.
        state: Save the state of the watch here, and continue from it.
        delta: The probability of a false alarm, over all time.
        token_file: A file with the bearer token that requests must send, in one line.
        max: Limits of requests, any of: bytes and images of one request, seconds for one to arrive and for its answer,
            requests at the same time, and those per client address
            [default: bytes=32M,images=32,seconds=30,requests=64; per_address: any].
    """
    from oodshape.core.errors import InputError
    from oodshape.core.files import reading
    from oodshape.core.machine import count_cores
    from oodshape.guard.service.serve import serve as run
    from oodshape.guard.service.settings import Settings, parse_maxima
    from oodshape.images.decode.limits import Limits

    check_writable(state)
    token = ""
    if token_file is not None:
        with reading(token_file), token_file.open() as file_of_token:
            token = file_of_token.read(4096).strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise InputError(f"{token_file} must contain one token of printable ASCII characters without spaces")
    run(
        Settings(
            str(file),
            host=host,
            port=port,
            workers=workers or count_cores(),
            provider=provider,
            watch=watch,
            state="" if state is None else str(state),
            delta=delta,
            token=token,
            limits=Limits.now(),
            **parse_maxima(max),
        )
    )
