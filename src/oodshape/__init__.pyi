"""The public names for type checkers and editors; `__init__.py` imports each from its module when it is asked for."""

# ruff: noqa: I001 (in the order of the API reference)
from oodshape.guard.guard import Guard as Guard
from oodshape.guard.live import Live as Live
from oodshape.guard.export.guarded_file import GuardedFile as GuardedFile
from oodshape.guard.verdict import Verdict as Verdict
from oodshape.networks.classifier import Classifier as Classifier
from oodshape.images.sources.image_files import ImageFolder as ImageFolder
from oodshape.images.sources.image_files import ImageList as ImageList
from oodshape.images.decode.limits import Limits as Limits
from oodshape.images.decode.preprocessing import Preprocessing as Preprocessing
from oodshape.images.decode.preprocessing import IMAGENET as IMAGENET
from oodshape.images.decode.preprocessing import CIFAR as CIFAR
from oodshape.features.features import Features as Features
from oodshape.features.feature_stats import FeatureStats as FeatureStats
from oodshape.features.moments import Moments as Moments
from oodshape.networks.head import Head as Head
from oodshape.networks.head import Outputs as Outputs
from oodshape.methods.detector import Method as Method
from oodshape.methods.detector import Detector as Detector
from oodshape.methods.detector import Decision as Decision
from oodshape.methods.registry import METHODS as METHODS
from oodshape.methods.registry import authors_methods as authors_methods
from oodshape.methods.registry import find_method as find_method
from oodshape.methods.registry import paper_methods as paper_methods
from oodshape.methods.fit_all import fit_all as fit_all
from oodshape.methods.auto import Auto as Auto
from oodshape.methods.slots import Shape as Shape
from oodshape.methods.slots import Shaper as Shaper
from oodshape.methods.slots import FittedHead as FittedHead
from oodshape.methods.slots import HeadRecipe as HeadRecipe
from oodshape.methods.slots import Score as Score
from oodshape.methods.slots import FittedScore as FittedScore
from oodshape.methods.slots import ScoreRecipe as ScoreRecipe
from oodshape.methods.slots import Evidence as Evidence
from oodshape.methods.training_set import Training as Training
from oodshape.features.moments import Statistic as Statistic
from oodshape.images.datasets.synthetic import Scrambled as Scrambled
from oodshape.features.proxy import proxy_features as proxy_features
from oodshape.metrics.detection import auroc as auroc
from oodshape.metrics.detection import fpr_at_tpr as fpr_at_tpr
from oodshape.metrics.detection import aupr_in as aupr_in
from oodshape.metrics.detection import aupr_out as aupr_out
from oodshape.metrics.detection import detection_error as detection_error
from oodshape.metrics.detection import bootstrap as bootstrap
from oodshape.metrics.conformal import false_discoveries as false_discoveries
from oodshape.benchmark.spec import Benchmark as Benchmark
from oodshape.evaluation.printable_results import Results as Results
from oodshape.evaluation.evaluate import evaluate as evaluate
from oodshape.methods.sklearn_estimator import OODEstimator as OODEstimator
from oodshape.guard.export.onnx import export_onnx as export_onnx
from oodshape.guard.watch.watch import Watch as Watch
from oodshape.core.errors import InputError as InputError

__version__: str
