"""Networks from torch.export archives (.pt2), checked before anything in them is loaded."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from oodshape.core.errors import InputError
from oodshape.core.reading import DAMAGE, one_line, reading
from oodshape.images.limits import Limits

# torch.export.load (torch 2.13) unpickles any weight or constant whose entry says use_pickle, and custom objects;
# it unpickles the sample inputs without limits when a safe load fails; it hands shapes to sympy, which evaluates
# them as Python; it loads the compiled libraries of an AOTInductor package; and it turns guards_code into functions.
# So: none of the first, a safe load of the samples here, shapes that are plain arithmetic, no libraries, and guards
# that are never built (check_guards=False). What is left is tensors and a graph of operators by name.
COMPILED = "data/aotinductor/"
_ARITHMETIC = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.Compare),
    *(ast.operator, ast.unaryop, ast.cmpop),
)


def load_archive(path: str | Path) -> nn.Module:
    """The network of an archive that `torch.export.save` wrote, with its linear layers as nn.Linear modules."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    with reading(path, WAY_OUT):
        return _loaded(path, content)


WAY_OUT = "export the network again with this torch: torch.export.save(torch.export.export(net, ...), path)"


def _loaded(path: Path, content: bytes) -> nn.Module:
    _check(path, content)
    said = logging.getLogger("torch.export")
    before = said.level
    try:
        said.setLevel(logging.CRITICAL)  # it prints the traceback of a damaged file before it raises
        program = torch.export.load(io.BytesIO(content))
    except Exception as error:  # damaged bytes fail in whatever way they lead to
        raise InputError(f"{path} cannot be loaded by torch {torch.__version__}: {error}") from None
    finally:
        said.setLevel(before)
    module = program.module(check_guards=False)
    _check_input(path, module)
    return _with_linear_modules(module)


def _check(path: Path, content: bytes) -> None:
    """Refuse an archive that could run code."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        Limits.now().check_inflated(path, sum(entry.file_size for entry in archive.infolist()), len(content))
        damaged = archive.testzip()  # in small pieces: weights are large, and not looked at here
        if damaged is not None:
            raise zipfile.BadZipFile(f"bad checksum of {damaged}")
        files = {name.partition("/")[2]: name for name in archive.namelist()}
        configs = [json.loads(archive.read(name)) for file, name in files.items() if file.endswith("_config.json")]
        graphs = [json.loads(archive.read(name)) for file, name in files.items() if file.startswith("models/")]
        samples = [archive.read(name) for file, name in files.items() if file.startswith("data/sample_inputs/")]
    except InputError:
        raise
    except (OSError, *DAMAGE) as error:
        raise InputError(f"{path} is no torch.export archive, or a damaged one ({one_line(error)})") from None
    if "models/model.json" not in files or "archive_version" not in files:
        raise InputError(f"{path} is no torch.export archive of torch 2.8 or newer; {WAY_OUT}")
    if any(name.startswith(COMPILED) for name in files):
        raise InputError(f"{path} holds compiled libraries, which are not run; {WAY_OUT}")
    if any(entry.get("use_pickle", True) for config in configs for entry in config.get("config", {}).values()):
        raise InputError(f"{path} holds pickled objects, which could run code; none of it was run. {WAY_OUT}")
    for text in _values(graphs, "expr_str"):
        if not _is_arithmetic(text):
            raise InputError(f"{path} holds the shape {text[:40]!r}, which is more than arithmetic; {WAY_OUT}")
    for sample in samples:
        try:
            torch.load(io.BytesIO(sample), map_location="cpu", weights_only=True)
        except Exception:
            raise InputError(f"{path} has sample inputs that are more than tensors; {WAY_OUT}") from None


def _values(data: Any, key: str) -> Iterator[str]:
    """Every value under a key, however deep."""
    if isinstance(data, dict):
        for name, item in data.items():
            if name == key:
                yield str(item)
            else:
                yield from _values(item, key)
    elif isinstance(data, list):
        for item in data:
            yield from _values(item, key)


def _is_arithmetic(text: str) -> bool:
    """Whether an expression holds only numbers, symbols, operators, and calls of sympy's classes.

    >>> _is_arithmetic("2*Symbol('s34', positive=True)"), _is_arithmetic("open('x')"), _is_arithmetic("S('a.b()')")
    (True, False, False)
    """
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return False
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return (
        all(isinstance(node, _ARITHMETIC) for node in nodes)
        and all(isinstance(function, ast.Name) and function.id[0].isupper() for function in called)
        and all(re.fullmatch(r"[A-Za-z]\w*", string) for string in strings)
    )


def _check_input(path: Path, module: fx.GraphModule) -> None:
    """Refuse what cannot be fed with batches of images."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise InputError(f"{path} takes {len(inputs)} inputs; a classifier takes one, a batch of images")
    batch = inputs[0].meta["val"].shape[0]
    if isinstance(batch, int):
        raise InputError(
            f"{path} was exported for batches of exactly {batch}; export it for any number of images: "
            "torch.export.export(net, (images,), dynamic_shapes=({0: torch.export.Dim('batch')},)) "
            "with two images or more"
        )


def _with_linear_modules(module: fx.GraphModule) -> fx.GraphModule:
    """The same network with every aten.linear call on stored weights made an nn.Linear, so that a head is found."""
    for number, node in enumerate(list(module.graph.nodes)):
        if node.op != "call_function" or node.target is not torch.ops.aten.linear.default:
            continue
        weight, bias = node.args[1], node.args[2] if len(node.args) > 2 else None
        if weight.op != "get_attr" or (bias is not None and bias.op != "get_attr"):
            continue
        layer = nn.Linear(1, 1, bias=bias is not None)
        layer.weight = _attribute(module, weight.target)
        layer.out_features, layer.in_features = layer.weight.shape
        if bias is not None:
            layer.bias = _attribute(module, bias.target)
        # named after the layer that the weights came from
        name = f"linear_{number}_{weight.target.removesuffix('.weight').replace('.', '_')}"
        module.add_submodule(name, layer)
        with module.graph.inserting_before(node):
            node.replace_all_uses_with(module.graph.call_module(name, (node.args[0],)))
        module.graph.erase_node(node)
    module.recompile()
    return module


def _attribute(module: nn.Module, target: str) -> nn.Parameter:
    owner, _, name = target.rpartition(".")
    value = getattr(module.get_submodule(owner), name)
    return value if isinstance(value, nn.Parameter) else nn.Parameter(value, requires_grad=False)
