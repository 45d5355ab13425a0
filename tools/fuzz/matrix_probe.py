"""Probe every mma and wmma.mma alone, with distinct and with overlapping registers.

An instruction that an architecture lacks is compiled to a sequence of others. If the sequence writes D too early or
reads C too late, only overlapping registers reveal it.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.fuzz.driver import device
from tools.fuzz.emulation import launch
from tools.fuzz.inputs import random_bytes
from tools.fuzz.kernel import VERSION
from tools.fuzz.matrices import braced, instructions, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.tensorcore.instruction import Instruction

OPERATIONS = ("mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma")
CONTEXTS = ("apart", "D is C", "D is C turned", "D over A", "D over B", "one C")
PER_MODULE = 24
THREADS = 32
GIVEN_BYTES = 1024  # input bytes per thread
OUT_BYTES = 64  # output bytes per probe and thread: sixteen registers


class MatrixProbe(NamedTuple):
    """One instruction in one context."""

    one: Instruction
    context: str


@lru_cache(2)
def matrix_probes(target: str) -> list[MatrixProbe]:
    """Return every instruction in every context that its operands allow."""
    return list(_probes(target))


def _probes(target: str) -> Iterator[MatrixProbe]:
    for operation in OPERATIONS:
        for one in instructions(operation, target):
            for context in CONTEXTS:
                over = {"D over A": one.a, "D over B": one.b, "D is C": one.c, "D is C turned": one.c}.get(context)
                if over is not None and kind_of(over) != kind_of(one.d):
                    continue
                if context.startswith("D is C") and one.c.regs != one.d.regs:
                    continue
                yield MatrixProbe(one, context)


def _operands(probe: MatrixProbe) -> dict[str, list[str]]:
    """Return the registers of A, B, C and D in a context."""
    one = probe.one
    used = {"r": 0, "d": 0}
    found: dict[str, list[str]] = {}
    for role in "abcd":
        operand = getattr(one, role)
        kind = kind_of(operand)
        found[role] = [f"%{kind}{used[kind] + number}" for number in range(operand.regs)]
        used[kind] += operand.regs
    if probe.context == "one C":
        found["c"] = found["c"][:1] * len(found["c"])
    elif probe.context == "D is C":
        found["d"] = found["c"]
    elif probe.context == "D is C turned":
        found["d"] = [*found["c"][1:], found["c"][0]]
    elif probe.context in {"D over A", "D over B"}:
        under = found["a" if probe.context == "D over A" else "b"]
        found["d"] = [*under, *found["d"]][: len(found["d"])]
    return found


def matrix_module(target: str, first: int, count: int = PER_MODULE) -> tuple[str, list[tuple[str, int]]]:
    """Return a module `k(in, out)` with the given probes, and the text and line of each."""
    chosen = matrix_probes(target)[first : first + count]
    lines = [
        f".version {VERSION}", f".target {target}", ".address_size 64",
        ".visible .entry k(.param .u64 in, .param .u64 out)", "{",
        ".reg .b32 %r<64>, %thread, %meta; .reg .b64 %d<32>, %in, %out;",
        "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %thread, %tid.x;",
        f"mad.wide.u32 %in, %thread, {GIVEN_BYTES}, %in; mad.wide.u32 %out, %thread, {OUT_BYTES * len(chosen)}, %out;",
    ]  # fmt: skip
    texts = []
    for number, probe in enumerate(chosen):
        random = Random(f"{probe.one.name} {probe.context}")  # noqa: S311 (no secrets)
        operands = _operands(probe)
        for register in sorted({*operands["a"], *operands["b"], *operands["c"]}):
            bits = 32 if register[1] == "r" else 64
            lines.append(f"ld.global.b{bits} {register}, [%in+{8 * random.randrange(GIVEN_BYTES // 8)}];")
        sparse = ""
        if probe.one.selectors:
            lines.append(f"ld.global.b32 %meta, [%in+{8 * random.randrange(GIVEN_BYTES // 8)}];")
            lines.append("and.b32 %meta, %meta, 0x11111111; mad.lo.u32 %meta, %meta, 10, 0x44444444;")
            sparse = f", %meta, {random.choice(probe.one.selectors)}"
        lines.append(f"{probe.one.name} {', '.join(braced(operands[role]) for role in 'dabc')}{sparse};")
        texts.append((lines[-1], len(lines)))
        for index, register in enumerate(operands["d"]):
            size = 4 if register[1] == "r" else 8
            lines.append(f"st.global.b{8 * size} [%out+{OUT_BYTES * number + size * index}], {register};")
    return "\n".join([*lines, "ret;", "}", ""]), texts


def compare_matrix_probes(target: str, first: int, *, on_gpu: bool = True) -> dict[str, Any]:
    """Run a module of probes on the PTX machine and on the GPU, and return the differences by probe."""
    text, texts = matrix_module(target, first)
    given = random_bytes(first, THREADS * GIVEN_BYTES)
    blank = np.zeros(THREADS * OUT_BYTES * len(texts), np.uint8)
    arrays = [given.copy(), blank.copy()]
    run = launch(text, 1, THREADS, arrays, engine="reference")
    answer: dict[str, Any] = {"target": target, "first": first, "probes": len(texts), "differences": []}
    if not on_gpu:
        return answer
    left = device().run(text, 1, THREADS, [given, blank])[1]
    here, there = (side.view(np.uint32).reshape(THREADS, len(texts), -1) for side in (arrays[1], left))
    uncertain = {item.line for item in run.inexact_lines}
    for number, (statement, line) in enumerate(texts):
        wrong = here[:, number] != there[:, number]
        if wrong.any():
            thread = int(np.argmax(wrong.any(axis=1)))
            answer["differences"].append({
                "text": statement, "context": matrix_probes(target)[first + number].context, "operands": {},
                "certain": line not in uncertain, "threads": int(wrong.any(axis=1).sum()), "thread": thread,
                "words": [int(count) for count in wrong.sum(axis=0)],
                "here": [hex(int(word)) for word in here[thread, number]],
                "gpu": [hex(int(word)) for word in there[thread, number]],
            })  # fmt: skip
    return answer
