"""Train MLP-Mixer-Nano on CIFAR-10 or CIFAR-100 and write its weights as safetensors.

    python scripts/train_mixer_nano.py --data DATA --classes 10 --out runs --device auto

DATA holds the unpacked binary archive. A run that was stopped, even killed, goes on from its last checkpoint
when the same command is given again. The test split is scored once, at the end, and chooses nothing.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.images.datasets.cifar_mnist_svhn import read_cifar
from oodshape.images.decode.preprocessing import CIFAR
from oodshape.images.sources.image_set import ArraySet
from oodshape.networks.device import find_device
from oodshape.networks.weights import load_weights
from oodshape.networks.zoo.cifar_nets import MixerNano

CPU = torch.device("cpu")
CHOICES = {"classes": (10, 100), "precision": ("float32", "bfloat16")}


@dataclass(frozen=True)
class Recipe:
    """All that decides the result; a checkpoint is continued only with the recipe that it was made with."""

    classes: int = 10
    epochs: int = 300
    minutes: float = math.inf  # of training; the learning rate reaches zero when these or the epochs end
    batch: int = 128
    rate: float = 1e-3  # the highest learning rate
    decay: float = 0.05  # of the weights
    warmup: float = 0.03  # share of the training
    smoothing: float = 0.1
    mixup: float = 0.0  # alpha of the Beta distribution, 0: none
    cutout: int = 0  # side of the square in pixels, 0: none
    precision: str = "float32"  # bfloat16: twice as fast on processors that know it
    seed: int = 0


def augmented(images: Tensor, cutout: int) -> Tensor:
    """uint8 [N, 3, 32, 32] -> the same, moved by up to 4 pixels, half of them mirrored, with a gray square."""
    n, side = len(images), images.shape[-1]
    padded, steps = functional.pad(images, (4, 4, 4, 4)), torch.arange(side)
    down, right = (torch.randint(0, 9, (n, 1)) + steps for _ in range(2))
    right = torch.where(torch.rand(n, 1) < 0.5, right.flip(1), right)
    moved = padded[torch.arange(n)[:, None, None], :, down[:, :, None], right[:, None, :]]  # [N, H, W, 3]
    if cutout:
        rows, columns = (steps - torch.randint(0, side, (n, 1)) + cutout // 2 for _ in range(2))
        inside = ((rows >= 0) & (rows < cutout))[:, :, None] & ((columns >= 0) & (columns < cutout))[:, None]
        moved = moved.masked_fill(inside[..., None], 127)
    return moved.permute(0, 3, 1, 2)


def normalized(images: Tensor) -> Tensor:
    """uint8 [N, 3, 32, 32] -> float32, as the network is fed when it is evaluated."""
    mean, std = (255 * torch.tensor(values)[:, None, None] for values in (CIFAR.mean, CIFAR.std))
    return (images - mean) / std


def loss_of(net: MixerNano, images: Tensor, labels: Tensor, recipe: Recipe) -> Tensor:
    """The cross entropy of a batch after augmentation, of two batches mixed where mixup is on."""
    inputs, targets = normalized(augmented(images, recipe.cutout)), functional.one_hot(labels, recipe.classes).float()
    where = next(net.parameters()).device
    if recipe.mixup:
        share = float(torch.distributions.Beta(recipe.mixup, recipe.mixup).sample())
        other = torch.randperm(len(labels))
        inputs, targets = (share * x + (1 - share) * x[other] for x in (inputs, targets))
    with torch.autocast(where.type, torch.bfloat16, enabled=recipe.precision == "bfloat16"):
        logits = net(inputs.to(where)).float()
    return functional.cross_entropy(logits, targets.to(where), label_smoothing=recipe.smoothing)


def tensors(data: ArraySet) -> tuple[Tensor, Tensor]:
    """uint8 [N, 3, 32, 32] images and [N] labels."""
    return torch.tensor(data.images).permute(0, 3, 1, 2).contiguous(), torch.tensor(data.labels)


class Run:
    """A training that can be stopped at any step and continued: network, optimizer, position, random state."""

    def __init__(self, recipe: Recipe, data: ArraySet, device: torch.device = CPU) -> None:
        """The start of a run; images are drawn and augmented on the CPU, so that every device sees the same ones."""
        torch.manual_seed(recipe.seed)
        self.recipe, self.step, self.seconds = recipe, 0, 0.0
        self.images, self.labels = tensors(data)
        self.per_epoch = max(1, len(data) // recipe.batch)
        self.net, self.device = MixerNano(recipe.classes).train().to(device), device
        self.optimizer = torch.optim.AdamW(self.net.parameters(), weight_decay=recipe.decay)

    @property
    def done(self) -> float:
        """The share of the training that is behind: of all steps, or of the minutes."""
        return max(self.step / (self.recipe.epochs * self.per_epoch), self.seconds / (60 * self.recipe.minutes))

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        state = {
            "recipe": asdict(self.recipe),
            "step": self.step,
            "seconds": self.seconds,
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        with replacing(path) as temporary:
            torch.save(state, temporary)

    def load(self, path: Path) -> None:
        """Take the state of a checkpoint; exits where it was made with another recipe."""
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        changed = [name for name, value in asdict(self.recipe).items() if state["recipe"].get(name) != value]
        if changed:
            raise SystemExit(f"{path} was made with another {', '.join(changed)}; use its options, or another --out")
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]
        torch.set_rng_state(state["random"])

    def advance(self) -> float:
        """One step of AdamW, linear warm-up, cosine decay; returns the loss."""
        start, recipe = time.perf_counter(), self.recipe
        epoch, at = divmod(self.step, self.per_epoch)
        order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(recipe.seed + 1000 * epoch))
        batch = order[at * recipe.batch : (at + 1) * recipe.batch]
        warm, cosine = min(1.0, (self.done + 1e-4) / recipe.warmup), 0.5 * (1 + math.cos(math.pi * self.done))
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.rate * warm * cosine
        loss = loss_of(self.net, self.images[batch], self.labels[batch], recipe)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step += 1
        self.seconds += time.perf_counter() - start
        return float(loss.detach())


def train(
    recipe: Recipe,
    data: ArraySet,
    checkpoint: Path,
    *,
    every: float = 20.0,
    stop: int | None = None,
    device: torch.device = CPU,
) -> Run:
    """A finished run (or one of `stop` steps), from its checkpoint where there is one, saved `every` seconds."""
    run = Run(recipe, data, device)
    if checkpoint.exists():
        run.load(checkpoint)
    first, since, saved = run.step, run.seconds, run.seconds
    with Progress() as progress:
        task = progress.add_task("start", total=1.0)
        while run.done < 1 and run.step != stop:
            loss = run.advance()
            speed = (run.step - first) * min(recipe.batch, len(data)) / (run.seconds - since)
            said = f"epoch {run.step / run.per_epoch:.2f}, loss {loss:.3f}, {speed:.0f} images/s"
            progress.update(task, completed=run.done, description=said)
            if run.step % run.per_epoch == 0 and not progress.console.is_terminal:
                progress.console.print(said)
            if run.seconds - saved >= every or run.done >= 1 or run.step == stop:
                run.save(checkpoint)
                saved = run.seconds
    return run


def accuracy(net: MixerNano, data: ArraySet) -> float:
    """The share of images whose largest logit is their class."""
    images, labels = tensors(data)
    with torch.inference_mode():
        hits = torch.cat([net(normalized(part)).argmax(1) for part in torch.split(images, 500)]) == labels
    return float(hits.double().mean())


def main() -> None:
    """Train, write the weights, read them back and state their test accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the unpacked binary archive")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the checkpoint and the weights")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu", help="auto (a GPU where there is one), cpu, cuda, cuda:N, mps, xpu")
    for name, value in asdict(Recipe()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value, choices=CHOICES.get(name))
    options = vars(parser.parse_args())
    root, out, threads, where = (options.pop(name) for name in ("data", "out", "threads", "device"))
    try:
        device = find_device(where)
    except InputError as error:
        parser.error(str(error))
    recipe = Recipe(**options)
    torch.set_num_threads(threads)
    out.mkdir(parents=True, exist_ok=True)
    name = f"cifar{recipe.classes}-mixer_nano"  # as `oodshape bench --weights` looks for it
    data, test = (read_cifar(root, recipe.classes, train=part) for part in (True, False))  # type: ignore[arg-type]
    run = train(recipe, data, out / f"{name}.training.pt", device=device)
    with replacing(weights := out / f"{name}.safetensors") as temporary:
        save_file(run.net.cpu().state_dict(), temporary, {"recipe": str(recipe), "steps": str(run.step)})
    load_weights(net := MixerNano(recipe.classes), weights)
    print(f"{weights}: test accuracy {accuracy(net.eval(), test):.4f} on {len(test):,} images after {run.step:,} steps")


if __name__ == "__main__":
    main()
