"""Tables: ranks by hand, averages that say over what they are, the same numbers in every format, a new metric."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from commands import call
from html_page import Page
from oodshape import detection_error
from oodshape.benchmark.kept_scores import KeptScores
from oodshape.benchmark.results import CONVENTION, RunResults
from oodshape.core.errors import InputError
from oodshape.metrics.detection import Floats, Outcome
from oodshape.metrics.registry import METRICS, Metric
from oodshape.report.benchmark_files import make_named_tables, sort_lines
from oodshape.report.tables.markdown_latex import to_latex, to_markdown
from oodshape.report.tables.table import Table, make_table, parse_columns
from oodshape.report.tables.terminal import to_rich, to_text
from synthetic import METHODS, results, row


def column(made: Table, group: str, head: str) -> dict[str, tuple[str, int]]:
    """{method: (printed text, rank)} of one column."""
    j = made.groups.index(group)
    cells = {line.method: line.entries[j].cells[("au", "fp").index(head)] for line in made.lines}
    return {method: (cell.text, cell.rank) for method, cell in cells.items()}


def by_hand(fpr95: list[float], auroc: list[float]) -> RunResults:
    """One model and one OOD set; methods a, b, c ..."""
    pairs = enumerate(zip(fpr95, auroc, strict=True))
    return RunResults([row(method="abcdef"[i], fpr95=fp, auroc=au) for i, (fp, au) in pairs], {})


# Ranks


def test_lower_fpr_and_higher_auroc_are_better() -> None:
    made = make_table(by_hand([0.4, 0.1, 0.3, 0.2], [0.4, 0.1, 0.3, 0.2]))
    assert column(made, "convnet", "fp") == {"a": ("40.00", 4), "b": ("10.00", 1), "c": ("30.00", 3), "d": ("20.00", 2)}
    assert column(made, "convnet", "au") == {"a": ("40.00", 1), "b": ("10.00", 4), "c": ("30.00", 2), "d": ("20.00", 3)}


def test_equal_printed_values_share_a_rank() -> None:
    made = make_table(by_hand([0.10001, 0.10004, 0.2, 0.3, 0.3, 0.5], [0.9, 0.8, 0.7, 0.7, 0.7, 0.6]))
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
    made = RunResults(rows, {})
    by_model = make_table(made, "model")
    assert by_model.groups == ("m1", "m2", "Average")
    assert [column(by_model, g, "fp")["msp"][0] for g in by_model.groups] == ["15.00", "55.00", "35.00"]
    assert [column(by_model, g, "au")["msp"][0] for g in by_model.groups] == ["85.00", "60.00", "72.50"]
    of_one = make_table(made, "ood", "m2")
    assert of_one.groups == ("letters", "noise", "Average")
    assert [column(of_one, g, "fp")["msp"][0] for g in of_one.groups] == ["50.00", "60.00", "55.00"]
    over_models = make_table(made, "ood")
    assert [column(over_models, g, "fp")["msp"][0] for g in over_models.groups] == ["30.00", "40.00", "35.00"]


def test_a_missing_cell_is_a_dash_and_marks_the_average() -> None:
    whole = results()
    some = replace(whole, rows=[r for r in whole.rows if (r.model, r.method) != ("vit", "msp")])
    made = make_table(some)
    assert column(made, "vit", "fp")["msp"] == ("-", 0)
    assert column(made, "Average", "fp")["msp"][1] == 0
    assert made.lines[0].method == "msp"  # the run's order, although another method has the first complete row
    assert made.lines[0].entries[-1].mark() == " (2/4)"
    assert "(2/4)" in to_text(made)
    fewer = make_table(replace(whole, rows=whole.rows[1:]))
    assert fewer.lines[0].entries[0].mark() == " (1/2)"
    assert fewer.lines[0].entries[0].cells[0].rank == 0


def test_a_model_or_a_set_called_average_is_another_column() -> None:
    assert make_table(results(["Average", "vit"])).groups == ("Average", "vit", "Average")


def test_methods_since_the_paper_are_a_block_of_their_own() -> None:
    for methods, rules in (
        (["react", "optfs-e", "gen", "scale", "knn"], [False, True, True, False, False]),
        (METHODS, [False, False, True, True]),
    ):
        assert [line.rule for line in make_table(results(methods=methods)).lines] == rules


# What a reader must know


def test_notes_name_averages_subset_and_skipped_sets_in_every_format() -> None:
    made = make_table(results(limit=200))
    for text in (to_text(made), to_markdown(made), to_latex(made).replace(r"\%", "%")):
        flat = " ".join(text.split())
        for note in (CONVENTION, "2 OOD sets (near: letters; far: noise)", "limit 200", "photos: no folder data"):
            assert note in flat
    uneven = replace(results(), rows=[r for r in results().rows if (r.model, r.ood) != ("vit", "noise")])
    assert any("2 OOD sets (near: letters; far: noise), but 1 for vit" in note for note in make_table(uneven).notes)
    assert make_table(results(["vit"])).groups == ("vit",)  # one column has no average


def test_unknown_models_and_empty_results_are_refused() -> None:
    with pytest.raises(InputError, match="no model 'resnet', only convnet, vit"):
        make_table(results(), model="resnet")
    with pytest.raises(InputError, match="no rows; Skipped letters: missing"):
        make_table(RunResults([], {}, [("letters", "missing")]))


# Formats

AWKWARD = ["a_b & c%", "x|y{#}$1$^~\\ <b>"]


def cells_of(line: str, separator: str) -> list[str]:
    return re.split(rf"(?<!\\){re.escape(separator)}", line)


@pytest.mark.parametrize("models", [["convnet", "vit"], AWKWARD])
def test_latex_is_balanced_and_every_row_has_all_columns(models: list[str]) -> None:
    latex = to_latex(make_table(results(models)))
    plain = re.sub(r"\\[\\{}&%$#_]", "", latex)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert latex.count(r"\begin") == latex.count(r"\end")
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", latex)[1])  # type: ignore[index]
    assert columns == 1 + 2 * (len(models) + 1)
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 2 + len(METHODS)
    for line in rows:
        entries = cells_of(line, "&")
        spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", line)]
        assert len(entries) + sum(spans) == columns


@pytest.mark.parametrize("models", [["convnet", "vit"], AWKWARD])
def test_markdown_has_all_columns_in_every_row(models: list[str]) -> None:
    text = to_markdown(make_table(results(models)))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(METHODS)
    assert {len(cells_of(line, "|")) for line in rows} == {1 + 2 * (len(models) + 1) + 2}
    assert "<b>" not in text


def test_the_marks_of_every_format_agree_with_the_ranks() -> None:
    made = make_table(results(methods=["msp", "mls", "energy", "odin", "react"]))
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


AUROC = {"msp": 0.93, "energy": 0.95, "optfs-e": 0.94, "mds": 0.99, "knn": 0.99, "auto": 0.98}


def two_networks(**more: float) -> RunResults:
    """Two networks with the same figures; FPR95 is what is missing to an AUROC of 1."""
    every = AUROC | more
    rows = [row(net, name, fpr95=1 - au, auroc=au) for net in ("a", "b") for name, au in every.items()]
    return RunResults(tuple(rows), {"methods": dict.fromkeys(every, "")})


def names(made: RunResults, columns: str = "", ranked: bool = True) -> list[str]:
    return [line.method for line in make_named_tables(made, columns=parse_columns(columns), ranked=ranked)[0].lines]


def test_the_best_stand_on_top_below_the_one_that_chooses() -> None:
    assert names(two_networks()) == ["auto", "mds", "knn", "energy", "optfs-e", "msp"]
    assert names(two_networks(), "fpr95") == names(two_networks())
    assert names(two_networks(), ranked=False) == list(AUROC)
    assert [line.rule for line in sort_lines(make_table(two_networks())).lines] == [False, True, *[False] * 4]
    without = replace(two_networks(), rows=tuple(each for each in two_networks().rows if each.method != "auto"))
    assert not any(line.rule for line in sort_lines(make_table(without)).lines)


def smallest_error(outcome: Outcome) -> Floats:
    missed = 1 - outcome.id / outcome.id[..., -1:]
    return np.asarray((missed + outcome.ood / outcome.ood[..., -1:]).min(axis=-1) / 2)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Metric:
    metric = Metric(
        name="detection_error",
        head="DetErr",
        title="smallest mean of both error rates over all thresholds",
        direction="lower",
        function=smallest_error,
    )
    monkeypatch.setitem(METRICS, metric.name, metric)
    return metric


def test_a_new_metric_goes_from_the_command_line_to_the_page(added: Metric, tmp_path: Path) -> None:
    few = ("bench", "digits", "--methods", "msp,energy", "--limit", "60")
    assert call(*few, "--out", "run", cwd=tmp_path).returncode == 0
    done = call("report", "run", "--columns", "auroc,far-detection-error,detection-error", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    heads = ("AUROC↑", "far DetErr↓", "DetErr↓")
    assert all(head in done.stdout for head in heads)
    assert added.note in done.stdout
    found, kept = RunResults.load(tmp_path / "run"), KeptScores.load(tmp_path / "run")
    for each in found.rows:
        inside, ood = kept.of(each.model)[each.method]
        estimate = each.metrics[added.name]
        assert estimate.value == pytest.approx(detection_error(inside, ood[each.ood]), abs=1e-6)
        assert estimate.low <= estimate.value <= estimate.high
    assert added.name in found.averages_of[0].metrics
    assert "detection_error,detection_error_low,detection_error_high" in (tmp_path / "run" / "results.csv").read_text()
    page = Page((tmp_path / "run" / "report.html").read_text())
    assert page.data["shown"] == ["auroc", "far_detection_error", "detection_error"]
    (column,) = (each for each in page.data["metrics"] if each["name"] == added.name)
    first = found.rows[0].metrics[added.name]
    assert page.data["rows"][0][column["at"]] == pytest.approx(first.value, abs=1e-9)
    paired = ("compare", "run", "--methods", "msp,energy", "--columns", "detection-error")
    assert "\tDetErr\t" in call(*paired, cwd=tmp_path).stdout


def test_near_and_far_means_by_hand() -> None:
    made = results(["net"], ["msp", "energy"], ["letters", "noise", "photos"])
    values = {row.ood: row.value("auroc") for row in made.rows if row.method == "msp"}
    wanted = [np.mean([*values.values()]), values["letters"], np.mean([values["noise"], values["photos"]])]
    shown = make_table(made, columns=parse_columns("auroc,near-auroc,far_auroc"))
    assert [column.head for column in shown.columns] == ["AUROC", "near AUROC", "far AUROC"]
    assert [cell.text for cell in shown.lines[0].entries[0].cells] == [f"{100 * value:.2f}" for value in wanted]
    by_set = make_table(made, "ood", "net", columns=parse_columns("near-auroc,auroc"))
    assert by_set.groups == ("letters", "noise", "photos", "far", "Average")  # one near set is its own mean
    assert [entry.cells[0].text for entry in by_set.lines[0].entries[-2:]] == [
        f"{100 * value:.2f}" for value in (wanted[2], wanted[0])
    ]
