"""Run wgmma: the product of a warpgroup, with B in shared memory, and A there or in registers.

    D = scale_d * C + (+-A) (+-B)

The registers are those of four warps of 32 lanes. An operand in shared memory is a `Shared` tile, or a descriptor
over the bytes of `shared`. What is computed is the rule of the instruction, as for every other product: here is only
how its operands are found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.arithmetic.product import multiply
from warpfrag.arithmetic.protocol import Operands
from warpfrag.errors import InvalidOperand, quote
from warpfrag.execution.prepared import Runner, batch_of, find_runner, tiles_of
from warpfrag.execution.shared_operand import InShared, Shared, as_descriptor
from warpfrag.isa.immediates import Choice
from warpfrag.memory.descriptor import Descriptor
from warpfrag.memory.shared_memory import as_bytes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.execution.wgmma_call import Staged
    from warpfrag.isa.words import HasForm
    from warpfrag.numerics.arrays import Words
    from warpfrag.numerics.formats import Format

NEITHER = (False, False)


class Given(NamedTuple):
    """What a caller of `execute` gives; pairs are for A and B."""

    a: ArrayLike | Shared | Descriptor | int
    b: ArrayLike | Shared | Descriptor | int | None
    c: ArrayLike | None
    metadata: ArrayLike | None
    selector: int | None
    shared: ArrayLike | None
    trans: tuple[bool, bool]
    negate: tuple[bool, bool]
    scale_d: bool


def run(runner: Runner, given: Given, threads: int | None) -> Words:
    """D's registers, uint32[..., 4, 32, words]."""
    name, operands = runner.name, runner.operands
    trans, negate = _pair(name, "trans", given.trans), _pair(name, "negate", given.negate)
    if not isinstance(given.scale_d, bool | np.bool_):
        msg = f"{name}: scale_d is True or False, got {quote(given.scale_d)}"
        raise InvalidOperand(msg)
    if any(negate) and not operands.a.format.is_float:
        msg = f"{name}: only products of floats can be negated, got negate={quote(given.negate)}"
        raise InvalidOperand(msg)
    if given.shared is not None and not any(_is_descriptor(one) for one in (given.a, given.b)):
        msg = f"{name}: shared is the memory of descriptors, and neither A nor B is one"
        raise InvalidOperand(msg)
    if given.b is None:
        msg = f"{name} needs b"
        raise InvalidOperand(msg)
    chosen = runner.check_chosen(metadata=given.metadata)
    if given.selector is not None and not chosen:
        msg = f"{name} is dense: it takes no selector, got {quote(given.selector)}"
        raise InvalidOperand(msg)
    a, b = _in_shared(given, 0, operands.a, trans), _in_shared(given, 1, operands.b, trans)
    if b is None:
        msg = (
            f"{operands.b.described} lies in shared memory: expected a Shared, which `b.store` gives, or a descriptor "
            f"with shared=; got {quote(given.b)}"
        )
        raise InvalidOperand(msg)
    words = None if a is not None else runner.a.check(given.a)  # type: ignore[arg-type] # or it is refused
    c = None if given.c is None else runner.c.check(given.c)
    registers = [array.shape[:-3] for array in (words, c) if array is not None]
    batch = batch_of([*registers, *(array.shape[:-2] for array in (a, b, *chosen.values()) if array is not None)])
    codes_a = runner.a.read(words, batch) if words is not None else tiles_of(a, batch, 2)  # type: ignore[arg-type]
    codes_b = tiles_of(b, batch, 2)
    is_read = c is not None and given.scale_d
    codes_c = runner.c.read(c, batch) if is_read else runner.c.zeros(codes_a, codes_b)  # type: ignore[arg-type]
    extra = runner.read_chosen(chosen, batch, Choice(given.selector or 0))
    found = Operands(
        _negated(operands.a.format, codes_a) if negate[0] else codes_a,
        _negated(operands.b.format, codes_b) if negate[1] else codes_b,
        codes_c,
        **extra,
    )
    return runner.d.write(multiply(runner.choice, found, threads), batch)


def run_staged(instruction: str | HasForm, cases: Staged, arch: str) -> Words:
    """D's registers of a wgmma as a kernel calls it."""
    runner = find_runner(instruction, arch)
    if not isinstance(runner, Runner):
        msg = f"{runner.op} computes nothing"
        raise InvalidOperand(msg)
    a, b = cases.descriptors
    variant, words = cases.variant, cases.words
    given = Given(
        a if variant.staged else words["a"],
        b,
        words["c"],
        words.get("metadata"),
        variant.selector if "metadata" in words else None,
        cases.shared,
        variant.trans,
        variant.negate,
        cases.scale_d,
    )
    return run(runner, given, None)


def _is_descriptor(given: object) -> bool:
    """A descriptor, or one as an integer; registers have many words."""
    return isinstance(given, Descriptor | int | np.integer) and not isinstance(given, bool)


def _in_shared(given: Given, side: int, operand: InShared, trans: tuple[bool, bool]) -> NDArray[Any] | None:
    """The codes of an operand in shared memory; None where it is given otherwise."""
    one = (given.a, given.b)[side]
    if isinstance(one, Shared):
        if trans[side] and not one.trans:
            msg = f"{operand.described}: the tile says itself that it is K-major; trans is for descriptors"
            raise InvalidOperand(msg)
        return operand.read(one)
    if _is_descriptor(one):
        if given.shared is None:
            msg = f"{operand.described} is a descriptor: it needs shared=, the bytes of shared memory"
            raise InvalidOperand(msg)
        tile = Shared(as_bytes(given.shared, batch=True), as_descriptor(one), trans[side])
        return operand.read(tile)
    if trans[side]:
        msg = f"{operand.described} is given in registers, which cannot be transposed; trans is for descriptors"
        raise InvalidOperand(msg)
    return None


def _negated(number_format: Format, codes: NDArray[Any]) -> NDArray[Any]:
    """The codes with their signs changed."""
    changed: NDArray[Any] = codes ^ codes.dtype.type(1 << (number_format.bits - 1))
    return changed


def _pair(name: str, what: str, given: object) -> tuple[bool, bool]:
    """Two truth values, for A and for B."""
    if not (isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(one, bool) for one in given)):
        msg = f"{name}: {what} is a pair of True and False, that of A and that of B; got {quote(given)}"
        raise InvalidOperand(msg)
    return given[0], given[1]
