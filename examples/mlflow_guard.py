"""MLflow: log an exported guard as a pyfunc model, load it, and predict. Neither needs torch, and nothing is pickled.

pip install mlflow-skinny 'oodshape[serve]'
python examples/mlflow_guard.py guarded.onnx cat.jpg dog.jpg
"""

from __future__ import annotations

import sys
from typing import Any

import mlflow
from mlflow.pyfunc import PythonModel

from oodshape import GuardedFile


class GuardModel(PythonModel):
    """Paths of images -> verdicts."""

    def load_context(self, context: Any) -> None:
        """Open the exported file that was logged with the model; its checksum is verified."""
        self.guarded = GuardedFile(context.artifacts["guarded"])

    def predict(
        self, context: Any, model_input: list[str], params: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the verdict on each image, by the names of its fields."""
        return [verdict._asdict() for verdict in self.guarded(model_input)]


mlflow.models.set_model(GuardModel())  # MLflow runs this file to load the model


def log(exported: str) -> str:
    """Log the exported file in a run of its own; return the address of the model."""
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="guard", python_model=__file__, artifacts={"guarded": exported}, pip_requirements=["oodshape[serve]"]
        )
    return str(info.model_uri)


def main(exported: str, *images: str) -> None:
    """Log the guard, load it back, and show what it says of some images."""
    model = mlflow.pyfunc.load_model(log(exported))
    for path, verdict in zip(images, model.predict(list(images)), strict=True):
        print(f"{path}: class {verdict['label']}, {'accepted' if verdict['accepted'] else 'rejected'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
