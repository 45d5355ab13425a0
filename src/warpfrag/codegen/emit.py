"""From layout to code: what an instruction needs around it, written in CUDA C++ or PTX.

In CUDA C++ every instruction gets its inline-PTX wrapper; a product also gets functions that move each operand between
memory and registers, by ldmatrix and stmatrix too where the layout allows it. That is a header, for any number of
files. With kernels it is a file to compile: a kernel that multiplies one tile, and a raw one, registers in and
registers out. A PTX module always has the kernels. Index expressions come from the layout. wgmma also gets what fills
shared memory, and the descriptors that read it.

    >>> from warpfrag.codegen.emit import emit
    >>> text = emit("mma.m16n8k16.f32.f16.f16.f32")
    >>> [line.strip() for line in text.splitlines() if line.strip().startswith("const int row = ")][0]
    'const int row = (i >> 1) * 8 + (lane >> 2);'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.codegen.languages import LANGUAGES, check_language
from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.targets import read_target
from warpfrag.plans.access_plan import AccessPlan
from warpfrag.plans.relayout import Relayout
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LANGUAGES", "emit"]


def emit(
    instructions: str | Instruction | Iterable[str | Instruction] | Relayout | AccessPlan,
    *,
    lang: str = "cuda",
    target: str | None = None,
    kernels: bool = False,
    name: str = "",
) -> str:
    """Return a CUDA C++ header, with `kernels` a file that compiles alone, or a PTX module, for some instructions.

    Without a target it compiles for every GPU that has the instructions (PTX: for the oldest such target). With one,
    it also uses what that target adds, such as stmatrix from sm_90 on. A relayout or access plan becomes one function,
    called `name`.
    """
    language = check_language(lang)
    if isinstance(instructions, Relayout | AccessPlan):
        from warpfrag.codegen.plan_code import emit_plan

        return emit_plan(instructions, language, name)
    if not isinstance(kernels, bool):
        msg = f"kernels is True or False, got {quote(kernels)}"
        raise InvalidOperand(msg)
    if target is not None:
        target = read_target(target, "emit").name
    selected = _instructions(instructions, target)
    if any(map(_is_tensor, selected)):
        return _tensor_code(selected, language, target, kernels=kernels)
    if language == "cuda":
        from warpfrag.codegen import cuda_wrappers as cuda

        return cuda.source_file(selected, target) if kernels else cuda.header(selected, target)
    from warpfrag.codegen import ptx_wrappers as ptx

    return ptx.module(selected, target)


def _is_tensor(instruction: Instruction) -> bool:
    """Whether an instruction is one of tensor memory."""
    return instruction.op.startswith("tcgen05.")


def _tensor_code(selected: list[Instruction], language: str, target: str | None, *, kernels: bool) -> str:
    """The code of products of tcgen05, which stand in a file of their own."""
    from warpfrag.codegen import emit_tcgen05 as tcgen05

    others = [instruction for instruction in selected if not _is_tensor(instruction)]
    if others:
        msg = f"emit tcgen05 in a file of its own: {others[0]} is no instruction of tensor memory"
        raise InvalidOperand(msg)
    if language == "ptx":
        return tcgen05.module(selected, target)
    return tcgen05.source_file(selected) if kernels else tcgen05.header(selected)


def _instructions(
    instructions: str | Instruction | Iterable[str | Instruction], target: str | None
) -> list[Instruction]:
    """Every instruction once, in the order in which they come."""
    try:
        several = [instructions] if isinstance(instructions, str | Instruction) else list(instructions)
    except TypeError:  # what cannot be gone through
        msg = f"expected an instruction, its name, or several of them, got {quote(instructions)}"
        raise InvalidOperand(msg) from None
    # by name: the wmma of two architectures is one text, because wmma loads and stores its fragments itself
    by_name = {item.name: item for item in (get(instruction, target) for instruction in several)}
    if not by_name:
        msg = "expected at least one instruction to emit, got none"
        raise InvalidOperand(msg)
    return list(by_name.values())
