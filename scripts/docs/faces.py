"""The first figure of docs/idea.md: ID and OOD images of the package, each with the predicted class and confidence."""

from __future__ import annotations

import io
from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from oodshape.features.features import Features
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.report.palette import ID_COLOR, OOD_COLOR

if TYPE_CHECKING:
    from oodshape.studies.load_networks import StudyNetwork

DIGITS = (0, 3, 5, 7)  # the first test image of each
OUTSIDE = {"digits89": "an 8 or 9", "letters": "a letter", "photos": "a photo", "textures": "a texture"}
SURE = 0.9
SIDE, STEP, LEFT = 84, 108, 12  # of an image, from one to the next, of the first


def answers(features: Features) -> tuple[Any, Any]:
    """[N] classes and [N] probabilities that the network gives its images."""
    logits = torch.cat([features.head.logits(raw.float()) for _, raw in features.chunks()])
    best = torch.softmax(logits, dim=1).max(dim=1)
    return best.indices, best.values


def id_and_ood(network: StudyNetwork) -> str:
    """An SVG: a row of ID images, a row of OOD images, and how often the network is confident on each kind."""
    sets = load_digits_sets()
    classes, sure = answers(network.id_test)
    rows = [sets["test"].labels.tolist().index(digit) for digit in DIGITS]
    inside = [(sets["test"][row], f"a {sets['test'].labels[row]}", classes[row], sure[row]) for row in rows]
    outside, doubts = [], []
    for name, what in OUTSIDE.items():
        labels, shares = answers(network.ood[name])
        outside.append((sets[name][0], what, labels[0], shares[0]))
        doubts.append(shares)
    heads = (
        f"In-distribution: {_share(sure)} of images get confidence >= {100 * SURE:.0f} %",
        f"OOD: still {_share(torch.cat(doubts))}",
    )
    parts = []
    for place, (head, images, color) in enumerate(zip(heads, (inside, outside), (ID_COLOR, OOD_COLOR), strict=True)):
        top = 20 + 178 * place
        parts.append(_words(LEFT, top, head, 'font-size="13" font-weight="600"'))
        parts += [_face(LEFT + STEP * column, top + 12, color, *each) for column, each in enumerate(images)]
    label = "Four ID and four OOD images, each with the predicted class and its confidence"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 440 352" width="528" height="422" role="img" '
        f'aria-label="{label}" style="font-family: system-ui, sans-serif">{"".join(parts)}</svg>\n'
    )


def _share(sure: Any) -> str:
    return f"{100 * float((sure >= SURE).double().mean()):.0f} %"


def _face(x: int, y: int, color: str, image: Any, what: str, label: Any, sure: Any) -> str:
    data = io.BytesIO()
    Image.fromarray(image).convert("L").save(data, format="png", optimize=True)
    address = f"data:image/png;base64,{b64encode(data.getvalue()).decode()}"
    return (
        f'<image x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" href="{address}" preserveAspectRatio="none"/>'
        f'<rect x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" fill="none" style="stroke: {color}; stroke-width: 3"/>'
        + _words(x, y + SIDE + 15, what, 'font-size="10.5"')
        + _words(x, y + SIDE + 29, f"predicted: {int(label)}", 'font-size="10.5"')
        + _words(x, y + SIDE + 43, f"confidence {_sure(float(sure))} %", 'font-size="10.5"')
    )


def _sure(share: float) -> str:
    return "over 99" if share >= 0.995 else f"{100 * share:.0f}"


def _words(x: int, y: int, words: str, look: str) -> str:
    return f'<text x="{x}" y="{y}" {look} style="fill: currentColor">{escape(words)}</text>'
