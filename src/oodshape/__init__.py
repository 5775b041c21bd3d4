"""Out-of-distribution detection for image classifiers by feature shaping.

from oodshape import Features, METHODS
train = Features.from_arrays(train_features, head=(weight, bias))
detector = METHODS["optfs-e"].fit(train).calibrate(held_out_features)
detector.decide(Features.from_arrays(new_features, head=(weight, bias)))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from oodshape.auto import Auto as Auto
    from oodshape.benchmark import Benchmark as Benchmark
    from oodshape.datasets.folders import ImageFolder as ImageFolder
    from oodshape.datasets.folders import ImageList as ImageList
    from oodshape.detector import Decision as Decision
    from oodshape.detector import Detector as Detector
    from oodshape.detector import Method as Method
    from oodshape.detector import fit_all as fit_all
    from oodshape.errors import InputError as InputError
    from oodshape.estimator import OODEstimator as OODEstimator
    from oodshape.export import export_onnx as export_onnx
    from oodshape.features import Features as Features
    from oodshape.guard import Guard as Guard
    from oodshape.methods import METHODS as METHODS
    from oodshape.methods import paper_methods as paper_methods
    from oodshape.metrics import auroc as auroc
    from oodshape.metrics import fpr_at_tpr as fpr_at_tpr
    from oodshape.model import Classifier as Classifier
    from oodshape.moments import Moments as Moments
    from oodshape.outputs import Head as Head
    from oodshape.outputs import Outputs as Outputs
    from oodshape.panel import panel_features as panel_features
    from oodshape.preprocess import CIFAR as CIFAR
    from oodshape.preprocess import IMAGENET as IMAGENET
    from oodshape.preprocess import Preprocessing as Preprocessing
    from oodshape.results import Results as Results
    from oodshape.stats import FeatureStats as FeatureStats
    from oodshape.surrogates import Scrambled as Scrambled
    from oodshape.watch import Watch as Watch

# name -> module; imported when first asked for, so that `import oodshape` takes no time
_HOMES = {
    "Guard": "guard",
    "Classifier": "model",
    "ImageFolder": "datasets.folders",
    "ImageList": "datasets.folders",
    "Preprocessing": "preprocess",
    "IMAGENET": "preprocess",
    "CIFAR": "preprocess",
    "Features": "features",
    "FeatureStats": "stats",
    "Moments": "moments",
    "Head": "outputs",
    "Outputs": "outputs",
    "Method": "detector",
    "Detector": "detector",
    "Decision": "detector",
    "METHODS": "methods",
    "paper_methods": "methods",
    "fit_all": "detector",
    "Auto": "auto",
    "Scrambled": "surrogates",
    "panel_features": "panel",
    "auroc": "metrics",
    "fpr_at_tpr": "metrics",
    "Benchmark": "benchmark",
    "Results": "results",
    "OODEstimator": "estimator",
    "export_onnx": "export",
    "Watch": "watch",
    "InputError": "errors",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """The public name, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module 'oodshape' has no attribute {name!r}")
    value = getattr(import_module(f"oodshape.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
