"""Renamed parameters and attributes: the old name works, and warns with the new one until 0.5.

Declare a rename where the new name is defined; searching for `renamed_` lists them.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from warnings import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _warn(old: str, new: str) -> None:
    warn(f"{old} is now called {new}; the old name goes with 0.5", DeprecationWarning, stacklevel=3)


def renamed_parameters(
    names: Mapping[str, str],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """A decorator that lets a function take parameters by their old names too: `names` maps old to new."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            for old in names.keys() & kwargs.keys():
                _warn(old, names[old])
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def renamed_attributes(names: Mapping[str, str]) -> Callable[[object, str], object]:
    """A `__getattr__` that finds attributes by their old names too; hide it from type checkers: they take any name."""

    def find(self: object, name: str) -> object:
        if name in names:
            _warn(f"{type(self).__name__}.{name}", names[name])
            value: object = getattr(self, names[name])
            return value
        msg = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(msg)

    return find
