"""oodshape models: calls and prints."""

from __future__ import annotations

import typer


def models() -> None:
    """List the networks, their family, and where their weights come from."""
    from oodshape.images.datasets.download_sources import describe_sources, list_sources
    from oodshape.networks.model_names import KNOWN

    line = "{:<20}  {:<11}  {:<11}  {:>7}  {}"  # one line each, so that addresses stay whole
    typer.echo(line.format("network", "family", "trained on", "classes", "weights"))
    for name, known in KNOWN.items():
        sources = list_sources().get(name)
        weights = describe_sources(sources) if sources else "shipped with the package"
        typer.echo(line.format(name, known.family, known.id_set, known.classes, weights))
