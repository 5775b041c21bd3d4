"""The parts of the pages that follow from the code: a method's page, with hand-written words where there are any."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path
from typing import Any

from api import api_page, cli_page, table
from oodshape.core.values import Value
from oodshape.features.moments import Statistic
from oodshape.methods.describe import describe_deviations, find_titles
from oodshape.methods.detector import Method
from oodshape.methods.records import RECORDS, Deviation, Record
from oodshape.methods.registry import make_method
from oodshape.methods.slots import FittedHead, FittedScore, Shape

DOCS = Path(__file__).parents[2] / "docs"
SLOTS = ("perturb", "shape", "head", "score")
# what the parts of `Moments` are to a reader
PARTS = {
    Statistic.COUNTS: "class means",
    Statistic.CLASS_SUMS: "class means",
    Statistic.UNIT_CLASS_SUMS: "class means",
    Statistic.SOFTMAX_SUMS: "class means",
    Statistic.SQUARES: "variances",
    Statistic.SCATTER: "covariance",
    Statistic.UNIT_SCATTER: "covariance",
    Statistic.PROFILE: "sorted mean",
    Statistic.ENERGY: "mean energy",
    Statistic.BANK: "a bank of at most 5,000 images",
    **dict.fromkeys((Statistic.LABEL_COUNTS, Statistic.LABEL_SUMS, Statistic.UNIT_LABEL_SUMS), "class means"),
    **dict.fromkeys((Statistic.RIGHT_COUNTS, Statistic.RIGHT_SUMS), "class means"),
    Statistic.LABEL_SURPRISE: "how likely labels are at some temperatures",
}
NETWORKS = {
    "cifar10_densenet101": "CIFAR-10 DenseNet101",
    "imagenet_deit_tiny": "ImageNet DeiT-tiny",
    "imagenet_efficientnet_lite0": "ImageNet EfficientNet-Lite0",
}
ID_SETS = {"imagenet": "ImageNet", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LONGER = 10  # more values of a setting than this are counted, not listed


def page_name(method: str) -> str:
    """A method's name as a file name: no plus signs.

    >>> page_name("mds++"), page_name("optfs-e+dice")
    ('mds-plus-plus', 'optfs-e-dice')
    """
    return method.replace("++", "-plus-plus").replace("+", "-")


def method_of(page: str) -> str | None:
    """The method that a page `methods/NAME.md` is about, if any."""
    found = [name for name in RECORDS if page == f"methods/{page_name(name)}.md"]
    return found[0] if found else None


def written(page: str, docs: Path = DOCS) -> str:
    """What is written by hand of a page; generated pages and the pages of methods need nothing."""
    path = docs / page
    generated = method_of(page) is not None or page in GENERATED
    return path.read_text(encoding="utf-8") if path.is_file() or not generated else ""


def slots(method: Method) -> dict[str, str]:
    """The slots that differ from the plain ones, with the name of what fills them."""
    plain = Method()
    return {
        slot: type(getattr(method, slot)).__name__
        for slot in SLOTS
        if slot == "score" or getattr(method, slot) != getattr(plain, slot)
    }


def needs(method: Method) -> str:
    """What fitting looks at, in words."""
    if method.wants_proxy:
        return "training features and a proxy of scrambled training images"
    words = list(dict.fromkeys(PARTS[part] for part in sorted(method.needs)))
    if Statistic.LABEL_SURPRISE in method.needs:
        words = [PARTS[Statistic.LABEL_SURPRISE]]
    if words:
        return ", ".join(words)
    learns_nothing = isinstance(method.shape, Shape) and isinstance(method.head, FittedHead)
    return "nothing" if learns_nothing and isinstance(method.score, FittedScore) else "statistics of the features"


def settings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(setting, value) of every field of a recipe, pieces of pieces included."""
    if isinstance(value, Value):
        for field, inner in value._items():
            yield from settings(inner, f"{type(value).__name__}.{field}")
    elif isinstance(value, tuple) and value and all(isinstance(item, Value) for item in value):
        for item in value:
            yield from settings(item)
    elif isinstance(value, tuple) and len(value) > LONGER:
        yield name, f"{len(value)} values"
    else:
        yield name, f"`{_shown(value)}`"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_shown(item) for item in value)})"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def settings_table(name: str) -> str:
    """The settings of a method: the general ones, and the paper's where they differ."""
    record = RECORDS[name]
    changed = {title: make_method(record, record.paper.get(key, {})) for key, title in ID_SETS.items()}
    rows = {title: _used(method) for title, method in {"general": make_method(record), **changed}.items()}
    if not rows["general"]:
        return "Nothing to set."
    if all(row == rows["general"] for row in rows.values()):
        rows = {"value": rows["general"]}
    head = ["setting", *rows]
    lines = [[setting, *(row.get(setting, "-") for row in rows.values())] for setting in rows[next(iter(rows))]]
    said = "" if len(rows) == 1 else "\n\nThe last three columns are the paper's, `oodshape.paper_methods(...)`."
    return table(head, [[f"`{setting}`", *values] for setting, *values in lines]) + said


