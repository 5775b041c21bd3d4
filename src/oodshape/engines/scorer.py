"""GuardScorer: a guard as a step of one's own pipeline of Ray Data."""

from __future__ import annotations

from typing import Any

from oodshape.guard.guard import Guard
from oodshape.guard.scoring.score import rows_of, see
from oodshape.images.sources.memory import Pictures


class GuardScorer:
    """Scores in one's own pipeline: `ds.map_batches(GuardScorer, fn_constructor_kwargs={...}, compute=...)`.

    Takes batches with a column of encoded images or of uint8 arrays, and gives them `label`, `score`, `p_value`,
    `accepted` and `error` beside their other columns.
    """

    def __init__(self, guard: str, model: str, column: str = "bytes", batch_size: int = 32, **network: Any) -> None:
        """Load the guard and its network, once per actor."""
        self.guard, self.column, self.batch_size = Guard.load(guard), column, batch_size
        self.source = self.guard.opened(model, **network)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with what the guard says."""
        images = Pictures(list(batch[self.column]), "batch")
        seen = see(self.guard, self.source, images, images.pairs(), self.batch_size, workers=0)
        rows = [row for each in seen for row in rows_of(self.guard, each)]
        columns = ("label", "score", "p_value", "accepted", "error")
        kept = {name: values for name, values in batch.items() if name != self.column}
        return kept | {name: [getattr(row, name) for row in rows] for name in columns}
