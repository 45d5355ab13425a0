"""Immediate operands: the sparsity selector, and the ids of the scale factors.

An instruction reads a part of a metadata or scale register, and an immediate selects that part. Immediates are the
leading coordinates in the layout of the register; only this module maps registers to their immediates.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand, check_index, quote

if TYPE_CHECKING:
    from warpfrag.layout.linear_layout import Layout

SIDES = ("scale_a", "scale_b")
SELECTED_BY: dict[str, tuple[str, ...]] = {"metadata": ("selector",), **dict.fromkeys(SIDES, ("thread_id", "byte_id"))}
"""The registers that an instruction reads only in part, with the coordinates that select the part."""
WORD_BYTES = 4


@dataclass(frozen=True)
class Immediates:
    """The immediates of one instruction; pairs have one entry for A and one for B.

    `selector` is for a sparse A, the ids are for scale factors. The others are for wgmma: `trans` selects MN-major
    descriptors, `negate` selects operands to negate, and without `scale_d` C is not read.
    """

    selector: int = 0
    byte_id: tuple[int, int] = (0, 0)
    thread_id: tuple[int, int] = (0, 0)
    trans: tuple[bool, bool] = (False, False)
    negate: tuple[bool, bool] = (False, False)
    scale_d: bool = True


DEFAULT_IMMEDIATES = Immediates()


def as_immediates(argument: object) -> Immediates:
    """Return the argument if it is an Immediates; raise InvalidOperand otherwise."""
    if not isinstance(argument, Immediates):
        raise InvalidOperand(f"immediates: expected a wf.Immediates, got {quote(argument)}")
    return argument


def suffix_of(immediates: Immediates, roles: Container[str]) -> str:
    """Return a suffix for a kernel's name: the selector of a sparse A, and the ids of scales unless all are 0."""
    text = f"_selector{immediates.selector}" if "metadata" in roles else ""
    ids = (*immediates.byte_id, *immediates.thread_id)
    return text + ("_bytes{}{}_threads{}{}".format(*ids) if any(ids) else "")


def part_of(immediates: Immediates, role: str) -> dict[str, int]:
    """Return the coordinates of the part of a metadata or scale register that is read."""
    if role not in SELECTED_BY:
        return {}
    if role == "metadata":
        return {"selector": immediates.selector}
    side = SIDES.index(role)
    return {"thread_id": immediates.thread_id[side], "byte_id": immediates.byte_id[side]}


def immediates_after(immediates: Immediates, role: str) -> tuple[int, ...]:
    """Return the immediates that follow a register in PTX: the selector, or a scale's byte id and thread id."""
    return tuple(reversed(part_of(immediates, role).values()))


def check_ids(immediates: Immediates, layouts: Mapping[str, Layout], name: Callable[[], str]) -> None:
    """Raise InvalidOperand for a selector or id that an instruction does not accept."""
    if (immediates.trans, immediates.negate, immediates.scale_d) != ((False, False), (False, False), True):
        raise InvalidOperand(f"{name()} does not take trans, negate or scale_d; only wgmma does")
    if immediates.selector and "metadata" not in layouts:
        raise InvalidOperand(f"{name()} is dense: it takes no selector, got {quote(immediates.selector)}")
    for field, pair in (("byte_id", immediates.byte_id), ("thread_id", immediates.thread_id)):
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InvalidOperand(f"{field}: expected a pair for A and B, such as (0, 0); got {quote(pair)}")
        if SIDES[0] not in layouts and tuple(pair) != (0, 0):
            raise InvalidOperand(f"{name()} has no scale factors: it takes no {field}, got {quote(pair)}")
    for role in layouts:
        if role in SELECTED_BY:
            immediate_coordinates(layouts[role], part_of(immediates, role), of=f" of {role}")


def legal(layout: Layout, coordinate: str) -> range:
    """Return the legal values of an immediate: for byte_id the first byte of each group, otherwise all from 0 up."""
    count = layout.outs[coordinate]
    return range(0, WORD_BYTES, WORD_BYTES // count) if coordinate == "byte_id" else range(count)


def immediate_coordinates(layout: Layout, chosen: Mapping[str, int], *, of: str = "") -> dict[str, int]:
    """Return the layout coordinates that these immediates select; raise InvalidOperand for an invalid value."""
    coordinates = {}
    for coordinate, value in chosen.items():
        values = legal(layout, coordinate)
        if values.step == 1:
            coordinates[coordinate] = check_index(f"{coordinate}{of}", value, len(values))
        else:
            try:
                coordinates[coordinate] = values.index(
                    value if isinstance(value, int) and not isinstance(value, bool) else -1
                )
            except ValueError:
                raise InvalidOperand(
                    f"{coordinate}{of} must be one of {', '.join(map(str, values))}, got {quote(value)}"
                ) from None
    return coordinates


def all_immediates(layouts: Mapping[str, Layout], *, ids: bool = False) -> Iterator[Immediates]:
    """Yield every selector of an instruction and, with `ids`, also every byte id and thread id."""
    selectors = legal(layouts["metadata"], "selector") if "metadata" in layouts else (0,)
    for selector in selectors:
        if ids and SIDES[0] in layouts:
            bytes_, threads = ([legal(layouts[side], label) for side in SIDES] for label in ("byte_id", "thread_id"))
            for byte_a, byte_b, thread_a, thread_b in product(*bytes_, *threads):
                yield Immediates(selector, (byte_a, byte_b), (thread_a, thread_b))
        else:
            yield Immediates(selector)
