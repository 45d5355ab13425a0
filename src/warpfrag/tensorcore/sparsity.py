"""Convert a sparse A between the full matrix and its stored half.

A row of A is divided into chunks. Half of each chunk is stored, and a 4-bit code selects that half. `compress` finds
the codes, `expand` applies them; both work on arrays of any dtype, because they only move elements.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidSparsity
from warpfrag.isa.sparsity_patterns import Pattern

CODES = 16  # a metadata code has four bits


@cache
def _columns(rule: Pattern) -> NDArray[np.int32]:
    """Return the columns that each code keeps, or -1 for illegal codes: int32[16, kept]."""
    table = np.full((CODES, rule.kept), -1, np.int32)
    for code, kept in rule.columns.items():
        table[code] = kept
    return table


@cache
def _best_codes(rule: Pattern) -> NDArray[np.int16]:
    """Return, for each set of units, the code that keeps these units and the lowest of the others, or -1.

    A set is a bit mask: unit u must be kept if bit u is set.
    """
    units = rule.chunk // rule.unit
    kept_units = {code: {column // rule.unit for column in kept} for code, kept in rule.rising.items()}
    best = np.full(1 << units, -1, np.int16)
    for needed in range(1 << units):
        wanted = {unit for unit in range(units) if needed >> unit & 1}
        fitting = [(sorted(kept - wanted), code) for code, kept in kept_units.items() if wanted <= kept]
        if fitting:
            best[needed] = min(fitting)[1]
    return best


@cache
def _best_columns(rule: Pattern) -> NDArray[Any]:
    """Return, for each set of units, the columns that its code keeps; one element packs them, for faster gathers."""
    codes = _best_codes(rule)
    columns = np.where(codes[:, None] < 0, np.int32(-1), _columns(rule).take(codes, axis=0))
    return np.ascontiguousarray(columns).view(f"V{columns.itemsize * rule.kept}")[:, 0]


def compress(rule: Pattern, codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return stored elements [..., rows, cols/2] and metadata codes [..., rows, chunks] of a pruned matrix of codes.

    Every element whose code is not 0 is kept (including a negative zero). If fewer elements than a chunk stores are not
    0, the zeros with the lowest columns are stored too.
    """
    stored, _ = compress_to_columns(rule, codes)
    return stored, _best_codes(rule).take(_bits_of(_units(rule, codes))).astype(np.uint8)


def compress_to_columns(rule: Pattern, codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return the stored elements and their logical columns; raise InvalidSparsity if the matrix is not pruned."""
    units = _units(rule, codes)
    kept = _best_columns(rule).take(_bits_of(units)).view(np.int32)
    if kept.size and kept.min() < 0:
        raise InvalidSparsity(_not_pruned(rule, units, kept.reshape(*units.shape[:-1], rule.kept)[..., 0] < 0))
    columns = _in_rows(rule, kept.reshape(*codes.shape[:-1], units.shape[-2] * rule.kept))
    index_kind = np.int32 if codes.size <= np.iinfo(np.int32).max else np.int64
    rows = np.arange(math.prod(codes.shape[:-1]), dtype=index_kind).reshape(*codes.shape[:-1], 1)
    stored: NDArray[Any] = codes.take(columns + codes.shape[-1] * rows)
    return stored, columns


def _units(rule: Pattern, codes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return, for each chunk, a flag for each of its units that is True if the unit is nonzero."""
    chunks = codes.shape[-1] // rule.chunk
    units = (codes != 0).reshape(*codes.shape[:-1], chunks, rule.chunk // rule.unit, rule.unit)
    any_element: NDArray[np.bool_] = units[..., 0] if rule.unit == 1 else units.any(axis=-1)
    return any_element


def _not_pruned(rule: Pattern, units: NDArray[np.bool_], is_full: NDArray[np.bool_]) -> str:
    """Return the error message for a matrix with too many elements in some chunks."""
    *_, row, chunk = place = tuple(int(i) for i in np.argwhere(is_full)[0])
    first = chunk * rule.chunk
    columns = [first + int(unit) * rule.unit for unit in np.flatnonzero(units[place])]
    return (
        f"row {row} is not {rule.name} sparse: in columns {first}..{first + rule.chunk - 1}, at most "
        f"{_kept_text(rule)} may differ from zero, but columns {', '.join(map(str, columns))} do"
    )


def _bits_of(flags: NDArray[np.bool_]) -> NDArray[Any]:
    """Pack the two or four flags along the last axis into the bits of an integer.

    The flags are the bytes of an integer; one multiplication moves each flag to its bit of the highest byte.
    """
    count = flags.shape[-1]
    words = np.ascontiguousarray(flags).view(f"<u{count}")[..., 0]
    highest = 8 * (count - 1)
    bits: NDArray[Any] = words * words.dtype.type(sum(1 << (highest - 7 * place) for place in range(count))) >> highest
    return bits


def _in_rows(rule: Pattern, kept: NDArray[np.int32]) -> NDArray[np.int32]:
    """Convert columns within chunks to columns within rows.

    Whole rows are added, because an axis of two elements is much slower.
    """
    firsts = rule.chunk * np.arange(kept.shape[-1] // rule.kept, dtype=np.int32)
    columns: NDArray[np.int32] = kept + np.repeat(firsts, rule.kept)
    return columns


def _kept_text(rule: Pattern) -> str:
    count = rule.kept // rule.unit
    return f"{count}" if rule.unit == 1 else f"{count} pairs"


def logical_columns(rule: Pattern, metadata: NDArray[Any]) -> NDArray[np.int32]:
    """Return the logical column of every stored element, [..., rows, cols/2]; raise an error for an illegal code."""
    codes = np.asarray(metadata)
    if codes.dtype.kind not in "iu" or (codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < CODES):
        came = f"{codes.min()}..{codes.max()}" if codes.dtype.kind in "iu" else f"dtype {codes.dtype}"
        raise InvalidSparsity(f"metadata codes must be integers in 0..{CODES - 1}, got {came}")
    table = _columns(rule)
    is_illegal = (table < 0).any(axis=-1).take(codes)
    if is_illegal.any():
        *_, row, chunk = place = tuple(int(i) for i in np.argwhere(is_illegal)[0])
        code = int(codes[place])
        legal = ", ".join(f"{code:04b}" for code in sorted(rule.columns))
        why = "descends, which ordered metadata does not allow" if code in rule.descending else "repeats a position"
        if rule.kept == 1:
            why = f"has no meaning for {rule.name}"
        first = chunk * rule.chunk
        raise InvalidSparsity(
            f"row {row}, columns {first}..{first + rule.chunk - 1}: metadata code {code:04b} {why}; "
            f"legal codes are {legal}"
        )
    return _in_rows(rule, table.take(codes, axis=0).reshape(*codes.shape[:-1], codes.shape[-1] * rule.kept))


def expand(rule: Pattern, stored: NDArray[Any], metadata: NDArray[Any]) -> NDArray[Any]:
    """Return the full matrix of codes, with zeros for elements that are not stored."""
    columns = logical_columns(rule, metadata)
    try:
        batch = np.broadcast_shapes(stored.shape, columns.shape)
    except ValueError:
        raise InvalidSparsity(
            f"leading axes do not broadcast: stored elements {stored.shape}, metadata codes {metadata.shape}"
        ) from None
    full = np.zeros((*batch[:-1], 2 * batch[-1]), stored.dtype)
    np.put_along_axis(full, np.broadcast_to(columns, batch), np.broadcast_to(stored, batch), axis=-1)
    return full
