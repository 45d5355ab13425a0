"""Fragments, and the measured layouts of their elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from warpfrag.errors import InvalidOperand, check_index, check_integer, quote
from warpfrag.formats.arrays import Array, Words
from warpfrag.formats.codes import from_codes
from warpfrag.isa.qualifiers import Shape
from warpfrag.layout.coordinates import Coordinate
from warpfrag.layout.index_expressions import element_formulas
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore import fragment as registers
from warpfrag.tensorcore.evidence import Evidence
from warpfrag.tensorcore.operand import Operand
from warpfrag.wmma.wmma_types import ElementType, MatrixLayout, as_real, base_arch, element_type, find_operand, spelling
from warpfrag.wmma.wmma_types import Use as Uses


class ElementPlace(NamedTuple):
    """The position of an element: the entry `x[t, lane]`, and the slot in this entry, low bits first."""

    t: int
    lane: int
    slot: int


@dataclass(frozen=True)
class ElementMap:
    """The element map of a fragment, from `x[t, lane]` to rows and columns, and back."""

    operand: Operand
    arch: str
    is_packed: bool

    @property
    def linear(self) -> Layout:
        """The map as a register layout; raises NotModelled if it was not measured."""
        return self.operand.layout

    @property
    def evidence(self) -> Evidence:
        """The evidence, which is always a measurement: the ISA does not specify these maps."""
        return Evidence("hardware", self.operand.source, authority="measured")

    @property
    def formulas(self) -> dict[str, str]:
        """Formulas for row and col in terms of `lane` and `i`; i is t, or for sub-byte types slots * t + slot."""
        return element_formulas(self.linear)

    @property
    def slots(self) -> int:
        """The number of elements in each entry of `x`: 1, except for sub-byte types."""
        return self.operand.slots if self.is_packed else 1

    def at(self, *, t: int, lane: int, slot: int = 0) -> Coordinate:
        """Return the row and col of the element in `x[t, lane]`.

        For sub-byte types, `slot` selects an element in `x[t, lane]`.
        """
        check_index("t", t, self.operand.regs * self.operand.slots // self.slots)
        check_index("slot", slot, self.slots)
        reg, place = divmod(t * self.slots + slot, self.operand.slots)
        return self.linear.at(lane=lane, reg=reg, slot=place)

    def where(self, *, row: int, col: int) -> list[ElementPlace]:
        """Return every register slot that holds an element; mma_sync reads the first."""
        return [
            ElementPlace(number // self.slots, place.lane, number % self.slots)
            for place in self.linear.where(row=row, col=col)
            for number in [self.operand.element(reg=place.reg, slot=place.slot)]
        ]

    def __str__(self) -> str:
        """Return the formulas and their evidence as text."""
        rules = ", ".join(f"{name} = {rule}" for name, rule in self.formulas.items())
        index = "x[i, lane]" if self.slots == 1 else f"element i % {self.slots} of x[i / {self.slots}, lane]"
        copies = f"; each element has {self.linear.copies} copies" if self.linear.copies > 1 else ""
        return f"{index} on {self.arch}: {rules}{copies} ({self.evidence.level}: {self.evidence.detail})"


class Fragment:
    """The registers of all 32 lanes that hold one matrix; C++ writes `fragment<Use, m, n, k, T, Layout>`.

    `matrix_a` is m x k and `matrix_b` k x n, both with a Layout; `accumulator` is m x n, without one. A new fragment
    holds zeros (in C++, it is uninitialised).

        >>> from warpfrag import wmma
        >>> acc = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float)
        >>> acc.num_elements, acc.x.shape, acc.words.shape
        (8, (8, 32), (32, 8))

    `x[t]` is element t of every lane, `x[t, lane]` is one value, and `words` has the registers as uint32[32, words].
    `x` and `words` are writable views of the same bits. Sub-byte types have several elements in each entry of `x`.

    The element in `x[t, lane]` differs between architectures; see `layout()`. For an architecture that was not
    measured, the order of the first measured architecture is a placeholder. Code that treats all elements alike is
    still correct, and so is the result of `mma_sync`, but the positions of elements are not.
    """

    def __init__(
        self,
        Use: Uses,
        m: int,
        n: int,
        k: int,
        T: ElementType | type[float | int],
        Layout: MatrixLayout | None = None,
        arch: str = "sm_90",
    ) -> None:
        """Create a fragment; raise an error that lists the valid combinations if this one is invalid."""
        if not isinstance(Use, Uses):
            raise InvalidOperand(f"use: expected one of {', '.join(map(str, Uses))}; got {quote(Use)}")
        _check_layout(Use, Layout)
        self.use = Use
        self.arch = base_arch(arch)
        extents = zip("mnk", (m, n, k), strict=True)
        self.shape = Shape(*(check_integer(extent, f"{name}: expected an integer") for name, extent in extents))
        self.element_type = element_type(T)
        self.matrix_layout = Layout
        self.operand = find_operand(Use, self.shape, self.element_type, Layout, self.arch)
        self._words = np.zeros((self.operand.spec.layout.lanes, self.operand.words), np.uint32)

    def __repr__(self) -> str:
        """Format the C++ type and the architecture."""
        words = [self.use, *self.shape, self.element_type.name, self.matrix_layout]
        placeholder = "" if self.is_measured else ", x in placeholder order"
        return f"<fragment<{', '.join(str(word) for word in words if word is not None)}> of {self.arch}{placeholder}>"

    @property
    def m(self) -> int:
        """The number of rows of D."""
        return self.shape.m

    @property
    def n(self) -> int:
        """The number of columns of D."""
        return self.shape.n

    @property
    def k(self) -> int:
        """The number of products in each element of D."""
        return self.shape.k

    @property
    def storage_element_type(self) -> ElementType:
        """The type of one entry of `x`."""
        return self.element_type.storage or self.element_type

    @property
    def num_elements(self) -> int:
        """The number of elements per lane, including copies."""
        return self.operand.regs * self.operand.slots

    @property
    def num_storage_elements(self) -> int:
        """The number of entries of `x` per lane, which is smaller if one entry holds several elements."""
        return self.operand.regs if self.element_type.is_sub_byte else self.num_elements

    @property
    def words(self) -> Words:
        """The registers, uint32[32, words], low register first; an f64 takes two."""
        return self._words

    @words.setter
    def words(self, words: ArrayLike) -> None:
        checked = self.operand.check_words(words)
        if checked.shape != self._words.shape:
            raise InvalidOperand(f"words: expected uint32{list(self._words.shape)}, got shape {checked.shape}")
        self._words[...] = checked

    @property
    def x(self) -> Array:
        """The elements, (num_storage_elements, 32), as a view of `words`."""
        return self._words.view(self.element_type.dtype).T

    @x.setter
    def x(self, elements: ArrayLike) -> None:
        try:
            # conversions may produce infinities and quiet NaNs, as in C++
            with np.errstate(over="ignore", invalid="ignore"):
                self.x[...] = as_real(elements, "x")
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidOperand(f"x: expected {self.storage_element_type.name}{list(self.x.shape)}: {error}") from None

    @property
    def is_measured(self) -> bool:
        """True if the element map was measured."""
        return not self.operand.spec.unknown

    def layout(self) -> ElementMap:
        """Return the element map and its evidence; raise NotModelled if it was not measured."""
        _ = self.operand.layout  # raises an error if the map is unknown
        return ElementMap(self.operand, self.arch, self.element_type.is_sub_byte)

    def codes(self) -> Array:
        """Return the matrix as unsigned codes; if an element has copies, from the copy that the hardware reads."""
        codes = registers.unpack(self.operand.spec, self._words)
        return codes.copy()  # if places are in matrix order, unpack returns a view of the registers

    def matrix(self) -> Array:
        """Return the matrix in the natural dtype of its elements, from the copies that the hardware reads."""
        return from_codes(self.operand.format, self.codes())

    def set_codes(self, codes: ArrayLike) -> None:
        """Write a matrix of unsigned codes into the registers, including all copies."""
        matrix = self.operand.codes(codes, raw=True)
        if matrix.shape != self.operand.shape:
            raise InvalidOperand(f"codes: expected a matrix of shape {self.operand.shape}, got {matrix.shape}")
        self._words[...] = registers.pack(self.operand.spec, matrix)

    def copy(self) -> Fragment:
        """Return a copy of the fragment: the equivalent of `=` in C++."""
        other = Fragment(self.use, *self.shape, self.element_type, self.matrix_layout, self.arch)
        other.words = self._words
        return other

    __copy__ = copy


def _check_layout(use: Uses, layout: object) -> None:
    """Check the layout, which is part of a multiplicand's type but an argument of accumulator loads and stores."""
    if use is Uses.accumulator and layout is not None:
        raise InvalidOperand(
            f"fragment accumulator: expected no Layout, got {spelling(layout)}; pass mem_row_major or mem_col_major to "
            "load_matrix_sync and store_matrix_sync"
        )
    if use is not Uses.accumulator and not isinstance(layout, MatrixLayout):
        raise InvalidOperand(f"fragment {use}: expected the Layout row_major or col_major, got {spelling(layout)}")
