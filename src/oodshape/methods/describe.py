"""Methods in words, from their records: lists, `oodshape methods NAME`, the pages of the docs and of a benchmark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oodshape.methods.records import RECORDS, REFERENCES, Record, check_method, find_registered

if TYPE_CHECKING:
    from oodshape.methods.detector import Method


def describe_deviations(record: Record) -> str:
    """How a method deviates from its reference code, and what tests compare it with, in sentences."""
    if not record.code and record.citation.startswith("Our own"):
        return "Our own: there is no reference code."
    known = [f"{each.what}: in the reference code {each.theirs}; here {each.here}." for each in record.deviations] or [
        "No deviation is known."
    ]
    compared = [REFERENCES[each] for each in record.checked_against]
    tests = f"Tests compare with {'; with '.join(compared)}." if compared else "Tests compare with the formula alone."
    return " ".join([*known, tests])


def find_titles(reference: str) -> list[tuple[str, str]]:
    """The titles in a reference, which stand between asterisks, each with the address that follows it.

    >>> find_titles("Sun and Li, *DICE*, ECCV 2022, arXiv:2111.09805.")
    [('DICE', 'https://arxiv.org/abs/2111.09805')]
    """
    found = re.findall(r"\*([^*]+)\*[^*]*?(arXiv:|https://)([^\s;]+?)[.,]?(?:[\s;]|$)", reference)
    return [(title, f"{'https://arxiv.org/abs/' if kind == 'arXiv:' else kind}{rest}") for title, kind, rest in found]


def method_rows() -> list[tuple[str, ...]]:
    """(id, name, summary, needs, fails, recipe) of every method."""
    return [
        (each.id, each.name, each.summary, each.needs, each.fails, format_recipe(each)) for each in RECORDS.values()
    ]


def describe_method(name: str) -> list[tuple[str, str]]:
    """Everything about one method, in lines of (what, text)."""
    record = find_registered(name)
    if record is None:  # a custom method, which is imported
        check_method(name)
        from oodshape.methods.registry import find_record

        record = find_record(name)
    papers = [address for _, address in find_titles(record.citation)]
    settings = [f"{id_set}: {_show(changes)}" for id_set, changes in record.paper.items()]
    openood = record.openood.get("settings", {}) if record.openood.get("name") else None
    return [
        ("method", record.id),
        ("name", record.name),
        ("summary", record.summary),
        ("needs", record.needs),
        ("fails", record.fails),
        ("recipe", format_recipe(record)),
        ("paper's settings", "; ".join(settings)),
        ("OpenOOD's settings", "" if openood is None else _show(openood) or "the same"),
        ("export", "not possible: it needs gradients" if record.images_only else "ONNX and torch.export"),
        ("deviations", describe_deviations(record) if record.citation else "custom: defined outside oodshape"),
        ("reference", record.citation.replace("*", "")),
        ("paper", ", ".join(papers)),
        ("code", record.code),
    ]


def format_recipe(record: Record) -> str:
    """The recipe in code; read from the record, without importing its classes.

    >>> format_recipe(RECORDS["react"])
    'Method(shape=ReAct(q=0.9), score=Energy())'
    """
    recipe = record.recipe
    return f"Method({_show(recipe)})" if isinstance(recipe, Mapping) else format_short_recipe(recipe)


def _show(spec: Any) -> str:
    """Settings as the arguments of a call."""
    if isinstance(spec, list):
        return f"({', '.join(map(_show, spec))}{',' * (len(spec) == 1)})"
    if not isinstance(spec, Mapping):
        return repr(spec)
    inside = ", ".join(f"{key}={_show(value)}" for key, value in spec.items() if key != "use")
    return f"{spec['use'].rpartition(':')[2]}({inside})" if "use" in spec else inside


def format_short_recipe(method: Method) -> str:
    """The recipe in code, without the slots that do nothing: no shaping, the network's own head, no perturbation.

    >>> from oodshape.methods.registry import METHODS
    >>> format_short_recipe(METHODS["react"])
    'Method(shape=ReAct(q=0.9), score=Energy())'
    """
    plain = type(method)()
    shown = {name: value for name, value in method._items() if name == "score" or value != getattr(plain, name)}
    return f"Method({', '.join(f'{name}={value!r}' for name, value in shown.items())})"
