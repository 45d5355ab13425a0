"""A frozen dataclass of ours is one of Python's in all but the time that it takes to define."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from pathlib import Path

import pytest

import warpfrag
from warpfrag.layout.frozen import frozen_dataclass


@frozen_dataclass
class Ours:
    """Fields of all kinds."""

    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list, hash=False)
    d: int = field(default=0, compare=False, repr=False)
    e: int = field(default=5, kw_only=True)

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError(self.a)


@dataclass(frozen=True)
class Theirs:
    """The same."""

    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list, hash=False)
    d: int = field(default=0, compare=False, repr=False)
    e: int = field(default=5, kw_only=True)


@frozen_dataclass(kw_only=True)
class Longer(Ours):
    """A field more, and a repr of its own."""

    f: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return "longer"


@frozen_dataclass(eq=False, repr=False)
class Unlike:
    """Equal to nothing else."""

    a: int


@frozen_dataclass
class Empty:
    """No fields."""


@frozen_dataclass(slots=True)
class Slotted:
    """No dict."""

    a: int
    b: list[int] = field(default_factory=list)


@frozen_dataclass
class OwnEquality:  # noqa: PLW1641 (the decorator adds the hash)
    """`__eq__` of its own, and a hash of all fields."""

    a: int

    def __eq__(self, other: object) -> bool:
        return True


CALLS = [((1,), {}), ((1, "y", [2], 3), {"e": 4}), ((), {"a": 1, "c": [7]})]


@pytest.mark.parametrize(("places", "names"), CALLS)
def test_it_holds_and_prints_what_a_dataclass_does(places, names):
    ours, theirs = Ours(*places, **names), Theirs(*places, **names)
    assert asdict(ours) == asdict(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert hash(ours) == hash(theirs)


def test_its_parameters_are_those_of_a_dataclass():
    ours, theirs = (inspect.signature(cls).parameters for cls in (Ours, Theirs))
    assert [(p.name, p.kind, p.annotation) for p in ours.values()] == [
        (p.name, p.kind, p.annotation) for p in theirs.values()
    ]
    with pytest.raises(TypeError, match=r"Ours.__init__\(\) missing 1 required positional argument: 'a'"):
        Ours()


def test_a_default_that_is_made_is_made_each_time():
    assert Ours(1).c is not Ours(1).c


def test_equality_and_hash_leave_out_what_is_not_compared():
    assert Ours(1, d=2) == Ours(1, d=3)
    assert Ours(1) != Ours(1, e=6)
    assert Ours(1) != Theirs(1)
    assert Ours(1) != Longer(a=1)
    assert hash(Ours(1, c=[1])) == hash(Ours(1, c=[2]))
    assert Unlike(1) != Unlike(1)
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    assert OwnEquality(1) == OwnEquality(2)
    assert hash(OwnEquality(1)) == hash(OwnEquality(1)) != hash(OwnEquality(2))


def test_it_cannot_be_changed():
    item = Ours(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        item.a = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del item.a
    assert item == Ours(1)


def test_one_with_slots_has_nothing_else_and_can_be_copied():
    item = Slotted(1, [2])
    assert not hasattr(item, "__dict__")
    assert item == copy.copy(item) == copy.deepcopy(item) == pickle.loads(pickle.dumps(item))  # noqa: S301 (our own)
    assert copy.deepcopy(item).b is not item.b
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        item.a = 2


def test_a_class_that_inherits_has_the_fields_of_both():
    assert [item.name for item in fields(Longer)] == [*"abcdef"]
    assert Longer(1, f=(2,)).f == (2,)
    assert repr(Longer(1)) == "longer"


def test_it_is_checked_copied_and_replaced_like_a_dataclass():
    item = Ours(1, c=[2])
    assert replace(item, b="z") == Ours(1, "z", [2])
    assert item == copy.deepcopy(item) == pickle.loads(pickle.dumps(item))  # noqa: S301 (our own)
    with pytest.raises(ValueError, match="-1"):
        replace(item, a=-1)
    match item:
        case Ours(1, b):
            assert b == "x"
        case _:
            pytest.fail("no match by place")


def test_the_package_defines_no_other_frozen_dataclasses():
    """One forgotten would only be slow, and nobody would see it."""
    texts = {path: path.read_text("utf-8") for path in Path(warpfrag.__file__).parent.rglob("*.py")}

    assert len(texts) > 100
    assert [path for path, text in texts.items() if re.search(r"^@dataclass\(.*frozen=True", text, re.MULTILINE)] == []
