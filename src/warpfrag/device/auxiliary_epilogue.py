"""The cublasLt epilogues with an auxiliary buffer or a gradient, as an H200 computes them.

The rules were derived from results and probes on an H200 (tools/lt_epilogues). x is alpha * (A B) + beta * C + bias:

    RELU_AUX, GELU_AUX    the buffer receives one bit per element (x >= 0), or x rounded to the type of D
    DRELU, DGELU          D is x if the bit is 1 and otherwise 0, or x * gelu'(buffer). Without split-K, a second kernel
                          reads x from D, where it was rounded
    ..._BGRAD             the bias gradient: the sums of D's rows, before D is rounded. A block covers 8 rows with 32
                          lanes. The elements of a row are distributed cyclically over the lanes of its blocks. Each
                          lane adds its elements; then the lanes of a block are added one by one, and then the blocks.
                          In a grid of up to about 1,000 blocks, each lane has one element (`row_blocks`)
    BGRADA, BGRADB        the sums of A or B along k. The elements are distributed cyclically over 16, 64 or 128 lanes.
                          The second half of the lanes is then added to the first half, until one lane is left
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.cublas.library_epilogue import CUBE, HALF, ROOT, KernelEpilogue, gelu
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.epilogue import Floats, convert, fma, tanh
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import CANONICAL_NANS, FORMATS

SLOPE = np.float32(0.1070322243)  # equals 3 * ROOT * CUBE
ROWS, LANES = 8, 32
"""The number of rows and of lanes in a block that sums the rows of D."""
WAVES = 481, 512
"""Two candidates for the number of blocks by which `row_blocks` divides; every measured grid agrees with both."""
MASK_BITS, AUX_ELEMENTS = 128, 8
"""The leading dimension of an auxiliary buffer is a multiple of the first if it has bits, of the second if numbers."""
FEW_STEPS, MANY_STEPS, FEW_ROWS, MANY_ROWS = (160, 192), (2560, 3072), 1024, 4096
"""The measured k and row counts between which the number of lanes that add along k changes."""


@dataclass(frozen=True)
class AuxiliaryEpilogue(KernelEpilogue):
    """An epilogue that reads or writes an auxiliary buffer, and writes a bias gradient."""

    gradient: str = ""
    """The name of the activation whose gradient multiplies x, or ""."""
    aux: Any = None
    """The auxiliary buffer, with a row of packed bits or of numbers for each column of D."""
    bias_gradient: NDArray[Any] | None = None
    is_fused: bool = False
    """True if the kernel that computes x also applies the gradient."""

    def _activate(self, values: Floats) -> Floats:
        """Apply the activation or the gradient to x."""
        if self.gradient:
            return self._apply_gradient(
                values if self.is_split or self.is_fused else rounded(values, self.result).astype(np.float32)
            )
        flat = values.reshape(-1, values.shape[-1])
        if self.activation == "relu":
            self.aux[...] = np.packbits(flat >= 0, axis=1, bitorder="little")
            return super()._activate(values)
        self.aux[...] = rounded(flat, self.result)
        return gelu(values, "" if self.result == "f32" else self.kernel, is_split=self.is_split)

    def _apply_gradient(self, values: Floats) -> Floats:
        if self.gradient == "relu":
            mask = np.unpackbits(self.aux, axis=1, count=values.shape[-1], bitorder="little")
            found = np.where(mask.reshape(values.shape) == 1, values, np.float32(0))
        else:
            found = values * gelu_gradient(self.aux.astype(np.float32)).reshape(values.shape)
        if self.bias_gradient is not None:
            columns = found.reshape(-1, values.shape[-1])
            sums = row_sums(columns, row_blocks(columns.shape[1], len(columns)))
            self.bias_gradient[...] = rounded(sums, self.result)
        return found


@exact_floats
def gelu_gradient(x: Floats) -> Floats:
    """Return the derivative of GELU's tanh form in float32."""
    ones = np.ones_like(x)
    with np.errstate(all="ignore"):
        curve = tanh(ROOT * x * fma(CUBE * x, x, ones))
        slope = fma(-curve, curve, ones) * fma(SLOPE * x, x, np.full_like(x, ROOT))
        return fma(HALF, x * slope, HALF * (ones + curve))


def row_blocks(m: int, n: int, wave: int = WAVES[-1]) -> int:
    """Return the number of blocks that compute the sum of a row of D."""
    needed = -(-n // LANES)
    return -(-needed // max(1, -(-m // ROWS) * needed // wave))


def depth_lanes(k: int, rows: int) -> int | None:
    """Return the number of lanes that sum A or B along k, or None if the number was not measured for this shape."""
    if k <= FEW_STEPS[0]:
        return 16
    if k >= MANY_STEPS[1]:
        return 128
    if k > MANY_STEPS[0] or (rows < MANY_ROWS and (k < FEW_STEPS[1] or rows > FEW_ROWS)):
        return None
    return 16 if rows >= MANY_ROWS else 64


@exact_floats
def row_sums(columns: Floats, blocks: int) -> Floats:
    """Return the sum of the columns of D, added in the order of cublasLt's epilogue kernels."""
    turns = _in_turns(columns, blocks * LANES)
    lanes = _add(turns).reshape(blocks, LANES, columns.shape[1])
    return _add(_add(lanes.swapaxes(0, 1)))


@exact_floats
def depth_sums(steps: Floats, lanes: int) -> Floats:
    """Return the sums of A or B along k, the first axis, added in the order of BGRADA and BGRADB."""
    sums = _add(_in_turns(steps, lanes))
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    total: Floats = sums[0]
    return total


def _in_turns(rows: Floats, lanes: int) -> Floats:
    """Return the rows as [turn, lane, element], padded with zeros."""
    padded = np.pad(rows, ((0, -len(rows) % lanes), (0, 0)))
    return padded.reshape(-1, lanes, rows.shape[1])


def _add(parts: Floats) -> Floats:
    with np.errstate(all="ignore"):
        total: Floats = parts[0]
        for part in parts[1:]:
            total = total + part
    return total


def rounded(values: Floats, result: str) -> NDArray[Any]:
    """Return float32 numbers rounded to the result's type, with a single NaN code."""
    codes = np.where(np.isnan(values), np.uint32(CANONICAL_NANS["f32"]), values.view(np.uint32))
    return convert("f32", codes, result).view(natural_dtype(FORMATS[result]))
