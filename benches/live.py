"""What live use costs: an attached guard's time over the network's own, interleaved, in batches of 1 and 32.

    python benches/live.py [DEIT_TINY_WEIGHTS] [--quick]

DeiT-tiny and EfficientNet-Lite0; the time does not depend on their weights. `optfs-e` may take the network's time, 2 %
of it and a millisecond; `auto` 1.2 times what the network and its components take one after the other. Compared with
these are scoring without an attached guard, and pytorch-ood's detectors, which give a score but no decision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness import Rounds, check, timed
from oodshape import IMAGENET, METHODS, Classifier, Features, Guard, Live
from oodshape.guard.fitted import About
from oodshape.methods.slots import Batch, Evidence
from oodshape.networks.zoo import build
from pairs import theirs

NETWORKS = ("deit_tiny", "efficientnet_lite0")
ROUNDS = {1: 40, 32: 7}


def guards(net: nn.Module) -> dict[str, Guard]:
    """Guards of two methods, fitted on made-up features; `auto` with filters, because it accepts the made-up noise."""
    classifier = Classifier(net)
    outputs = classifier(torch.randn(2, 3, 224, 224))
    rng, head = np.random.default_rng(0), outputs.head
    signed = bool((outputs.features < 0).any())
    z = rng.normal(size=(1500, head.width)) + 4 * head.weight.numpy()[rng.integers(head.classes, size=1500)]
    z = (z if signed else np.maximum(z, 0)).astype(np.float32)
    noise, constant = (z[0] * rng.normal(1, 0.02, (n, head.width)).astype(np.float32) for n in (640, 512))
    train = Features.from_arrays(z[:1200], head)
    proxy = [Features.from_arrays(each, head) for each in (0.7 * z[1200:], noise, constant)]
    about = About(IMAGENET, classifier.fingerprint, held_out=False, head=classifier.head_name or "")
    fitted = {name: METHODS[name].fit(train, proxy=proxy).calibrate(train) for name in ("optfs-e", "auto")}
    return {name: Guard(detector, about) for name, detector in fitted.items()}


def components_alone(live: Live, images: Tensor) -> Callable[[], object]:
    """The arithmetic of a fusion's components, each for itself on features that are there already."""
    guarded = live._guarded
    assert guarded is not None
    with torch.inference_mode():
        features = guarded.features(images)
        logits = guarded.tap.logits(features)
    own = Classifier(live._classifier.net, guarded.head_name).head
    components = guarded.scorer.components

    @torch.inference_mode()
    def run() -> None:
        for component in components:
            batch = Batch(features, own, given_logits=logits, checked=False)
            component.log_p(component.of(Evidence(batch, guarded.shape, guarded.head, own)))

    return run


def tasks_of(net: nn.Module, images: Tensor, ood: Any) -> dict[str, Callable[[], object]]:
    """Everything that is timed."""
    made = guards(net)
    attached = {name: guard.attach(net) for name, guard in made.items()}
    plain, classifier, guarded = made["optfs-e"], Classifier(net), attached["optfs-e"]._guarded
    tasks: dict[str, Callable[[], object]] = {
        "network": lambda: net(images),
        "optfs-e": lambda: attached["optfs-e"].tensors(images),
        "auto": lambda: attached["auto"].tensors(images),
        "components alone": components_alone(attached["auto"], images),
        "Detector.decide": lambda: plain.detector.decide(classifier, images),
        "guard.score": lambda: list(plain.score(images, net, prepared=True, progress=False)),
    }
    rivals = {
        "MaxSoftmax": ood.MaxSoftmax(net),
        "EnergyBased": ood.EnergyBased(net),
        "ReAct": ood.ReAct(guarded.net, guarded.tap.logits, threshold=1.0),
    }
    for name, detector in rivals.items():
        tasks[f"pytorch-ood {name}"] = lambda detector=detector: detector(images)
    return {name: torch.inference_mode()(task) for name, task in tasks.items()}


def bounded(took: Rounds) -> Rounds:
    """The rounds with what each of the two may take."""
    seconds = took.seconds
    return Rounds(
        seconds
        | {
            "1.02 networks + 1 ms": 1.02 * seconds["network"] + 1e-3,
            "both": seconds["network"] + seconds["components alone"],
        }
    )


def main() -> int:
    """Print a row per task; 0 when the limits are kept."""
    torch.set_num_threads(1)  # as a service does; and CPU time then minds no busy machine
    torch.manual_seed(0)
    quick = "--quick" in sys.argv
    files = [each for each in sys.argv[1:] if not each.startswith("-")]
    ood, kept = theirs(), True  # first: it repairs a torchvision without operators, which timm needs too
    for name in NETWORKS:
        net = build(name, *(files if name == NETWORKS[0] else [])).eval()
        for size, rounds in ROUNDS.items():
            images = torch.randn(size, 3, 224, 224)
            took = bounded(timed(tasks_of(net, images, ood), (11 if size == 1 else 3) if quick else rounds))
            print(f"{name}, batches of {size}: network {1e3 * took.wall('network'):.1f} ms")
            for task in took.seconds:
                if task not in ("network", "both", "1.02 networks + 1 ms"):
                    print(
                        f"  {task:<40} {took.ratio(task, 'network')} wall, {took.ratio(task, 'network', cpu=True)} CPU"
                    )
            kept &= check(
                "optfs-e / (1.02 networks + 1 ms)", took.ratio("optfs-e", "1.02 networks + 1 ms", cpu=True), 1
            )
            kept &= check("auto / (network + components alone)", took.ratio("auto", "both", cpu=True), 1.2)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
