"""Look instructions up: `get` one by its name, `find` those that answer a description."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from warpfrag.errors import IllegalInstruction
from warpfrag.instruction import Instruction, instruction_of
from warpfrag.isa.legality import resolve
from warpfrag.isa.operands import measured_architectures
from warpfrag.isa.rows import Form, Shape, forms, legal_targets, targets

if TYPE_CHECKING:
    from collections.abc import Iterable


def get(name: str | Instruction, target: str | None = None, selector: int | None = None) -> Instruction:
    """The instruction that a PTX text names: the same object for every spelling of it.

    IllegalInstruction, with a reason and the nearest legal spellings, if there is none, or not on this target or
    with this sparsity selector. wmma has the fragments of the target's architecture, and of sm_90 without one.
    """
    if isinstance(name, Instruction):
        target = target or name.arch or None
        name = name.name
    try:
        return _get(name, target, selector)
    except TypeError:  # not hashable: let resolve say what is wrong with it
        resolve(name, target, selector)
        raise


def find(
    *,
    target: str | None = None,
    op: str | None = None,
    shape: str | tuple[int, ...] | None = None,
    a: str | None = None,
    b: str | None = None,
    c: str | None = None,
    d: str | None = None,
    kind: str | None = None,
    sparse: bool | None = None,
) -> list[Instruction]:
    """Every instruction that answers all of the questions asked; all of them if none is asked."""
    wanted_shape = str(Shape(*shape)) if isinstance(shape, tuple) else shape
    wanted = {"op": op, "shape": wanted_shape, "a": a, "b": b, "c": c, "d": d, "kind": kind}
    asked = {field: choice for field, choice in wanted.items() if choice is not None}
    for field, choice in asked.items():
        _check_answer(field, choice, (str(getattr(form, field)) for form in forms()))
    if target is not None:
        _check_answer("target", target, targets())
    return [
        instruction_of(form, _fragment_arch(form, target))
        for form in forms()
        if all(str(getattr(form, field)) == choice for field, choice in asked.items())
        and (sparse is None or form.is_sparse == sparse)
        and (target is None or target in legal_targets(form))
    ]


@lru_cache(maxsize=4096)  # a program asks for the same few names again and again
def _get(name: str, target: str | None, selector: int | None) -> Instruction:
    form = resolve(name, target, selector)
    return instruction_of(form, _fragment_arch(form, target))


def _check_answer(field: str, choice: str, answers: Iterable[str]) -> None:
    """Refuse a question that no instruction can answer: it is a typing error more often than not."""
    known = [answer for answer in dict.fromkeys(answers) if answer]
    if choice not in known and choice:
        question = f"find({field}={choice!r})"
        raise IllegalInstruction(question, f"no instruction has it; {field} is one of {', '.join(known)}")


def _fragment_arch(form: Form, target: str | None) -> str:
    """Whose wmma fragments to use; nobody's where the ISA fixes them."""
    if not form.is_wmma:
        return ""
    return targets()[target].arch if target else measured_architectures()[0]
