"""The table of studies: what each computes, prints and draws; and `write`, which makes its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodshape import studies as analysis
from oodshape.benchmark.prepared import Options
from oodshape.benchmark.results import convention
from oodshape.benchmark.spec import Benchmark
from oodshape.core.errors import InputError, no_such
from oodshape.core.files import replacing
from oodshape.report.render import frame_latex, frame_markdown
from oodshape.studies import drawing, tuning
from oodshape.studies import figures as draw
from oodshape.studies.auto_figures import draw_choice, draw_regret, print_choice
from oodshape.studies.bounds import bounds, draw_bounds, print_bounds
from oodshape.studies.comparison import optfs_of
from oodshape.studies.network import Network, folders_in, from_benchmark, from_folder
from oodshape.studies.page import study_page
from oodshape.studies.samples import draw_samples, of_network, print_samples
from oodshape.studies.seeds import over_seeds
from oodshape.studies.tables import (
    by_network,
    listed,
    print_changed,
    print_generalisation,
    print_shaping,
    print_tuning,
    print_weights,
)
from oodshape.studies.with_ood import Objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True)
class Study:
    """Title, tidy rows of one network, the table to print for all, a figure per network and one for all."""

    title: str
    compute: Callable[[Network], DataFrame]
    table: Callable[[DataFrame], DataFrame]
    draw: Callable[[DataFrame], Figure]
    draw_all: Callable[[DataFrame], Figure] | None = None
    by_panel: bool = False  # each network must have a panel
    compares: bool = False  # methods can be picked


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
        lambda frame: by_network(frame, ["variant"]),
        draw.draw_variants,
    ),
    "objectives": Study(
        "OptFS with OOD data by objective: one theta from one OOD set, tested on all; V score, means over OOD sets",
        lambda network: analysis.objectives(*_sets(network), _sources(network)),
        lambda frame: by_network(frame, ["source", "objective"]),
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
        lambda frame: by_network(_v_first(frame), ["method", "k"]),
        draw.draw_intervals,
    ),
    "bounds": Study(
        "OptFS with the bound on theta (optfs-e) and on the features (optfs-f): mean AUROC / FPR95; at other K, AUROC",
        lambda network: bounds(*_sets(network)),
        print_bounds,
        draw_bounds,
    ),
    "limits": Study(
        "Limits of the intervals at the p and 100 - p percentiles; means over OOD sets",
        lambda network: analysis.limits_sweep(*_sets(network), methods=network.methods),
        lambda frame: by_network(_v_first(frame), ["method", "tail"], also=("lower", "upper")),
        draw.draw_limits,
    ),
    "compatibility": Study(
        "Scores and methods alone and with OptFS; means over OOD sets",
        lambda network: analysis.compatibility(*_sets(network), network.methods),
        lambda frame: by_network(
            frame.assign(shaped=frame["shaped"].map({False: "base", True: "+ OptFS"})), ["base", "shaped"]
        ),
        draw.draw_compatibility,
    ),
    "shaping": Study(
        "Shaping functions: cosine of each theta with that of OptFS with OOD data, over intervals that hold values",
        lambda network: analysis.shaping_profiles(
            network.train, network.inside, network.ood[network.real], network.methods
        ),
        print_shaping,
        draw.draw_shaping,
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
        lambda network: analysis.every_method(*_sets(network), network.compared, network.panel),
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
        lambda network: analysis.choice(*_sets(network), network.chosen_by(), network.methods),
        print_choice,
        draw_choice,
        draw_regret,
        by_panel=True,
    ),
}


def chosen(name: str) -> list[str]:
    """The studies that a name stands for: one, or all of them."""
    if name == "all":
        return list(STUDIES)
    if name not in STUDIES:
        raise no_such("study", name, (*STUDIES, "all"))
    return [name]


def check_picked(names: Sequence[str], methods: tuple[str, ...]) -> None:
    """Refuse a list of methods for studies that do not compare any."""
    can = [name for name, study in STUDIES.items() if study.compares]
    for name in names if methods else ():
        if name not in can:
            raise InputError(f"the study {name} is of fixed methods; --methods is for {', '.join(can)}")


def possible(names: Sequence[str], networks: Sequence[Network]) -> list[str]:
    """The studies that these networks allow: one that looks at a panel needs it for each of them."""
    return [name for name in names if not STUDIES[name].by_panel or all(network.panel for network in networks)]


def networks(
    benchmark: str,
    features: Sequence[Path],
    models: tuple[str, ...] = (),
    limit: int | None = None,
    surrogates: int = 50_000,
    data: Path | None = None,
    cache: Path | None = None,
    panel: Path | None = None,
    weights: Path | None = None,
    settings: str = "",
    **how: Any,
) -> list[Network]:
    """The networks that studies look at: from folders of feature files where any is given, else from a benchmark.

    `how` are more of the `Options` that a benchmark runs with.
    """
    if features:
        found = [from_folder(folder, panel, settings) for folder in folders_in(features)]
        missing = set(models) - {network.name for network in found}
        if missing:
            raise InputError(f"no network {sorted(missing)[0]!r}; there are {', '.join(n.name for n in found)}")
        return [network for network in found if not models or network.name in models]
    options = Options(models=models, limit=limit, data=data, weights=weights, cache=cache, **how)
    chosen = Benchmark.load(benchmark)
    return list(from_benchmark(chosen.with_settings(settings) if settings else chosen, options, surrogates))


def write(name: str, networks: Sequence[Network], folder: Path, seeds: int = 1) -> Iterator[Path]:
    """Run a study and write its table (CSV, Markdown, LaTeX), figures (SVG, PDF, PNG) and page; the paths written.

    The CSV holds the tidy rows in full; Markdown, LaTeX and the page hold the table to print.
    """
    study = STUDIES[name]
    parts, frame, more = over_seeds(lambda each: _computed(study, each), networks, seeds)
    table, notes = study.table(frame), [*_notes(networks), *more]
    texts = {
        "csv": frame.to_csv(index=False, lineterminator="\n"),
        "md": frame_markdown(table, study.title, notes),
        "tex": frame_latex(table, study.title, notes),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in texts.items():
        yield _written(text, folder / f"{name}.{kind}")
    pictures: list[Path] = []
    for network, part in zip(networks, parts, strict=True):
        with drawing.look():
            figure = study.draw(part)
        pictures += drawing.save(figure, folder, f"{name}-{drawing.slug(network.name)}")
    if study.draw_all is not None:
        with drawing.look():
            figure = study.draw_all(frame)
        pictures += drawing.save(figure, folder, name)
    yield from pictures
    drawn = [path for path in pictures if path.suffix == ".svg"]
    yield _written(study_page(table, study.title, notes, drawn), folder / f"{name}.html")


def printed(name: str, networks: Sequence[Network]) -> str:
    """The Markdown that `write` puts into a study's file, without the files."""
    study = STUDIES[name]
    return frame_markdown(study.table(_computed(study, networks)[1]), study.title, _notes(networks))


def _computed(study: Study, networks: Sequence[Network]) -> tuple[list[DataFrame], DataFrame]:
    """The tidy rows of each network, named after it, and all of them in one frame."""
    from pandas import concat

    parts = [study.compute(network) for network in networks]
    for part, network in zip(parts, networks, strict=True):
        part.insert(0, "family", network.family)
        part.insert(0, "network", network.name)
    return parts, concat(parts, ignore_index=True)


def _written(text: str, path: Path) -> Path:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _notes(networks: Sequence[Network]) -> list[str]:
    return [f"Percent where a column says FPR95, AUROC or r; {convention()}.", *(n.describe() for n in networks)]
