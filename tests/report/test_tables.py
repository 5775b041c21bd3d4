"""Tables: ranks by hand, averages that say over what they are, and the same numbers in every format."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from oodshape.benchmark.results import CONVENTION, Results
from oodshape.core.errors import InputError
from oodshape.report.tables.markdown_latex import to_latex, to_markdown
from oodshape.report.tables.table import Table, table
from oodshape.report.tables.terminal import show, to_rich, to_text
from synthetic import METHODS, results, row


def column(made: Table, group: str, head: str) -> dict[str, tuple[str, int]]:
    """{method: (printed text, rank)} of one column."""
    j = made.groups.index(group)
    cells = {line.method: line.entries[j].cells[("au", "fp").index(head)] for line in made.lines}
    return {method: (cell.text, cell.rank) for method, cell in cells.items()}


def by_hand(fpr95: list[float], auroc: list[float]) -> Results:
    """One model and one OOD set; methods a, b, c ..."""
    pairs = enumerate(zip(fpr95, auroc, strict=True))
    return Results([row(method="abcdef"[i], fpr95=fp, auroc=au) for i, (fp, au) in pairs], {})


# Ranks


def test_lower_fpr_and_higher_auroc_are_better() -> None:
    made = table(by_hand([0.4, 0.1, 0.3, 0.2], [0.4, 0.1, 0.3, 0.2]))
    assert column(made, "convnet", "fp") == {"a": ("40.00", 4), "b": ("10.00", 1), "c": ("30.00", 3), "d": ("20.00", 2)}
    assert column(made, "convnet", "au") == {"a": ("40.00", 1), "b": ("10.00", 4), "c": ("30.00", 2), "d": ("20.00", 3)}


def test_equal_printed_values_share_a_rank() -> None:
    made = table(by_hand([0.10001, 0.10004, 0.2, 0.3, 0.3, 0.5], [0.9, 0.8, 0.7, 0.7, 0.7, 0.6]))
    assert [rank for _, rank in column(made, "convnet", "fp").values()] == [1, 1, 3, 4, 4, 6]
    assert [rank for _, rank in column(made, "convnet", "au").values()] == [1, 2, 3, 3, 3, 6]
    assert to_markdown(made).count("**10.00**") == 2  # both methods
    assert to_markdown(made).count("<u>70.00</u>") == 3
    assert "<u>30.00</u>" not in to_markdown(made)


# Values and averages


def test_values_are_means_over_ood_sets_and_the_average_is_over_models() -> None:
    rows = [
        row("m1", "msp", "letters", fpr95=0.10, auroc=0.9),
        row("m1", "msp", "noise", fpr95=0.20, auroc=0.8),
        row("m2", "msp", "letters", fpr95=0.50, auroc=0.7),
        row("m2", "msp", "noise", fpr95=0.60, auroc=0.5),
    ]
    made = Results(rows, {})
    by_model = table(made, "model")
    assert by_model.groups == ("m1", "m2", "Average")
    assert [column(by_model, g, "fp")["msp"][0] for g in by_model.groups] == ["15.00", "55.00", "35.00"]
    assert [column(by_model, g, "au")["msp"][0] for g in by_model.groups] == ["85.00", "60.00", "72.50"]
    of_one = table(made, "ood", "m2")
    assert of_one.groups == ("letters", "noise", "Average")
    assert [column(of_one, g, "fp")["msp"][0] for g in of_one.groups] == ["50.00", "60.00", "55.00"]
    over_models = table(made, "ood")
    assert [column(over_models, g, "fp")["msp"][0] for g in over_models.groups] == ["30.00", "40.00", "35.00"]


def test_a_missing_cell_is_a_dash_and_marks_the_average() -> None:
    whole = results()
    some = replace(whole, rows=[r for r in whole.rows if (r.model, r.method) != ("vit", "msp")])
    made = table(some)
    assert column(made, "vit", "fp")["msp"] == ("-", 0)
    assert column(made, "Average", "fp")["msp"][1] == 0
    assert made.lines[0].method == "msp"  # the run's order, although another method has the first complete row
    assert made.lines[0].entries[-1].mark == " (2/4)"
    assert "(2/4)" in to_text(made)
    assert any("(n/m)" in note for note in made.notes)
    assert not any("(n/m)" in note for note in table(whole).notes)
    fewer = table(replace(whole, rows=whole.rows[1:]))
    assert fewer.lines[0].entries[0].mark == " (1/2)"
    assert fewer.lines[0].entries[0].cells[0].rank == 0


def test_a_model_or_a_set_called_average_is_another_column() -> None:
    assert table(results(["Average", "vit"])).groups == ("Average", "vit", "Average")


def test_one_column_has_no_average() -> None:
    one = table(results(["vit"]))
    assert one.groups == ("vit",)
    assert {len(line.entries) for line in one.lines} == {1}
    assert not any("Average" in note for note in one.notes)
    assert table(results(["vit"]), "ood", "vit").groups == ("letters", "noise", "Average")
    lone = table(results(["vit"], sets=["letters"]), "ood", "vit")
    assert lone.groups == ("letters",)
    assert "On 1 OOD set (near: letters)." in lone.notes
    assert table(results(), "family").groups == ("ConvNets",)  # both networks are of one family


def test_methods_since_the_paper_are_a_block_of_their_own() -> None:
    lines = table(results(methods=["react", "optfs-e", "gen", "scale", "knn"])).lines
    assert [line.rule for line in lines] == [False, True, True, False, False]


def test_the_paper_s_blocks_are_ruled_off() -> None:
    assert [line.rule for line in table(results()).lines] == [False, False, True, True]  # msp energy | react | optfs


# What a reader must know


def test_notes_name_convention_averages_subset_and_skipped_sets() -> None:
    notes = table(results(limit=200)).notes
    assert f"Convention: {CONVENTION}." in notes
    assert "Each value is the mean over 2 OOD sets (near: letters; far: noise)." in notes
    assert "Average: the mean over 2 models." in notes
    assert "Only a subset was used: at most 200 images per set (limit 200)." in notes
    assert "Skipped photos: no folder data/photos" in notes
    assert not any("subset" in note for note in table(results()).notes)
    assert any(note.startswith("The 95 % bootstrap intervals") for note in table(results(), "ood", "vit").notes)
    uneven = replace(results(), rows=[r for r in results().rows if (r.model, r.ood) != ("vit", "noise")])
    assert any("2 OOD sets (near: letters; far: noise), but 1 for vit" in note for note in table(uneven).notes)


def test_notes_stand_in_every_format() -> None:
    made = table(results(limit=200))
    for text in (to_text(made), to_markdown(made), to_latex(made).replace(r"\%", "%")):
        flat = " ".join(text.split())
        assert CONVENTION in flat
        assert "2 OOD sets" in flat
        assert "limit 200" in flat
        assert "photos: no folder data/photos" in flat


def test_unknown_models_and_empty_results_are_refused() -> None:
    with pytest.raises(InputError, match="no model 'resnet', only convnet, vit"):
        table(results(), model="resnet")
    with pytest.raises(InputError, match="no rows; Skipped letters: missing"):
        table(Results([], {}, [("letters", "missing")]))


# Formats

AWKWARD = ["a_b & c%", "x|y{#}$1$^~\\ <b>"]


def cells_of(line: str, separator: str) -> list[str]:
    return re.split(rf"(?<!\\){re.escape(separator)}", line)


@pytest.mark.parametrize("models", [["convnet", "vit"], AWKWARD])
def test_latex_is_balanced_and_every_row_has_all_columns(models: list[str]) -> None:
    latex = to_latex(table(results(models)))
    plain = re.sub(r"\\[\\{}&%$#_]", "", latex)
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    stack: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", latex):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert stack == []
    assert plain.count("$") % 2 == 0
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", latex)[1])  # type: ignore[index]
    assert columns == 1 + 2 * (len(models) + 1)
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 2 + len(METHODS)
    for line in rows:
        entries = cells_of(line, "&")
        spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", line)]
        assert len(entries) + sum(spans) == columns
    assert all(rule in latex for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\cmidrule(lr){2-3}"))


@pytest.mark.parametrize("models", [["convnet", "vit"], AWKWARD])
def test_markdown_has_all_columns_in_every_row(models: list[str]) -> None:
    text = to_markdown(table(results(models)))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(METHODS)
    assert {len(cells_of(line, "|")) for line in rows} == {1 + 2 * (len(models) + 1) + 2}
    assert "<b>" not in text


def test_the_marks_of_every_format_agree_with_the_ranks() -> None:
    made = table(results(methods=["msp", "mls", "energy", "odin", "react"]))
    cells = [cell for line in made.lines for entry in line.entries for cell in entry.cells]
    best = sum(cell.rank == 1 for cell in cells)
    next_best = sum(cell.rank in (2, 3) for cell in cells)
    assert 0 < best < next_best < len(cells)
    body = to_markdown(made).split("\n", 1)[1]
    assert (body.count("**") / 2, body.count("<u>")) == (best, next_best)
    latex = to_latex(made)
    assert (latex.count(r"\textbf{"), latex.count(r"\underline{")) == (best, next_best)
    plain = to_text(made)
    assert (len(re.findall(r"\d\*", plain)), len(re.findall(r"\d\+", plain))) == (best, next_best)
    console = Console(force_terminal=True, width=200, color_system="standard", file=io.StringIO())
    with console.capture() as capture:
        console.print(to_rich(made))
    styled = capture.get()
    assert len(re.findall(r"\x1b\[1m[\d.]+\x1b", styled)) == best
    assert len(re.findall(r"\x1b\[4m[\d.]+\x1b", styled)) == next_best


def test_a_narrow_terminal_gets_several_whole_tables() -> None:
    made = table(results(["a very long name of a model", "vit", "mixer"]))
    file = io.StringIO()
    show(made, Console(force_terminal=True, width=60, color_system=None, file=file))
    text = file.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 60
    assert "…" not in text
    assert text.count("optfs-e") > 1
    for line in made.lines:
        for entry in line.entries:
            assert " ".join(f"{cell.text:>6}" for cell in entry.cells) in text


def test_elsewhere_than_on_a_terminal_the_text_is_plain_and_aligned() -> None:
    made = table(replace(results(["ab", "a very long name of a model"]), rows=results(["ab", "x"]).rows[1:]))
    file = io.StringIO()
    show(made, Console(file=file, width=40))
    text = file.getvalue()
    assert text == to_text(made)
    assert "\x1b" not in text
    body = [line for line in text.splitlines() if line.startswith(("|", "+"))]
    assert len({len(line) for line in body}) == 1
    values = [line for line in body if re.search(r"\d\.\d\d", line)]
    assert len({tuple(m.start() for m in re.finditer(r"\.\d\d", line))[-2:] for line in values}) == 1
