"""The epilogues of cuBLAS kernels on an H200: alpha, beta, a bias and an activation, as each family rounds them.

The rules were found from the results of calls that PyTorch made (tools/torch_gemms.py):

    nvjet, beta 1       if C is D, and there is no bias or activation: alpha * sum is rounded to the type of D and
                        added to C in memory, which rounds again
    split-K             splitKreduce_kernel: alpha * sum is rounded, then fma(beta, C, alpha * sum)
    others              fma(alpha, sum, beta * C)
    nvjet, GELU         h + h * tanh(x * (0.7978846 + 0.035677426 x * x)), h = x / 2, with tanh.approx.f32 and FMAs
    others, GELU        h * (1 + tanh(0.7978846 x * (1 + 0.044715 x * x))), in a kernel of its own or after split-K
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.epilogue import Epilogue, Floats, check_factor, convert, fma, tanh
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS

ROOT, CUBE, HALF, ONE = (np.float32(each) for each in (np.sqrt(2 / np.pi), 0.044715, 0.5, 1))
ACTIVATIONS = ("", "relu", "gelu")
NVJET_CUBE = np.float32(0.035677426)  # slightly more than ROOT * CUBE, which is 0.035677407


@dataclass(frozen=True)
class LibraryEpilogue:
    """activation(alpha * (A B) + beta * C + bias), rounded like the kernel that cuBLAS chooses.

    C is the first argument of `torch.addmm`. `scales` are those of A and B in `torch._scaled_mm`, each a number or a
    tensor with one element. `activation` is "relu" or "gelu", fused into the kernel as in `torch._addmm_activation`:
    gelu is the tanh form. (In eager mode, nn.GELU is a separate kernel: it computes the erf form by default, from the
    rounded D.)
    """

    alpha: float = 1.0
    beta: float = 1.0
    C: ArrayLike | None = None
    activation: str = ""
    scales: tuple[float, float] = (1.0, 1.0)
    bias: ArrayLike | None = None

    def __post_init__(self) -> None:
        """Raise InvalidOperand for factors that are not numbers, a beta without C, or an unknown activation."""
        own = Epilogue(self.alpha, self.beta, self.bias)
        if self.C is None and own.beta not in {0, 1}:
            raise InvalidOperand(f"beta: expected 0 or 1 without C, got {self.beta}; pass C too")
        if not isinstance(self.scales, tuple | list) or len(self.scales) != 2:
            raise InvalidOperand(f"scales: expected two numbers, those of A and B; got {quote(self.scales)}")
        label = "scales (one for A and one for B; row-wise scaling is not modelled)"
        scales = tuple(check_factor(label, scale) for scale in self.scales)
        given = "" if self.activation is None else self.activation
        activation = given.lower() if isinstance(given, str) else None
        if activation not in ACTIVATIONS:
            raise InvalidOperand(f"activation: expected relu, gelu or an empty string; got {quote(self.activation)}")
        normalized = {"alpha": own.alpha, "beta": own.beta, "scales": scales, "activation": activation}
        for name, value in normalized.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class KernelEpilogue(Epilogue):
    """The epilogue of one kernel: the call's epilogue, D's type, and the properties that affect the rounding."""

    has_c: bool = False
    activation: str = ""
    kernel: str = ""
    is_split: bool = False
    in_place: bool = True
    """True if C and D are the same memory, as PyTorch arranges it."""

    @property
    def uncertain(self) -> list[str]:
        """The features of this kernel that were not compared with an H200, so a GPU's bits may differ."""
        is_measured = self.kernel.startswith(("nvjet", "cutlass"))
        names = ["alpha and beta were"] * (not is_measured and (self.alpha != 1 or self.has_c))
        if self.in_place and self.beta == 1 and self.has_c and self.bias is not None and not self.activation:
            names.append("a bias with a C that is D was")
        if self.activation and not is_measured and self.kernel != "xmma_sm90":
            names.append(f"the {self.activation} epilogue was")
        return [f"{name} not measured with {self.kernel or 'float32'} kernels" for name in names]

    def _combine(self, sums: Floats, c: Floats | None) -> Floats:
        """Return alpha * sums + beta * C, rounded as in the kernel."""
        if c is None or self.beta == 0 or not (self.is_split or self.is_rounded_twice):
            return super()._combine(sums, c)
        if self.is_split:
            return fma(np.float32(self.beta), c, np.float32(self.alpha) * sums)
        codes = convert("f32", super()._combine(sums, None).view(np.uint32), self.result)
        return codes.view(natural_dtype(FORMATS[self.result])).astype(np.float32) + c

    @property
    def is_rounded_twice(self) -> bool:
        """True if the kernel rounds alpha * sums to the type of D before adding C."""
        is_plain = self.in_place and self.bias is None and not self.activation
        return is_plain and self.beta == 1 and self.kernel.startswith("nvjet") and self.result != "f32"

    @exact_floats
    def _finish(self, sums: Floats, c: Floats | None) -> Floats:
        """Apply the epilogue to the sums, in float32."""
        return self._activate(super()._finish(sums, c))

    def _activate(self, values: Floats) -> Floats:
        """Apply the activation function."""
        if self.activation == "relu":
            return np.where(values > 0, values, np.float32(0))
        return gelu(values, self.kernel, is_split=self.is_split) if self.activation else values


def gelu(x: Floats, kernel: str = "", *, is_split: bool = False) -> Floats:
    """Return the tanh form of GELU in float32, computed as in the kernel."""
    half = HALF * x
    if kernel.startswith("nvjet") and not is_split:
        return fma(half, tanh(x * fma(NVJET_CUBE * x, x, np.full_like(x, ROOT))), half)
    return half * (ONE + tanh(ROOT * x * fma(CUBE * x, x, np.ones_like(x))))
