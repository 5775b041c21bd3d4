"""Took: how long a run took, and where its workers' seconds went."""

from __future__ import annotations

from dataclasses import dataclass

STEPS = ("read", "decode", "network", "score")


@dataclass(frozen=True)
class Took:
    """How long a run took, and where its workers' seconds went."""

    images: int
    failed: int
    seconds: float
    spent: dict[str, float]

    def line(self) -> str:
        """What people want to know."""
        parts = ", ".join(f"{name} {self.spent.get(name, 0.0):.1f} s" for name in STEPS)
        speed = self.images / max(self.seconds, 1e-9)
        return f"{speed:,.0f} images per second, {self.failed:,} failed; workers spent {parts}"
