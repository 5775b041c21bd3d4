"""Fill the generated tables of README.md and docs/ from stored figures and from the records of the methods.

    python scripts/docs/fill.py           # write
    python scripts/docs/fill.py --check   # fail if a page differs

A table stands between `<!-- table: NAME ARGUMENTS -->` and `<!-- end -->`. Every stored file names the command that
measured it; `oodshape` computes nothing here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from api import table
from oodshape.methods.describe import find_titles
from oodshape.methods.records import RECORDS
from pages import NETWORKS, kept_results, page_name, performance

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(<!-- table: ([^>]+?) -->\n)(?:\|[^\n]*\n)*(<!-- end -->)")
FAMILIES = {
    "logits": "Logits",
    "shaping": "Feature shaping and pruning",
    "optfs": "OptFS",
    "distance": "Features: distances, subspaces, gradients",
    "choice": "Automatic selection",
}
HEADLINE = ("msp", "energy", "react", "vim", "gen", "optfs-e", "optfs", "cop", "nci", "auto")
SHORT = {key: title.partition(" ")[2] for key, title in NETWORKS.items()}


def stored(name: str) -> Any:
    """A file of docs/measured."""
    return json.loads((DOCS / "measured" / f"{name}.json").read_text(encoding="utf-8"))


def real_networks() -> list[dict[str, Any]]:
    """The rows of docs/methods/measured.json that are networks trained by others."""
    return [row for row in kept_results(DOCS) if row["real"]]


def mean_figures(name: str) -> tuple[float, float]:
    """(AUROC, FPR95) of a method, means over the real networks."""
    found = [row["methods"][name] for row in real_networks()]
    return sum(pair[1] for pair in found) / len(found), sum(pair[0] for pair in found) / len(found)


def hindsight(names: Iterable[str]) -> tuple[float, float]:
    """(AUROC, FPR95) of the method with the highest AUROC on each real network, means over the networks."""
    known = list(names)
    best = [
        max((row["methods"][n] for n in known if n in row["methods"]), key=lambda pair: pair[1])
        for row in real_networks()
    ]
    return sum(pair[1] for pair in best) / len(best), sum(pair[0] for pair in best) / len(best)


def with_best(rows: list[list[str]], columns: dict[int, Callable[[Iterable[float]], float]]) -> list[list[str]]:
    """The rows with the best figure of these columns in bold."""
    for column, best in columns.items():
        wanted = best(float(row[column]) for row in rows if row[column] != "-")
        for row in rows:
            if row[column] != "-" and float(row[column]) == wanted:
                row[column] = f"**{row[column]}**"
    return rows


def headline() -> str:
    """The README's table: some methods, means over the real networks."""
    rows = [[RECORDS[name].name, *(f"{value:.1f}" for value in mean_figures(name))] for name in HEADLINE]
    marked = with_best(rows, {1: max, 2: min})
    return table(["method", "AUROC ↑", "FPR95 ↓"], marked, "lrr")


def results() -> str:
    """Every method on every real network."""
    kept = real_networks()
    rows = []
    for name, record in RECORDS.items():
        pairs = [row["methods"].get(name) for row in kept]
        if not any(pairs):
            continue
        cells = [f"{pair[place]:.1f}" if pair else "-" for pair in pairs for place in (1, 0)]
        rows.append([f"[{record.name}](methods/{page_name(name)}.md)", *cells])
    with_best(rows, {place: max if place % 2 else min for place in range(1, 2 * len(kept) + 1)})
    joined = [[row[0], *(f"{row[at]}&nbsp;/&nbsp;{row[at + 1]}" for at in range(1, len(row), 2))] for row in rows]
    return table(["method", *(SHORT[row["network"]] for row in kept)], joined, "l" + "r" * len(kept))


def family_table() -> str:
    """The README's methods: one row per family, each method with its paper."""
    rows = []
    for family, title in FAMILIES.items():
        names = []
        for record in (each for each in RECORDS.values() if each.family == family):
            papers = [address for _, address in find_titles(record.citation)]
            names.append(f"[{record.name}]({papers[0]})" if papers else record.name)
        rows.append([title, ", ".join(names)])
    return table(["family", "methods, linked to their papers"], rows)


def methods_table() -> str:
    """The index of the methods: page, id, family, summary, what it reaches, paper."""
    kept = kept_results(DOCS)
    groups = [[row for row in kept if row["real"]], [row for row in kept if not row["real"]]]
    rows = []
    for family, title in FAMILIES.items():
        for name, record in RECORDS.items():
            if record.family == family:
                papers = " ".join(f"[paper]({address})" for _, address in find_titles(record.citation)[:1]) or "-"
                code = f" [code]({record.code})" if record.code else ""
                reached = [performance(name, group) for group in groups]
                link = f"[{record.name}]({page_name(name)}.md)"
                rows.append([link, f"`{name}`", title, record.summary, *reached, papers + code])
    return table(["method", "id", "family", "summary", "real networks", "digits", "source"], rows)


def study(name: str, *words: str) -> str:
    """A stored table of studies, or `from` another file; `keep=REGEX` keeps rows, `drop=REGEX` drops columns."""
    options = dict(word.split("=", 1) for word in words)
    tables = stored(options.get("from", "studies"))["tables"]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables[name]]
    rows = [row for row in rows if re.search(options.get("keep", ""), " ".join(row))]
    places = [at for at, cell in enumerate(head) if "drop" not in options or not re.search(options["drop"], cell)]
    align = "".join("r" if all(re.fullmatch(r"[-+\d.,]*", row[at]) for row in rows) else "l" for at in places)
    shown = [[_renamed(line[at]) for at in places] for line in [head, *rows]]
    return table(shown[0], shown[1:], align)


def _renamed(cell: str) -> str:
    for key, title in SHORT.items():
        cell = cell.replace(key, title)
    return RECORDS[cell].name if cell in RECORDS else cell.replace("Ours (", "OptFS (")  # the paper's


def rows_of(name: str) -> str:
    """A stored file that holds a table as it is shown: `head` and `rows`."""
    found = stored(name)
    return table(found["head"], found["rows"], found.get("align", ""))


TABLES: dict[str, Callable[..., str]] = {
    "headline": headline,
    "results": results,
    "families": family_table,
    "methods": methods_table,
    "study": study,
    "stored": rows_of,
}


def filled(text: str) -> str:
    """A page with its tables as they follow from the stored files."""

    def new(found: re.Match[str]) -> str:
        name, *words = found[2].split()
        return f"{found[1]}{TABLES[name](*words)}\n{found[3]}"

    return BLOCK.sub(new, text)


def sources() -> list[Path]:
    """The README and every page of the docs."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def main(words: Sequence[str]) -> None:
    """Fill the pages, or compare them."""
    changed = []
    for path in sources():
        old = path.read_text(encoding="utf-8")
        now = filled(old)
        if now != old:
            changed.append(path.relative_to(ROOT).as_posix())
            if "--check" not in words:
                path.write_text(now, encoding="utf-8")
    print("changed:" if changed else "nothing changed", *changed)
    if changed and "--check" in words:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
