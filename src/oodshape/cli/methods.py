"""oodshape methods: calls and prints."""

from __future__ import annotations

from oodshape.cli.terminal import console


def methods() -> None:
    """List the methods: what each does, what it needs, when it fails, and its settings."""
    from oodshape.methods.describe import method_lines
    from oodshape.report.columns import show_columns

    show_columns(("method", "what it does", "needs", "fails", "settings"), method_lines(), console())
