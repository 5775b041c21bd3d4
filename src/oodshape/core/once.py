"""once: a property computed at its first use and kept, in a form that torch can trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class once(Generic[T]):  # used as a decorator
    """functools.cached_property without its lock, which no tracer can enter (Python 3.11 still has it).

    >>> class Sum:
    ...     @once
    ...     def total(self) -> int:
    ...         print("adding")
    ...         return 1 + 2
    >>> one = Sum()
    >>> one.total + one.total
    adding
    6
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        """Remember how it is made."""
        self.make = make
        self.name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        """The value, which the instance keeps in the property's place."""
        value = self.make(instance)
        setattr(instance, self.name, value)
        return value
