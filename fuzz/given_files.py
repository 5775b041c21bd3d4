"""The files that users give: data sets as they are published, lists, specs, arrays, weights, exported networks."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from scipy.io import savemat

from damage import bytes_damaged
from kind import Files, Kind, equal
from oodshape.benchmark.spec import Benchmark
from oodshape.images.datasets.catalog import _array
from oodshape.images.datasets.cifar_mnist_svhn import read_cifar, read_mnist, read_svhn
from oodshape.images.datasets.imagenet import imagenet_val
from oodshape.images.sources.image_files import read_image_list
from oodshape.images.sources.image_set import ImageSet
from oodshape.networks.model_names import read_class_names
from oodshape.networks.weights import load_weights
from own_files import written

RNG = np.random.default_rng(0)
COMPRESSED = 15  # MATLAB's type of an element that is a zlib stream
WNIDS = ("n01440764", "n01443537", "n01484850")


def seen(images: ImageSet) -> bytes:
    """What a set of images holds."""
    return images.labels.tobytes() + b"".join(np.asarray(images[row]).tobytes() for row in range(len(images)))


def cifars() -> Kind:
    """Both archives of both sets."""
    pixels = RNG.integers(0, 256, (3, 3072), np.uint8)
    ten = np.concatenate([[[1], [2], [3]], pixels], axis=1).astype(np.uint8).tobytes()
    hundred = np.concatenate([[[1, 9], [2, 8], [3, 7]], pixels], axis=1).astype(np.uint8).tobytes()
    batch = pickle.dumps({b"data": pixels, b"labels": [1, 2, 3], b"fine_labels": [1, 2, 3]}, protocol=2)
    seeds: tuple[Files, ...] = ({"test_batch.bin": ten}, {"test_batch": batch}, {"test.bin": hundred}, {"test": batch})

    def read(folder: Path) -> bytes:
        return seen(
            read_cifar(folder, 100 if list(folder.glob("test.bin")) or (folder / "test").exists() else 10, train=False)
        )

    return Kind("cifar", seeds, read)


def mnists() -> Kind:
    """Plain and gzipped."""
    images = b"\0\0\x08\3" + b"".join(n.to_bytes(4, "big") for n in (3, 28, 28)) + RNG.bytes(3 * 784)
    labels = b"\0\0\x08\1" + (3).to_bytes(4, "big") + b"\1\2\3"
    names = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    plain = dict(zip(names, (images, labels), strict=True))
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in plain.items()}
    return Kind("mnist", (plain, packed), lambda folder: seen(read_mnist(folder)))


def svhns() -> Kind:
    """Plain and compressed."""
    arrays = {"X": RNG.integers(0, 256, (32, 32, 3, 2), np.uint8), "y": np.array([[1], [10]], np.uint8)}
    seeds = tuple(
        written("test_32x32.mat", lambda path, packed=packed: savemat(path, arrays, do_compression=packed))  # type: ignore[misc]
        for packed in (False, True)
    )
    return Kind("svhn", seeds, lambda folder: seen(read_svhn(folder)), forge=_repacked)


def _repacked(files: Files, rng: Random) -> Files:
    """Elements of a MATLAB file that are compressed after their bytes were damaged, so that their checksum is right."""
    [(name, data)] = files.items()
    found, at = data[:128], 128
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        part = data[at : at + 8 + size]
        inner = zlib.decompress(part[8:]) if kind == COMPRESSED else part
        packed = zlib.compress(bytes_damaged(inner, rng) if rng.random() < 0.7 else inner, 1)
        found, at = found + struct.pack("<II", COMPRESSED, len(packed)) + packed, at + 8 + size
    return {name: found}


def imagenets() -> Kind:
    """The files that say the classes of the validation images."""
    files = {f"val/ILSVRC2012_val_{n:08d}.JPEG": b"" for n in (1, 2, 3)}
    lines = "".join(f"ILSVRC2012_val_{n:08d},n{n:08d} 1 2 3 4\n" for n in range(1, 1001))
    solution = {"LOC_val_solution.csv": f"ImageId,PredictionString\n{lines}".encode()}
    rows = [(i + 1, wnid, 0) for i, wnid in enumerate(reversed(WNIDS))]
    table = np.array(rows, [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("num_children", "O")])
    meta = written("meta.mat", lambda path: savemat(path, {"synsets": table[:, None]}))
    numbers = {"ILSVRC2012_validation_ground_truth.txt": b"1\n2\n3\n"}
    seeds = (solution, numbers | meta)
    hurt = (*solution, *numbers, *meta)
    read = lambda folder: imagenet_val(folder / "val").labels.tobytes()  # noqa: E731
    return Kind("imagenet", tuple(files | seed for seed in seeds), read, hurt=hurt)


def lists() -> Kind:
    """Lists of images and of class names."""
    rows = (("a b.png", 3), ("c/d.png", -1), ("\u00e9.png", 7))
    text = "".join(f"{path} {label}\n" for path, label in rows).encode() + b"\xff.png 5\n"
    table = "path,label\n" + "".join(f'"{path}",{label}\n' for path, label in rows)
    seeds = ({"list.txt": text}, {"list.csv": table.encode()}, {"names.list": b"cat\ndog\nb\xc3\xa9\n"})

    def read(folder: Path) -> bytes:
        [path] = folder.iterdir()
        return repr(read_class_names(path) if path.stem == "names" else list(read_image_list(path))).encode()

    return Kind("lists", seeds, read)


def specs() -> Kind:
    """Benchmarks of a user's own."""
    text = (
        'name = "mine"\ntitle = "Mine"\nsettings = "general"\n[id]\ntrain = "folder:train"\ntest = "folder:test"\n'
        '[[ood]]\nname = "noise"\ngroup = "far"\nimages = "folder:noise"\n'
        '[[models]]\nname = "digits-vit"\nlabel = "V"\n'
    )
    return Kind("toml", ({"b.toml": text.encode()},), lambda folder: repr(Benchmark.load(folder / "b.toml")).encode())


