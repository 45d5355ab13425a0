"""Execute mma and wmma.mma: the registers of a warp in, registers out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import Words
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, SIDES, Immediates
from warpfrag.isa.qualifiers import Form
from warpfrag.smem.descriptor import Descriptor
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.matmul import run_product
from warpfrag.tensorcore.resolved import WORD, ResolvedInstruction, batch_of, resolve_form
from warpfrag.tensorcore.schedule import check_threads
from warpfrag.tensorcore.shared_operand import Shared


def multiply(
    form: Form,
    arch: str,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None,
    metadata: ArrayLike | None,
    scales: tuple[ArrayLike, ArrayLike] | None,
    immediates: Immediates,
    threads: int | None,
) -> Words:
    """Return D's registers, uint32[..., 32, words], as `Mma.execute` describes them."""
    resolved = resolve_form(form, arch)
    if threads is not None:
        check_threads(threads)
    if scales is None and resolved.a.is_tile(a) and resolved.b.is_tile(b) and (c is None or resolved.c.is_tile(c)):
        d = _multiply_tile(resolved, a, b, c, metadata, immediates)
        if d is not None:
            return d
    if isinstance(a, Shared | Descriptor) or isinstance(b, Shared | Descriptor):
        raise InvalidOperand(f"{resolved.name} takes registers: only wgmma reads tiles and descriptors")
    registers = [resolved.a.check(a), resolved.b.check(b)]
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
    codes = run_product(resolved.kernels, ProductOperands(codes_a, codes_b, codes_c, **fields), threads)
    return resolved.d.write(codes, batch)


def _multiply_tile(
    resolved: ResolvedInstruction,
    a: Words,
    b: Words,
    c: Words | None,
    metadata: ArrayLike | None,
    immediates: Immediates,
) -> Words | None:
    """Multiply one tile with as little overhead as possible; return None if arguments have to be checked first."""
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
    kernel = resolved.kernels.settled.get(False) or resolved.kernels.kernel(operands)
    return resolved.d.write_tile(kernel.run_whole(operands))
