"""The catalogue of studies: what each computes, shows, prints and draws, and which methods it is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oodshape import studies as analysis
from oodshape.core.errors import InputError, no_such
from oodshape.studies import figures as draw
from oodshape.studies import tuning
from oodshape.studies.auto import draw_choice, draw_regret, print_choice
from oodshape.studies.bounds import bounds, draw_bounds, print_bounds
from oodshape.studies.methods import PAIRS, optfs_of
from oodshape.studies.network import Network
from oodshape.studies.sample_size import draw_samples, of_network, print_samples
from oodshape.studies.shaping_functions import BY_VALUE, BY_VECTOR, WITH, WITHOUT
from oodshape.studies.tables import (
    by_network,
    listed,
    print_changed,
    print_generalisation,
    print_shaping,
    print_tuning,
    print_weights,
)
from oodshape.studies.theta import Objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True)
class Picks:
    """The rows of each method: the values that they have in a column. Rows with a value that is `kept` are of all."""

    column: str
    rows: Mapping[str, tuple[str, ...]]
    kept: tuple[str, ...] = ()

    @classmethod
    def named(cls, column: str, *methods: str, kept: tuple[str, ...] = ()) -> Picks:
        """Rows that bear the method's name."""
        return cls(column, {name: (name,) for name in methods}, kept)

    def of(self, frame: DataFrame, methods: tuple[str, ...]) -> DataFrame:
        """The rows of these methods, all of them where none is named."""
        if not methods:
            return frame
        wanted = {value for name in methods for value in self.rows[name]} | set(self.kept)
        return frame[frame[self.column].isin(wanted)].reset_index(drop=True)


@dataclass(frozen=True)
class Study:
    """Title, tidy rows of one network, the table to print and the figures.

    `table` takes the rows of all networks and the number of decimals that the images support.
    """

    title: str
    compute: Callable[[Network], DataFrame]
    table: Callable[[DataFrame, int], DataFrame]
    draw: Callable[[DataFrame], Figure]
    draw_all: Callable[[DataFrame], Figure] | None = None
    by_proxy: bool = False  # each network must have a proxy
    compares: bool = False  # any methods can be picked
    picks: Picks | None = None  # the methods that it is of, if it is not of optfs-v alone

    def of(self, network: Network) -> DataFrame:
        """The tidy rows of a network, of the methods that were picked."""
        frame = self.compute(network)
        return frame if self.picks is None else self.picks.of(frame, network.picked)


def _sources(network: Network) -> dict[str, Any]:
    return {"real": network.ood[network.real], **network.surrogates}


def _sets(network: Network) -> tuple[Any, Any, Any]:
    return network.train, network.inside, network.ood


def _v_first(frame: DataFrame) -> DataFrame:
    return frame.sort_values("method", ascending=False, kind="stable")


def _variants(network: Network) -> DataFrame:
    objective: Objective = "authors-code" if network.as_coded else "mean-gap"
    how: dict[str, Any] = {"objective": objective, "seed": network.seed}
    return analysis.variants(*_sets(network), _sources(network), network.methods, **how)


def _dynamic(network: Network) -> DataFrame:
    from pandas import DataFrame, concat

    fixed = network.methods["optfs-v"].fit(network.train).shape
    moving = analysis.dynamic(network.train, optfs=optfs_of(network.methods), seed=network.seed)
    ratio = vars(analysis.changed_ratio(network.train, fixed))
    limits: dict[str, Any] = {"left": moving.edges[:-1].astype(float), "right": moving.edges[1:].astype(float)}
    curves: dict[str, Any] = {"ours (V)": fixed, "dynamic": moving}
    return concat(
        [DataFrame({"curve": name, **limits, "theta": shape.theta, **ratio}) for name, shape in curves.items()],
        ignore_index=True,
    )


def _tuning(network: Network) -> DataFrame:
    from pandas import DataFrame, concat

    search = tuning.AUTHORS if network.as_coded else tuning.OURS
    how: dict[str, Any] = {"search": search, "seed": network.seed}
    tuned = analysis.tune_on_surrogates(*_sets(network), network.surrogate, network.methods, **how)
    said: dict[str, Any] = {"method": "optfs-e", "tuned": False, "setting": "no setting", "surrogate_auroc": None}
    ours = analysis.measured(network.methods["optfs-e"].fit(network.train), network.inside, network.ood, **said)
    return concat([tuned, DataFrame(ours).astype({"surrogate_auroc": float})], ignore_index=True)


