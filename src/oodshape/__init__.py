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
    from oodshape.benchmark.spec import Benchmark as Benchmark
    from oodshape.core.errors import InputError as InputError
    from oodshape.evaluation.evaluate import evaluate as evaluate
    from oodshape.evaluation.printable_results import Results as Results
    from oodshape.features.feature_stats import FeatureStats as FeatureStats
    from oodshape.features.features import Features as Features
    from oodshape.features.moments import Moments as Moments
    from oodshape.features.proxy import proxy_features as proxy_features
    from oodshape.features.running_sums import Statistic as Statistic
    from oodshape.guard.export.guarded_file import GuardedFile as GuardedFile
    from oodshape.guard.export.onnx import export_onnx as export_onnx
    from oodshape.guard.guard import Guard as Guard
    from oodshape.guard.live import Live as Live
    from oodshape.guard.verdict import Verdict as Verdict
    from oodshape.guard.watch.watch import Watch as Watch
    from oodshape.images.datasets.synthetic import Scrambled as Scrambled
    from oodshape.images.decode.limits import Limits as Limits
    from oodshape.images.decode.preprocessing import CIFAR as CIFAR
    from oodshape.images.decode.preprocessing import IMAGENET as IMAGENET
    from oodshape.images.decode.preprocessing import Preprocessing as Preprocessing
    from oodshape.images.sources.folders import ImageFolder as ImageFolder
    from oodshape.images.sources.folders import ImageList as ImageList
    from oodshape.methods.auto import Auto as Auto
    from oodshape.methods.base import Evidence as Evidence
    from oodshape.methods.base import FittedHead as FittedHead
    from oodshape.methods.base import FittedScore as FittedScore
    from oodshape.methods.base import HeadRecipe as HeadRecipe
    from oodshape.methods.base import Score as Score
    from oodshape.methods.base import ScoreRecipe as ScoreRecipe
    from oodshape.methods.base import Shape as Shape
    from oodshape.methods.base import Shaper as Shaper
    from oodshape.methods.detector import Decision as Decision
    from oodshape.methods.detector import Detector as Detector
    from oodshape.methods.detector import Method as Method
    from oodshape.methods.fit_all import fit_all as fit_all
    from oodshape.methods.registry import METHODS as METHODS
    from oodshape.methods.registry import authors_methods as authors_methods
    from oodshape.methods.registry import find_method as find_method
    from oodshape.methods.registry import paper_methods as paper_methods
    from oodshape.methods.sklearn_estimator import OODEstimator as OODEstimator
    from oodshape.methods.training import Training as Training
    from oodshape.metrics.conformal import false_discoveries as false_discoveries
    from oodshape.metrics.detection import aupr_in as aupr_in
    from oodshape.metrics.detection import aupr_out as aupr_out
    from oodshape.metrics.detection import auroc as auroc
    from oodshape.metrics.detection import bootstrap as bootstrap
    from oodshape.metrics.detection import detection_error as detection_error
    from oodshape.metrics.detection import fpr_at_tpr as fpr_at_tpr
    from oodshape.networks.classifier import Classifier as Classifier
    from oodshape.networks.head import Head as Head
    from oodshape.networks.head import Outputs as Outputs

# name -> module; imported when first asked for, so that `import oodshape` takes no time
_HOMES = {
    "Guard": "guard.guard",
    "Live": "guard.live",
    "GuardedFile": "guard.export.guarded_file",
    "Verdict": "guard.verdict",
    "Classifier": "networks.classifier",
    "ImageFolder": "images.sources.folders",
    "ImageList": "images.sources.folders",
    "Limits": "images.decode.limits",
    "Preprocessing": "images.decode.preprocessing",
    "IMAGENET": "images.decode.preprocessing",
    "CIFAR": "images.decode.preprocessing",
    "Features": "features.features",
    "FeatureStats": "features.feature_stats",
    "Moments": "features.moments",
    "Head": "networks.head",
    "Outputs": "networks.head",
    "Method": "methods.detector",
    "Detector": "methods.detector",
    "Decision": "methods.detector",
    "METHODS": "methods.registry",
    "authors_methods": "methods.registry",
    "find_method": "methods.registry",
    "paper_methods": "methods.registry",
    "fit_all": "methods.fit_all",
    "Auto": "methods.auto",
    "Shape": "methods.base",
    "Shaper": "methods.base",
    "FittedHead": "methods.base",
    "HeadRecipe": "methods.base",
    "Score": "methods.base",
    "FittedScore": "methods.base",
    "ScoreRecipe": "methods.base",
    "Evidence": "methods.base",
    "Training": "methods.training",
    "Statistic": "features.running_sums",
    "Scrambled": "images.datasets.synthetic",
    "proxy_features": "features.proxy",
    "auroc": "metrics.detection",
    "fpr_at_tpr": "metrics.detection",
    "aupr_in": "metrics.detection",
    "aupr_out": "metrics.detection",
    "detection_error": "metrics.detection",
    "bootstrap": "metrics.detection",
    "false_discoveries": "metrics.conformal",
    "Benchmark": "benchmark.spec",
    "Results": "evaluation.printable_results",
    "evaluate": "evaluation.evaluate",
    "OODEstimator": "methods.sklearn_estimator",
    "export_onnx": "guard.export.onnx",
    "Watch": "guard.watch.watch",
    "InputError": "core.errors",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """The public name, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module 'oodshape' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"oodshape.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from oodshape.core.errors import missing_extra

        raise ImportError(missing_extra(error, f"oodshape.{name}")) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
