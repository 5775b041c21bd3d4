"""src/oodshape/report/tables/paper.csv: the figures of the paper's main tables, from one CSV file per table.

src/oodshape/report/tables/paper_studies.csv: those of its studies.

    python scripts/make_paper_csv.py TABLES

Methods get this package's names.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/oodshape/report/tables/paper.csv"
STUDIES = Path(__file__).parents[1] / "src/oodshape/report/tables/paper_studies.csv"
COLUMNS = ("table", "id_set", "model", "ood", "method", "fpr95", "auroc")
METHODS = {"Ours (V)": "optfs-v", "Ours (E)": "optfs-e"}
METHODS |= {name: name.lower() for name in ("MSP", "MLS", "Energy", "ODIN", "DICE", "ReAct", "BFAct", "VRA-P")}
METHODS |= {name: name.lower() for name in ("ASH-P", "ASH-B", "ASH-S")}
VARIANTS = ("Real", "Gaussian", "Uniform", "Dynamic", "Ours (V)", "Ours (E)")
BY_OOD = {"resnet50": "ResNet50", "vit_b_16": "ViT-B-16", "mlp_b": "MLP-B"}


def rows(folder: Path) -> Iterator[tuple[str, ...]]:
    """Every figure: the table, where it stands in it, FPR95 and AUROC in percent."""
    for table, file in (("model", "by_model"), ("standard4", "standard4_by_model")):
        for line in read(folder / f"imagenet_{file}.csv"):
            yield table, "imagenet", line["model"], "Average", *figures(line)
    for name, model in BY_OOD.items():
        for line in read(folder / f"imagenet_{name}_by_ood.csv"):
            yield "ood", "imagenet", model, line["ood"], *figures(line)
    for line in read(folder / "cifar_by_model.csv"):
        id_set, model = line["id_set_and_model"].split("/")
        yield "model", id_set.lower(), model, "Average", *figures(line)


def study_rows(folder: Path) -> Iterator[tuple[str, ...]]:
    """Every figure of the studies: the study, the network, the row, the measure, and the value as printed."""
    names = {"norm_ratio": "norm_ratio", "cosine": "cosine", "auroc_real": "auroc_with", "auroc_ours": "auroc_without"}
    for line in read(folder / "validation_of_id_only.csv"):
        yield from (("validation", "ResNet50", line["ood"], ours, line[theirs]) for theirs, ours in names.items())
    for line in read(folder / "changed_weight_ratio.csv"):
        for ours in ("without_bias", "with_bias"):  # the paper's formula, and what its authors' code computes
            yield "dynamic", line["model"], "r", ours, line["percent_changed"]
    for line in read(folder / "imagenet_variants_by_model.csv"):
        if line["method"] in VARIANTS and line["model"] != "Average":
            yield from (("variants", line["model"], line["method"], ours, line[ours]) for ours in ("fpr95", "auroc"))
    limits = {"lower": "lower_limit", "upper": "upper_limit", "fpr95": "fpr95", "auroc": "auroc"}
    for line in read(folder / "percentile_robustness.csv"):
        row = f"{float(line['lower_percentile']):g}"
        yield from (("limits", "ResNet50", row, ours, line[theirs]) for ours, theirs in limits.items())


def written(target: Path, head: tuple[str, ...], found: list[tuple[str, ...]]) -> None:
    """Write the file and say so."""
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(found)
    print(f"{len(found)} figures in {target}")


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def figures(line: dict[str, str]) -> tuple[str, str, str]:
    """The method under our name, and its figures with two decimals."""
    method = METHODS.get(line["method"], line["method"])
    return method, f"{float(line['fpr95']):.2f}", f"{float(line['auroc']):.2f}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    written(TARGET, COLUMNS, list(rows(Path(sys.argv[1]))))
    written(STUDIES, ("study", "model", "row", "measure", "value"), list(study_rows(Path(sys.argv[1]))))
