"""Speed and memory beside pytorch-ood on the same features in one run, for the methods that both have.

python benches/rivals.py
"""

from __future__ import annotations

import sys
import warnings

import torch

from harness import THREADS, grown, made, timed
from oodshape import METHODS, Method
from oodshape.methods.heads import Dice
from oodshape.methods.shapes.ash import AshB, AshP, AshS
from oodshape.methods.shapes.clipping import ReAct

ROWS, DICE_ROWS = 4096, 64  # pytorch-ood's DICE builds rows x classes x features: 0.5 GB for 64 rows


def declare_operators() -> None:
    """Declare the operators that some torchvision builds lack: what only imports torchvision can then be imported."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            LIBRARIES.append(library)


def theirs() -> object:
    """The detectors of pytorch-ood, whose import needs torchvision."""
    declare_operators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pytorch_ood.detector as detectors
    return detectors


LIBRARIES: list[torch.library.Library] = []


def main() -> int:
    """Print a row per method: milliseconds, ratio, and whether the scores agree."""
    torch.set_num_threads(THREADS)
    ood = theirs()
    train = made(8192, signed=False)
    test = train[:ROWS]
    z, head = torch.from_numpy(test._values), train.head
    identity = torch.nn.Identity()
    react = Method(shape=ReAct(q=0.9)).fit(train)
    dice = ood.DICE(identity, head.weight, head.bias, p=0.7)
    dice.fit_features(torch.from_numpy(train._values), torch.zeros(len(train), dtype=torch.long))
    ash = {
        name: ood.ASH(identity, lambda maps: head.logits(maps.flatten(1)), percentile=0.65, variant=name)
        for name in ("ash-p", "ash-b", "ash-s")
    }
    pairs = {
        "energy": (METHODS["energy"].fit(train), lambda z: -ood.EnergyBased.score(head.logits(z))),
        "react": (react, lambda z: -ood.EnergyBased.score(head.logits(z.clip(max=react.shape.t)))),
        "ash-p": (Method(shape=AshP(p=0.65)).fit(train), lambda z: -ash["ash-p"].predict(z[:, :, None, None])),
        "ash-b": (Method(shape=AshB(p=0.65)).fit(train), lambda z: -ash["ash-b"].predict(z[:, :, None, None])),
        "ash-s": (Method(shape=AshS(p=0.65)).fit(train), lambda z: -ash["ash-s"].predict(z[:, :, None, None])),
        "dice": (Method(head=Dice(p=0.7)).fit(train), lambda z: -dice.predict_features(z)),
    }
    print(f"{'method':<8} {'rows':>6} {'ours ms':>9} {'theirs ms':>10} {'theirs / ours':<26} {'MB added':>16}  scores")
    agree = True
    for name, (detector, their_score) in pairs.items():
        rows = DICE_ROWS if name == "dice" else ROWS
        part, values = test[:rows], z[:rows]

        def ours(part=part, detector=detector) -> torch.Tensor:
            return detector.score(part)

        def other(values=values, their_score=their_score) -> torch.Tensor:
            return their_score(values.clone())  # their ASH changes its input

        same = torch.allclose(ours(), other().float(), rtol=1e-4, atol=1e-3)
        agree &= same
        took = timed({"ours": ours, "theirs": other}, rounds=5)
        print(
            f"{name:<8} {rows:>6} {1e3 * took.wall('ours'):>9.1f} {1e3 * took.wall('theirs'):>10.1f} "
            f"{took.ratio('theirs', 'ours')!s:<26} {grown(ours):>8.0f}, {grown(other):>6.0f}  "
            f"{'equal' if same else 'DIFFER'}"
        )
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
