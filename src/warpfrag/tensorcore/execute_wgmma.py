"""Execute wgmma: D = A B + C for a warpgroup, with B in shared memory, and A in shared memory or registers.

    D = scale_d * C + (+-A) (+-B)

The registers are those of four warps of 32 lanes. An operand in shared memory is a `Shared` tile, or a descriptor that
addresses the bytes of `shared`. This module only locates the operands; the instruction's rule computes the result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import Array, Bytes, Words
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import Format
from warpfrag.isa.immediates import Immediates, as_immediates
from warpfrag.isa.qualifiers import Form, HasForm
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import as_bytes
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.matmul import multiply as multiply_codes
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.resolved_instruction import (
    ResolvedInstruction,
    batch_of,
    resolve_form,
    resolve_instruction,
    tiles_of,
)
from warpfrag.tensorcore.shared_operand import Location, Shared, as_descriptor
from warpfrag.tensorcore.wgmma_call import WgmmaCases

Descriptors = NDArray[np.uint64]

NEITHER = (False, False)


def multiply(
    resolved: ResolvedInstruction,
    a: Location,
    b: Location | None,
    c: ArrayLike | None,
    metadata: ArrayLike | None,
    immediates: Immediates,
    shared: ArrayLike | None,
    threads: int | None,
) -> Words:
    """Return D's registers, uint32[..., 4, 32, words], as `wf.execute` describes them."""
    trans = _pair(resolved, "trans", as_immediates(immediates).trans)
    negate = _pair(resolved, "negate", immediates.negate)
    scale_d = immediates.scale_d
    _check_modifiers(resolved, negate, scale_d=scale_d)
    if shared is not None and not (_is_descriptor(a) or _is_descriptor(b)):
        raise InvalidOperand(f"{resolved.name}: shared= requires a descriptor, but neither A nor B is one")
    words = resolved.check_words({"metadata": metadata})
    operands = resolved.operands
    tile_a = _read_shared(operands.a, a, shared, is_transposed=trans[0])
    tile_b = _read_shared(operands.b, b, shared, is_transposed=trans[1])
    if tile_b is None:
        raise InvalidOperand(
            f"{operands.b.description} is in shared memory: expected a Shared from `b.store`, or a descriptor "
            f"with shared=; got {quote(b)}"
        )
    words_a = None if tile_a is not None else resolved.a.check(cast("ArrayLike", a))
    words_c = None if c is None else resolved.c.check(c)
    registers = [array.shape[:-3] for array in (words_a, words_c) if array is not None]
    batch = batch_of([*registers, *(each.shape[:-2] for each in (tile_a, tile_b, *words.values()) if each is not None)])
    codes_a = resolved.a.read(words_a, batch) if words_a is not None else tiles_of(cast("Array", tile_a), batch, 2)
    codes_b = tiles_of(tile_b, batch, 2)
    is_c_read = words_c is not None and scale_d
    codes_c = resolved.c.read(cast("Words", words_c), batch) if is_c_read else resolved.c.zeros(codes_a, codes_b)
    selecting = Immediates(immediates.selector, immediates.byte_id, immediates.thread_id)
    codes = ProductOperands(
        _negated(operands.a.format, codes_a) if negate[0] else codes_a,
        _negated(operands.b.format, codes_b) if negate[1] else codes_b,
        codes_c,
        **resolved.read_fields(words, batch, selecting),
    )
    return resolved.d.write(multiply_codes(resolved.kernels, codes, threads), batch)


@lru_cache(2048)
def element_places(form: Form, arch: str, role: str, word: int, is_transposed: bool) -> NDArray[np.int64] | None:  # noqa: FBT001 (a key)
    """Return the index in shared memory of each code that a descriptor reads, or None if codes are not whole bytes.

    The index counts codes, not bytes. The result is cached, because kernels reuse a few descriptors.
    """
    operand = getattr(resolve_form(form, arch).operands, role)
    if operand.format.bits % 8:
        return None
    places = operand.addresses(as_descriptor(word), is_transposed) // (operand.format.bits // 8)
    return cast("NDArray[np.int64]", places)


