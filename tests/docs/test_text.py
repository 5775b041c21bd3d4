"""The text: size, vocabulary, and figures that are those of the stored files."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import typer
from scipy.stats import beta

from oodshape.cli.all_commands import app
from oodshape.methods.records import RECORDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "docs")]
fill, pages = importlib.import_module("fill"), importlib.import_module("pages")
PAGES, WORDS = 35, 26_000  # besides the pages of methods; in all Markdown of docs
WRITTEN = fill.sources()
# Words and phrases that the docs do not use, each with what to say instead.
RETIRED = {
    r"familiar": "in-distribution",
    r"strangers?|strange(ly|ness)?": "out-of-distribution",
    r"promis(e|es|ed|ing)": "guarantee",
    r"(lets?|gets?|let|getting) through": "accept",
    r"(images?|ones|scenes|textures|strangers) (that )?pass(es)?( both)?": "are accepted",
    r"share (of|rejected|accepted)|falsely rejected share": "fraction, false rejection rate",
    r"held-out (good |ID )?images": "calibration set",
    r"threshold on the softmax": "MSP baseline",
    r"(its|the|of its) members": "component detectors",
    r"by heart": "memorised",
    r"rooms?": "packages",
    r"departures?": "deviations",
    r"beside": "next to",
    r"whoever|whatsoever|thereof|anew": "plain words",
    r"whole or not at all": "atomically",
    r"tak(en|es) (it )?for": "predicted",
    r"none of the network's business|the business of": "OOD",
    r"one line that says": "an error",
    r"(speak|speaks|speaking) (for|against)": "support, contradict",
    r"rivals?": "other methods",
    r"at hand|in hand": "available",
}


def prose(text: str) -> str:
    """A page without code, formulas, links' addresses and marks."""
    text = re.sub(r"^```.*?^```|<!--.*?-->|\$\$.*?\$\$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`|\]\([^)]*\)|^ {4}\S.*$", "", text, flags=re.MULTILINE)


def retired(text: str) -> list[str]:
    """What a text says in words that are retired."""
    return [
        f"{found[0]!r}: {better}"
        for word, better in RETIRED.items()
        for found in re.finditer(rf"\b({word})\b", text, re.I)
    ]


def test_retired_words_are_found() -> None:
    assert retired("A strange image gets through.") == ["'strange': out-of-distribution", "'gets through': accept"]
    assert not retired(prose("```\nstrange\n```\n`familiar` [a](promise.md)"))


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_vocabulary_of_pages(path: Path) -> None:
    page = path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else ""
    text = path.read_text(encoding="utf-8")
    assert not retired(prose(pages.complete(page, text) if pages.method_of(page) else text))


@pytest.mark.parametrize("name", ["", *typer.main.get_command(app).commands])
def test_the_vocabulary_of_help(name: str) -> None:
    group = typer.main.get_command(app)
    command = group.commands[name] if name else group
    texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
    assert not retired(prose(" ".join(texts)))


def test_links_lead_to_files_of_the_repository() -> None:
    """Readers of the repository see no page that only the site has, besides the reference and the changelog."""
    for path in WRITTEN:
        for link in re.findall(r"\]\(([^)#\s]+)", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)):
            target = path.parent / link
            assert "//" in link or target.is_file() or link in pages.GENERATED, f"{path.name} links to {link}"


def test_pages_and_words_are_few() -> None:
    found = sorted(DOCS.rglob("*.md"))
    others = [path for path in found if path.parent.name != "methods"]
    assert len(others) + len(pages.GENERATED) <= PAGES
    words = sum(bool(re.search(r"\w", word)) for path in found for word in path.read_text(encoding="utf-8").split())
    assert words <= WORDS


def test_tables_are_those_of_the_stored_files() -> None:
    """Else: python scripts/docs/fill.py."""
    for path in WRITTEN:
        text = path.read_text(encoding="utf-8")
        assert fill.filled(text) == text, path.name
    assert fill.filled("<!-- table: headline -->\n| old |\n<!-- end -->\n").count("|") > 9
    for path in (DOCS / "measured").glob("*.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["command"], f"{path.name} names its command"


def test_figures_in_sentences_are_those_of_the_stored_files() -> None:
    readme, idea = (ROOT / "README.md").read_text(), (DOCS / "idea.md").read_text()
    columns = zip(*re.findall(r"^\| [^|]+ \| ([\d.*]+) \| ([\d.*]+) \|$", readme, re.MULTILINE), strict=True)
    for column, best_of in zip(columns, (max, min), strict=True):  # AUROC, FPR95
        best_value = best_of(float(cell.strip("*")) for cell in column)
        assert [cell for cell in column if "*" in cell] == [f"**{best_value}**"]
    best = fill.hindsight(name for name in RECORDS if name != "auto")
    assert "AUROC {:.1f} and FPR95 {:.1f}".format(*best) in " ".join(readme.split())
    nets = {row["network"].partition("_")[2]: row["methods"] for row in fill.real_networks()}
    lite, deit = nets["efficientnet_lite0"], nets["deit_tiny"]
    assert f"from {lite['energy'][0]} % (Energy) to {lite['optfs-e'][0]} %" in " ".join(idea.split())
    assert f"from {deit['energy'][0]} % to {deit['optfs-e'][0]} %" in " ".join(idea.split())
    page = (DOCS / "methods" / "optfs-e.md").read_text()
    assert "{1} % AUROC and {0} % FPR95".format(*lite["optfs-e"]) in page
    assert "(Energy: {1} % and {0} %)".format(*lite["energy"]) in page
    rows = fill.stored("photographs")["rows"][4:]  # the OOD photographs
    assert [row["file"] for row in rows if row["accepted"]] == ["brick.png", "retina.jpg"]  # what README and index say


def test_the_ranges_of_the_calibration_set_size() -> None:
    page = (DOCS / "alpha.md").read_text()
    for n in (100, 200, 500, 1000, 2000, 5000):
        cells = []
        for alpha in (0.01, 0.05, 0.1):
            k = int(alpha * (n + 1) + 1e-9)
            cells.append("{:.1f}-{:.1f} %".format(*(100 * beta.ppf([0.005, 0.995], k, n + 1 - k))))
        assert f"| {n:,} | {' | '.join(cells)} |" in page
