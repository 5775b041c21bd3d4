"""Options that verbs and commands share, declared once: how to open a model, how to read images, how to run.

Each group is a frozen value that is passed on as it is. The command line makes its options from the fields (those with
a `Help`), and `takes_options` gives the public verbs one keyword for each field. To add an option, add a field with its
help text here, and the same name to the group's keywords below it, which type checkers and editors read. A field is
described in `Args:` of its group only if Python differs from the command line.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypedDict, TypeVar, get_type_hints

from oodshape.core.errors import InputError

Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Help:
    """The help text of an option, the least value it may have, and what stands for its value in the help."""

    text: str
    min: float | None = None
    metavar: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How to open a model.

    Args:
        device: `auto`, `cpu`, `cuda`, `cuda:N`, `mps` or `xpu`; None leaves the network where it is.
        precision: Precision of the network; all but `float32` run under autocast. None: `float32`, or as the guard
            was fitted.
    """

    panel: ClassVar[str] = "Model"

    weights: Annotated[
        Path | None, Help("The network's weights: .safetensors, or a torch file that holds tensors only.")
    ] = None
    device: Annotated[
        str | None, Help("auto (a GPU if there is one), cpu, cuda, cuda:N, mps or xpu.", metavar="DEVICE")
    ] = None
    precision: Annotated[
        Precision | None,
        Help("Precision of the network: float32, bfloat16 or float16 [default: float32, or as the guard was fitted]."),
    ] = None
    trust_code: Annotated[
        bool, Help("Run code that a file contains or names: a .pt2 archive, a function in a TOML or results file.")
    ] = False


class ModelKeywords(TypedDict, total=False):
    """The fields of `ModelOptions` as keywords."""

    weights: str | Path | None
    device: str | None
    precision: Precision | None
    trust_code: bool


@dataclass(frozen=True, kw_only=True)
class HeadOptions:
    """Which layer of a model is its head; a guard knows it."""

    panel: ClassVar[str] = "Model"

    head: Annotated[str | None, Help("The layer that gives the logits, if it is not found.", metavar="LAYER")] = None
    num_classes: Annotated[int | None, Help("Number of classes, if the weights do not define it.", min=1)] = None


class HeadKeywords(TypedDict, total=False):
    """The fields of `HeadOptions` as keywords."""

    head: str | None
    num_classes: int | None


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """How to read images.

    Args:
        prepared: The images are batches of tensors that the network takes as they are.
    """

    panel: ClassVar[str] = "Images"

    column: Annotated[str | None, Help("The column of a Parquet file that holds the images [default: image].")] = None
    prepared: bool = False


class ImageKeywords(TypedDict, total=False):
    """The fields of `ImageOptions` as keywords."""

    column: str | None
    prepared: bool


@dataclass(frozen=True, kw_only=True)
class SubsetOptions:
    """How many images to use."""

    panel: ClassVar[str] = "Images"

    limit: Annotated[int | None, Help("At most N images of each set, drawn with a fixed seed.", min=1)] = None


class SubsetKeywords(TypedDict, total=False):
    """The fields of `SubsetOptions` as keywords."""

    limit: int | None


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """Where to keep features.

    Args:
        cache: Folder that keeps features between runs; None keeps none.
    """

    panel: ClassVar[str] = "Running"

    cache: Annotated[
        Path | None, Help("Folder that keeps features between runs, or `none` [default: the user's cache folder].")
    ] = None


