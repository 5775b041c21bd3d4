"""Out-of-distribution detection for image classifiers by feature shaping.

from oodshape import Features, METHODS
train = Features.from_arrays(train_features, head=(weight, bias))
detector = METHODS["optfs-e"].fit(train).calibrate(held_out_features)
detector.decide(Features.from_arrays(new_features, head=(weight, bias)))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from oodshape.benchmark.results import Results as Results
    from oodshape.benchmark.spec import Benchmark as Benchmark
    from oodshape.core.errors import InputError as InputError
    from oodshape.features.features import Features as Features
    from oodshape.features.moments import Moments as Moments
    from oodshape.features.panel import panel_features as panel_features
    from oodshape.features.running_sums import Statistic as Statistic
    from oodshape.features.statistics import FeatureStats as FeatureStats
    from oodshape.guard.guard import Guard as Guard
    from oodshape.guard.guarded_file import GuardedFile as GuardedFile
    from oodshape.guard.live import Live as Live
    from oodshape.guard.onnx import export_onnx as export_onnx
    from oodshape.guard.verdict import Verdict as Verdict
    from oodshape.guard.watch import Watch as Watch
    from oodshape.images.folders import ImageFolder as ImageFolder
    from oodshape.images.folders import ImageList as ImageList
    from oodshape.images.limits import Limits as Limits
    from oodshape.images.preprocessing import CIFAR as CIFAR
    from oodshape.images.preprocessing import IMAGENET as IMAGENET
    from oodshape.images.preprocessing import Preprocessing as Preprocessing
    from oodshape.images.synthetic import Scrambled as Scrambled
    from oodshape.methods.auto import Auto as Auto
    from oodshape.methods.detector import Decision as Decision
    from oodshape.methods.detector import Detector as Detector
    from oodshape.methods.detector import Method as Method
    from oodshape.methods.estimator import OODEstimator as OODEstimator
    from oodshape.methods.slots import Evidence as Evidence
    from oodshape.methods.slots import FittedHead as FittedHead
    from oodshape.methods.slots import FittedScore as FittedScore
    from oodshape.methods.slots import HeadRecipe as HeadRecipe
    from oodshape.methods.slots import Score as Score
    from oodshape.methods.slots import ScoreRecipe as ScoreRecipe
    from oodshape.methods.slots import Shape as Shape
    from oodshape.methods.slots import Shaper as Shaper
    from oodshape.methods.table import METHODS as METHODS
    from oodshape.methods.table import authors_methods as authors_methods
    from oodshape.methods.table import paper_methods as paper_methods
    from oodshape.methods.together import fit_all as fit_all
    from oodshape.methods.training import Training as Training
    from oodshape.metrics.conformal import false_discoveries as false_discoveries
    from oodshape.metrics.separation import aupr_in as aupr_in
    from oodshape.metrics.separation import aupr_out as aupr_out
    from oodshape.metrics.separation import auroc as auroc
    from oodshape.metrics.separation import bootstrap as bootstrap
    from oodshape.metrics.separation import detection_error as detection_error
    from oodshape.metrics.separation import fpr_at_tpr as fpr_at_tpr
    from oodshape.networks.classifier import Classifier as Classifier
    from oodshape.networks.head import Head as Head
    from oodshape.networks.head import Outputs as Outputs

# name -> module; imported when first asked for, so that `import oodshape` takes no time
_HOMES = {
    "Guard": "guard.guard",
    "Live": "guard.live",
    "GuardedFile": "guard.guarded_file",
    "Verdict": "guard.verdict",
    "Classifier": "networks.classifier",
    "ImageFolder": "images.folders",
    "ImageList": "images.folders",
    "Limits": "images.limits",
    "Preprocessing": "images.preprocessing",
    "IMAGENET": "images.preprocessing",
    "CIFAR": "images.preprocessing",
    "Features": "features.features",
    "FeatureStats": "features.statistics",
    "Moments": "features.moments",
    "Head": "networks.head",
    "Outputs": "networks.head",
    "Method": "methods.detector",
    "Detector": "methods.detector",
    "Decision": "methods.detector",
    "METHODS": "methods.table",
    "authors_methods": "methods.table",
    "paper_methods": "methods.table",
    "fit_all": "methods.together",
    "Auto": "methods.auto",
    "Shape": "methods.slots",
    "Shaper": "methods.slots",
    "FittedHead": "methods.slots",
    "HeadRecipe": "methods.slots",
    "Score": "methods.slots",
    "FittedScore": "methods.slots",
    "ScoreRecipe": "methods.slots",
    "Evidence": "methods.slots",
    "Training": "methods.training",
    "Statistic": "features.running_sums",
    "Scrambled": "images.synthetic",
    "panel_features": "features.panel",
    "auroc": "metrics.separation",
    "fpr_at_tpr": "metrics.separation",
    "aupr_in": "metrics.separation",
    "aupr_out": "metrics.separation",
    "detection_error": "metrics.separation",
    "bootstrap": "metrics.separation",
    "false_discoveries": "metrics.conformal",
    "Benchmark": "benchmark.spec",
    "Results": "benchmark.results",
    "OODEstimator": "methods.estimator",
    "export_onnx": "guard.onnx",
    "Watch": "guard.watch",
    "InputError": "core.errors",
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
