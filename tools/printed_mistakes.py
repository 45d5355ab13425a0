"""Plant random mistakes, print D as users do, and count how many of them `diagnose` finds.

    python -m tools.printed_mistakes [--count 500] [--seed 0]

Half of the mistakes are made here with plain index arithmetic, and half are drawn from the list of `diagnose`. D is
printed with %f, %g, %.2f or %08x (integers: %d or %08x), as a matrix or by register with one of several labels. The
text is then read back and diagnosed. The answer for the exact codes of D is the reference: a mistake is found if the
answer for the text contains one of the reference's findings. It is misdiagnosed if the first finding is a different
one, and the answer says neither that there are too few digits nor how to tell the findings apart.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import warpfrag as wf
from warpfrag.cli.io.result_files import read_result
from warpfrag.diagnosis.diagnose import Diagnosis
from warpfrag.diagnosis.mistakes import suspects
from warpfrag.tensorcore.execute import execute_registers
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand

Words = NDArray[np.uint32]
Change = Callable[[Operand, Words, np.random.Generator], Words]
INSTRUCTIONS = (
    "mma.m16n8k16.f32.f16.f16.f32",
    "mma.m16n8k8.f32.f16.f16.f32",
    "mma.m16n8k16.f16.f16.f16.f16",
    "mma.m16n8k16.f32.bf16.bf16.f32",
    "mma.m16n8k8.f32.tf32.tf32.f32",
    "mma.m16n8k32.f32.e4m3.e4m3.f32",
    "mma.m16n8k32.s32.s8.s8.s32",
    "mma.m16n8k32.s32.u8.u8.s32",
    "mma.m8n8k4.f64.f64.f64.f64",
)
FLOATS, INTEGERS = ("%f", "%g", "%.2f", "%08x"), ("%d", "%08x")
ARRANGEMENTS = ("matrix", "lane {}: ", "T{} ", "{}: ", "lanes without labels")
LANE = np.arange(32)
ARCH = "sm_90"


def of_matrix(change: Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]) -> Change:
    """Return a change of registers that changes the matrix in them."""

    def changed(operand: Operand, words: Words, random: np.random.Generator) -> Words:
        codes = operand.unpack(words, raw=True)
        return operand.pack(np.ascontiguousarray(change(codes, random)).reshape(codes.shape), raw=True)

    return changed


def swap_registers(operand: Operand, words: Words, random: np.random.Generator) -> Words:
    """Exchange two registers."""
    if operand.regs < 2:
        return words
    first, second = random.choice(operand.regs, 2, replace=False)
    order = [{first: second, second: first}.get(reg, reg) for reg in range(operand.regs)]
    return words.reshape(32, operand.regs, -1)[:, order].reshape(words.shape)


def swap_halves(operand: Operand, words: Words, _: np.random.Generator) -> Words:
    """Exchange the halves of every register."""
    return words << np.uint32(16) | words >> np.uint32(16) if operand.slots == 2 else words


def turned_blocks(codes: NDArray[Any], _: np.random.Generator) -> NDArray[Any]:
    """Transpose every 8 x 8 block, as ldmatrix .trans does."""
    rows, cols = codes.shape
    if rows % 8 or cols % 8:
        return codes
    return codes.reshape(rows // 8, 8, cols // 8, 8).transpose(0, 3, 2, 1)


def other_stride(codes: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Read a row-major matrix with a padded leading dimension; memory after it is zero."""
    rows, cols = codes.shape
    stride = cols + int(random.choice([1, 2, 4, 8]))
    memory = np.concatenate([codes.reshape(-1), np.zeros(rows * stride, codes.dtype)])
    padded: NDArray[Any] = memory[np.arange(rows)[:, None] * stride + np.arange(cols)]
    return padded


