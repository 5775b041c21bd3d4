"""Results that show themselves: as a table on a terminal and in a notebook, as a page, LaTeX or a data frame."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from shutil import get_terminal_size

from pandas import DataFrame

from oodshape.benchmark import results as benchmark
from oodshape.benchmark.kept_scores import KeptScores
from oodshape.core.text import format_count
from oodshape.report.benchmark_files import Kind, make_named_tables, write_report
from oodshape.report.pages.benchmark_page import write_benchmark_page
from oodshape.report.tables.markdown_latex import to_latex, to_markdown
from oodshape.report.tables.table import Table, parse_columns
from oodshape.report.tables.terminal import to_text


@dataclass(frozen=True, repr=False)
class Results(benchmark.RunResults):
    """What `evaluate` measured: a row per network, method and OOD set, with intervals and provenance.

    `print(results)` shows the table; `Results.load("out")` reads saved results, those of `oodshape bench` too.

    >>> import oodshape
    >>> data = {"train": [[2.0, 0.5], [0.5, 3.0], [3.0, 1.0]], "id": [[4.0, 0.0], [0.2, 2.0]]}
    >>> head = ([[1.0, 0.0], [0.0, 1.0]], None)
    >>> results = oodshape.evaluate(head, **data, ood={"far": [[0.1, 0.1]]}, methods=["msp"], progress=False)
    >>> results.to_pandas()[["method", "ood", "auroc"]].values.tolist()
    [['msp', 'far', 1.0]]

    Attributes:
        rows: Metrics per network, method and OOD set.
        provenance: Versions, platform, hashes and settings.
        skipped: What was left out, and why.
        curves: ROC curves.
        averages_of: Means over OOD sets.
        ties: Methods that do not differ significantly from the best.
        failed: Methods that failed, and why.
        scores: The scores of all images.
    """

    scores: KeptScores | None = field(default=None, compare=False)

    @classmethod
    def of(cls, found: benchmark.RunResults, scores: KeptScores) -> Results:
        """Add the scores to results.

        Args:
            found: The results.
            scores: The scores that they come from.

        Returns:
            The results with scores.
        """
        return cls(**{each.name: getattr(found, each.name) for each in fields(found)}, scores=scores)

    def __str__(self) -> str:
        """The table as text, as wide as the terminal."""
        width = get_terminal_size((0, 0)).columns or None
        return "\n".join(to_text(each, width) for each in self._tables()).rstrip("\n")

    def __repr__(self) -> str:
        """How much there is, in one line."""
        counts = (("model", "network"), ("method", "method"), ("ood", "OOD set"))
        said = [format_count(len(self.names(column)), noun) for column, noun in counts]  # type: ignore[arg-type]
        return f"Results({', '.join(said)}{f', {len(self.failed)} failed' if self.failed else ''})"

    def _repr_markdown_(self) -> str:
        """The table in a notebook."""
        return self.to_markdown()

    def save(self, folder: str | Path) -> None:
        """Write what `oodshape bench` writes: results.json and .csv, table.md and .tex, report.html, and the scores.

        `oodshape report`, `compare` and `repeat` read the folder.

        Args:
            folder: Folder to write to, which is made if it is missing.
        """
        folder = Path(folder)
        super().save(folder)
        write_report(self, folder)
        if self.scores is not None:
            self.scores.save(folder)

    def page(self, path: str | Path, columns: str = "") -> None:
        """Write the interactive HTML report, one file that needs no network.

        Args:
            path: File to write.
            columns: Metrics that its table shows at first, separated by commas, such as "auroc,near-auroc,aupr-out".
        """
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_benchmark_page(self, path, parse_columns(columns))

    def to_latex(self, kind: Kind | None = None, columns: str = "") -> str:
        """The table in LaTeX, which needs the packages booktabs and graphicx.

        Args:
            kind: model: a column per network, means over OOD sets; ood: a table per network, a column per OOD set.
                None: `ood` for one network, `model` for several.
            columns: Metrics, separated by commas.

        Returns:
            One `table` environment, or one per network.
        """
        return "\n".join(map(to_latex, self._tables(kind, columns)))

    def to_markdown(self, kind: Kind | None = None, columns: str = "") -> str:
        """Return the table in Markdown.

        Args:
            kind: As in `to_latex`.
            columns: Metrics, separated by commas.

        Returns:
            One table, or one per network.
        """
        return "\n".join(map(to_markdown, self._tables(kind, columns)))

    def to_pandas(self) -> DataFrame:
        """Return all rows.

        Returns:
            A DataFrame with one line per network, method and OOD set; NAME_low and NAME_high limit the 95 % interval.
        """
        return self.frame

    def _tables(self, kind: Kind | None = None, columns: str = "") -> list[Table]:
        kind = kind or ("ood" if len(self.names("model")) == 1 else "model")
        return make_named_tables(self, kind, columns=parse_columns(columns), ranked=True)