def _used(method: Method) -> dict[str, str]:
    pieces = (getattr(method, slot) for slot in slots(method))
    return dict(pair for piece in pieces for pair in settings(piece))


def place(name: str, areas: dict[str, float]) -> str:
    """Where a method stands, as far as the printed figures tell.

    >>> place("a", {"a": 99.1, "b": 99.1, "c": 99.2}), place("c", {"a": 99.1, "c": 99.2})
    ('2 of 3, tied with 1', '1 of 2')
    """
    values = list(areas.values())
    tied = values.count(areas[name]) - 1
    return f"{1 + sum(value > areas[name] for value in values)} of {len(values)}" + (f", tied with {tied}" * bool(tied))


def measured_table(name: str, docs: Path = DOCS) -> str:
    """AUROC and FPR95 of a method on every network of docs/methods/measured.json, and its place."""
    rows = []
    for row in kept_results(docs):
        areas = {other: area for other, (_, area) in row["methods"].items()}
        network = NETWORKS.get(row["network"], row["network"]) if row["real"] else f"digits {row['network']}"
        if name in areas:
            fpr, area = row["methods"][name]
            rows.append([network, f"{area:.1f}", f"{fpr:.1f}", place(name, areas)])
        else:
            rows.append([network, "-", "-", "-"])
    return table(["network", "AUROC ↑", "FPR95 ↓", "place by AUROC"], rows)


def snippet(name: str) -> str:
    """A program that fits the method on the bundled digits and measures it."""
    method, proxy = make_method(RECORDS[name]), ""
    lines = [
        "from oodshape import Classifier, Features, auroc, find_method",
        "from oodshape.images.datasets.digits import load_digits_sets",
        "from oodshape.images.decode.preprocessing import DIGITS",
        "from oodshape.networks.zoo import build",
        "",
        'classifier, sets = Classifier(build("digits-convnet")), load_digits_sets()',
        'train = Features.extract(classifier, sets["train"], DIGITS)',
        'test = Features.extract(classifier, sets["test"], DIGITS)',
        'photos = Features.extract(classifier, sets["photos"], DIGITS)',
    ]
    if method.wants_proxy:
        lines.insert(2, "from oodshape.features.proxy import proxy_features")
        lines.append('proxy = proxy_features(classifier, sets["train"], DIGITS)')
        proxy = ", proxy=proxy"
    if method.perturbs:  # it scores images, not features
        lines[0] = f"from dataclasses import replace\n\n{lines[0]}"
        lines[-2:] = [
            "",
            'images = {name: DIGITS.batch(sets[name][i] for i in range(50)) for name in ("train", "test", "photos")}',
            f'method = find_method("{name}")',
            'method = replace(method, perturb=method.perturb.learned(classifier, [images["train"]]))',
            "detector = method.fit(train)",
            'test, photos = (detector.score(classifier, images[name]) for name in ("test", "photos"))',
            'print(f"AUROC {auroc(test, photos):.3f}")',
        ]
        return "\n".join(lines)
    lines += [
        f'detector = find_method("{name}").fit(train{proxy})',
        'print(f"AUROC {auroc(detector.score(test), detector.score(photos)):.3f}")',
    ]
    return "\n".join(lines)


def docstrings(method: Method) -> str:
    """What the pieces say of themselves, for a page that nobody has written words for."""
    pieces = (getattr(method, slot) for slot in slots(method))
    return "\n\n".join(f"`{type(piece).__name__}`: {getdoc(piece).partition('>>>')[0].strip()}" for piece in pieces)


