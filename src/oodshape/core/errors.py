"""Errors that tell a user what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """An input cannot be used; the message names the value, the limit and the fix.

    >>> from oodshape import auroc
    >>> auroc([], [1.0])
    Traceback (most recent call last):
    ...
    oodshape.core.errors.InputError: ...
    """


class NotTaken(InputError):
    """The network does not accept the size or the channels of the images."""


class HeadError(InputError):
    """The network's logits are not the output of its linear head, so its images cannot be scored."""


def check_fraction(name: str, value: float, *, zero: bool = False, one: bool = False) -> None:
    """Refuse a value outside the open unit interval (closed at 0 or 1 where asked).

    >>> check_fraction("q", 90)
    Traceback (most recent call last):
    oodshape.core.errors.InputError: q must lie in (0, 1), got 90; did you mean 0.9?
    """
    inside = (value > 0 or (zero and value == 0)) and (value < 1 or (one and value == 1))
    if inside:
        return
    hint = f"; did you mean {value / 100:g}?" if 1 <= value <= 100 else ""
    interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
    raise InputError(f"{name} must lie in {interval}, got {value:g}{hint}")


def unknown(what: str, name: str, known: Iterable[str], listed: str = "") -> InputError:
    """Make the error for an unknown name: it suggests the nearest name and says where names are `listed`, or lists all.

    >>> raise unknown("method", "raect", ["react", "ash-s"], "`oodshape methods` lists them")
    Traceback (most recent call last):
    oodshape.core.errors.InputError: no method is called 'raect'; did you mean react? `oodshape methods` lists them
    """
    every = list(known)
    lower = {each.lower().replace("_", "-"): each for each in every}
    near = get_close_matches(name.lower().replace("_", "-"), lower, n=1)
    hint = [f"did you mean {lower[near[0]]}?"] if near else []
    rest = [listed] if listed else [] if near else [f"there are {', '.join(every)}"]
    return InputError(f"no {what} is called {name!r}; {' '.join([*hint, *rest])}")


def import_optional(module: str, extra: str, purpose: str) -> Any:
    """Import a module that comes with an extra of this package, or raise InputError with how to install it.

    >>> import_optional("no_such_module", "timm", "this network")
    Traceback (most recent call last):
    oodshape.core.errors.InputError: this network needs no_such_module: pip install 'oodshape[timm]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"{purpose} needs {error.name or module}: pip install 'oodshape[{extra}]'") from None


# packages of the extras that modules import at their top; the others go through `import_optional`
_EXTRAS = dict.fromkeys(("torch", "numba", "pandas", "sklearn", "matplotlib", "threadpoolctl"), "torch")
_EXTRAS |= dict.fromkeys(("fastapi", "starlette", "uvicorn", "prometheus_client", "onnxruntime"), "serve")


def missing_extra(error: ModuleNotFoundError, purpose: str = "this command") -> str:
    """Say how to install what is missing; an error that no extra explains is raised again.

    >>> missing_extra(ModuleNotFoundError(name="torch"))
    "this command needs torch: pip install 'oodshape[torch]'"
    """
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        raise error
    return f"{purpose} needs {package}: pip install 'oodshape[{_EXTRAS[package]}]'"


def check_trust(reason: str, trust_code: bool) -> None:
    """Raise InputError unless the user trusts code that a file holds or names; `reason` says which code would run."""
    if not trust_code:
        raise InputError(f"{reason}; if you trust its author, allow it with --trust-code (Python: trust_code=True)")
