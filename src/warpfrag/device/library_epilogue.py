"""The epilogues of cuBLAS kernels on an H200: alpha, beta, a bias and an activation, as each family rounds them.

The rules were found from the results of calls that PyTorch made (tools/torch_gemms.py):

    nvjet, beta 1       alpha * sum is rounded to the type of D and added to C in memory, which rounds again
    split-K             splitKreduce_kernel: alpha * sum is rounded, then fma(beta, C, alpha * sum)
    others              fma(alpha, sum, beta * C)
    nvjet, GELU         h + h * tanh(x * (0.7978846 + 0.035677426 x * x)), h = x / 2, with tanh.approx.f32 and FMAs
    others, GELU        h * (1 + tanh(0.7978846 x * (1 + 0.044715 x * x))), in a kernel of its own or after split-K
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.epilogue import convert, fma
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import CANONICAL_NANS
from warpfrag.machine.semantics import special_functions

Floats = NDArray[np.float32]
ROOT, CUBE, HALF, ONE = (np.float32(each) for each in (np.sqrt(2 / np.pi), 0.044715, 0.5, 1))
NVJET_CUBE = np.float32(0.035677426)  # a little more than ROOT * CUBE, which is 0.035677407


@dataclass(frozen=True)
class LibraryEpilogue:
    """alpha * sum + beta * C + bias, then the activation (relu, gelu or none), rounded to `result`."""

    alpha: float
    beta: float
    bias: NDArray[Any] | None
    activation: str
    result: str

    @exact_floats
    def apply(self, sums: Floats, c: NDArray[Any] | None, kernel: str, *, is_split: bool) -> NDArray[Any]:
        """Return the codes of D for float32 sums of a kernel."""
        alpha, beta = np.float32(self.alpha), np.float32(self.beta)
        is_nvjet = kernel.startswith("nvjet") and not is_split
        with np.errstate(all="ignore"):
            if c is None:
                values = sums if alpha == 1 else alpha * sums
            elif beta == 1 and is_nvjet and self.result != "f32":
                narrow = self.rounded(sums if alpha == 1 else alpha * sums).view(c.dtype)
                values = narrow.astype(np.float32) + c.astype(np.float32)
            elif is_split:
                values = fma(beta, c.astype(np.float32), alpha * sums)
            else:
                values = fma(alpha, sums, beta * c.astype(np.float32))
            if self.bias is not None:
                values = values + self.bias.astype(np.float32)
            if self.activation == "relu":
                values = np.where(values > 0, values, np.float32(0))
            elif self.activation == "gelu":
                values = gelu(values, is_nvjet=is_nvjet)
            return self.rounded(values)

    def rounded(self, values: Floats) -> NDArray[Any]:
        """Return the codes of float32 numbers after rounding to the result's type, with a single NaN code."""
        codes = np.where(np.isnan(values), np.uint32(CANONICAL_NANS["f32"]), values.view(np.uint32))
        return convert("f32", codes, self.result)


def gelu(x: Floats, *, is_nvjet: bool = False) -> Floats:
    """Return the tanh form of GELU in float32."""
    half = HALF * x
    if is_nvjet:
        return fma(half, tanh(x * fma(NVJET_CUBE * x, x, np.full_like(x, ROOT))), half)
    return half * (ONE + tanh(ROOT * x * fma(CUBE * x, x, np.ones_like(x))))


def tanh(x: Floats) -> Floats:
    """Return tanh.approx.f32."""
    return special_functions.tanh(x.view(np.uint32)).astype(np.uint32).view(np.float32)
