"""Execute any instruction, by its name or object, on registers or memory.

The instruction is resolved here, once; `execute_wgmma` and `matrix_moves` receive the resolved instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from warpfrag.errors import IllegalInstruction, InvalidOperand, quote
from warpfrag.formats.arrays import Words
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, SIDES, Immediates
from warpfrag.isa.instruction_names import LONGEST
from warpfrag.isa.legality import form_of
from warpfrag.isa.qualifiers import Form, HasForm
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.smem.descriptor import Descriptor
from warpfrag.tensorcore import execute_wgmma, matrix_moves
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.matmul import multiply
from warpfrag.tensorcore.resolved_instruction import WORD, ResolvedInstruction, batch_of, resolve_form
from warpfrag.tensorcore.shared_operand import Location, Shared
from warpfrag.tensorcore.thread_split import check_threads

MAX_NAMES = 1024


def execute(
    instruction: str | HasForm,
    a: Location,
    b: Location | None = None,
    c: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    scales: tuple[ArrayLike, ArrayLike] | None = None,
    immediates: Immediates = DEFAULT_IMMEDIATES,
    shared: ArrayLike | None = None,
    arch: str = "sm_90",
    threads: int | None = None,
) -> Words:
    """Return D's registers, uint32[..., 32, words] or [..., 4, 32, words], bit for bit as `arch` computes them.

    `a`, `b` and `c` are registers of these shapes; leading axes are a batch and broadcast, and c=None is zero. A sparse
    instruction needs `metadata`, with one word per lane: uint32[..., 32]. A block-scaled one needs `scales`, a pair of
    such arrays for A and B. `immediates` gives the sparsity selector, the ids of scale factors, and the modifiers of
    wgmma. wgmma takes B, and optionally A, as a `Shared` tile, or as a descriptor that addresses the bytes of `shared`.
    `threads` limits the number of CPU threads.

    ldmatrix takes the lanes' addresses, int[..., 32], and `shared`; stmatrix also takes the registers as `b`, and
    returns the memory, uint8[bytes]; movmatrix takes registers. wmma.load and wmma.store are rejected, because the ISA
    does not define their layouts: `wf.wmma` runs them. Raises IllegalInstruction if `arch` cannot run the instruction,
    and NotModelled if its result on `arch` is unknown.
    """
    form = _form_of(instruction)
    if isinstance(form, TensorForm):
        reason = "it works on tensor memory: call the instruction's method, get(name).execute(tensor_memory, ...)"
        raise IllegalInstruction(form.name, reason)
    if form.op in matrix_moves.OPS:
        unused: dict[str, object] = {"c": c, "metadata": metadata, "scales": scales}
        if immediates != DEFAULT_IMMEDIATES:
            unused["immediates"] = immediates
        return matrix_moves.execute(form, a, b, shared, unused)
    resolved = resolve_form(form, arch)
    if threads is not None:
        check_threads(threads)
    if form.operation.scope == "warpgroup":
        if scales is not None:
            raise InvalidOperand(f"{resolved.name} takes no scales, got {quote(scales)}")
        return execute_wgmma.multiply(resolved, a, b, c, metadata, immediates, shared, threads)
    if shared is not None:
        raise InvalidOperand(f"{resolved.name} takes no shared memory: its operands are registers")
    return _multiply(resolved, a, b, c, metadata, scales, immediates, threads)


def _form_of(instruction: str | HasForm) -> Form:
    """Return the form of an instruction or name; names are cached, but pasted source code is not."""
    if isinstance(instruction, str) and len(instruction) <= LONGEST:
        return _form_named(instruction)
    return form_of(instruction)


_form_named = lru_cache(MAX_NAMES)(form_of)


def execute_registers(
    instruction: str | HasForm, words: Mapping[str, Words], immediates: Immediates | None = None, *, arch: str
) -> Words:
    """Execute an instruction on registers that are given by role."""
    return execute(
        instruction,
        words["a"],
        words["b"],
        words.get("c"),
        metadata=words.get("metadata"),
        scales=(words["scale_a"], words["scale_b"]) if "scale_a" in words else None,
        immediates=immediates or DEFAULT_IMMEDIATES,
        arch=arch,
    )


def _multiply(
    resolved: ResolvedInstruction,
    a: Location,
    b: Location | None,
    c: ArrayLike | None,
    metadata: ArrayLike | None,
    scales: tuple[ArrayLike, ArrayLike] | None,
    immediates: Immediates,
    threads: int | None,
) -> Words:
    """Return the registers of D, uint32[..., 32, words], for mma and wmma.mma."""
    if scales is None and resolved.a.is_tile(a) and resolved.b.is_tile(b) and (c is None or resolved.c.is_tile(c)):
        d = _multiply_tile(resolved, a, b, c, metadata, immediates)
        if d is not None:
            return d
    if isinstance(a, Shared | Descriptor) or isinstance(b, Shared | Descriptor):
        raise InvalidOperand(f"{resolved.name} takes registers: only wgmma reads tiles and descriptors")
    registers = [resolved.a.check(a), resolved.b.check(cast("ArrayLike", b))]
    if c is not None:
        registers.append(resolved.c.check(c))
    pair = (None, None) if scales is None else scales
    if not (isinstance(pair, tuple | list) and len(pair) == len(SIDES)):
        raise InvalidOperand(f"scales: expected the scale words of A and of B, got {quote(scales)}")
    words = resolved.check_words({"metadata": metadata, **dict(zip(SIDES, pair, strict=True))})
    batch = batch_of([array.shape[:-2] for array in registers] + [array.shape[:-1] for array in words.values()])
    codes_a, codes_b = resolved.a.read(registers[0], batch), resolved.b.read(registers[1], batch)
    codes_c = resolved.c.zeros(codes_a, codes_b) if c is None else resolved.c.read(registers[2], batch)
    fields = resolved.read_fields(words, batch, immediates)
    codes = multiply(resolved.kernels, ProductOperands(codes_a, codes_b, codes_c, **fields), threads)
    return resolved.d.write(codes, batch)


def _multiply_tile(
    resolved: ResolvedInstruction,
    a: Words,
    b: Words,
    c: Words | None,
    metadata: ArrayLike | None,
    immediates: Immediates,
) -> Words | None:
    """Multiply one tile on a fast path; return None if the arguments need full checks."""
    columns = None
    if not resolved.selected:
        if metadata is not None or immediates is not DEFAULT_IMMEDIATES:
            return None
    else:
        if resolved.metadata is None or len(resolved.selected) > 1 or type(metadata) is not np.ndarray:
            return None
        if metadata.dtype is not WORD or metadata.shape != resolved.metadata_shape:
            return None
        columns = resolved.metadata.columns_of(resolved.readers_of(immediates)["metadata"].read(metadata))[None]
    codes_c = resolved.no_c if c is None else resolved.c.read_tile(c)
    operands = ProductOperands(resolved.a.read_tile(a), resolved.b.read_tile(b), codes_c, columns)
    return resolved.d.write_tile(resolved.kernels.chosen.run_whole(operands))