def npz() -> Kind:
    """Images and labels; the archive has checksums of its own."""
    seeds = []
    for pack in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        pack(file, images=RNG.integers(0, 256, (4, 8, 8), np.uint8), labels=np.arange(4))
        seeds.append({"set.npz": file.getvalue()})
    return Kind("npz", tuple(seeds), lambda folder: seen(_array(folder / "set.npz")), equal)


class Net(torch.nn.Module):
    """As small as a network can be that has a head."""

    def __init__(self) -> None:
        """One convolution and the head."""
        super().__init__()
        self.body, self.fc = torch.nn.Conv2d(1, 3, 3), torch.nn.Linear(3, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[N, 1, H, W] -> [N, 2]."""
        logits: torch.Tensor = self.fc(self.body(images).mean(dim=(2, 3)).relu())
        return logits


def weights() -> Kind:
    """Safetensors and torch files."""
    state, old, new = Net().state_dict(), io.BytesIO(), io.BytesIO()
    torch.save({"state_dict": state, "epoch": 3}, new)
    torch.save(state, old, _use_new_zipfile_serialization=False)
    seeds = ({"w.safetensors": save_tensors(state)}, {"w.pth": new.getvalue()}, {"w.pt": old.getvalue()})

    def read(folder: Path) -> bytes:
        [path] = folder.iterdir()
        net = Net()
        load_weights(net, path)
        return b"".join(value.numpy().tobytes() for value in net.state_dict().values())

    return Kind("weights", seeds, read)


def every() -> dict[str, Callable[[], Kind]]:
    """How each kind is made, by its name."""
    sets = {"cifar": cifars, "mnist": mnists, "svhn": svhns, "imagenet": imagenets}
    texts = {"lists": lists, "toml": specs}
    return {**sets, **texts, "npz": npz, "weights": weights}
