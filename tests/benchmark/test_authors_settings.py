"""A run with the settings of the paper's published code: what its results say, beside the paper, and again."""

from __future__ import annotations

from dataclasses import replace

from oodshape.benchmark.prepared import Options
from oodshape.benchmark.repeat import again, agreement
from oodshape.benchmark.run import run
from oodshape.benchmark.spec import Benchmark
from oodshape.report.page_data import payload
from oodshape.report.table_kinds import tables_of


def test_results_name_them_stand_beside_the_paper_and_can_be_repeated() -> None:
    digits = Benchmark.load("digits")
    text = f'id_set = "cifar10"\n{digits.text}'.replace('settings = "general"', 'settings = "authors-code"')
    text = text.replace('label = "ViT"', 'label = "ViT-B-16"')  # a name that the paper has figures for
    benchmark = Benchmark.parse(text, where="own", base=digits.base)
    options = Options(models=("ViT-B-16",), methods=("energy", "optfs-e"), limit=30, resamples=5, progress=False)
    results = run(benchmark, options)
    said = results.provenance["settings"]
    assert (said["settings"], said["id_set"]) == ("authors-code", "cifar10")
    assert "norm=1000.0" in results.provenance["methods"]["optfs-e"]
    (table,) = tables_of(results, "model", paper=True)
    assert "ViT-B-16 (paper)" in table.groups
    assert any(note.startswith("Settings: those of the authors' code for cifar10") for note in table.notes)
    assert payload(results)["paper"] is not None
    other, chosen = again(results)
    assert (other.settings, other.of_paper) == ("authors-code", "cifar10")
    assert agreement(results, run(other, replace(chosen, progress=False))).same