CHANGES: tuple[Change, ...] = (
    swap_registers,
    swap_halves,
    lambda _, words, random: words[LANE ^ int(random.choice([1, 2, 4, 8, 16]))],
    lambda _, words, random: np.roll(words, int(random.choice([-4, -1, 1, 4])), axis=0),
    lambda _, words, _random: words[LANE % 4 * 8 + LANE // 4],
    of_matrix(lambda codes, _: codes.T),
    of_matrix(lambda codes, _: codes.reshape(codes.shape[::-1]).T),
    of_matrix(turned_blocks),
    of_matrix(lambda codes, _: codes[np.arange(len(codes)) & (len(codes) // 2 - 1)]),
    of_matrix(lambda codes, _: codes[:, np.arange(codes.shape[1]) & (codes.shape[1] // 2 - 1)]),
    of_matrix(lambda codes, random: np.roll(codes, 1, axis=int(random.integers(2)))),
)
INPUT_CHANGES: tuple[Change, ...] = (*CHANGES, of_matrix(other_stride))


@dataclass(frozen=True)
class Case:
    """A planted mistake: the inputs, the wrong registers of D, and their text."""

    mma: Instruction
    A: NDArray[Any]
    B: NDArray[Any]
    d: Words
    text: str
    printed: str


def cases(seed: int) -> Iterator[Case]:
    """Yield planted mistakes that the printed digits show."""
    random = np.random.default_rng(seed)
    while True:
        mma = wf.get(str(random.choice(INSTRUCTIONS)))
        words, matrices = {}, {}
        for role, operand in (("a", mma.a), ("b", mma.b)):
            numbers = random.integers(-9 if operand.format.signed else 0, 10, operand.shape).astype(float)
            if operand.format.is_float and random.random() < 0.7:
                numbers = random.normal(size=operand.shape)
            words[role] = operand.pack(numbers, rounding="rne")
            matrices[role] = operand.unpack(words[role])
        words["c"] = np.zeros((32, mma.c.words), np.uint32)
        role = str(random.choice(["a", "b", "d"]))
        change = _change({"a": mma.a, "b": mma.b}.get(role, mma.d), role, random)
        right = execute_registers(mma, words, arch=ARCH)
        wrong = change(right) if role == "d" else execute_registers(mma, words | {role: change(words[role])}, arch=ARCH)
        number = str(random.choice(FLOATS if mma.d.format.is_float else INTEGERS))
        arranged = str(random.choice(ARRANGEMENTS))
        text = write(mma.d, wrong, number, arranged)
        if text != write(mma.d, right, number, arranged):
            yield Case(mma, matrices["a"], matrices["b"], wrong, text, f"{number} {arranged}")


def _change(operand: Operand, role: str, random: np.random.Generator) -> Callable[[Words], Words]:
    if random.random() < 0.5:
        listed = suspects(operand)
        kind = random.choice(sorted({mistake.kind for mistake in listed}))
        alike = [mistake for mistake in listed if mistake.kind == kind]
        return alike[int(random.integers(len(alike)))].change
    some = CHANGES if role == "d" else INPUT_CHANGES
    change = some[int(random.integers(len(some)))]
    return lambda words: change(operand, words, random)


def write(operand: Operand, words: Words, number: str, arranged: str) -> str:
    """Return D as a kernel prints it."""
    codes = operand.unpack(words, raw=True)
    values = operand.unpack(words)
    if arranged == "matrix":
        rows = (codes if number == "%08x" else values).tolist()
    elif number == "%08x":
        rows = words.tolist()
    else:
        places = np.array([operand.layout.at(**place._asdict()) for place in operand.layout.places()])
        rows = values[tuple(places.T)].reshape(32, -1).tolist()
    digits = number.replace("8", str(operand.format.bits // 4)) if arranged == "matrix" else number
    label = arranged if "{}" in arranged else ""
    return "\n".join(label.format(line) + " ".join(digits % value for value in row) for line, row in enumerate(rows))


def judge(case: Case) -> str:
    """Return found, missed or misdiagnosed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "dump.txt")
        file.write_text(case.text, encoding="utf-8")
        observed = read_result(str(file), case.mma.d)
    answer = wf.diagnose(case.mma, observed, case.A, case.B)
    exact = wf.diagnose(case.mma, case.d, case.A, case.B)
    if _findings(answer) & _findings(exact):
        is_first = answer[0] in exact[:]
        is_open = not answer.is_certain or any("to tell" in note for note in answer.notes)
        return "found" if is_first or is_open else "misdiagnosed"
    if answer.correct or not answer or not answer.is_certain:
        return "missed"
    return "misdiagnosed"


def _findings(answer: Diagnosis) -> set[tuple[str, str, str]]:
    return {(finding.kind, finding.operand, finding.text) for finding in answer}


def main() -> int:
    """Print the counts; the exit status is 1 if fewer than 98 % are found, or one is misdiagnosed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="number of mistakes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mistakes")
    arguments = parser.parse_args()
    by_print: dict[str, Counter[str]] = {}
    for number, case in zip(range(arguments.count), cases(arguments.seed), strict=False):
        verdict = judge(case)
        by_print.setdefault(case.printed, Counter())[verdict] += 1
        if verdict != "found":
            print(f"{number}: {verdict}: {case.mma.name}, {case.printed}")
    total: Counter[str] = sum(by_print.values(), Counter())
    for printed, counts in sorted(by_print.items()):
        print(f"{printed:30} {dict(counts)}")
    print(dict(total))
    return int(total["found"] < 0.98 * total.total() or total["misdiagnosed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
