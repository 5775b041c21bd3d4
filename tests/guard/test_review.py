"""Review: what people label, what their labels become, and which labels make no calibration set."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from commands import call

P_VALUES = {"a.png": 0.01, "b c.png": 0.05, "d.png": 0.09, "e.png": 0.11, "f.png": 0.9}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rows = [f"in/{name},cat,{100 * p},{p},{'true' if p > 0.05 else 'false'}," for name, p in P_VALUES.items()]
    head = "path,class,score,p_value,accepted,error"
    (tmp_path / "scores.csv").write_text("\n".join([head, *reversed(rows), "in/broken.png,,,,,damaged"]) + "\n")
    return tmp_path


def test_labels_of_rejected_and_borderline_images_become_an_ood_set(place: Path) -> None:
    words = ("scores.csv", "--to", "label-studio", "--out", "tasks.json")
    assert call("review", *words, cwd=place).returncode == 0
    tasks = json.loads((place / "tasks.json").read_text())
    assert [task["data"]["path"] for task in tasks] == ["in/a.png", "in/b c.png", "in/d.png"]
    shown = {"image": "/data/local-files/?d=in/b%20c.png", "reason": "rejected: p-value 0.05"}
    assert tasks[1]["data"] == shown | {"path": "in/b c.png", "label": "", "class": "cat", "p_value": 0.05}
    assert tasks[2]["data"]["reason"] == "borderline: accepted with p-value 0.09, at most 0.1"
    for task, given in zip(tasks, (["ood"], ["ood"], ["ood", "id"]), strict=True):
        results = [{"type": "choices", "from_name": "label", "value": {"choices": [each]}} for each in given]
        task["annotations"] = [{"was_cancelled": False, "result": [each]} for each in results]
    tasks[0]["annotations"].append({"was_cancelled": True, "result": [{"value": {"choices": ["id"]}}]})
    (place / "export.json").write_text(json.dumps(tasks))
    (place / "sets").mkdir()
    done = call("review", "--labels", "export.json", "--out", "sets/odd.csv", cwd=place)
    assert done.stdout.splitlines()[0] == "export.json: 2 ood, 0 id, 1 without one clear label"
    assert "`check` on them shows too few accepted" in done.stderr
    assert (place / "sets" / "odd.csv").read_text() == "path\n../in/a.png\n../in/b c.png\n"
    done = call("review", "--labels", "export.json", "--take", "id", "--out", "id.csv", cwd=place)
    assert "in/a.png was selected by its p-value, and a calibration set is a random sample" in done.stderr


def test_a_random_sample_hides_the_decision_and_makes_a_calibration_set(place: Path) -> None:
    drawn = []
    for _ in range(2):
        done = call("review", "scores.csv", "--sample", "4", "--out", "sample.csv", cwd=place)
        assert "--take id --out calibration.csv" in done.stdout
        rows = list(csv.DictReader((place / "sample.csv").read_text().splitlines()))
        assert {(row["class"], row["p_value"], row["label"]) for row in rows} == {("", "", "")}
        drawn.append([row["path"] for row in rows])
    assert drawn[0] == drawn[1]
    text = (place / "sample.csv").read_text().replace(",,,,", ", ID ,,,")
    (place / "sample.csv").write_text(f"{text}two.png,ood,,,random sample\ntwo.png,id,,,random sample\n")
    done = call("review", "--labels", "sample.csv", "--take", "id", "--out", "id.csv", cwd=place)
    assert "0 ood, 4 id, 1 without one clear label" in done.stdout
    assert "too few accepted" not in done.stderr
    assert sorted(drawn[1]) == sorted((place / "id.csv").read_text().split("\n")[1:-1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("scores.csv --sample 6", "--sample must be from 1 to the 5 readable images of scores.csv, got 6"),
        ("accepted.csv", "accepted.csv has no rejected image to label; --sample N draws from all images"),
        ("scores.csv --to label-studio --root in/deep", "in/a.png is not in the folder in/deep"),
        ("", "give SCORES to write images to label, or --labels FILE"),
        ("none.csv", "there is no file none.csv"),
        ("other.csv", "other.csv was not written by `oodshape score`: its columns are p"),
        ("--labels other.csv", "other.csv is not a table of `oodshape review`"),
        ("--labels wrong.csv", "x.png has the label 'cat'; the labels are ood and id"),
        ("--labels empty.json", "empty.json has no image with the label ood"),
        ("--labels bad.json", "or Label Studio's JSON export of its tasks (JSONDecodeError)"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(place: Path, words: str, said: str) -> None:
    (place / "other.csv").write_text("p\n0.5\n")
    (place / "accepted.csv").write_text("path,class,score,p_value,accepted,error\na.png,cat,9,0.9,true,\n")
    (place / "wrong.csv").write_text("path,label,reason\nx.png,cat,y\n")
    (place / "empty.json").write_text("[]")
    (place / "bad.json").write_text("{")
    done = call("review", *words.split(), "--out", "out.csv", cwd=place)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
    assert not (place / "out.csv").exists()
