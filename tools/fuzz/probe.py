"""Probe every spelling alone, in the contexts that compilers treat differently.

Each probe is one instruction on values that 64 threads load. Its operands are registers, one register twice, a constant
at each position that accepts one, or only constants; it may have a guard. A kernel has hundreds of probes, so a run
over all spellings takes seconds. A difference names its cause immediately, whereas a random kernel must be traced.
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
from tools.fuzz.spellings import Spelling, accepted
from tools.fuzz.writer import CONSTANT_BELOW, LIMITED, letter, random_constant

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS = 64
GIVEN_BYTES = 1024  # input bytes per thread
PER_MODULE = 250
WIDTHS = {"h": 16, "r": 32, "d": 64}


class Probe(NamedTuple):
    """One instruction in one context."""

    spelling: Spelling
    context: str
    sources: tuple[str | None, ...]  # a constant, or None for a register
    is_same: bool = False
    is_guarded: bool = False


@lru_cache(2)
def probes(target: str) -> list[Probe]:
    """Return every spelling in every context."""
    return list(_probes(target))


def _probes(target: str) -> Iterator[Probe]:
    for spelling in accepted(target):
        random = Random(spelling.name)  # noqa: S311 (no secrets)
        opcode = spelling.row.opcode

        def constant(index: int, spelling: Spelling = spelling, random: Random = random, opcode: str = opcode) -> str:
            kind = spelling.sources[index]
            below = CONSTANT_BELOW.get((opcode, index)) or LIMITED.get((opcode, index))
            if kind is None:
                return str(random.randrange(256))
            return str(random.randrange(below)) if below else random_constant(random, kind)

        fixed = tuple(
            constant(index) if kind is None or (opcode, index) in LIMITED else None
            for index, kind in enumerate(spelling.sources)
        )
        if spelling.has_members:
            fixed = (*fixed[:-1], "-1")
        free = [index for index, text in enumerate(fixed) if text is None]
        yield Probe(spelling, "registers", fixed)
        if not spelling.is_collective:
            yield Probe(spelling, "guarded", fixed, is_guarded=True)
        kinds = [spelling.sources[index] for index in free]
        if len(free) > 1 and len({letter(kind) for kind in kinds if kind is not None}) < len(kinds):
            yield Probe(spelling, "same register", fixed, is_same=True)
        places = [index for index in free if index in spelling.constants]
        for index in places:
            for _ in range(2):
                sources = tuple(constant(index) if at == index else text for at, text in enumerate(fixed))
                yield Probe(spelling, f"constant {index}", sources)
        if places and len(places) == len(free):
            for _ in range(3):
                sources = tuple(constant(at) if text is None else text for at, text in enumerate(fixed))
                yield Probe(spelling, "constants", sources)


class Written(NamedTuple):
    """A probe in a module: its text, its operands' offsets in the input, and its line."""

    text: str
    context: str
    places: tuple[tuple[str, int], ...]
    line: int


def module(target: str, first: int, count: int) -> tuple[str, list[Written]]:
    """Return a module `k(in, out)` with the given probes, and 16 bytes of output per probe and thread."""
    chosen = probes(target)[first : first + count]
    lines = [
        f".version {VERSION}", f".target {target}", ".address_size 64",
        ".visible .entry k(.param .u64 in, .param .u64 out)", "{",
        ".reg .b16 %h<6>; .reg .b32 %r<6>, %thread, %c<4>; .reg .b64 %d<6>, %in, %out; .reg .pred %p<6>, %g;",
        "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %thread, %tid.x;",
        f"mad.wide.u32 %in, %thread, {GIVEN_BYTES}, %in; mad.wide.u32 %out, %thread, {16 * len(chosen)}, %out;",
    ]  # fmt: skip
    written = []
    for number, probe in enumerate(chosen):
        random = Random(f"{probe.spelling.name} {number}")  # noqa: S311 (no secrets)
        written.append(_write(lines, probe, 16 * number, random))
    return "\n".join([*lines, "ret;", "}", ""]), written


