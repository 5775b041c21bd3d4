"""Published weights from the hubs of torch and Hugging Face: from their caches, or downloaded where that is allowed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar
from unittest.mock import patch

import torch

from oodshape.core.errors import InputError
from oodshape.core.files import one_line
from oodshape.core.machine import OFFLINE, is_offline
from oodshape.core.progress import announce

T = TypeVar("T")


def load_published(what: str, load: Callable[[], T]) -> T:
    """Call `load`, without network access if the cache of a hub is complete.

    A download is announced in one line; offline it is an error. `load` raises OSError for what it cannot get.
    """
    hub = sys.modules.get("huggingface_hub.constants")
    # before huggingface_hub 1.0, an open session stays offline or online, whatever is asked later
    reset_sessions = getattr(sys.modules.get("huggingface_hub.utils"), "reset_sessions", lambda: None)
    reset_sessions()
    try:
        with (
            patch.object(torch.hub, "urlopen", side_effect=OSError("not in the cache")),
            patch.object(hub, "HF_HUB_OFFLINE", True) if hub else nullcontext(),
        ):
            return load()
    except OSError:
        if is_offline():
            raise InputError(
                f"{what}: not in the cache of its hub, and --offline or {OFFLINE} forbids downloads; give a file with "
                "--weights (weights=...), or allow the download"
            ) from None
    announce(f"downloading {what} into the cache of its hub")
    reset_sessions()
    try:
        return load()
    except OSError as error:  # no connection, no such file at the publisher's
        raise InputError(f"cannot get {what} ({one_line(error)}); give a file with weights") from None
