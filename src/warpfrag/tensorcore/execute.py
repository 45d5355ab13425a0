"""`execute`: one function for every kind of instruction, by its name or the object.

It looks the instruction up, refuses what that kind does not take, and passes the rest on to the instruction's own
`execute`, which `kinds` has.
"""

from __future__ import annotations

from functools import cache, lru_cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, NamedTuple, cast, overload

import numpy as np

from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.isa.instruction_names import LONGEST
from warpfrag.tensorcore.execute_wgmma import NEITHER
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.instruction_types import Ldmatrix, Mma, Movmatrix, SparseMma
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.schedule import check_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.formats.arrays import Bytes, Words
    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.tensorcore.shared_operand import Shared

BOTH_ZERO = (0, 0)
MAX_NAMES = 1024
EVERY_KIND = {"arch", "threads"}  # may be passed for any instruction: what only moves has no use for them
DEFAULTS: dict[str, object] = {
    **dict.fromkeys(("a", "b", "c", "metadata", "selector", "scale_a", "scale_b")),
    **dict.fromkeys(("byte_id", "thread_id"), BOTH_ZERO),
    "shared": None,
    **dict.fromkeys(("trans", "negate"), NEITHER),
    "scale_d": True,
    "arch": "sm_90",
    "threads": None,
}
"""The parameters of `execute` in order, and what each is if it is left out."""
NEEDS = {"shared": "shared=, the bytes of its memory", "words": "the registers to store, after the addresses"}
"""What an operand that is missing is called, where its name alone says too little."""
TAKES_NO = {
    "selector": "is dense: it takes no selector, got {}",
    "shared": "takes no shared memory: its operands are registers",
    "trans": "takes no trans, which only wgmma has; got {}",
    "negate": "takes no negate, which only wgmma has; got {}",
    "scale_d": "takes no scale_d, which only wgmma has; got {}",
}
"""Why an argument is refused that a kind does not have, where more can be said than that."""
ONLY_REGISTERS = "takes no shared memory and no second operand: it moves registers to registers"
OWN_REASONS: dict[type[Instruction], dict[str, str]] = {
    Ldmatrix: {"b": "takes addresses and nothing else, got a second operand"},
    Movmatrix: {"b": ONLY_REGISTERS, "shared": ONLY_REGISTERS},
}
"""The same for one kind."""


@overload
def execute(
    instruction: str | Instruction,
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
def execute(instruction: str | Instruction, a: ArrayLike, *, shared: ArrayLike | None = None) -> Words: ...


@overload
def execute(instruction: str | Instruction, a: ArrayLike, b: ArrayLike, *, shared: ArrayLike) -> Bytes: ...


@overload
def execute(
    instruction: str | Instruction,
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
    instruction: str | Instruction,
    a: ArrayLike | Shared | Descriptor,
    b: ArrayLike | Shared | Descriptor | None = None,
    c: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int | None = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = BOTH_ZERO,
    thread_id: tuple[int, int] = BOTH_ZERO,
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
    target = as_instruction(instruction)
    is_scaled = not (scale_a is scale_b is None and byte_id is thread_id is BOTH_ZERO)
    is_modified = not (shared is None and trans is negate is NEITHER and scale_d is True)
    if b is not None and not is_scaled and not is_modified:  # the usual calls, with as little around them as possible
        if type(target) is Mma and metadata is selector is None:
            return target.execute(a, b, c, arch=arch, threads=threads)  # type: ignore[arg-type] # tiles are refused
        if type(target) is SparseMma and metadata is not None:
            number = 0 if selector is None else selector
            return target.execute(a, b, c, metadata=metadata, selector=number, arch=arch, threads=threads)  # type: ignore[arg-type]
    check_threads(threads)
    values = (
        *(a, b, c, metadata, selector, scale_a, scale_b, byte_id, thread_id, shared),
        *(trans, negate, scale_d, arch, threads),
    )
    passed = {
        name: value for value, (name, default) in zip(values, DEFAULTS.items(), strict=True) if value is not default
    }
    return _pass_on(target, passed)


def as_instruction(instruction: str | Instruction) -> Instruction:
    """The instruction itself, or the one that a name means; names are remembered, whole sources are not."""
    if isinstance(instruction, Instruction):
        return instruction
    if isinstance(instruction, str) and len(instruction) <= LONGEST:
        return _instruction_named(instruction)
    return get(instruction)


_instruction_named = lru_cache(MAX_NAMES)(get)


class Parameters(NamedTuple):
    """What the `execute` of a kind takes: its names by those of `execute` here, and which of these it must have."""

    names: dict[str, str]
    required: tuple[str, ...]


@cache
def _parameters(method: Callable[..., Words | Bytes]) -> Parameters:
    _, *parameters = signature(method).parameters.values()
    operands = [item.name for item in parameters if item.kind is Parameter.POSITIONAL_OR_KEYWORD]
    options = {item.name: item.name for item in parameters if item.kind is Parameter.KEYWORD_ONLY}
    names = dict(zip("abc", operands, strict=False)) | options  # of ldmatrix `a` is `addresses`
    optional = {item.name for item in parameters if item.default is not Parameter.empty}
    return Parameters(names, tuple(name for name, own_name in names.items() if own_name not in optional))


def _pass_on(instruction: Instruction, arguments: Mapping[str, object]) -> Words | Bytes:
    """Execute with what was passed to `execute`; what the kind does not take, or lacks, is refused."""
    own_execute = cast("Callable[..., Words | Bytes]", instruction.execute)
    names, required = _parameters(type(instruction).execute)
    if not names:
        return own_execute()  # which refuses
    passed = {names[name]: value for name, value in arguments.items() if name in names}
    if len(passed) < len(arguments):
        for name, value in arguments.items():
            if name not in names and name not in EVERY_KIND and not _is_default(value, DEFAULTS[name]):
                _refuse(instruction, name, value)
    for name in required:
        if name not in arguments:
            msg = f"{instruction.name} needs {NEEDS.get(names[name], name)}"
            raise InvalidOperand(msg)
    return own_execute(**passed)


def _refuse(instruction: Instruction, name: str, value: object) -> None:
    """Refuse an argument that the kind of an instruction does not have."""
    if name in ("byte_id", "thread_id"):
        Immediates(**{name: value}).check({}, lambda: instruction.name)  # type: ignore[arg-type] # or it is refused
    reasons = TAKES_NO | OWN_REASONS.get(type(instruction), {})
    text = reasons.get(name, f"takes no {name}")
    msg = f"{instruction.name} {text.format(quote(value))}"
    raise InvalidOperand(msg)


def _is_default(value: object, default: object) -> bool:
    """Whether an argument says what it would say if it were left out."""
    if isinstance(default, tuple) and isinstance(value, tuple | list):
        return all(isinstance(item, int | np.integer | np.bool_) for item in value) and tuple(value) == default
    return value is default or (isinstance(value, np.bool_) and value == default)


def execute_registers(
    instruction: str | Instruction,
    words: Mapping[str, NDArray[np.uint32]],
    immediates: Immediates | None = None,
    *,
    arch: str,
) -> Words:
    """`execute` for registers by role, and immediates."""
    selected = immediates or DEFAULT_IMMEDIATES
    return execute(
        instruction,
        words["a"],
        words["b"],
        words.get("c"),
        metadata=words.get("metadata"),
        selector=selected.selector if "metadata" in words else None,
        scale_a=words.get("scale_a"),
        scale_b=words.get("scale_b"),
        byte_id=selected.byte_id,
        thread_id=selected.thread_id,
        arch=arch,
    )