def multiply_groups(
    form: Form,
    arch: str,
    a: Words | Descriptors,
    b: Descriptors,
    c: Words,
    *,
    shared: Bytes,
    blocks: NDArray[np.int64],
    trans: tuple[bool, bool] = NEITHER,
    negate: tuple[bool, bool] = NEITHER,
    scale_d: NDArray[np.bool_],
) -> Words | None:
    """Return D's registers for several warpgroups, each with its block's shared memory, or None if unsupported.

    `a` and `b` are descriptors, one per warpgroup; `a` may instead be registers. Sparse forms, negated integers, codes
    that are not whole bytes, and descriptors that reach beyond the memory are not supported here; `multiply` handles or
    rejects them.
    """
    resolved = resolve_form(form, arch)
    if resolved.selected or (any(negate) and not resolved.operands.a.format.is_float):
        return None
    codes_b = _gather(resolved, arch, "b", b, shared, blocks, is_transposed=trans[1])
    if a.ndim > 1:
        codes_a: NDArray[Any] | None = resolved.a.read(resolved.a.check(cast("Words", a)), (len(b),))
    else:
        codes_a = _gather(resolved, arch, "a", cast("Descriptors", a), shared, blocks, is_transposed=trans[0])
    if codes_a is None or codes_b is None:
        return None
    operands = resolved.operands
    codes_c = resolved.c.read(resolved.c.check(c), (len(b),))
    if not scale_d.all():
        codes_c = np.where(scale_d[:, None, None], codes_c, codes_c.dtype.type(0))
    codes = ProductOperands(
        _negated(operands.a.format, codes_a) if negate[0] else codes_a,
        _negated(operands.b.format, codes_b) if negate[1] else codes_b,
        codes_c,
    )
    return resolved.d.write(multiply_codes(resolved.kernels, codes, 1), (len(b),))


def _gather(
    resolved: ResolvedInstruction,
    arch: str,
    role: str,
    descriptors: Descriptors,
    shared: Bytes,
    blocks: NDArray[np.int64],
    *,
    is_transposed: bool,
) -> NDArray[Any] | None:
    """Return the codes [warpgroups, rows, cols] that descriptors read from the shared memory of their blocks."""
    number_format = getattr(resolved.operands, role).format
    cells = shared.view(f"u{max(1, number_format.bits // 8)}")
    index = []
    for word in descriptors.tolist():
        places = element_places(resolved.form, arch, role, word, is_transposed)
        if places is None or int(places.max()) >= cells.shape[1]:
            return None
        index.append(places)
    return cells[blocks[:, None, None], np.stack(index)].astype(code_dtype(number_format), copy=False)


def run_wgmma_cases(instruction: str | HasForm, cases: WgmmaCases, arch: str) -> Words:
    """Return D's registers for recorded wgmma calls."""
    variant, (a, b) = cases.variant, cases.descriptors
    selector = variant.selector if "metadata" in cases.words else 0
    immediates = Immediates(selector, trans=variant.trans, negate=variant.negate, scale_d=cases.scale_d)
    source = a if variant.staged else cases.words["a"]
    metadata = cases.words.get("metadata")
    resolved = resolve_instruction(instruction, arch)
    return multiply(resolved, source, b, cases.words["c"], metadata, immediates, cases.shared, None)


def _check_modifiers(resolved: ResolvedInstruction, negate: tuple[bool, bool], *, scale_d: object) -> None:
    """Raise an error if scale_d is not a bool, or if an operand without a sign would be negated."""
    if not isinstance(scale_d, bool | np.bool_):
        raise InvalidOperand(f"{resolved.name}: scale_d must be True or False, got {quote(scale_d)}")
    if any(negate) and not resolved.operands.a.format.is_float:
        raise InvalidOperand(f"{resolved.name}: only float types can be negated, got negate={quote(negate)}")


def _is_descriptor(location: object) -> bool:
    """Return True for a descriptor, or for an integer that encodes one."""
    return isinstance(location, Descriptor | int | np.integer) and not isinstance(location, bool)


def _read_shared(
    operand: Operand, location: Location | None, shared: ArrayLike | None, *, is_transposed: bool
) -> Array | None:
    """Return the codes of an operand in shared memory, or None if it is passed in registers."""
    if isinstance(location, Shared):
        if is_transposed and not location.trans:
            raise InvalidOperand(
                f"{operand.description}: a Shared tile already has its order; trans applies only to descriptors"
            )
        return operand.read(location)
    if _is_descriptor(location):
        if shared is None:
            raise InvalidOperand(f"{operand.description} is a descriptor: it needs shared=, the bytes of shared memory")
        return operand.read(Shared(as_bytes(shared, batch=True), as_descriptor(location), is_transposed))
    if is_transposed:
        raise InvalidOperand(
            f"{operand.description} is in registers, which cannot be transposed; trans applies only to descriptors"
        )
    return None


def _negated(number_format: Format, codes: NDArray[Any]) -> NDArray[Any]:
    """Return the codes with inverted signs."""
    changed: NDArray[Any] = codes ^ codes.dtype.type(1 << (number_format.bits - 1))
    return changed


def _pair(resolved: ResolvedInstruction, label: str, pair: object) -> tuple[bool, bool]:
    """Return a pair of bools, for A and B; raise InvalidOperand for anything else."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(flag, bool) for flag in pair)):
        raise InvalidOperand(f"{resolved.name}: {label} must be a pair of bools, for A and B; got {quote(pair)}")
    return pair[0], pair[1]