class CacheKeywords(TypedDict, total=False):
    """The fields of `CacheOptions` as keywords."""

    cache: str | Path | None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run.

    Args:
        progress: Whether to show a progress bar; None: where standard error is a terminal.
    """

    panel: ClassVar[str] = "Running"

    batch_size: Annotated[int, Help("Images that go through the network together.", min=1)] = 64
    workers: Annotated[int | None, Help("Threads that decode images [default: one per core, at most 4].", min=0)] = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.workers is not None and self.workers < 0:
            raise InputError(f"workers must be 0 (decode nothing ahead) or more, got {self.workers}")


class RunKeywords(TypedDict, total=False):
    """The fields of `RunOptions` as keywords."""

    batch_size: int
    workers: int | None
    progress: bool | None


class CallKeywords(ModelKeywords, ImageKeywords, RunKeywords, total=False):
    """Keywords of verbs that run a network over images."""


class CheckKeywords(CallKeywords, SubsetKeywords, total=False):
    """Keywords of verbs that may use a part of the images."""


class CalibrateKeywords(CallKeywords, CacheKeywords, total=False):
    """Keywords of verbs that may keep features between runs."""


class EvaluateKeywords(CheckKeywords, HeadKeywords, total=False):
    """Keywords of `evaluate`, which has a cache of its own by default."""


class FitKeywords(CalibrateKeywords, SubsetKeywords, HeadKeywords, total=False):
    """Keywords of verbs that open a model for the first time."""


class OpenKeywords(ModelKeywords, HeadKeywords, total=False):
    """Keywords of functions that open a model."""


class ExtractKeywords(ImageKeywords, CacheKeywords, RunKeywords, total=False):
    """Keywords of functions that extract features."""


Group = TypeVar("Group", ModelOptions, HeadOptions, ImageOptions, SubsetOptions, CacheOptions, RunOptions)
Verb = TypeVar("Verb", bound=Callable[..., Any])


def make_options(group: type[Group], keywords: Mapping[str, Any]) -> Group:
    """The value of a group from the keywords that belong to it; paths may be strings.

    >>> make_options(RunOptions, {"batch_size": 8, "device": "cpu"}).batch_size
    8
    """
    given = {each.name: keywords[each.name] for each in fields(group) if each.name in keywords}
    paths = {name: Path(given[name]) for name in ("weights", "cache") if given.get(name) is not None}
    return group(**(given | paths))


def takes_options(*groups: type[Any]) -> Callable[[Verb], Verb]:
    """Show the fields of option groups as keywords of a verb that takes them as `**options`.

    `inspect.signature`, `help` and the API reference show one keyword for each field, with its default and its text.
    """
    keywords_of_groups = [
        Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=get_type_hints(group)[each.name])
        for group in groups
        for each in fields(group)
    ]

    def decorate(verb: Verb) -> Verb:
        own = inspect.signature(verb)
        plain = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        known = {each.name for each in (*plain, *keywords_of_groups)}

        @functools.wraps(verb)
        def call(*args: Any, **keywords: Any) -> Any:
            for name in keywords.keys() - known:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise TypeError(f"{verb.__qualname__}() got an unexpected keyword argument {name!r}{hint}")
            return verb(*args, **keywords)

        call.__signature__ = own.replace(parameters=[*plain, *keywords_of_groups])  # type: ignore[attr-defined]
        call.__doc__ = _with_arguments(inspect.getdoc(verb) or "", [_arguments(group) for group in groups])
        return call  # type: ignore[return-value]

    return decorate


def _arguments(group: type[Any]) -> str:
    """The lines on a group's fields: its docstring's, and the help text of the fields that it does not describe."""
    own = (inspect.getdoc(group) or "").partition("Args:\n")[2].split("\n\n")[0].rstrip()
    types = get_type_hints(group, include_extras=True)
    notes = {each.name: getattr(types[each.name], "__metadata__", [None])[0] for each in fields(group)}
    texts = [f"    {name}: {note.text}" for name, note in notes.items() if f"    {name}:" not in own and note]
    return "\n".join([*texts, own] if own else texts)


def _with_arguments(text: str, more: list[str]) -> str:
    """A docstring whose `Args:` section goes on with more lines."""
    before, section, after = text.partition("Args:\n")
    if not section:
        return text
    own, blank, rest = after.partition("\n\n")
    return "\n".join([before + section + own, *more]) + blank + rest
