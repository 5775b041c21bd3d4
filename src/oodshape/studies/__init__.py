"""The paper's other tables and figures: functions over features that give a tidy frame or a small frozen value.

A study is a row of `catalog`: what it computes (the functions below, one idea per file), the sentence that it shows
(`findings`), the table it prints (`printing`), its figures (`figures` and `auto_figures`, in the look of `drawing`);
`writing` makes its files. `network` reads the features, from folders or from a benchmark.
"""

from oodshape.studies.auto_choice import choice as choice
from oodshape.studies.auto_choice import regret as regret
from oodshape.studies.comparison import compatibility as compatibility
from oodshape.studies.comparison import every_method as every_method
from oodshape.studies.comparison import generalisation as generalisation
from oodshape.studies.comparison import measured as measured
from oodshape.studies.dynamic_classes import ChangedRatio as ChangedRatio
from oodshape.studies.dynamic_classes import changed_ratio as changed_ratio
from oodshape.studies.dynamic_classes import dynamic as dynamic
from oodshape.studies.network import Network as Network
from oodshape.studies.profiles import shaping_profiles as shaping_profiles
from oodshape.studies.profiles import weights_by_value as weights_by_value
from oodshape.studies.sweeps import k_sweep as k_sweep
from oodshape.studies.sweeps import limits_sweep as limits_sweep
from oodshape.studies.tuning import tune_on_surrogates as tune_on_surrogates
from oodshape.studies.validation import intuition as intuition
from oodshape.studies.validation import validation as validation
from oodshape.studies.variants import objectives as objectives
from oodshape.studies.variants import variants as variants
from oodshape.studies.with_ood import impact_vectors as impact_vectors
from oodshape.studies.with_ood import with_ood as with_ood
