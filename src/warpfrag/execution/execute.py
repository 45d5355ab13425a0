"""Execute one instruction: the registers of its threads in, registers out, as the hardware would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from warpfrag.arithmetic import matmul, plan
from warpfrag.arithmetic.product import run_product
from warpfrag.arithmetic.protocol import ProductOperands
from warpfrag.arithmetic.schedule import check_threads
from warpfrag.errors import InvalidOperand, quote
from warpfrag.execution import matrix_moves, wgmma
from warpfrag.execution.operand import operands_of
from warpfrag.execution.prepared import Runner, batch_of, check_given, find_runner, tiles_of
from warpfrag.execution.shared_operand import Shared
from warpfrag.execution.sparsity import compress, logical_columns
from warpfrag.execution.wgmma import NEITHER, Given
from warpfrag.isa.immediates import Choice
from warpfrag.isa.legality import arithmetic_arch, form_of
from warpfrag.isa.names import spell
from warpfrag.isa.words import Form
from warpfrag.memory.descriptor import Descriptor
from warpfrag.numerics.codes import code_dtype, from_codes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.execution.operand import Operand
    from warpfrag.isa.words import HasForm
    from warpfrag.numerics.arrays import Array, Bytes, Words
    from warpfrag.numerics.formats import Rounding

NO_IDS = (0, 0)


@overload
def execute(
    instruction: str | HasForm,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int | None = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = (0, 0),
    thread_id: tuple[int, int] = (0, 0),
    arch: str = "sm_90",
    threads: int | None = None,
) -> Words: ...


@overload
def execute(instruction: str | HasForm, a: ArrayLike, *, shared: ArrayLike | None = None) -> Words: ...


@overload
def execute(instruction: str | HasForm, a: ArrayLike, b: ArrayLike, *, shared: ArrayLike) -> Bytes: ...


@overload
def execute(
    instruction: str | HasForm,
    a: ArrayLike | Shared | Descriptor,
    b: Shared | Descriptor | int,
    c: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int | None = None,
    shared: ArrayLike | None = None,
    trans: tuple[bool, bool] = (False, False),
    negate: tuple[bool, bool] = (False, False),
    scale_d: bool = True,
    arch: str = "sm_90",
    threads: int | None = None,
) -> Words: ...


def execute(
    instruction: str | HasForm,
    a: ArrayLike | Shared | Descriptor,
    b: ArrayLike | Shared | Descriptor | None = None,
    c: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int | None = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = NO_IDS,
    thread_id: tuple[int, int] = NO_IDS,
    shared: ArrayLike | None = None,
    trans: tuple[bool, bool] = NEITHER,
    negate: tuple[bool, bool] = NEITHER,
    scale_d: bool = True,
    arch: str = "sm_90",
    threads: int | None = None,
) -> Words | Bytes:
    """D's registers, uint32[..., 32, words] or [..., 4, 32, words], bit for bit; leading axes broadcast, c=None is 0.

    A sparse instruction takes `metadata` words and a `selector`, a block-scaled one `scale_a` and `scale_b` words and
    the ids that choose their bytes and lanes. ldmatrix takes the addresses of its lanes and the bytes of `shared`,
    stmatrix its registers too, and gives the memory after it; movmatrix takes registers. wgmma takes B, and perhaps A,
    as `Shared` tiles or as descriptors over the bytes of `shared`; pairs are for A and B, and without `scale_d` C is
    not read. IllegalInstruction if `arch` cannot run it, NotModelled if nobody knows what that architecture computes.
    """
    try:
        runner = find_runner(instruction, arch)
    except TypeError:  # not hashable: let the reader of names say what is wrong with it
        runner = arithmetic_arch(form_of(instruction), arch)  # type: ignore[assignment] # which raises
    if threads is not None:
        check_threads(threads)
    is_plain = byte_id is NO_IDS and thread_id is NO_IDS and scale_a is None and scale_b is None and shared is None
    if is_plain and trans is NEITHER and negate is NEITHER and scale_d is True and isinstance(runner, Runner):
        found = runner.run_quick(a, b, c, metadata, selector)
        if found is not None:
            return found
    if isinstance(runner, Runner) and runner.form.is_warpgroup:
        _refuse_scales(runner.form, scale_a=scale_a, scale_b=scale_b, byte_id=byte_id, thread_id=thread_id)
        return wgmma.run(runner, Given(a, b, c, metadata, selector, shared, trans, negate, scale_d), threads)
    if isinstance(a, Shared | Descriptor) or isinstance(b, Shared | Descriptor):
        msg = f"{spell(form_of(instruction))} takes registers: only wgmma reads tiles and descriptors"
        raise InvalidOperand(msg)
    if isinstance(runner, Form):
        return matrix_moves.run(runner, a, b, shared)
    if trans is not NEITHER or negate is not NEITHER or scale_d is not True:
        raise InvalidOperand(_only_of_wgmma(runner.form, trans=trans, negate=negate, scale_d=scale_d))
    if b is None or shared is not None or (selector is not None and "metadata" not in runner.operands):
        raise InvalidOperand(_misplaced(runner.form, b, shared, selector))
    given = [runner.a.check(a), runner.b.check(b)]
    if c is not None:
        given.append(runner.c.check(c))
    chosen = runner.check_chosen(metadata=metadata, scale_a=scale_a, scale_b=scale_b)
    batch = batch_of([array.shape[:-2] for array in given] + [array.shape[:-1] for array in chosen.values()])
    codes_a, codes_b = runner.a.read(given[0], batch), runner.b.read(given[1], batch)
    codes_c = runner.c.zeros(codes_a, codes_b) if c is None else runner.c.read(given[2], batch)
    extra = runner.read_chosen(chosen, batch, Choice(0 if selector is None else selector, byte_id, thread_id))
    result = run_product(runner.choice, ProductOperands(codes_a, codes_b, codes_c, **extra), threads)
    return runner.d.write(result, batch)


def _refuse_scales(form: Form, **given: object) -> None:
    """wgmma has no scale factors."""
    for name, value in given.items():
        if value is not None and value is not NO_IDS:
            msg = f"{spell(form)} takes no {name}, got {quote(value)}"
            raise InvalidOperand(msg)


def _only_of_wgmma(form: Form, **given: object) -> str:
    """What a product of one warp has no use for."""
    usual = {"trans": NEITHER, "negate": NEITHER, "scale_d": True}
    name, value = next((name, value) for name, value in given.items() if value is not usual.get(name))
    return f"{spell(form)} takes no {name}, which only wgmma has; got {quote(value)}"


def _misplaced(form: Form, b: ArrayLike | None, shared: ArrayLike | None, selector: int | None) -> str:
    """What a product lacks, or has no use for."""
    if b is None:
        return f"{spell(form)} needs b"
    if shared is not None:
        return f"{spell(form)} takes no shared memory: its operands are registers"
    return f"{spell(form)} is dense: it takes no selector, got {quote(selector)}"


def execute_registers(
    instruction: str | HasForm, words: Mapping[str, NDArray[np.uint32]], choice: Choice | None = None, *, arch: str
) -> Words:
    """`execute` for registers by role and one choice of immediates."""
    chosen = choice or Choice()
    return execute(
        instruction,
        words["a"],
        words["b"],
        words.get("c"),
        metadata=words.get("metadata"),
        selector=chosen.selector if "metadata" in words else None,
        scale_a=words.get("scale_a"),
        scale_b=words.get("scale_b"),
        byte_id=chosen.byte_id,
        thread_id=chosen.thread_id,
        arch=arch,
    )


def call(
    form: Form,
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike | None = None,
    *,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    arch: str = "sm_90",
    raw: bool = False,
    rounding: Rounding = None,
    threads: int | None = None,
) -> Array:
    """D of matrices instead of registers: the arithmetic without the lanes, so wmma works on every architecture.

    A sparse instruction takes the full, pruned A; a block-scaled one the matrices of its scale factors.
    """
    wanted = arithmetic_arch(form, arch)
    operands = operands_of(form, wanted)
    a, extra = _full_a(operands.a, A, raw=raw, rounding=rounding)
    given: dict[str, NDArray[Any]] = {"a": a, "b": operands.b.codes(B, raw=raw, rounding=rounding)}
    if C is not None:
        given["c"] = operands.c.codes(C, raw=raw, rounding=rounding)
    for role, scales in (("scale_a", scale_a), ("scale_b", scale_b)):
        check_given(form, role, operands, given=scales is not None)
        if scales is not None:
            extra[role] = operands[role].codes(scales, raw=raw, rounding=rounding)
    axes = len(operands.d.shape)
    batch = batch_of([o.shape[:-axes] for o in given.values()] + [e.shape[:-2] for e in extra.values()])
    # the four products of m8n8k4 are four tiles
    tiled = {role: tiles_of(o, batch, axes).reshape(-1, *o.shape[-2:]) for role, o in given.items()}
    if C is None:
        shape = (len(tiled["a"]), tiled["a"].shape[1], tiled["b"].shape[2])
        tiled["c"] = np.zeros(shape, code_dtype(operands.c.format))
    extra = {role: tiles_of(array, batch, 2) for role, array in extra.items()}
    codes = matmul(plan(form, wanted).rule, **tiled, threads=threads, **extra).reshape(*batch, *operands.d.shape)
    return codes if raw else from_codes(operands.d.format, codes)


def _full_a(
    operand: Operand, A: ArrayLike, *, raw: bool, rounding: Rounding
) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Codes of A; of a sparse one the stored codes, and their logical columns."""
    if operand.pattern is None:
        return operand.codes(A, raw=raw, rounding=rounding), {}
    stored, fields = compress(operand.pattern, operand.full_codes(A, raw=raw, rounding=rounding))
    return stored, {"columns": logical_columns(operand.pattern, fields)}
