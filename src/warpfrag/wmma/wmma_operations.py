"""The functions of nvcuda::wmma. One call represents the whole warp."""

import numpy as np

from warpfrag.errors import InvalidOperand, check_integer, quote
from warpfrag.formats.arrays import Bytes
from warpfrag.wmma.pointers import Tile, check_memory_type, ptr, read_codes, write_codes
from warpfrag.wmma.wmma_fragments import Fragment
from warpfrag.wmma.wmma_types import B1, MatrixLayout, MemoryLayout, Use, accumulators, find_product, sizes, spelling

ROLES = {"d": Use.accumulator, "a": Use.matrix_a, "b": Use.matrix_b, "c": Use.accumulator}


def load_matrix_sync(a: Fragment, pointer: object, ldm: int, layout: MemoryLayout | None = None) -> None:
    """Fill a fragment from memory whose rows (or columns) start `ldm` elements apart.

    `pointer` is an array, a buffer or a `ptr`, read-only or not; sub-byte types are packed in it, low bits first. To
    advance it, write `ptr(array) + 16`: `array + 16` would add 16 to every value. An accumulator needs a layout,
    mem_row_major or mem_col_major; other fragments have it in their type.

        >>> import numpy as np
        >>> from warpfrag import wmma
        >>> a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
        >>> wmma.load_matrix_sync(a, np.arange(256, dtype=np.float16), 16)
        >>> a.x[1, 5], a.layout().at(t=1, lane=5)
        (np.float16(19.0), Coordinate(row=1, col=3))
    """
    _check_fragments("load_matrix_sync", a=a)
    word = _memory_word("load_matrix_sync", a, layout)
    lines = read_codes(_tile("load_matrix_sync", a, pointer, ldm, word), a.operand.format.bits)
    a.set_codes(lines if word == "row" else lines.T)


def store_matrix_sync(pointer: object, a: Fragment, ldm: int, layout: MemoryLayout) -> None:
    """Write an accumulator to memory whose rows (or columns) start `ldm` elements apart; other memory is unchanged."""
    _check_fragments("store_matrix_sync", a=a)
    if a.use is not Use.accumulator:
        raise InvalidOperand(f"store_matrix_sync: expected an accumulator, got {a!r}; use matrix() for other fragments")
    word = _memory_word("store_matrix_sync", a, layout)
    tile = _tile("store_matrix_sync", a, pointer, ldm, word, writes=True)
    write_codes(tile, a.codes() if word == "row" else a.codes().T)


