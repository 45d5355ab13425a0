"""Look up instructions: `get` returns one by name, and `find` all that match a description."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from warpfrag.errors import IllegalInstruction, quote
from warpfrag.formats.number_formats import dtype_text, format_alias
from warpfrag.isa.alias_names import MAX_SOURCE, is_plain
from warpfrag.isa.instruction_names import head
from warpfrag.isa.instruction_table import ROLES, forms, forms_on, has_elements, is_legal
from warpfrag.isa.legality import check_selector, is_tensor_text, resolve
from warpfrag.isa.qualifiers import Form, Shape
from warpfrag.isa.targets import read_target, targets
from warpfrag.isa.tcgen05_forms import TensorForm, listed_forms
from warpfrag.tables import read_table
from warpfrag.tensorcore.instruction import Instruction, interned

if TYPE_CHECKING:
    from warpfrag.isa.aliases import Aliases

LARGEST_EXTENT = 1 << 12
MAX_LISTED = 60  # the most choices that an error lists in full


def get(
    name: str | Instruction,
    arch: str | None = None,
    selector: int | None = None,
    *,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    a: str | None = None,
    b: str | None = None,
    d: str | None = None,
    scale_type: str | None = None,
) -> Instruction:
    """Return the instruction with this PTX name: the same object for every spelling.

    Raises IllegalInstruction, with a reason and the nearest legal spellings, if it does not exist or is not legal on
    this `arch` (a target such as sm_90a, or a GPU) or with this sparsity selector. wmma has the fragments of `arch`, or
    of sm_90 by default. The PTX name of a tcgen05.mma omits its shape and types: pass `m`, `n`, `a`, `b` and `d`, and
    `k` and `scale_type` if its kind has several; or append them to the name. Without them, the result has no operands.
    """
    shape = {"m": m, "n": n, "k": k, "a": a, "b": b, "d": d, "scale_type": scale_type}
    if any(entry is not None for entry in shape.values()):
        return _typed(name, arch, selector, shape)
    if isinstance(name, Instruction):
        arch = arch or name.arch or None
        name = name.name
    if not isinstance(name, str):
        resolve(name)  # raises IllegalInstruction with the reason
    target = None if arch is None else read_target(arch, head(name)).name
    if is_tensor_text(name):  # the check needs the operands
        return _look_up(name[:MAX_SOURCE], target)
    instruction = _get(head(name), target) if is_plain(name) else _look_up(name[:MAX_SOURCE], target)
    if selector is not None:
        check_selector(instruction.form, selector)
    return instruction


def _typed(
    name: str | Instruction, arch: str | None, selector: int | None, shape: dict[str, int | str | None]
) -> Instruction:
    """Return the tcgen05.mma with this shape and these types."""
    for label, entry in shape.items():
        is_size = label in ("m", "n", "k")
        if entry is not None and (isinstance(entry, bool) or not isinstance(entry, int if is_size else str)):
            expected = "an integer" if is_size else "a string such as 'f16'"
            raise IllegalInstruction(quote(name), f"{label} must be {expected}, got {quote(entry)}")
    text = name
    if isinstance(text, Instruction):
        text = text.form.spelling.name if isinstance(text.form, TensorForm) else text.name
    if not isinstance(text, str):
        resolve(text)  # raises IllegalInstruction with the reason
    return instruction_of(resolve(text, arch and read_target(arch, head(text)).name, selector, **shape), "")


def aliases(instruction: str | Instruction) -> Aliases:
    """Return an instruction's names in CuTe, in machine code (by target), in LLVM's NVVM and in MLIR.

    >>> names = aliases("mma.m16n8k16.f32.f16.f16.f32")
    >>> names["cute"], names["sass"]["sm_90"], names["nvvm"]
    ('SM80_16x8x16_F32F16F16F32_TN', 'HMMA.16816.F32', 'llvm.nvvm.mma.m16n8k16.row.col.f32.f32')
    """
    from warpfrag.isa.aliases import aliases_of

    return aliases_of(get(instruction).form)


def find(
    *,
    arch: str | None = None,
    op: str | None = None,
    shape: str | tuple[int, ...] | None = None,
    a: str | None = None,
    b: str | None = None,
    c: str | None = None,
    d: str | None = None,
    kind: str | None = None,
    sparse: bool | None = None,
) -> list[Instruction]:
    """Return every instruction that matches all arguments.

    Element types may be aliases: `fp8` finds e4m3 and e5m2, `nvfp4` finds e2m1 with ue4m3 scales. `op` may be a family:
    "wgmma" finds all operations that begin with `wgmma.`. tcgen05 has fifteen thousand mma forms, which are listed only
    with a filter; `op="tcgen05"` lists all of them.
    """
    types = {role: name if name is None else dtype_text(name) for role, name in zip("abcd", (a, b, c, d), strict=True)}
    wanted = {"op": op, "shape": _shape_text(shape), **types, "kind": kind}
    asked = {field: choice for field, choice in wanted.items() if choice is not None}
    aliases = {role: alias for role in ROLES if (alias := format_alias(asked.get(role)))}
    asked = {field: choice for field, choice in asked.items() if field not in aliases}
    target = None if arch is None else read_target(arch, f"find(arch={quote(arch)})").name
    everything: list[Form] = [*(forms() if asked or target is None else forms_on(target))]
    is_asked = any(choice is not None for choice in (*wanted.values(), target, sparse))
    if is_asked and (asked or target is None or target in read_table("tcgen05")["targets"]["all"]):
        everything += listed_forms()
    within = [form for form in everything if isinstance(op, str) and form.op.startswith(f"{op}.")]
    if within and all(form.op != op for form in everything):
        everything = within
        del asked["op"]
    for field, choice in asked.items():
        _check_answer(field, choice, (str(getattr(form, field)) for form in everything))
    if not (sparse is None or isinstance(sparse, bool)):
        raise IllegalInstruction(f"find(sparse={quote(sparse)})", "sparse must be True, False or None")
    return [
        instruction_of(form, _fragment_arch(form, target))
        for form in everything
        if all(str(getattr(form, field)) == choice for field, choice in asked.items())
        and all(has_elements(form, role, alias) for role, alias in aliases.items())
        and (sparse is None or ("metadata" in form.operation.storage) == sparse)
        and (target is None or is_legal(form, target))
    ]


def instruction_of(form: Form, arch: str) -> Instruction:
    """Return the unique object for a form, with the wmma fragments of an architecture."""
    if not isinstance(form, TensorForm):
        return interned(Instruction, form, arch)
    from warpfrag.tensorcore.tcgen05_types import tensor_class

    return interned(tensor_class(form), form, "")


def _look_up(text: str, target: str | None) -> Instruction:
    form = resolve(text, target)
    return instruction_of(form, _fragment_arch(form, target))


_get = lru_cache(maxsize=4096)(_look_up)  # programs look up the same few names repeatedly; source code is not cached


def _shape_text(shape: str | tuple[int, ...] | None) -> str | None:
    """Return a shape as PTX spells it."""
    if isinstance(shape, tuple) and len(shape) in (2, 3) and all(isinstance(extent, int) for extent in shape):
        return str(Shape(*shape)) if all(0 < extent <= LARGEST_EXTENT for extent in shape) else quote(shape)
    if shape is None or isinstance(shape, str):
        return shape
    question = f"find(shape={quote(shape)})"
    raise IllegalInstruction(question, "expected a string such as 'm16n8k16' or a tuple such as (16, 8, 16)")


def _check_answer(field: str, choice: str, answers: Iterable[str]) -> None:
    """Raise an error for a value that no instruction has, which is usually a typo."""
    known = [answer for answer in dict.fromkeys(answers) if answer]
    if not isinstance(choice, str) or (choice and choice not in known):
        question = f"find({field}={quote(choice)})"
        raise IllegalInstruction(question, f"no instruction has this value; {field} must be {_expected(choice, known)}")


def _expected(choice: object, known: list[str]) -> str:
    """Describe the valid choices: all of them, or only similar ones if there are many."""
    if len(known) <= MAX_LISTED:
        return f"one of {', '.join(known)}"
    from difflib import get_close_matches

    near = get_close_matches(str(choice)[:20], known, n=8, cutoff=0)
    return f"one of {len(known)}, such as {', '.join(near)}"


def _fragment_arch(form: Form, target: str | None) -> str:
    """Return the architecture of the wmma fragments, or an empty string if the ISA defines them."""
    if form.operation.fragments == "fixed":
        return ""
    if target:
        return targets()[target].arch
    from warpfrag.isa.operands import measured_architectures  # only for wmma

    return measured_architectures()[0]
