"""A gemm that is ready to run: the codes of A and B, the extents of D, and the scale factors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy import broadcast_shapes
from numpy.typing import NDArray

from warpfrag.blas.gemm_backend import Machine, machine_of
from warpfrag.blas.order import Order
from warpfrag.blas.summation import Multiplicands
from warpfrag.errors import InvalidOperand
from warpfrag.formats.epilogue import Epilogue, convert, finish, float32_of
from warpfrag.formats.number_formats import Rounding
from warpfrag.isa.qualifiers import HasForm
from warpfrag.tensorcore.array_types import Matrix, MatrixLike, read_matrices
from warpfrag.tensorcore.backend_protocol import Codes
from warpfrag.tensorcore.operand import Scale
from warpfrag.tensorcore.resolved_instruction import ResolvedInstruction, resolve_chain
from warpfrag.tensorcore.rules import Rule

Shape = tuple[int, ...]


class ProductShape(NamedTuple):
    """M, N, K and the broadcast batch axes of A and B."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int

    @classmethod
    def of(cls, a: Shape, b: Shape) -> ProductShape:
        """Return the shape of the gemm of A and B; raise InvalidOperand if their shapes do not match."""
        if a[-1] != b[-2]:
            raise InvalidOperand(f"A is {_text(a)} and B is {_text(b)}: the inner extents differ")
        try:
            batch = broadcast_shapes(a[:-2], b[:-2])
        except ValueError:
            raise InvalidOperand(f"A is {_text(a)} and B is {_text(b)}: their batch axes do not broadcast") from None
        return cls(batch, a[-2], b[-1], a[-1])

    @property
    def shape(self) -> Shape:
        """The shape of D."""
        return (*self.batch, self.rows, self.columns)

    def check_c(self, shape: Shape) -> None:
        """Raise InvalidOperand unless C has D's rows and columns, and batch axes that broadcast to D's."""
        if shape[-2:] != self.shape[-2:] or not self._serves(shape):
            raise InvalidOperand(f"C: expected shape {_text(self.shape)}, got {_text(shape)}")

    def check_bias(self, count: int) -> None:
        """Raise InvalidOperand unless the bias has one number per column."""
        if count != self.columns:
            raise InvalidOperand(f"bias: expected {self.columns} numbers, one for each column, got {count}")

    def scale_count(self, rule: Rule) -> int:
        """Return the number of scale factors per row of A, with K rounded up to a multiple of the instruction's k."""
        return max(1, -(-self.depth // rule.k)) * rule.scales

    def check_scales(self, rule: Rule, role: str, shape: Shape) -> None:
        """Raise InvalidOperand if scale factors have the wrong shape or batch axes."""
        needed, allowed = -(-self.depth // (rule.k // rule.scales)), self.scale_count(rule)
        along, expected = (-1, (self.rows, needed)) if role == "scale_a" else (-2, (needed, self.columns))
        across = -3 - along
        if shape[across] != expected[across] or not needed <= shape[along] <= allowed:
            raise InvalidOperand(f"{role}: expected shape {expected}, got {shape}")
        if not self._serves(shape):
            raise InvalidOperand(f"{role}: batch axes {shape[:-2]} do not broadcast to {self.batch}")

    def padded_scales(self, codes: NDArray[Any], rule: Rule, operand: Scale) -> NDArray[Any]:
        """Return scale codes for every instruction along k, with a scale of 1 for blocks of padding."""
        self.check_scales(rule, operand.role, codes.shape)
        along = -1 if operand.role == "scale_a" else -2
        padding = [(0, 0)] * codes.ndim
        padding[along] = (0, self.scale_count(rule) - codes.shape[along])
        return self.flat(np.pad(codes, padding, constant_values=operand.format.encode(1.0)))

    def flat(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return an operand with its batch axes merged into one."""
        if codes.shape[:-2] != self.batch:  # broadcast only if needed, because kernels copy such arrays
            codes = np.broadcast_to(codes, (*self.batch, *codes.shape[-2:]))
        return codes.reshape(math.prod(self.batch), *codes.shape[-2:])

    def _serves(self, shape: Shape) -> bool:
        """Return True if the batch axes of an operand broadcast to those of D."""
        axes = shape[:-2]
        return len(axes) <= len(self.batch) and all(
            size in (1, other) for size, other in zip(axes[::-1], self.batch[::-1], strict=False)
        )


def _text(shape: Shape) -> str:
    return " x ".join(map(str, shape))


@dataclass(frozen=True)
class PreparedGemm:
    """A gemm that is ready to run: the instruction, the codes of A and B, and the extents of D."""

    resolved: ResolvedInstruction
    operands: Multiplicands
    extents: ProductShape

    @property
    def rule(self) -> Rule:
        """The arithmetic of the instruction."""
        return self.resolved.rule

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of D with all its batch axes; the operands' batch axes are merged into one."""
        return self.extents.shape

    def finished(self, c: NDArray[Any] | None, order: Order, epilogue: Epilogue) -> Codes:
        """Return the codes after an epilogue, computed on the host; raise an error if it is not applicable."""
        if self.rule.d != "f32":
            raise InvalidOperand(f"{self.resolved.name}: an epilogue needs sums in f32, but D is {self.rule.d}")
        if order.in_place and epilogue.alpha != 1:
            raise InvalidOperand(
                f"order: parts added in place were measured with alpha 1 only, got alpha {epilogue.alpha}"
            )
        bias = None if epilogue.bias is None else float32_of(epilogue.bias, "bias")
        if bias is not None:
            self.extents.check_bias(len(bias))
        start, sums = None, self.operands.sums
        if order.in_place:  # beta * C + bias is added to the first part
            scaled = None
            if c is not None and epilogue.beta != 0:
                scaled = finish(replace(epilogue, bias=None), np.zeros_like(c), c)
            first = scaled if bias is None else bias if scaled is None else scaled + bias
            if first is not None:
                shape = (math.prod(self.extents.batch), *self.shape[-2:])
                codes = sums.write(np.ascontiguousarray(np.broadcast_to(first, shape)))
                start = np.asarray(codes, like=self.operands.a)
            c, epilogue = None, replace(epilogue, bias=None)
        codes = self.operands.multiply(start, order)
        finished = finish(epilogue, sums.read(codes if isinstance(codes, np.ndarray) else codes.get()), c)
        return convert("f32", sums.write(finished), epilogue.result)


def read_gemm(
    A: MatrixLike,
    B: MatrixLike,
    *,
    instruction: str | HasForm,
    arch: str = "sm_90",
    raw: bool = False,
    rounding: Rounding = None,
) -> PreparedGemm:
    """Prepare a gemm from arrays, for a search for its order or a trace of one output."""
    resolved = resolve_chain(instruction, arch)
    a, b, _ = read_matrices(A, B)
    return prepare_gemm(resolved, a, b, raw=raw, rounding=rounding)


def prepare_gemm(
    resolved: ResolvedInstruction,
    a: Matrix,
    b: Matrix,
    *,
    raw: bool = False,
    rounding: Rounding = None,
    backend: str | Machine = "cpu",
) -> PreparedGemm:
    """Convert A and B to codes; raise an error if the extents or scale factors do not match."""
    rule, operands = resolved.rule, resolved.operands
    extents = ProductShape.of(a.shape, b.shape)
    for role, matrix in (("scale_a", a), ("scale_b", b)):
        if (matrix.scales is not None) != bool(rule.scales):
            raise InvalidOperand(
                f"{resolved.name} {'takes no' if matrix.scales else 'needs'} {role}: pass "
                f"{'the matrix without scales' if matrix.scales else 'Scaled(matrix, scales)'}"
            )
    codes_a = extents.flat(a.codes(operands.a.format, raw=raw, rounding=rounding))
    codes_b = extents.flat(b.codes(operands.b.format, raw=raw, rounding=rounding))
    scale_a, scale_b = [
        extents.padded_scales(matrix.scales.codes(operand.format, raw=raw, rounding=rounding), rule, operand)
        for matrix, operand in ((a, operands.scale_a), (b, operands.scale_b))
        if matrix.scales is not None
    ] or (None, None)
    machine = machine_of(backend, resolved, work=math.prod(extents.shape) * extents.depth, on_gpu=a.kind.on_gpu)
    return PreparedGemm(
        resolved, Multiplicands(rule, codes_a, codes_b, operands.a.pattern, scale_a, scale_b, machine), extents
    )