def fill_fragment(a: Fragment, v: float) -> None:
    """Set every element to one value, rounded to nearest for floats (tf32 keeps all bits) and exact for integers.

    For sub-byte types, only the lowest 4 bits, or the lowest bit, of an integer are used, as in CUDA.
    """
    _check_fragments("fill_fragment", a=a)
    kind = a.element_type
    if np.ndim(v):
        raise InvalidOperand(f"fill_fragment: expected one value for all elements, got an array of shape {np.shape(v)}")
    if kind.format.is_float:
        if np.asarray(v).dtype.kind in "OSUcmM":  # NumPy would convert these to numbers
            raise InvalidOperand(f"fill_fragment: expected a number for {kind.name}, got {quote(v)}")
        try:
            # conversions may produce infinities and quiet NaNs, as in C++
            with np.errstate(over="ignore", invalid="ignore"):
                a.x[...] = np.asarray(v).astype(kind.dtype)
        except (TypeError, ValueError):
            raise InvalidOperand(f"fill_fragment: expected a number for {kind.name}, got {quote(v)}") from None
        return
    whole = check_integer(v, f"fill_fragment: expected an integer for {kind.name}")
    if kind.is_sub_byte:
        ones = kind.format.codes - 1
        a.words[...] = (whole & ones) * (0xFFFFFFFF // ones)
    elif kind.format.min <= whole <= kind.format.max:
        a.x[...] = whole
    else:
        raise InvalidOperand(
            f"fill_fragment: {kind.name} holds {kind.format.min}..{kind.format.max}, got {quote(whole)}"
        )


def mma_sync(d: Fragment, a: Fragment, b: Fragment, c: Fragment, satf: bool = False) -> None:  # noqa: FBT001, FBT002
    """Compute D = A * B + C with the tensor core's exact bits; `d` and `c` may be the same fragment.

    The effect of `satf` depends on the type:

    - integers (as in current CUDA): the sum is clamped to the range of int instead of wrapping.
    - floats (in the guide, but no longer in the headers): the product is computed without it; then +Inf is replaced by
      the largest finite value of the accumulator's type (7BFF for half, 7F7FFFFF for float, 7FEFFFFFFFFFFFFF for
      double), -Inf by its negative, and any NaN by +0.
    """
    check_product("mma_sync", d, a, b, c)
    if a.element_type == B1:
        raise InvalidOperand("mma_sync: for bits, use experimental.bmma_sync, which takes the bit operation")
    if not isinstance(satf, bool | np.bool):
        raise InvalidOperand(f"mma_sync: expected satf to be True or False, got {quote(satf)}")
    is_float = a.element_type.format.is_float
    multiply(d, a, b, c, saturate=bool(satf) and not is_float)
    if satf and is_float:
        np.nan_to_num(d.x, copy=False, nan=0.0)  # infinities become the largest finite values of the dtype


def multiply(
    d: Fragment, a: Fragment, b: Fragment, c: Fragment, *, saturate: bool = False, bit_operation: str = ""
) -> None:
    """Compute D = A * B + C for fragments that have been checked."""
    layouts = (MatrixLayout(a.matrix_layout), MatrixLayout(b.matrix_layout))
    types = (d.element_type, a.element_type, c.element_type)
    instruction = find_product(a.shape, layouts, types, a.arch, saturate=saturate, bit_operation=bit_operation)
    if d.is_measured:
        from warpfrag.tensorcore.execute import execute

        d.words[...] = execute(instruction, a.words, b.words, c.words, arch=a.arch)
    else:
        # multiply matrices instead of registers, because the register layout is unknown
        d.set_codes(instruction(a.codes(), b.codes(), c.codes(), arch=a.arch, raw=True))


def _check_fragments(label: str, **fragments: object) -> None:
    """Raise an error for an argument that is not a fragment."""
    for name, entry in fragments.items():
        if not isinstance(entry, Fragment):
            raise InvalidOperand(f"{label}: expected {name} to be a fragment, got {type(entry).__name__}")


def check_product(label: str, d: Fragment, a: Fragment, b: Fragment, c: Fragment) -> None:
    """Raise an error unless an instruction can multiply these fragments: uses, sizes, types and targets must match."""
    fragments = {"d": d, "a": a, "b": b, "c": c}
    _check_fragments(label, **fragments)
    for name, use in ROLES.items():
        if fragments[name].use is not use:
            raise InvalidOperand(f"{label}: expected {name} to be {use}, got {fragments[name]!r}")
    for field, of in (("arch", lambda entry: entry.arch), ("size m x n x k", lambda entry: sizes(entry.shape))):
        values = {name: of(entry) for name, entry in fragments.items()}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name} {entry}" for name, entry in values.items())
            raise InvalidOperand(f"{label}: expected d, a, b and c with the same {field}, got {listed}")
    if a.element_type != b.element_type:
        raise InvalidOperand(
            f"{label}: expected a and b of the same type, got {a.element_type.name} and {b.element_type.name}"
        )
    allowed = accumulators(a.shape, a.element_type)
    for name in "dc":
        if fragments[name].element_type not in allowed:
            names = " or ".join(entry.name for entry in allowed)
            raise InvalidOperand(
                f"{label}: with {a.element_type.name}, {name} must be {names}; got {fragments[name].element_type.name}"
            )


def _memory_word(label: str, a: Fragment, layout: object) -> str:
    """Return "row" or "col": the fragment's own order or, for an accumulator, the given layout."""
    if a.matrix_layout is not None:
        if layout is not None:
            raise InvalidOperand(f"{label}: {a!r} already has a layout; expected none, got {spelling(layout)}")
        return a.matrix_layout.value
    if not isinstance(layout, MemoryLayout):
        raise InvalidOperand(
            f"{label}: expected the layout mem_row_major or mem_col_major for an accumulator, got {spelling(layout)}"
        )
    return layout.value


def _tile(label: str, a: Fragment, pointer: object, ldm: object, word: str, *, writes: bool = False) -> Bytes:
    """Return the tile of memory that a fragment's matrix occupies."""
    place = ptr(pointer)
    check_memory_type(place, a.element_type, label)
    if writes and not place.array.flags.writeable:
        raise InvalidOperand(f"{label}: expected writable memory, got read-only memory")
    step = check_integer(ldm, f"{label}: expected ldm to be an integer")
    rows, cols = a.operand.shape
    lines, extent = (rows, cols) if word == "row" else (cols, rows)
    return Tile(place, step, lines, extent, a.operand.format.bits).view(label)
