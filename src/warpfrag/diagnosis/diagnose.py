"""Which mistake gives this wrong result.

Two questions. Given the inputs of a product and the D that came out, or given one operand's registers and the matrix
they should hold: what went wrong? Every mistake of `mistakes` is made, and those that give exactly what was observed
are named, the likeliest first. Where none does, two at a time are tried.

    >>> import numpy as np, warpfrag as wf
    >>> mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    >>> A, B = np.arange(256.0).reshape(16, 16) % 31, np.arange(128.0).reshape(16, 8) % 29
    >>> for finding in diagnose(mma, mma(A.T, B), A, B):
    ...     print(finding)
    a: read with row-major and column-major order swapped

In the order in which a question is answered:

    inputs        the caller's arguments, as registers and codes
    search        the search in a product: which mistakes are worth a closer look
    variants      what the hardware reads if mistakes are made with one side of a product
    outcome       what a product gives if mistakes are made: the judge
    near_misses   a constant more than expected, right up to rounding
    agreement     what is right, and what the wrong elements equal
    whole_tiles   the results of a kernel: tiles, and a loop over k
    of_operand    the same question of one operand, where nothing is computed
    findings      the answer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.diagnosis.agreement import Agreement
from warpfrag.diagnosis.arithmetic_mistakes import negated_words
from warpfrag.diagnosis.descriptor_mistakes import negated_memory
from warpfrag.diagnosis.diagnosis_inputs import (
    check_alone,
    check_kernel,
    check_warpgroup,
    left_words,
    metadata_words,
    observed_codes,
    scale_words,
    tile_bytes,
)
from warpfrag.diagnosis.explanations import Diagnosis, Finding
from warpfrag.diagnosis.mistake_search import Search
from warpfrag.diagnosis.operand_diagnosis import of_operand
from warpfrag.diagnosis.outcome import SuspectProduct
from warpfrag.diagnosis.whole_tiles import KernelSearch, read_tile
from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import Immediates
from warpfrag.isa.legality import arithmetic_arch, check_immediates, form_of
from warpfrag.tensorcore.execute_wgmma import NEITHER
from warpfrag.tensorcore.instruction_types import instruction_of
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.shared_operand import Shared

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.diagnosis.outcome import Words
    from warpfrag.formats.number_formats import Rounding
    from warpfrag.isa.qualifiers import HasForm
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand

__all__ = ["Agreement", "Diagnosis", "Finding", "diagnose"]


def diagnose(
    instruction: str | HasForm | OperandBase,
    observed: ArrayLike,
    A: ArrayLike | Shared,
    B: ArrayLike | Shared | None = None,
    C: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int = 0,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = (0, 0),
    thread_id: tuple[int, int] = (0, 0),
    arch: str = "sm_90",
    rounding: Rounding = None,
    negate: tuple[bool, bool] = NEITHER,
    scale_d: bool = True,
    tile: tuple[int, ...] | None = None,
) -> Diagnosis:
    """The mistakes that explain an observed D exactly, the likeliest first: none if it is correct or nothing fits.

    `observed` is D's registers, uint32[..., 32, words], or D as a matrix; A, B and C are the matrices that should have
    gone in. Leading axes are products that one mistake must explain. A sparse instruction takes the full, pruned A, a
    block-scaled one its scale factors. What lanes hold that the instruction does not read is taken to be zero, unless
    the words themselves are given: `metadata`, `scale_a` and `scale_b` may be uint32[..., 32].

    Of wgmma, registers are uint32[..., 4, 32, words], and A or B may be a `Shared`: a tile in shared memory with the
    descriptor that should have read it, as `wgmma.b.store(B, descriptor)` gives, or the whole memory of the kernel. A
    matrix A stands for registers, a matrix B for a tile without gaps. What a wrong descriptor reads beyond the memory
    is taken to be zero; where that explains nothing, the lines of D that come from within decide. `negate` and
    `scale_d` are those of `execute`. A sparse A in shared memory is as it is stored, and comes with its `metadata`.

    `diagnose(mma.a, words, A)` asks about one operand: its registers, and the matrix that they should hold.

    With `tile`, D is what a kernel left, of any extents: `tile` is the rows and columns of D that a block of threads
    computes, and, if it is given, how much of k it takes at once. D may be rounded to f16 or bf16. Mistakes are then
    made in every fragment, with indices into whole matrices, in the loop over k and with accumulators.
    """
    choice = Immediates(selector, byte_id, thread_id)
    if isinstance(instruction, OperandBase):
        check_alone(instruction, A, (B, C, metadata, scale_a, scale_b, tile))
        return of_operand(instruction, observed, A, choice, rounding)  # type: ignore[arg-type] # one of the three
    form = form_of(instruction)
    wanted = arithmetic_arch(form, arch)
    product = instruction_of(form, wanted if form.is_wmma else "")
    if B is None:
        msg = f"{product.name}: expected the inputs A and B; to ask about A alone, pass the operand, such as mma.a"
        raise InvalidOperand(msg)
    if tile is not None:
        check_kernel(product, A, B, (metadata, scale_a, scale_b))
        matrices = (A, B, C)
        search = KernelSearch(product, wanted, read_tile(tile, product), matrices, observed, rounding)  # type: ignore[arg-type] # no Shared
        return search.diagnosis()
    check_immediates(form, choice, product.operands.selected_layouts)
    check_warpgroup(product, A, B, negate, scale_d=scale_d)
    tiles: dict[str, Shared] = {}
    words: dict[str, Words] = {}
    if product.b.storage == "shared":
        tiles["b"] = B if isinstance(B, Shared) else product.b.store(B, rounding=rounding)
    else:
        words["b"] = product.b.pack(B, rounding=rounding)  # type: ignore[arg-type] # no Shared
    if isinstance(A, Shared):
        tiles["a"] = A
        words |= metadata_words(product, metadata)
    else:
        words |= left_words(product, A, metadata, choice, rounding)
    zero = np.zeros((*product.c.threads, product.c.words), np.uint32)
    words["c"] = zero if C is None else product.c.pack(C, rounding=rounding)
    for role, scales in (("scale_a", scale_a), ("scale_b", scale_b)):
        words |= scale_words(product, role, scales, choice, rounding)
    words |= _in_memory(product, tiles)
    for operand, is_negated in zip((product.a, product.b), negate, strict=True):
        if is_negated:
            words[operand.role] = _negated(operand, words, tiles)
    case = SuspectProduct(product, wanted, choice, tiles, scale_d)
    return Search(case, words, observed_codes(product.d, observed)).diagnosis()


def _in_memory(product: Instruction, tiles: dict[str, Shared]) -> dict[str, Words]:
    """The bytes of the operands that lie in shared memory."""
    return {
        operand.role: tile_bytes(operand, tiles[operand.role])
        for operand in (product.a, product.b)
        if operand.role in tiles
    }


def _negated(operand: Operand, words: dict[str, Words], tiles: dict[str, Shared]) -> Words:
    """What an operand holds if its sign is changed."""
    role = operand.role
    return negated_memory(operand, tiles[role]) if role in tiles else negated_words(words[role], operand=operand)
