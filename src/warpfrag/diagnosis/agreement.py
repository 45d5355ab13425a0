"""The correct elements of a wrong result, and known values that the wrong elements equal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes
from warpfrag.formats.number_formats import Format
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.operand import Operand

Codes: TypeAlias = NDArray[Any]
BLOCK = 8  # the rows and columns of a block
MIN_EQUAL = 2  # the smallest group of elements that is reported
MAX_NAMED = 12  # the maximum number of ranges that a text lists


@dataclass(frozen=True)
class Agreement:
    """The right parts of a wrong result (rows, columns, blocks, lanes and registers), and hints about the wrong ones.

    `blocks` are (row, column) pairs of 8 x 8 blocks, or of the tiles of a kernel; `lanes` are numbered through the
    warps of a warpgroup. `equals` has a sentence for each group of wrong elements that have a known value.
    """

    correct: int
    elements: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    lanes: tuple[int, ...]
    registers: tuple[int, ...]
    equals: tuple[str, ...]
    block_shape: tuple[int, int] = (BLOCK, BLOCK)

    def __repr__(self) -> str:
        """Format the number of correct elements."""
        return f"<Agreement: {self.correct} of {self.elements} elements are right>"

    def __str__(self) -> str:
        """Format the number and location of correct elements, and the known values of wrong elements."""
        if not self.correct:
            lines = [f"none of {self.elements} elements is right"]
        else:
            lines = [f"{self.correct} of {self.elements} elements are right"]
            names = ("rows", "columns", "blocks", "lanes", "registers")
            right = named_lines({name: getattr(self, name) for name in names}, self.block_shape)
            lines[0] += f"; right throughout: {'; '.join(right)}" if right else "; no row, column, lane or register is"
            lines[0] += "" if right else " right throughout"
        return "\n".join([*lines, *self.equals])

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        names = ("rows", "columns", "block_shape", "lanes", "registers", "equals")
        lists: dict[str, object] = {name: list(getattr(self, name)) for name in names}
        blocks = [list(block) for block in self.blocks]
        return {"correct": self.correct, "elements": self.elements, "blocks": blocks, **lists}


def named_lines(lines: Mapping[str, tuple[Any, ...]], block: tuple[int, int]) -> list[str]:
    """Return a text for each category of lines, such as "rows 0-7"."""
    pairs = [f"({row}, {col})" for row, col in lines.get("blocks", ())]
    blocks = ", ".join(pairs[:MAX_NAMED] + ["..."] * (len(pairs) > MAX_NAMED))
    texts = {name: blocks if name == "blocks" else numbers(some) for name, some in lines.items()}
    size = f"{block[0]} x {block[1]} "
    names = {
        name: f"{size if name == 'blocks' else ''}{name[: -1 if len(lines[name]) == 1 else None]}" for name in texts
    }
    return [f"{names[name]} {text}" for name, text in texts.items() if text]


def as_lines(numbers: NDArray[Any]) -> tuple[Any, ...]:
    """Return line numbers as integers; complex numbers, which represent blocks, become pairs."""
    is_block = np.iscomplexobj(numbers)
    return tuple((int(number.real), int(number.imag)) if is_block else int(number) for number in numbers)


def numbers(some: Iterable[int]) -> str:
    """Return ascending numbers as text, with ranges.

    >>> numbers([0, 1, 2, 3, 7, 9, 10])
    '0-3, 7, 9, 10'
    """
    runs: list[list[int]] = []
    for number in some:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts[:MAX_NAMED]) + (", ..." if len(parts) > MAX_NAMED else "")


def agreement(
    operand: Operand, seen: Codes, right: Codes, *, c: Codes | None = None, block: tuple[int, int] = (BLOCK, BLOCK)
) -> Agreement:
    """Compare a result with the expected one, which is a fragment of `operand` or a matrix of many fragments."""
    same = seen == right
    indices = line_numbers(operand, same.shape, block)
    return Agreement(
        correct=int(same.sum()),
        elements=same.size,
        **{name: as_lines(np.setdiff1d(index, index[~same])) for name, index in indices.items()},
        equals=tuple(_equals(operand.format, seen, right, c)),
        block_shape=block,
    )


def line_numbers(
    operand: Operand, shape: tuple[int, ...], block: tuple[int, int] = (BLOCK, BLOCK)
) -> dict[str, NDArray[Any]]:
    """Return each element's row, column, block, lane and register; an incomplete fragment counts as one lane."""
    row, col = np.indices(shape)[-2:]
    layout, own, place = operand.layout, operand.shape, np.zeros(shape, np.intp)
    repeats = [extent // size for extent, size in zip(shape, own, strict=False)]
    if shape == tuple(np.multiply(repeats, own)):
        place = np.tile(fragment.first_places(layout).reshape(own), repeats)
    return {
        "rows": row,
        "columns": col,
        "blocks": row // block[0] + 1j * (col // block[1]),
        "lanes": place // (layout.regs * layout.slots),
        "registers": place // layout.slots % layout.regs,
    }


def _equals(form: Format, seen: Codes, right: Codes, c: Codes | None) -> Iterator[str]:
    """Yield a sentence for each group of wrong elements; an element belongs to the first group that fits."""
    if seen.size > 1 and (seen == seen.flat[0]).all():
        yield f"every element is {from_codes(form, seen).flat[0]:g}: check that the kernel ran, and that it stores D"
    left = seen != right
    total = int(left.sum())
    got, expected = (as_doubles(from_codes(form, codes)) for codes in (seen, right))
    with np.errstate(invalid="ignore", over="ignore"):
        groups = [
            ("are 0", got == 0),
            ("are NaN", np.isnan(got)),
            ("are infinite", np.isinf(got)),
            ("equal C", np.zeros_like(left) if c is None else seen == c),
            ("have the expected magnitude and the opposite sign", got == -expected),
            ("are twice the expected value", got == 2 * expected),
            ("are half the expected value", 2 * got == expected),
        ]
    for text, fits in groups:
        count = int((left & fits).sum())
        if count:
            yield f"{count} of {total} wrong elements {text}"
            left &= ~fits
    yield from _elsewhere(seen, right, left, total)


def _elsewhere(seen: Codes, right: Codes, left: NDArray[np.bool_], total: int) -> Iterator[str]:
    """Yield a sentence about wrong elements whose values are expected in a different row or column."""
    codes, first, counts = np.unique(right, return_index=True, return_counts=True)
    unique = dict(zip(codes[counts == 1].tolist(), first[counts == 1].tolist(), strict=True))
    away: Counter[tuple[int, ...]] = Counter()
    for place in np.argwhere(left):
        source = unique.get(seen[tuple(place)].item())
        if source is not None:
            at = np.array(np.unravel_index(source, right.shape))
            away[tuple((at - place).tolist()[-2:])] += 1
    count = sum(away.values())
    if count < MIN_EQUAL:
        return
    (row, col), often = away.most_common(1)[0]
    if 2 * often > count:
        yield f"{often} of {total} wrong elements equal the expected D[row{_by(row)}, col{_by(col)}]"
    elif count:
        yield f"{count} of {total} wrong elements equal an expected element in a different row or column"


def _by(step: int) -> str:
    return f" {'+' if step > 0 else '-'} {abs(step)}" if step else ""
