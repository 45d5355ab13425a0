"""PTX that no programmer would write: mutated files of the test data, and the hostile kernels of `hostile`.

Each is loaded and launched in both engines, with a small limit. Only a WarpfragError may come out, and both engines
have to end alike: with the same error, or with the same memory, findings, counts and output. A test runs a sample;
everything runs in processes of its own, so that a crash is seen and named:

    python tests/ptx/mutations.py --files 5000 --kernels 500 --workers 2
"""
# ruff: noqa: T201 (as a program it prints)

import argparse
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import zipfile
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np

import warpfrag as wf
from warpfrag.machine.jit import llvm_compiler
from warpfrag.ptx.reader.parser import parse

sys.path[:0] = [str(Path(__file__).parent.parent)] if __name__ == "__main__" else []
from ptx.hostile import kernels  # noqa: E402 (as a program it has to be found first)

DATA = Path(__file__).parent.parent / "data" / "ptx"
MAX_FILE = 6_000  # characters of the modules that are mutated: larger ones take seconds to compile
MAX_MODULE = 9_000  # characters of a module of which the kernels are taken
MIXED = ("general",)  # a longer one with many short kernels
SECONDS = 300  # for one case
MAX_CPU_SECONDS = 10  # of one case, in both engines
MEMORY = 6 << 30  # bytes of addresses for a process that runs cases
WORDS = re.compile(r"[%$\w.:]+|\s+|.", re.ASCII | re.DOTALL)
NUMBERS = ("0", "1", "-1", "3", "31", "32", "63", "255", "4096", "65535", "2147483648", "4294967295", "0x7FFFFFFF",
           "9223372036854775807", "18446744073709551615", "18446744073709551616", "-4", "0f7F800000", "1.5", "1e999",
           "0d7FF8000000000001", "99999999999999999999")  # fmt: skip
TYPES = (".b8", ".u8", ".s8", ".b16", ".u16", ".s16", ".f16", ".bf16", ".f16x2", ".b32", ".u32", ".s32", ".f32", ".b64",
         ".u64", ".s64", ".f64", ".b128", ".pred", ".v2", ".v4", ".global", ".shared", ".local", ".param",
         ".const", ".sat", ".ftz", ".rn", ".rz", ".wide", ".hi", ".lo", ".cc", ".approx", ".sync")  # fmt: skip


