"""The sentence of a study follows from its rows: other rows, another sentence; a tie is called a tie."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from oodshape.studies import findings, intuition, method_findings
from oodshape.studies.auto_figures import print_choice


def rows(column: str, values: Mapping[str, Mapping[object, float]], **more: object) -> pd.DataFrame:
    """Two OOD sets a little apart, whose means are the AUROC given by network and value of a column."""
    return pd.DataFrame(
        [
            {"network": network, column: name, "ood": ood, "auroc": mean + shift, **more}
            for network, by_name in values.items()
            for name, mean in by_name.items()
            for ood, shift in (("far", 0.01), ("near", -0.01))
        ]
    )


def test_real_data_are_worth_what_the_rows_say() -> None:
    said = findings.find_variants(rows("variant", {"a": {"real": 0.9, "ours (V)": 0.95}}), 1)
    assert said == (
        "Theta from real OOD data in place of ID data alone (V) changes the mean AUROC by -5.0 (a) points: "
        "better on 0 of 1."
    )
    both = {"a": {"real": 0.9, "ours (V)": 0.85}, "b": {"real": 0.9002, "ours (V)": 0.9}}
    said = findings.find_variants(rows("variant", both), 1)
    assert said.endswith("by +5.0 (a) and 0.0 (b) points: better on 1 of 2 networks, tied on 1.")
    assert "+0.02 (b)" in findings.find_variants(rows("variant", both), 2)


def test_objectives_intervals_bounds_and_limits() -> None:
    table = {"a": {"mean-gap": 0.9, "logistic": 0.91, "hinge": 0.93}}
    assert "by +3.0 (a) points" in findings.find_objectives(rows("objective", table, source="real"), 1)
    swept = rows("k", {"a": {0: 0.8, 10: 0.89, 100: 0.9}, "b": {0: 0.8, 10: 0.7, 100: 0.72}}, method="optfs-e")
    said = findings.find_intervals(swept, 0)
    assert "by +10 (a) and -8 (b) points; with 10 it lies within 2 points" in said
    two = rows("bound", {"a": {"theta": 0.8, "features": 0.87}}, k=100)
    assert findings.find_bounds(two, 1).endswith("(optfs-e) by +7.0 (a) points.")
    limits = rows("tail", {"a": {0.0: 0.95, 0.001: 0.949, 0.01: 0.9}}, method="optfs-e")
    assert "lose at most 0.1 points" in findings.find_limits(limits, 1)
    assert findings.find_limits(limits, 1).endswith("limits at 1 and 99 lose up to 5.0.")


def test_the_argument_in_a_sentence() -> None:
    frame = pd.DataFrame(
        {
            "network": ["a", "a"],
            "ood": ["far", "near"],
            "norm_ratio": [0.5, 0.8],
            "cosine": [1.0, 0.5],
            "auroc_with": [0.9, 0.95],
            "auroc_without": [0.92, 0.8],
        }
    )
    said = findings.find_validation(frame, 1)
    assert said == (
        "Without the OOD term theta is better on 1 of 2 OOD sets; the worst is -15.0 points of AUROC (near on a)."
    )
    said = findings.find_intuition(intuition(frame), 1)
    assert "has 0.50 to 0.80 of the length of a, 0 to 60 degrees from it; leaving it out turns theta by 0 to 49" in said


def test_shapes_weights_and_classes() -> None:
    parts = [
        {"network": "a", "curve": curve, "theta": theta, "count": 1, "left": left, "right": left + 1.0, "set": "ID"}
        for curve, pair in (("optfs with OOD", (1.0, 0.0)), ("optfs-v", (1.0, 1.0)), ("react", (1.0, 0.0)))
        for left, theta in enumerate(pair)
    ]
    said = findings.find_shaping(pd.DataFrame(parts), 1)
    assert "on 0 of 1 network (cosine: a react 1.000)" in said
    frame = pd.DataFrame(parts).query("curve != 'react'").assign(without_bias=0.25)
    assert findings.find_dynamic(frame, 0).startswith("Shaping changes the predicted class of 25 % of images")
    assert "a cosine of 0.7071 or more" in findings.find_dynamic(frame, 0)
    weights = pd.DataFrame(
        {
            "network": "a",
            "set": ["ID"] * 10 + ["OOD"] * 10,
            "left": [*range(10)] * 2,
            "right": [*range(1, 11)] * 2,
            "count": 5,
            "mean": [0.0] * 9 + [0.5] + [0.0] * 9 + [0.25],
        }
    )
    assert findings.find_weights(weights, 1).endswith("ID against OOD: a 0.500 against 0.250.")


def test_methods_compared_tuned_and_sampled() -> None:
    pairs = [rows("base", {"a": {"msp": mean}}, shaped=shaped) for shaped, mean in ((False, 0.8), (True, 0.9))]
    said = method_findings.find_compatibility(pd.concat(pairs), 1)
    assert said.startswith("With OptFS, scores and methods are better on 1 of 1: +10.0 (msp on a)")
    frame = rows("method", {"a": {"optfs-e": 0.9, "vim": 0.9001, "msp": 0.8}}, family="ConvNet")
    said = method_findings.find_generalisation(frame, 1)
    assert said == "The highest mean AUROC: on ConvNets vim 90.0, tied with optfs-e (optfs-e: place 2 of 3)."
    assert "vim 90.01 (optfs-e" in method_findings.find_generalisation(frame, 2)
    tuned = pd.concat(
        [
            rows("method", {"a": {"react": 0.7, "ash-s": 0.8, "optfs-e": 0.75}}, tuned=False),
            rows("method", {"a": {"react": 0.9, "ash-s": 0.8}}, tuned=True),
        ]
    )
    said = method_findings.find_tuning(tuned, 1)
    assert "better on 1 of 2 pairs of rival and network, tied on 1 (0.0 to +20.0 points" in said
    assert "2 of 2 tuned rivals are above optfs-e" in said
    few = rows("images", {"a": {20: 0.9, 50: 0.7, 100: 0.897, 500: 0.9}}, method="optfs-e")
    assert method_findings.find_samples(few, 1).endswith("here: optfs-e 100.")


def test_auto_and_who_is_tied_in_hindsight() -> None:
    frame = rows("method", {"a": {"msp": 0.9, "energy": 0.9003, "vim": 0.95, "auto": 0.92, "auto, best one": 0.9}})
    groups = {"msp": "paper", "energy": "paper", "vim": "newer"}
    frame["group"] = [groups.get(name, name) for name in frame["method"]]
    frame = frame.assign(panel_auroc=frame.groupby("method")["auroc"].transform("mean"), fpr95=0.5, chosen=False)
    said = method_findings.find_choice(frame, 1)
    assert said.startswith("Without any OOD image, auto lies +2.0 (a) points of mean AUROC from the paper's best")
    assert said.endswith("of all methods, 1 leads on 1 network (vim 95.0 on a).")
    table = print_choice(frame, 1).set_index("OOD set")
    assert table.loc["mean", "best of the paper"] == "energy 90.0, tied with msp"
    assert print_choice(frame, 2).set_index("OOD set").loc["mean", "best of the paper"] == "energy 90.03"
