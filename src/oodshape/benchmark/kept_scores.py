"""KeptScores: the score of every image by every method of a run, next to the results, to compare image by image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, concat, read_parquet

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.images.sources.archives import check_table
from oodshape.metrics.significance import Scores

FILE = "scores.parquet"
INSIDE = "ID"  # the name of the ID set in the file


@dataclass(frozen=True, eq=False)
class KeptScores:
    """model -> method -> set -> [n] float32; the ID set is called ID, the others by their names."""

    by_model: dict[str, dict[str, dict[str, NDArray[np.float32]]]] = field(default_factory=dict)

    def add(self, model: str, method: str, inside: Any, ood: Mapping[str, Any]) -> None:
        """Keep the scores of one method on one network."""
        sets = {INSIDE: inside, **ood}
        self.by_model.setdefault(model, {})[method] = {
            name: np.asarray(each, np.float32) for name, each in sets.items()
        }

    def of(self, model: str) -> dict[str, Scores]:
        """method -> (ID scores, {OOD set: scores}) of a network."""
        return {
            method: (sets[INSIDE], {name: scores for name, scores in sets.items() if name != INSIDE})
            for method, sets in self.by_model[model].items()
        }

    def save(self, folder: Path) -> None:
        """Write scores.parquet: model, set, image (its number in the set), and a column per method.

        Without pyarrow nothing is written, and a file of an earlier run is removed.
        """
        (folder / FILE).unlink(missing_ok=True)
        if find_spec("pyarrow") is None:
            return
        frame = concat(list(self._frames()), ignore_index=True)
        with replacing(folder / FILE) as temporary:
            frame.to_parquet(temporary, index=False, write_page_checksum=True)

    def _frames(self) -> Iterator[Any]:
        for model, methods in self.by_model.items():
            for name, scores in next(iter(methods.values())).items():
                columns = {method: sets[name] for method, sets in methods.items()}
                known = {"model": model, "set": name, "image": np.arange(len(scores), dtype=np.int64)}
                yield DataFrame({**known, **columns})

    @classmethod
    def load(cls, path: Path) -> KeptScores:
        """The scores next to a results.json, or in the folder of a run."""
        file = (path if path.is_dir() else path.parent) / FILE
        if not file.is_file():
            raise InputError(f"there is no {file}: pip install 'oodshape[parquet]', then run the benchmark again")
        try:
            check_table(file)
            frame = read_parquet(file, page_checksum_verification=True)
            methods = [str(name) for name in frame.columns.drop(["model", "set", "image"])]
            values = frame[methods].to_numpy(np.float32)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} holds no scores of a benchmark: {str(error).splitlines()[0]}") from None
        kept = cls()
        for model, rows in frame.groupby("model", sort=False):
            places = {str(name): part.index.to_numpy() for name, part in rows.groupby("set", sort=False)}
            if INSIDE not in places or len(places) < 2:
                raise InputError(f"{file} lacks ID or OOD scores of {model}")
            for column, method in enumerate(methods):
                sets = {name: values[place, column] for name, place in places.items()}
                if not all(np.isfinite(scores).all() for scores in sets.values()):
                    continue  # a method that this network did not run
                kept.by_model.setdefault(str(model), {})[method] = sets
        return kept