def method_page(name: str, written: str, docs: Path = DOCS) -> str:
    """The whole page: what follows from the code, around hand-written words or the pieces' own."""
    record, file = RECORDS[name], page_name(name)
    title, _, words = (written or f"# {record.name}\n").partition("\n")
    method = make_method(record)
    filled = ", ".join(f"{slot} `{piece}`" for slot, piece in slots(method).items())
    drawn = [f"![ID and OOD scores of {RECORDS[name].name}](../img/methods/{file}-scores.svg)"]
    drawn_words = "Scores of ID and OOD images of the bundled digits (ConvNet, all six OOD sets)."
    if (docs / "img" / "methods" / f"{file}-theta.svg").is_file():
        drawn.insert(0, f"![Shaping function of {RECORDS[name].name}](../img/methods/{file}-theta.svg)")
        drawn_words = (
            "First: θ(z) = f(z) / z as fitted on the bundled digits (ConvNet); its mean at each value where it also "
            "depends on the other features of the image. Second: the scores of ID images and of all six OOD sets."
        )
    pictures = "\n".join(drawn)
    picture = f'## Picture\n\n<div class="figures" markdown="1">\n\n{pictures}\n\n</div>\n\n{drawn_words}'
    parts = [
        title,
        f"{record.summary[0].upper()}{record.summary[1:]}.",
        f'`find_method("{name}")` fills {filled}. Fitting needs: {needs(method)}.',
        words.strip() or f"{docstrings(method)}\n\n## When it fails\n\n{record.fails[0].upper()}{record.fails[1:]}.",
        *([] if record.images_only else [picture]),
        "## Measured\n\nPercent, means over OOD sets. The digits are the bundled benchmark; the other "
        f"networks are described on [Results](../results.md).\n\n{measured_table(name, docs)}",
        f"## Settings\n\n{settings_table(name)}",
        f"## Try it\n\n```python\n{snippet(name)}\n```",
        f"## Deviations from the reference code\n\n{deviations(record)}",
        f"## Reference\n\n{reference(record)}",
    ]
    return "\n\n".join(parts) + "\n"


def deviations(record: Record) -> str:
    """How a method deviates from its reference code, and what tests compare it with."""
    found = [each for each in record.deviations if each.difference != Deviation.difference]
    worth = [f"Difference, AUROC/FPR95: {each.difference}." for each in found]
    return "\n\n".join([describe_deviations(record), *worth])


def kept_results(docs: Path = DOCS) -> list[dict[str, Any]]:
    """The rows of docs/methods/measured.json, a network each."""
    found: list[dict[str, Any]] = json.loads((docs / "methods" / "measured.json").read_text(encoding="utf-8"))
    return found


def performance(name: str, rows: list[dict[str, Any]]) -> str:
    """AUROC and FPR95 of a method, means over these networks; nothing where it was not measured on all of them."""
    found = [row["methods"][name] for row in rows if name in row["methods"]]
    if not found or len(found) < len(rows):
        return "-"
    fpr, area = (sum(pair[place] for pair in found) / len(found) for place in (0, 1))
    return f"{area:.1f}&nbsp;/&nbsp;{fpr:.1f}"


def reference(record: Record) -> str:
    """The citation, with links to the papers and to the code."""
    text = record.citation
    for title, address in find_titles(record.citation):
        text = text.replace(f"*{title}*", f"[*{title}*]({address})")
    return text + (f" Code: <{record.code}>." if record.code else "")


def changelog_page(docs: Path = DOCS) -> str:
    """The changelog of the repository."""
    return (docs.parent / "CHANGELOG.md").read_text(encoding="utf-8")


GENERATED = {"api.md": api_page, "cli.md": cli_page, "changelog.md": changelog_page}


def complete(page: str, written: str, docs: Path = DOCS) -> str:
    """A page's Markdown: generated, or a method's page around its words, or as it is written."""
    if page in GENERATED:
        return GENERATED[page]()
    name = method_of(page)
    return written if name is None else method_page(name, written, docs)


def blocks(text: str, language: str) -> list[str]:
    """The fenced code blocks of a language; the empty name means blocks without one.

    >>> blocks("```python\\n1\\n```\\nwords\\n```\\noodshape\\n```\\n", "")
    ['oodshape\\n']
    """
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [code for name, code in found if name == language]
