"""The paper's studies as functions over features: each gives a tidy table or a small frozen value."""

from oodshape.analysis.choice import choice as choice
from oodshape.analysis.choice import regret as regret
from oodshape.analysis.compare import compatibility as compatibility
from oodshape.analysis.compare import every_method as every_method
from oodshape.analysis.compare import generalisation as generalisation
from oodshape.analysis.compare import measured as measured
from oodshape.analysis.dynamic import ChangedRatio as ChangedRatio
from oodshape.analysis.dynamic import changed_ratio as changed_ratio
from oodshape.analysis.dynamic import dynamic as dynamic
from oodshape.analysis.networks import Network as Network
from oodshape.analysis.profiles import shaping_profiles as shaping_profiles
from oodshape.analysis.profiles import weights_by_value as weights_by_value
from oodshape.analysis.sweeps import k_sweep as k_sweep
from oodshape.analysis.sweeps import limits_sweep as limits_sweep
from oodshape.analysis.tuning import tune_on_surrogates as tune_on_surrogates
from oodshape.analysis.validation import intuition as intuition
from oodshape.analysis.validation import validation as validation
from oodshape.analysis.variants import objectives as objectives
from oodshape.analysis.variants import variants as variants
from oodshape.analysis.with_ood import impact_vectors as impact_vectors
from oodshape.analysis.with_ood import with_ood as with_ood
