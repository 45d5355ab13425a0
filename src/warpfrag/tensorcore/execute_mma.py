"""Run mma and wmma.mma: the registers of a warp in, registers out, as the hardware would."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES
from warpfrag.smem.descriptor import Descriptor
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.matmul import run_product
from warpfrag.tensorcore.prepared import WORD, batch_of, prepare
from warpfrag.tensorcore.schedule import check_threads
from warpfrag.tensorcore.shared_operand import Shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Words
    from warpfrag.isa.immediates import Immediates
    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.prepared import PreparedInstruction

NO_WORDS: Mapping[str, ArrayLike] = MappingProxyType({})


def multiply(
    form: Form,
    arch: str,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    *,
    words: Mapping[str, ArrayLike] = NO_WORDS,
    immediates: Immediates = DEFAULT_IMMEDIATES,
    threads: int | None = None,
) -> Words:
    """D's registers, uint32[..., 32, words]; leading axes broadcast, and c=None is zero.

    `words` are the metadata and scale words that the instruction has, by role; `immediates` select their fields.
    """
    prepared = prepare(form, arch)
    if threads is not None:
        check_threads(threads)
    if prepared.a.is_tile(a) and prepared.b.is_tile(b) and (c is None or prepared.c.is_tile(c)):
        d = _multiply_tile(prepared, a, b, c, words, immediates)
        if d is not None:
            return d
    if isinstance(a, Shared | Descriptor) or isinstance(b, Shared | Descriptor):
        msg = f"{prepared.name} takes registers: only wgmma reads tiles and descriptors"
        raise InvalidOperand(msg)
    registers = [prepared.a.check(a), prepared.b.check(b)]
    if c is not None:
        registers.append(prepared.c.check(c))
    checked = {role: prepared.check_words(role, words.get(role)) for role in prepared.selected}
    batch = batch_of([array.shape[:-2] for array in registers] + [array.shape[:-1] for array in checked.values()])
    codes_a, codes_b = prepared.a.read(registers[0], batch), prepared.b.read(registers[1], batch)
    codes_c = prepared.c.zeros(codes_a, codes_b) if c is None else prepared.c.read(registers[2], batch)
    fields = prepared.read_fields(checked, batch, immediates)
    return prepared.d.write(
        run_product(prepared.kernels, ProductOperands(codes_a, codes_b, codes_c, **fields), threads), batch
    )


def _multiply_tile(
    prepared: PreparedInstruction,
    a: Words,
    b: Words,
    c: Words | None,
    words: Mapping[str, ArrayLike],
    immediates: Immediates,
) -> Words | None:
    """The product of one tile, with as little around it as possible; None where words have to be checked first."""
    columns = None
    if prepared.selected:
        metadata = words.get("metadata")
        if prepared.metadata is None or len(prepared.selected) > 1 or type(metadata) is not np.ndarray:
            return None
        if metadata.dtype is not WORD or metadata.shape != prepared.metadata_shape:
            return None
        columns = prepared.metadata.columns_of(prepared.readers_of(immediates)["metadata"].read(metadata))[None]
    codes_c = prepared.no_c if c is None else prepared.c.read_tile(c)
    operands = ProductOperands(prepared.a.read_tile(a), prepared.b.read_tile(b), codes_c, columns)
    kernel = prepared.kernels.settled.get(False) or prepared.kernels.kernel(operands)
    return prepared.d.write_tile(kernel.run_whole(operands))