STUDIES: dict[str, Study] = {
    "variants": Study(
        "Variants of OptFS: one theta from one OOD set, tested on all; means over OOD sets",
        _variants,
        lambda frame, digits: by_network(frame, ["variant"], digits),
        draw.draw_variants,
        picks=Picks(
            "variant", {"optfs-v": ("real", "gaussian", "uniform", "dynamic", "ours (V)"), "optfs-e": ("ours (E)",)}
        ),
    ),
    "objectives": Study(
        "OptFS with OOD data by objective: one theta from one OOD set, tested on all; V score, means over OOD sets",
        lambda network: analysis.objectives(*_sets(network), _sources(network)),
        lambda frame, digits: by_network(frame, ["source", "objective"], digits),
        draw.draw_objectives,
    ),
    "validation": Study(
        "Validation of the ID-only problem: one theta per OOD set, tested on that set; V score",
        lambda network: analysis.validation(*_sets(network)),
        listed,
        draw.draw_validation,
    ),
    "dynamic": Study(
        "Classes that may change: the ratio r of changed argmax, and theta by alternating optimisation",
        _dynamic,
        print_changed,
        draw.draw_dynamic,
    ),
    "intervals": Study(
        "Number of intervals K; K = 0 is Energy; means over OOD sets",
        lambda network: analysis.k_sweep(*_sets(network), methods=network.methods),
        lambda frame, digits: by_network(_v_first(frame), ["method", "k"], digits),
        draw.draw_intervals,
        picks=Picks.named("method", "optfs-v", "optfs-e"),
    ),
    "bounds": Study(
        "OptFS with the bound on theta (optfs-e) and on the features (optfs-f): mean AUROC / FPR95; at other K, AUROC",
        lambda network: bounds(*_sets(network)),
        print_bounds,
        draw_bounds,
        picks=Picks("bound", {"optfs-e": ("theta",), "optfs-f": ("features",)}, kept=("none",)),
    ),
    "limits": Study(
        "Limits of the intervals at the p and 100 - p percentiles; means over OOD sets",
        lambda network: analysis.limits_sweep(*_sets(network), methods=network.methods),
        lambda frame, digits: by_network(_v_first(frame), ["method", "tail"], digits, also=("lower", "upper")),
        draw.draw_limits,
        picks=Picks.named("method", "optfs-v", "optfs-e"),
    ),
    "compatibility": Study(
        "Scores and methods alone and with OptFS; means over OOD sets",
        lambda network: analysis.compatibility(*_sets(network), network.methods),
        lambda frame, digits: by_network(
            frame.assign(shaped=frame["shaped"].map({False: "base", True: "+ OptFS"})), ["base", "shaped"], digits
        ),
        draw.draw_compatibility,
        picks=Picks.named("base", *(base for base, _ in PAIRS)),
    ),
    "shaping": Study(
        "Shaping functions: cosine of each theta with that of OptFS with OOD data, over intervals that hold values",
        lambda network: analysis.shaping_profiles(
            network.train, network.inside, network.ood[network.real], network.methods
        ),
        print_shaping,
        draw.draw_shaping,
        picks=Picks.named("curve", *BY_VALUE, *BY_VECTOR, WITHOUT, kept=(WITH,)),
    ),
    "weights": Study(
        "Weights of the predicted class by feature value, mean and standard deviation in ten equal parts of the range",
        lambda network: analysis.weights_by_value(
            network.train, {"ID": network.inside, f"OOD ({network.real})": network.ood[network.real]}
        ),
        print_weights,
        draw.draw_weights,
    ),
    "intuition": Study(
        "The intuition: b = E[I_OOD] beside a = E[I_ID] = (1, 0)",
        lambda network: analysis.intuition(analysis.validation(*_sets(network))),
        listed,
        draw.draw_intuition,
    ),
    "generalisation": Study(
        "Generalisation: mean AUROC per method on each network, on ConvNets, and on transformers and MLPs",
        lambda network: analysis.every_method(*_sets(network), network.compared, network.proxy),
        print_generalisation,
        draw.draw_bars,
        lambda frame: draw.draw_generalisation(analysis.generalisation(frame.rename(columns={"network": "model"}))),
        compares=True,
    ),
    "tuning": Study(
        "Rivals tuned on Gaussian surrogates; means over OOD sets",
        _tuning,
        print_tuning,
        draw.draw_tuning,
        picks=Picks.named("method", *tuning.GRIDS, "optfs-e"),
    ),
    "samples": Study(
        "How many images a fit needs: AUROC over resamples of the fitting set, and how far theta moves",
        of_network,
        print_samples,
        draw_samples,
        compares=True,
    ),
    "auto": Study(
        "The choice of auto: AUROC against scrambled ID images and classes left out beside AUROC against real OOD data",
        lambda network: analysis.choice(*_sets(network), network.chosen_by(), network.compared),
        print_choice,
        draw_choice,
        draw_regret,
        by_proxy=True,
        compares=True,
    ),
}


def chosen(name: str) -> list[str]:
    """The studies that a name stands for: one, or all of them."""
    if name == "all":
        return list(STUDIES)
    if name not in STUDIES:
        raise no_such("study", name, (*STUDIES, "all"))
    return [name]


def picked_of(name: str, methods: tuple[str, ...]) -> tuple[str, ...]:
    """Select the methods that a study compares; an error names them where none was asked for."""
    study = STUDIES[name]
    if study.compares or not methods:
        return methods
    names = tuple(study.picks.rows) if study.picks is not None else ("optfs-v",)
    found = tuple(method for method in methods if method in names)
    if not found:
        raise InputError(f"the study {name} is of {', '.join(names)}, not of {', '.join(methods)}")
    return found


def possible(names: Sequence[str], networks: Sequence[Network]) -> list[str]:
    """The studies that these networks allow: one that looks at a proxy needs it for each of them."""
    return [name for name in names if not STUDIES[name].by_proxy or all(network.proxy for network in networks)]