@cache
def modules() -> dict[str, str]:
    """The texts of the test data, by name."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(DATA.glob("*.ptx"))}
    with zipfile.ZipFile(DATA / "kernels.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".ptx"))
        texts |= {name.removesuffix(".ptx"): archive.read(name).decode() for name in names}
    return {name: text for name, text in texts.items() if len(text) <= MAX_MODULE or name in MIXED}


@cache
def files(name: str) -> list[str]:
    """Return the kernels of a module, each in its own module with everything that it names, if that is short enough."""
    return [text for text in entries_alone(modules()[name]) if len(text) <= MAX_FILE]


def entries_alone(text: str) -> list[str]:
    """The entries of a module, each with the variables and functions that it names."""
    text = re.sub(r"//[^\n]*|\.loc\b[^\n]*", "", text.partition("\n.section")[0] + "\n")
    source = parse(text)
    items = sorted({(item.line, item.name) for item in (*source.functions, *source.variables)})
    lines = text.split("\n")
    starts = [line - 1 for line, _ in items]
    pieces = [
        (name, "\n".join(line for line in lines[start:end] if line.strip()))
        for (_, name), start, end in zip(items, starts, [*starts[1:], len(lines)], strict=True)
    ]
    alone = []
    for entry in source.functions:
        if entry.is_entry and entry.body is not None:
            names, seen = {entry.name}, 0
            while len(names) > seen:
                seen = len(names)
                chosen = "\n".join(piece for name, piece in pieces if name in names)
                names |= {name for name, _ in pieces if re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", chosen)}
            head = f".version 8.7\n.target {source.target}\n.address_size 64\n"
            alone.append(f"{head}{chosen}\n")
    return alone


def mutated(seed: int) -> str:
    """A file of the test data with one to three mutations; the same for the same seed."""
    source = random.Random(seed)
    names = sorted(modules())
    while not (texts := files(source.choice(names))):
        pass
    (text,) = source.choices(texts, [len(text) ** -2 for text in texts])  # short ones more often: they take less time
    for _ in range(source.randint(1, 3)):
        text = source.choice(MUTATIONS)(text, source)
    return text


def flip_bit(text: str, source: random.Random) -> str:
    at = source.randrange(len(text))
    return text[:at] + chr(ord(text[at]) ^ 1 << source.randrange(8)) + text[at + 1 :]


def truncate(text: str, source: random.Random) -> str:
    return text[: source.randrange(1, len(text))] or " "


def change_words(text: str, source: random.Random) -> str:
    """Delete, duplicate, swap or replace a word."""
    words = WORDS.findall(text)
    at, other = source.randrange(len(words)), source.randrange(len(words))
    kind = source.randrange(4)
    if kind == 0:
        words[at] = ""
    elif kind == 1:
        words[at] += f" {words[at]}"
    elif kind == 2:
        words[at], words[other] = words[other], words[at]
    else:
        words[at] = words[other]
    return "".join(words) or " "


def change_lines(text: str, source: random.Random) -> str:
    """Delete, duplicate, swap or move lines."""
    lines = text.split("\n")
    at, other = source.randrange(len(lines)), source.randrange(len(lines))
    kind = source.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        few = lines[at : at + 6]
        source.shuffle(few)
        lines[at : at + 6] = few
    return "\n".join(lines) or " "


def change_number(text: str, source: random.Random) -> str:
    return _replaced(r"(?<![\w$%.])-?\d+(?:U|\b)", NUMBERS, text, source)


def change_type(text: str, source: random.Random) -> str:
    return _replaced(r"\.(?:[busf]\d+|v[24]|global|shared|local|param|rn|wide|lo|sync)\b", ("", *TYPES), text, source)


def change_register(text: str, source: random.Random) -> str:
    """Replace a register with another register, a number or an address."""
    registers = re.findall(r"%[a-z]+\d+", text) or ["%r1"]
    other = source.choice(registers)
    return _replaced(r"%[a-z]+\d+", (other, f"[{other}]", f"{{{other}, {other}}}", "_", "%tid.x", "7"), text, source)


def _replaced(pattern: str, choices: tuple[str, ...], text: str, source: random.Random) -> str:
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    place = source.choice(places)
    return text[: place.start()] + source.choice(choices) + text[place.end() :]


MUTATIONS = (
    flip_bit, truncate, change_words, change_words, change_lines, change_number, change_number, change_type,
    change_type, change_register, change_register,
)  # fmt: skip


def outcome(text: str, engine: str, checks: tuple[str, ...], limit: int) -> dict[str, object]:
    """Return the outcome of a module in an engine: its error, or the memory that its entries left."""
    ends: dict[str, object] = {}
    try:
        module = wf.ptx.load(text if "\n" in text else f"{text}\n")
    except wf.WarpfragError as error:
        return {"error": str(error)}
    for name in module:
        arrays = []
        try:
            kernel = module[name]
            args: list[object] = []
            for parameter in kernel.parameters:
                if parameter.size == 8 and not parameter.is_array:
                    arrays.append(np.arange(2048, dtype=np.uint32) * np.uint32(2654435761))
                    args.append(arrays[-1])
                else:
                    args.append(bytes([1] + [0] * (parameter.size - 1))[: parameter.size])
            required = kernel.program.directives.get("reqntid") or kernel.program.directives.get("maxntid") or (64,)
            block = tuple(size if 0 < size <= 128 else 64 for size in required[:3])
            run = kernel.launch(
                2, block, args, shared=64, options=wf.ptx.LaunchOptions(limit=limit), engine=engine, checks=checks
            )
            facts = [run.printed, [asdict(item) for item in run.findings], asdict(run.counts), run.uncertain]
        except wf.WarpfragError as error:
            text = str(error)
            ends[name] = re.sub(
                r"^line \d+: (?=the launch reached)", "", text
            )  # which line is the last is not promised
            if "the launch reached" in text or (checks and "memory" in checks):
                continue
            facts = []
        else:
            ends[name] = facts
        ends[f"{name} memory"] = [array.tobytes().hex() for array in arrays] if facts or not checks else []
    return ends


def failure(text: str, checks: tuple[str, ...] = (), limit: int = 3000) -> str:
    """Return the problem with an outcome, if there is one: a foreign error, or engines that differ."""
    ends = []
    for engine in ("reference", "compiled"):
        try:
            ends.append(outcome(text, engine, checks, limit))
        except BaseException as error:  # noqa: BLE001 (whatever comes is what is looked for)
            import traceback

            where = traceback.extract_tb(error.__traceback__)[-1]
            return f"{engine}: {type(error).__name__}: {str(error)[:200]} at {Path(where.filename).name}:{where.lineno}"
    if ends[0] != ends[1]:
        for name in ends[0].keys() | ends[1].keys():
            both = [json.dumps(end.get(name), sort_keys=True) for end in ends]
            if both[0] != both[1]:
                at = next((at for at, pair in enumerate(zip(*both, strict=False)) if pair[0] != pair[1]), 0)
                near = slice(max(0, at - 60), at + 60)
                return f"engines differ in {name}: {both[0][near]!r}, {both[1][near]!r}"
    return "" if all(len(str(end)) < 3000 or "memory" in str(end) for end in ends) else "a message is too long"


def case(number: int, count: int) -> tuple[str, tuple[str, ...], int]:
    """Return a text, its checks and its limit: the mutated files come first, then the hostile kernels."""
    if number < count:
        return mutated(number), ((), ("memory", "barriers"))[number % 2], 3000
    kernel = kernels()[number - count]
    return kernel.text, kernel.checks, kernel.limit


def work(first: int, last: int, step: int, count: int) -> None:
    """Run some cases in this process, and print a line before and after each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    cached = llvm_compiler.object_of
    llvm_compiler.object_of = lambda text, level, *rest: (
        cached(text, level, *rest) if level else llvm_compiler.compile_text(text, level)
    )

    def late(*_args: object) -> None:
        msg = f"a case took more than {SECONDS} seconds"
        raise TimeoutError(msg)

    signal.signal(signal.SIGALRM, late)
    for number in range(first, last, step):
        print(json.dumps({"begin": number}), flush=True)
        signal.alarm(SECONDS)
        began = _cpu_seconds()
        wrong = failure(*case(number, count))
        took = round(_cpu_seconds() - began, 2)
        signal.alarm(0)
        if took > MAX_CPU_SECONDS and not wrong:
            wrong = f"it took {took} s"
        print(json.dumps({"end": number, "wrong": wrong, "seconds": took}), flush=True)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of the assemblers that it started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    """Run all cases in several processes; a process that dies is restarted after the case that killed it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--kernels", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", nargs=3, type=int)
    options = parser.parse_args()
    if options.work:
        work(*options.work, options.files)
        return 0
    total = options.files + min(options.kernels, len(kernels()))
    wrong: dict[int, str] = {}
    done, slowest = 0, (0.0, -1)

    def start(first: int) -> tuple[int, subprocess.Popen[str]]:
        command = [sys.executable, __file__, "--files", str(options.files), "--work"]
        numbers = [str(first), str(total), str(options.workers)]
        return first, subprocess.Popen([*command, *numbers], stdout=subprocess.PIPE, text=True)

    running = [start(options.first + worker) for worker in range(options.workers)]
    while running:
        at, process = running.pop(0)
        stream = process.stdout
        line = stream.readline() if stream is not None else ""
        if line:
            fact = json.loads(line)
            if "end" in fact:
                done += 1
                slowest = max(slowest, (fact["seconds"], fact["end"]))
                if done % 100 == 0:
                    print(f"{done} cases", flush=True)
                if fact["wrong"]:
                    wrong[fact["end"]] = fact["wrong"]
                    print(f"case {fact['end']}: {fact['wrong']}", flush=True)
            running.append((fact.get("begin", at), process))
        elif process.wait() != 0:
            wrong[at] = f"the process ended with {process.returncode}"
            print(f"case {at}: {wrong[at]}", flush=True)
            if at + options.workers < total:
                running.append(start(at + options.workers))
    print(f"{done} of {total - options.first} cases ended, {len(wrong)} of them wrong")
    print(f"the slowest is case {slowest[1]}: {slowest[0]} s of CPU time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
