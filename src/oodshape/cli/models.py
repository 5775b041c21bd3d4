"""oodshape models: calls and prints."""

from __future__ import annotations

from oodshape.cli.terminal import console


def models() -> None:
    """List the networks, their family, and where their weights come from."""
    from oodshape.core.columns import show_columns
    from oodshape.networks.zoo import MODELS

    rows = [(entry.name, entry.family, entry.id_set, str(entry.classes), entry.weights) for entry in MODELS.values()]
    show_columns(("network", "family", "trained on", "classes", "weights"), rows, console())
