"""The Instruction class: one matrix instruction with its qualifiers, operands and targets.

An instruction is immutable and hashed by its name. Looking it up or unpickling it always returns the same object.
`tcgen05_types` defines subclasses for instructions that use tensor memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

from warpfrag.errors import InvalidSparsity
from warpfrag.formats.number_formats import Rounding
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.instruction_table import families_of, legal_targets
from warpfrag.isa.qualifiers import Form, Shape
from warpfrag.isa.sparsity_patterns import Pattern, pattern_of
from warpfrag.layout.providers import card

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Array, Words
    from warpfrag.isa.immediates import Immediates
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.array_types import Scaled
    from warpfrag.tensorcore.evidence import Evidence
    from warpfrag.tensorcore.operand import Metadata, Operand, Operands, Scale
    from warpfrag.tensorcore.shared_operand import Location


class ExecuteOptions(TypedDict, total=False):
    """The keyword arguments of `wf.execute`."""

    metadata: ArrayLike | None
    scales: tuple[ArrayLike, ArrayLike] | None
    immediates: Immediates
    shared: ArrayLike | None
    arch: str
    threads: int | None


@dataclass(frozen=True)
class Instruction:
    """A matrix instruction; `arch` is the architecture of its wmma fragments, or empty if the ISA defines them."""

    form: Form
    arch: str = ""

    def __repr__(self) -> str:
        """Format the name and, for wmma, the architecture of the fragments."""
        return f"<Instruction {self.name}{f' with the fragments of {self.arch}' if self.arch else ''}>"

    def __str__(self) -> str:
        """Return the canonical PTX text."""
        return self.name

    def __hash__(self) -> int:
        """Hash the name, which is faster than hashing every qualifier."""
        return hash((self.name, self.arch))

    @cached_property
    def name(self) -> str:
        """The canonical PTX name, without redundant defaults."""
        return spell(self.form)

    @property
    def op(self) -> str:
        """The operation: mma, mma.sp, mma.sp::ordered_metadata, wmma.mma, wmma.load.a, ldmatrix, ..."""
        return self.form.op

    @property
    def shape(self) -> Shape:
        """The extents m, n and k."""
        return self.form.shape

    @property
    def layouts(self) -> tuple[str, ...]:
        """The row and col qualifiers."""
        return self.form.layouts

    @property
    def kind(self) -> str:
        """The part of the kind:: qualifier after the colons, or an empty string."""
        return self.form.kind

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets on which the instruction is legal."""
        return legal_targets(self.form)

    @property
    def selectors(self) -> tuple[int, ...]:
        """The sparsity selectors that do not trap on hardware; empty for a dense instruction."""
        return tuple(range(families_of(self.form)[0].selectors))

    @property
    def sources(self) -> tuple[str, ...]:
        """The documents that specify the instruction."""
        return tuple(dict.fromkeys(row.source for row in (*families_of(self.form), *self.operands.values())))

    @cached_property
    def operands(self) -> Operands:
        """The operands, including metadata and scale factors, by role."""
        from warpfrag.tensorcore.operand import operands_of  # imported here because listing names does not need it

        return operands_of(self.form, self.arch)

    # Each of these is None if the instruction lacks the operand; see Operands.

    @property
    def a(self) -> Operand:
        """Operand A, or the source registers of stmatrix and movmatrix."""
        return self.operands.a

    @property
    def b(self) -> Operand:
        """Operand B."""
        return self.operands.b

    @property
    def c(self) -> Operand:
        """Operand C."""
        return self.operands.c

    @property
    def d(self) -> Operand:
        """Operand D, or the destination registers of ldmatrix and movmatrix."""
        return self.operands.d

    @property
    def metadata(self) -> Metadata:
        """The sparsity metadata, or None for dense instructions."""
        return self.operands.metadata

    @property
    def scale_a(self) -> Scale:
        """The scale factors of A, or None without block scaling."""
        return self.operands.scale_a

    @property
    def scale_b(self) -> Scale:
        """The scale factors of B, or None without block scaling."""
        return self.operands.scale_b

    @property
    def addresses(self) -> Layout:
        """The layout that gives, for each row, the lane that supplies its address (ldmatrix and stmatrix), or None."""
        from warpfrag.isa.operands import addresses

        return cast("Layout", addresses(self.form))

    @property
    def pattern(self) -> Pattern | None:
        """The sparsity pattern of A (1:2, 2:4 or 4:8), or None for dense instructions."""
        return pattern_of(self.form)

    def compress(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> tuple[Array, Array]:
        """Return the stored elements and metadata codes of a pruned A.

        Raises InvalidSparsity, which names the first row that is not pruned.
        """
        from warpfrag.formats import codes
        from warpfrag.tensorcore import sparsity

        rule = self._sparse_pattern()
        stored, metadata = sparsity.compress(rule, self.a.full_codes(matrix, raw=raw, rounding=rounding))
        return stored if raw else codes.from_codes(self.a.format, stored), metadata

    def expand(self, stored: ArrayLike, metadata: ArrayLike, *, raw: bool = False) -> Array:
        """Return the full A that stored elements and metadata codes represent."""
        from warpfrag.formats import codes
        from warpfrag.formats.arrays import as_array
        from warpfrag.tensorcore import sparsity

        rule = self._sparse_pattern()
        fields = as_array(metadata, f"metadata codes of {self.name}")
        if fields.shape[-2:] != self.metadata.shape:
            rows, chunks = self.metadata.shape
            raise InvalidSparsity(
                f"{self.name}: expected metadata codes of shape (..., {rows}, {chunks}), got {fields.shape}"
            )
        full = sparsity.expand(rule, self.a.codes(stored, raw=raw), fields)
        return full if raw else codes.from_codes(self.a.format, full)

    def _sparse_pattern(self) -> Pattern:
        if self.pattern is None:
            raise InvalidSparsity(f"{self.name} is dense: only a sparse A has stored elements and metadata")
        return self.pattern

    def execute(
        self, a: Location, b: Location | None = None, c: ArrayLike | None = None, **options: Unpack[ExecuteOptions]
    ) -> Words:
        """Return D's registers, bit for bit; see `wf.execute` for the options."""
        return _execute()(self, a, b, c, **options)

    def __call__(
        self,
        A: ArrayLike | Scaled,
        B: ArrayLike | Scaled,
        C: ArrayLike | None = None,
        *,
        arch: str = "sm_90",
        raw: bool = False,
        rounding: Rounding = None,
        threads: int | None = None,
    ) -> Array:
        """Return D = A B + C for matrices, bit for bit.

        A sparse instruction takes the full, pruned A; a block-scaled one takes A and B as `Scaled` matrices. Leading
        axes are a batch and broadcast; C=None is zero.
        """
        from warpfrag.tensorcore.matmul import multiply_matrices

        return multiply_matrices(self.form, A, B, C, arch=arch, raw=raw, rounding=rounding, threads=threads)

    def evidence(self, arch: str) -> Evidence:
        """Return the evidence for the result of this instruction on an architecture."""
        from warpfrag.tensorcore.evidence import evidence

        return evidence(self.form, arch)

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks."""
        return card(self)

    def __reduce__(self) -> tuple[Callable[[type[Instruction], Form, str], Instruction], tuple[object, ...]]:
        """Pickle the form and the architecture, so that unpickling returns the same object."""
        return interned, (type(self), self.form, self.arch)


@cache
def _execute() -> Callable[..., Words]:
    """Import `execute` on first use, because look-ups must not import NumPy."""
    from warpfrag.tensorcore.execute import execute

    return execute


_interned: dict[tuple[Form, str], Instruction] = {}


def interned(kind: type[Instruction], form: Form, arch: str) -> Instruction:
    """Return the unique instruction object for a class, a form, and an architecture of wmma fragments."""
    return _interned.get((form, arch)) or _interned.setdefault((form, arch), kind(form, arch))
