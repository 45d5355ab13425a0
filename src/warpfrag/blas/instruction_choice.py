"""Choose the instruction for a gemm from the dtypes of its operands."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.cublas.predict_order import library_instruction
from warpfrag.errors import IllegalInstruction, InvalidOperand, NotModelled
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.legality import form_of
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.targets import architectures, gpu_names, read_target
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch, plan
from warpfrag.tensorcore.registry import find

ACCUMULATORS = {"f16": "f32", "bf16": "f32", "tf32": "f32", "e4m3": "f32", "e5m2": "f32", "f64": "f64"}
ACCUMULATORS |= {"s8": "s32", "u8": "s32"}
"""The format in which libraries accumulate, by operand format."""
NAMES = {natural_dtype(FORMATS[name]): name for name in ACCUMULATORS}
TF32_IGNORED = 0x1FFF  # the low bits of a float32, which tf32 drops


class ChosenGemm(np.ndarray[Any, Any]):
    """The D of a gemm without a named instruction: an array whose `instruction` is the chosen name."""

    instruction: str = ""

    def __array_finalize__(self, source: object) -> None:
        """Keep the instruction in views and in the results of operations."""
        self.instruction = getattr(source, "instruction", "")


def choose_instruction(a: np.dtype[Any], b: np.dtype[Any], arch: str) -> str:
    """Return the instruction that libraries use for these dtypes, or else the mma with the largest k.

    >>> choose_instruction(np.dtype(np.float16), np.dtype(np.float16), "A100")
    'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'
    """
    check_dtypes(a, b)
    read_target(arch, "gemm")
    chosen = _chosen(NAMES[a], NAMES[b], arch)
    if not chosen:
        able = gpu_names(chosen_forms(a, b), well_known=True)
        hint = f"pass arch, one of {able}, or convert them" if able else "convert one of them"
        modelled = "modelled " * bool(find(op="mma", a=NAMES[a], b=NAMES[b], arch=arch))
        raise InvalidOperand(f"A is {a} and B is {b}: {arch} has no {modelled}mma for them; {hint}")
    return chosen


def check_dtypes(a: np.dtype[Any], b: np.dtype[Any]) -> None:
    """Raise InvalidOperand for a dtype for which no instruction can be chosen."""
    for role, dtype in (("A", a), ("B", b)):
        if dtype not in NAMES:
            known = ", ".join(map(str, NAMES))
            codes = ", or name the type of codes (--codes bf16)" if dtype.kind == "u" else ""
            raise InvalidOperand(f"{role}: expected {known}, got {dtype}; for other types, name an instruction{codes}")


def chosen_forms(a: np.dtype[Any], b: np.dtype[Any]) -> dict[str, Form]:
    """Return the chosen instruction's form on every architecture that has one."""
    check_dtypes(a, b)
    chosen = {arch: _chosen(NAMES[a], NAMES[b], arch) for arch in architectures()}
    return {arch: form_of(name) for arch, name in chosen.items() if name}


def truncation_note(a: NDArray[Any], b: NDArray[Any], instruction: str, rounding: object) -> str:
    """Return a note if tf32 truncates bits of float32 operands, or "" if no bits are lost or `rounding` is given."""
    if ".tf32." not in instruction or rounding is not None:
        return ""
    if not any((np.ascontiguousarray(array, np.float32).view(np.uint32) & TF32_IGNORED).any() for array in (a, b)):
        return ""
    return 'float32 is truncated to tf32, as a tensor core reads it; rounding="rne" rounds it first, as cuBLAS does'


@cache
def _chosen(a: str, b: str, arch: str) -> str:
    try:
        if a == b:
            return library_instruction(a, arch)
    except (NotModelled, KeyError):  # no library was measured for this architecture or type
        pass
    fitting = []
    for instruction in find(op="mma", a=a, b=b, c=ACCUMULATORS[a], d=ACCUMULATORS[a], arch=arch, sparse=False):
        form = instruction.form
        if form.layouts == ("row", "col") and not (form.satfinite or form.kind or form.rounding):
            try:
                plan(form, arithmetic_arch(form, arch))
            except (NotModelled, IllegalInstruction):
                continue
            fitting.append(instruction)
    best = max(fitting, key=lambda instruction: (instruction.shape.k, instruction.shape.m), default=None)
    return best.name if best else ""
