"""Networks from torch.export archives (.pt2), which can run code: none is loaded that the user does not trust."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import fx, nn

from oodshape.core.errors import InputError, check_trust
from oodshape.core.files import one_line

WAY_OUT = "export the network again with this torch: torch.export.save(torch.export.export(net, ...), path)"


def load_archive(path: str | Path, *, trust_code: bool = False) -> nn.Module:
    """Load a network that `torch.export.save` wrote.

    Args:
        path: The archive.
        trust_code: Whether the archive may run code. It may hold pickled objects, compiled libraries, expressions
            that torch evaluates and operators that write files; no check of the file could rule all of these out.

    Raises:
        InputError: The archive is not trusted, cannot be loaded, or takes something else than batches of images.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"cannot read {path}: there is no such file")
    check_trust(f"{path} is a torch.export archive, which can run any code when it is loaded", trust_code)
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it prints the traceback of a damaged file before it raises
    try:
        # Guards would refuse batches of one image where the network was exported with two or more.
        module = torch.export.load(path).module(check_guards=False)
    except Exception as error:  # damaged bytes fail in whatever way they lead to
        raise InputError(
            f"{path} cannot be loaded by torch {torch.__version__} ({one_line(error)}); {WAY_OUT}"
        ) from None
    finally:
        logger.setLevel(level)
    _check_input(path, module)
    return module


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
