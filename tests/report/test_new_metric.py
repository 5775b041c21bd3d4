"""A metric is declared once: one entry of the registry, and it is in every file, table and page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commands import call
from html_page import Page
from oodshape import Results, detection_error
from oodshape.benchmark.scores import KeptScores
from oodshape.metrics.detection import Floats, Outcome
from oodshape.metrics.registry import METRICS, Metric
from oodshape.report.tables.table import parse_columns, table
from synthetic import results


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
    few = ("bench", "digits", "--methods", "msp,energy", "--limit", "60", "--resamples", "20", "--samples", "0")
    done = call(*few, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = call("report", "run", "--columns", "auroc,far-detection-error,detection-error", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    heads = ("AUROC↑", "far DetErr↓", "DetErr↓")
    assert all(head in done.stdout for head in heads)
    assert added.note in done.stdout
    found, kept = Results.load(tmp_path / "run"), KeptScores.load(tmp_path / "run")
    for row in found.rows:
        inside, ood = kept.of(row.model)[row.method]
        estimate = row.metrics[added.name]
        assert estimate.value == pytest.approx(detection_error(inside, ood[row.ood]), abs=1e-6)
        assert estimate.low <= estimate.value <= estimate.high
    assert added.name in found.averages_of[0].metrics
    assert "detection_error,detection_error_low,detection_error_high" in (tmp_path / "run" / "results.csv").read_text()
    assert "detection_error_low" in json.loads((tmp_path / "run" / "results.json").read_text())["rows"][0]
    assert all(head in (tmp_path / "run" / "table.md").read_text() for head in heads)
    page = Page((tmp_path / "run" / "report.html").read_text())
    assert page.data["shown"] == ["auroc", "far_detection_error", "detection_error"]
    assert added.note in "".join(page.text)
    (column,) = (each for each in page.data["metrics"] if each["name"] == added.name)
    first = found.rows[0].metrics[added.name]
    assert page.data["rows"][0][column["at"]] == pytest.approx(first.value, abs=1e-9)
    again = call("report", "run", "--columns", "fpr95", "--sort", "detection-error", cwd=tmp_path)
    assert "DetErr↓" in again.stdout
    paired = ("compare", "run", "--methods", "msp,energy", "--columns", "detection-error", "--resamples", "5")
    assert "\tDetErr\t" in call(*paired, cwd=tmp_path).stdout


def test_near_and_far_means_by_hand() -> None:
    made = results(["net"], ["msp", "energy"], ["letters", "noise", "photos"])
    values = {row.ood: row.value("auroc") for row in made.rows if row.method == "msp"}
    wanted = [np.mean([*values.values()]), values["letters"], np.mean([values["noise"], values["photos"]])]
    shown = table(made, columns=parse_columns("auroc,near-auroc,far_auroc"))
    assert [column.head for column in shown.columns] == ["AUROC", "near AUROC", "far AUROC"]
    assert [cell.text for cell in shown.lines[0].entries[0].cells] == [f"{100 * value:.2f}" for value in wanted]
    by_set = table(made, "ood", "net", columns=parse_columns("near-auroc,auroc"))
    assert by_set.groups == ("letters", "noise", "photos", "far", "Average")  # one near set is its own mean
    assert [entry.cells[0].text for entry in by_set.lines[0].entries[-2:]] == [
        f"{100 * value:.2f}" for value in (wanted[2], wanted[0])
    ]


def test_costs_are_shown_in_their_unit_and_missing_values_as_a_dash() -> None:
    made = results(["net"], ["msp", "energy"], ["letters"])
    first, second = made.rows
    known = {name: each for name, each in second.metrics.items() if name != "image_ms"}
    few = Results((first, type(second)(**vars(second) | {"metrics": known})), {})
    shown = table(few, columns=parse_columns("fit-seconds,image-ms"))
    (fit, ms), (other, none) = (line.entries[0].cells for line in shown.lines)
    assert (fit.text, ms.text) == (f"{first.value('fit_seconds'):.3f}", f"{first.value('image_ms'):.3f}")
    assert {fit.rank, other.rank} == {1, 2}
    assert (fit.rank == 1) == (float(fit.text) < float(other.text))
    assert (ms.rank, none.text, none.rank) == (1, "-", 0)
