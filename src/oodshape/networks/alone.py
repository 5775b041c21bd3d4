"""One reader of a network at a time, and two networks side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from weakref import WeakKeyDictionary

from torch import nn

# Every module with the locks of the networks that it is part of, as far as they have been read.
_locks: WeakKeyDictionary[nn.Module, tuple[threading.RLock, ...]] = WeakKeyDictionary()
_table = threading.Lock()


@contextmanager
def alone(net: nn.Module) -> Iterator[None]:
    """Nobody else reads this network, or one that shares a module with it: modes and hooks belong to modules."""
    with ExitStack() as held:
        for lock in _of(net):
            held.enter_context(lock)
        yield


def _of(net: nn.Module) -> tuple[threading.RLock, ...]:
    with _table:
        if net not in _locks:
            modules = list(net.modules())
            shared = {id(lock): lock for module in modules for lock in _locks.get(module, ())}
            # always in one order, so that no two wait for each other
            found = tuple(shared[key] for key in sorted(shared)) or (threading.RLock(),)
            for module in modules:
                _locks[module] = found
        return _locks[net]