def _write(lines: list[str], probe: Probe, at: int, random: Random) -> Written:
    """Write the loads, the instruction and the stores of one probe."""
    spelling = probe.spelling
    places: list[tuple[str, int]] = []

    def given(register: str) -> str:
        place = 8 * random.randrange(GIVEN_BYTES // 8)
        if register[1] in "pg":
            lines.append(f"ld.global.u32 %c3, [%in+{place}]; and.b32 %c3, %c3, 1; setp.ne.u32 {register}, %c3, 0;")
        else:
            lines.append(f"ld.global.b{WIDTHS[register[1]]} {register}, [%in+{place}];")
        places.append((register, place))
        return register

    results = [f"%{letter(kind)}{4 + index}" for index, kind in enumerate(spelling.results)]
    sources: list[str] = []
    for index, (text, kind) in enumerate(zip(probe.sources, spelling.sources, strict=True)):
        if text is not None or kind is None:
            sources.append(text or "0")
            continue
        twin = [source for source in sources if source.startswith(f"%{letter(kind)}")] if probe.is_same else []
        sources.append(twin[0] if twin else given(f"%{letter(kind)}{index}"))
    guard = ""
    if probe.is_guarded:
        for register in results:
            given(register)
        guard = f"@{given('%g')} "
    if spelling.carries_in:
        lines.append(f"add.cc.u32 %c0, {given('%r5') if letter(spelling.sources[0]) != 'r' else '%r0'}, 0x7fffffff;")  # type: ignore[arg-type] # always a Type
    text = f"{guard}{spelling.name} {', '.join(['|'.join(results), *sources])};"
    lines.append(text)
    line = len(lines)
    if spelling.carries_out:
        lines.append("addc.u32 %c1, 0, 0;")
        lines.append(f"st.global.b32 [%out+{at + 8}], %c1;")
    for index, register in enumerate(results):
        where = f"[%out+{at + 8 * index}]"
        if register[1] == "p":
            lines.append(f"selp.u32 %c2, 1, 0, {register}; st.global.b32 {where}, %c2;")
        else:
            lines.append(f"st.global.b{WIDTHS[register[1]]} {where}, {register};")
    return Written(text, probe.context, tuple(places), line)


def compare_probes(target: str, first: int, *, on_gpu: bool = True) -> dict[str, Any]:
    """Run a module of probes on the PTX machine and on the GPU, and return the differences by probe."""
    text, written = module(target, first, PER_MODULE)
    given = random_bytes(first, THREADS * GIVEN_BYTES)
    blank = np.zeros(THREADS * 16 * len(written), np.uint8)
    arrays = [given.copy(), blank.copy()]
    run = launch(text, 1, THREADS, arrays, engine="reference")
    answer: dict[str, Any] = {"target": target, "first": first, "probes": len(written), "differences": []}
    if not on_gpu:
        return answer
    left = device().run(text, 1, THREADS, [given, blank])[1]
    here, there = (side.view(np.uint64).reshape(THREADS, len(written), 2) for side in (arrays[1], left))
    words = given.view(np.uint64).reshape(THREADS, -1)
    uncertain = {item.line for item in run.inexact_lines}
    for number, probe in enumerate(written):
        wrong = np.nonzero((here[:, number] != there[:, number]).any(axis=1))[0]
        if len(wrong):
            thread = int(wrong[0])
            answer["differences"].append({
                "text": probe.text, "context": probe.context, "threads": len(wrong),
                "certain": probe.line not in uncertain,
                "operands": {register: hex(int(words[thread, place // 8])) for register, place in probe.places},
                "here": [hex(int(word)) for word in here[thread, number]],
                "gpu": [hex(int(word)) for word in there[thread, number]],
            })  # fmt: skip
    return answer
