"""Frozen dataclasses that are quick to define.

`dataclass(frozen=True)` compiles six methods for every class, and a process that answers a short question spends a
fifth of its time on that. `frozen_dataclass` compiles `__init__` alone; the other methods are written here, for all
classes. What it makes is a dataclass: `fields`, `replace` and `asdict` take it.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _typeshed import DataclassInstance

T = TypeVar("T")


@overload
def frozen_dataclass(cls: type[T]) -> type[T]: ...
@overload
def frozen_dataclass(
    *, eq: bool = True, repr: bool = True, kw_only: bool = False, slots: bool = False
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen_dataclass(
    cls: type[T] | None = None,
    *,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 (as in dataclass)
    kw_only: bool = False,
    slots: bool = False,
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass. A method that it defines itself stays."""
    if cls is None:
        return partial(frozen_dataclass, eq=eq, repr=repr, kw_only=kw_only, slots=slots)
    cls = dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(cls)
    methods: dict[str, Callable[..., Any]] = {"__setattr__": _refuse, "__delattr__": _refuse}
    if slots:
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    if "__init__" not in vars(cls):
        methods["__init__"] = _initialiser(cls)
    if repr and "__repr__" not in vars(cls):
        methods["__repr__"] = _representation
    if eq:
        methods |= _comparisons(cls)
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


def _initialiser(cls: type) -> Callable[..., None]:
    """The method `__init__`, with a parameter for each field."""
    names: dict[str, Any] = {"_assign": object.__setattr__, "_MISSING": MISSING}
    by_place, by_name, body = ["self"], ["*"], []
    for item in fields(cls):
        parameter = value = name = item.name
        if item.default is not MISSING:
            names[f"_default_{name}"] = item.default
            parameter = f"{name}=_default_{name}"
        elif item.default_factory is not MISSING:
            names[f"_make_{name}"] = item.default_factory
            parameter = f"{name}=_MISSING"
            value = f"_make_{name}() if {name} is _MISSING else {name}"
        (by_name if item.kw_only else by_place).append(parameter)
        body.append(f"    _assign(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    parameters = ", ".join(by_place + by_name * (len(by_name) > 1))
    exec("\n".join([f"def __init__({parameters}):", *body, "    return"]), names)  # noqa: S102 (names of fields only)
    method: Callable[..., None] = names["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__annotations__ = {item.name: item.type for item in fields(cls)} | {"return": None}
    return method


def _comparisons(cls: type) -> dict[str, Callable[..., Any]]:
    """The methods `__eq__` and `__hash__`, as far as the class lacks them."""
    compared = [item for item in fields(cls) if item.compare]
    values = _getter(item.name for item in compared)
    hashed = _getter(item.name for item in compared if item.hash is not False)

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    methods: dict[str, Callable[..., Any]] = {"__eq__": equal, "__hash__": lambda self: hash(hashed(self))}
    return {name: method for name, method in methods.items() if vars(cls).get(name) is None}


def _getter(names: Iterable[str]) -> Callable[[object], Any]:
    """The function that gives the values of these attributes."""
    wanted = tuple(names)
    return attrgetter(*wanted) if wanted else lambda _: ()


@recursive_repr()
def _representation(self: DataclassInstance) -> str:
    values = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({values})"


def _refuse(_self: object, name: str, *values: object) -> None:
    """Both `__setattr__` and `__delattr__`."""
    msg = f"cannot {'assign to' if values else 'delete'} field {name!r}"
    raise FrozenInstanceError(msg)


def _state(self: DataclassInstance) -> list[object]:
    """What a copy or a pickle keeps of an object with slots: it cannot be restored by assignments."""
    return [getattr(self, item.name) for item in fields(self)]


def _restore(self: DataclassInstance, values: list[object]) -> None:
    for item, value in zip(fields(self), values, strict=True):
        object.__setattr__(self, item.name, value)
