"""The paper's other tables and figures: functions of features that return a data frame.

`catalog` lists the studies: what each computes, its table (`printing`) and its figures (`figures`, `drawing`).
`writing` runs them and writes their files. `network` reads the features, from folders or from a benchmark.
"""

from oodshape.studies.auto import choice as choice
from oodshape.studies.auto import regret as regret
from oodshape.studies.methods import compatibility as compatibility
from oodshape.studies.methods import every_method as every_method
from oodshape.studies.methods import generalisation as generalisation
from oodshape.studies.methods import measure as measure
from oodshape.studies.network import Network as Network
from oodshape.studies.shaping_functions import shaping_profiles as shaping_profiles
from oodshape.studies.shaping_functions import weights_by_value as weights_by_value
from oodshape.studies.theta import ChangedRatio as ChangedRatio
from oodshape.studies.theta import changed_ratio as changed_ratio
from oodshape.studies.theta import dynamic as dynamic
from oodshape.studies.theta import impact_vectors as impact_vectors
from oodshape.studies.theta import with_ood as with_ood
from oodshape.studies.tuning import tune_on_surrogates as tune_on_surrogates
from oodshape.studies.validation import intuition as intuition
from oodshape.studies.validation import validation as validation
from oodshape.studies.variants import k_sweep as k_sweep
from oodshape.studies.variants import limits_sweep as limits_sweep
from oodshape.studies.variants import objectives as objectives
from oodshape.studies.variants import variants as variants
