"""Every verb with random and hostile arguments, files and streams: it exits with 0, 1 or 2 and a one-sentence message.

The words are drawn from a seed, and the options are those that the verbs declare: a new option is tried by itself. To
look further: `WARPFRAG_FUZZ=1000 .venv/bin/pytest tests/cli/test_fuzz.py` makes a thousand times as many.
"""

import io
import json
import os
import random
import sys
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path

import click
import numpy as np
import pytest

import warpfrag as wf
from tools.write_capture_index import write
from warpfrag.cli import VERBS, main, verb_command
from warpfrag.cli import installation_verbs as cache
from warpfrag.errors import NoGpu, SchedulerError
from warpfrag.hardware import verification
from warpfrag.sweep import sweep_run as study_run
from warpfrag.tensorcore.captures import capture

TIMES = int(os.environ.get("WARPFRAG_FUZZ", "1"))
COSTLY = {  # what computes or builds the page takes as long as a hundred look-ups
    *("execute", "test-vectors", "explore", "check", "find", "arithmetic-table", "explain", "error-report", "verify"),
    "batch-invariance",
}
NAMES = [
    "mma.m16n8k16.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "mma.sp.m16n8k32.f32.f16.f16.f32",
    "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
    "mma.m8n8k4.row.col.f32.f16.f16.f32",
    "mma.m16n8k128.s32.b1.b1.s32.and.popc",
    "mma.m8n8k4.f64.f64.f64.f64",
    "wmma.mma.row.col.m16n16k16.f32.f32",
    "wmma.load.a.row.m16n16k16.f16",
    "ldmatrix.m8n8.x2.b16",
    "ldmatrix.m8n16.x4.s8.s4",
    "stmatrix.m8n8.x4.b16",
    "movmatrix.m8n8.trans.b16",
]
COMPUTED = NAMES[:3]  # enough to run: each compiles kernels of its own
RIGHT = {  # what a verb seldom gets by chance
    "draw": [NAMES[0], "c"],
    "diagnose": [NAMES[0], "b.npy", "--a", "a.npy", "--b", "b.npy"],
    "identify": ["--cute", "((4,8),(2,2)):((32,1),(16,8))", "--shape", "16x8"],
    "find-order": ["a16.npy", "a16.npy", "a32.npy"],
    "predict": ["a16.npy", "a16.npy"],
    "gemm": ["a16.npy", "a16.npy", "--instruction", NAMES[0]],
    "batch-invariance": ["--n", "64", "--k", "64"],
    "error-report": ["a16.npy", "a16.npy", "--instruction", NAMES[0]],
    "ptx": ["profile", "kernel.ptx"],
    "sweep": ["sweep.toml"],
    "explain": ["a16.npy", "a16.npy", "a16.npy", "a16.npy"],
    "survey": ["layers.toml", "-o", "choices.npz"],
    "where": [NAMES[0], "A[9, 3]"],
}
STUDY = f'instruction = "{NAMES[0]}"\narch = "sm_90"\nshape = [4, 4, 4]\ndata = "normal"\n'.encode()
LAYERS = b'[[layer]]\nn = 64\nk = 64\ntype = "bf16"\n'
KERNEL = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n"
HOSTILE = [
    *["", " ", "-", "--", "-1", "0", "1e9", "nan", "%s%n", "{}", "a b", "a\nb", ".", "..", "/", "--json", "130"],
    *["\x1b[31m", "\udcff", "\N{ARABIC-INDIC DIGIT ONE}", "é" * 300, "x" * 100_000, "9" * 5_000, "-" + "9" * 5_000],
    *["mma", "mma.", "MMA.SYNC", "kind::", "wgmma", "HMMA.16816.F32", "mma.m16n8k16.f32.f16.f16.f32 {%0}, {%1};"],
    *["sm_", "sm_90", "90a", "16-31", "31-16", "0,5-7", "all"],
]


def hostile_files(folder: Path) -> list[str]:
    """Return files of every kind, valid and invalid, and names that are not files."""
    mma = wf.get(NAMES[0])
    np.save(folder / "a.npy", np.eye(16))
    np.save(folder / "b.npy", np.ones((16, 8)))
    np.save(folder / "a16.npy", np.eye(16, dtype=np.float16))
    np.save(folder / "a32.npy", np.eye(16, dtype=np.float32))
    np.save(folder / "codes.npy", np.full((16, 8), 0b0100))
    np.save(folder / "words.npy", mma.a.pack(np.eye(16)))
    np.save(folder / "object.npy", np.array([{}], object), allow_pickle=True)
    np.save(folder / "empty.npy", np.zeros((0, 16)))
    np.save(folder / "complex.npy", np.zeros((16, 16), complex))
    np.savez(folder / "a.npz", a=np.eye(16))
    whole = (folder / "a.npy").read_bytes()
    contents = {
        "matrix.txt": b"1 " * 256,
        "codes.txt": b"0b0100 " * 128,
        "dump.txt": b"0x3f800000 0 0 0x40000000\n" * 32,
        "inexact.txt": b"0.1 " * 256,
        "nan.txt": b"nan " * 256,
        "huge.txt": b"1e999999999 " * 256,
        "long.txt": b"9" * 100_000,
        "word.txt": b"lane" + b" " * 100_000,
        "nothing": b"",
        "binary": random.Random(1).randbytes(5000),
        "nul": bytes(1000),
        "utf16.txt": "1 2".encode("utf-16"),
        "cut.npy": whole[:-1],
        "header.npy": whole[:64],
        "magic.npy": whole[:6],
        "large.npy": whole.replace(b"(16, 16)", b"(99, 9**9)"),
        "pickle": b"\x80\x04N.",
        "kernel.ptx": KERNEL,
        "sweep.toml": STUDY,
        "layers.toml": LAYERS,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere/x")
    names = [path.name for path in folder.iterdir()]
    special = ["/dev/null", "/dev/full", "/dev/zero", "-", "", ".", "a\0b", "x" * 300, "no/such"]
    outputs = ["new.svg", "new.txt", "new.png", "new.npz", "new.json", "new.h", "new.cuh", "new.html", "folder/new"]
    return [*names, *special, *outputs]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Return a folder with hostile files, where nothing reaches a GPU, a scheduler or compiled code, or takes long."""
    monkeypatch.chdir(tmp_path)

    def no_gpu(_device):
        reason = "none"
        raise NoGpu(reason)

    def no_scheduler(*_given):
        reason = "none"
        raise SchedulerError(reason)

    monkeypatch.setattr(verification, "Worker", no_gpu)
    monkeypatch.setattr(study_run, "connected", no_scheduler)
    captured = tmp_path / "captured"
    captured.mkdir()
    integers = wf.get(NAMES[1])
    arrays = {role: np.zeros((3, 32, operand.words), np.uint32) for role, operand in integers.operands.items()}
    entry = {"instruction": integers.name, "selector": None, "classes": {"bits": {role: role for role in arrays}}}
    about = {"device": "GPU", "arch": "sm_80", "driver": "1", "assembler": "x", "entries": [entry]}
    capture.write_capture(captured / "mine.npz", about, arrays)
    write(captured)
    monkeypatch.setattr(capture, "folders", lambda: (captured,))
    monkeypatch.setattr(cache, "code_folders", lambda: [cache.CodeFolder("ptx", tmp_path, ("*.o",))])
    return hostile_files(tmp_path)


class Words:
    """Random arguments for one verb, from its declaration."""

    def __init__(self, verb: str, files: list[str], seed: int) -> None:
        self.random = random.Random(f"{verb} {seed}")
        self.verb = verb
        self.files = files
        self.name = NAMES[0]
        self.params = verb_command(verb).params

    def line(self) -> list[str]:
        chosen = [param for param in self.params if isinstance(param, click.Argument) or self.random.random() < 0.12]
        words = [word for param in chosen for word in self.words(param)]
        if self.verb in RIGHT and self.random.random() < 0.3:
            options = [param for param in chosen if isinstance(param, click.Option)]
            words = [*RIGHT[self.verb], *(word for param in options for word in self.words(param))]
        if self.random.random() < 0.1:
            words.insert(self.random.randrange(len(words) + 1), self.random.choice(HOSTILE))
        if self.random.random() < 0.1 and words:
            del words[self.random.randrange(len(words))]
        return [self.verb, *(word for word in words if "--help" not in word)]

    def words(self, param: click.Parameter) -> list[str]:
        if isinstance(param, click.Argument):
            count = self.random.randrange(3) if param.nargs == -1 else param.required or self.random.randrange(2)
            return [self.value(param) for _ in range(count)]
        option = self.random.choice([*param.opts, *param.secondary_opts])
        if param.is_flag:
            return [option]
        return [option, *(self.value(param) for _ in range(param.nargs))]

    def asks_for_json(self, line: list[str]) -> bool:
        """Return True if --json is an option of the command line, not the value of another option."""
        valued = {name for param in self.params if not getattr(param, "is_flag", False) for name in param.opts}
        return any(word == "--json" and before not in valued for before, word in pairwise(line))

    def value(self, param: click.Parameter) -> str:
        if self.random.random() < 0.08:
            return self.random.choice(HOSTILE)
        if isinstance(param.type, click.Choice):
            return str(self.random.choice([*param.type.choices]))
        if param.name in {"instruction", "instructions", "name", "only"}:
            self.name = self.random.choice(COMPUTED if self.verb in COSTLY else NAMES)
            return self.mutated(self.name)
        if param.name in {"source", "destination"}:  # often the same, so that there is a plan
            role = self.random.choice("abcd")
            return f"{self.mutated(NAMES[self.random.randrange(2)])}:{role}{self.random.choice(['', '', ':col=2'])}"
        if param.name == "operand":
            others = ["A", "b", "C", "d", "metadata", "scale_a", "scale_b", "addresses"]
            return self.random.choice([*wf.get(self.name).operands] * 3 + others)
        if param.name in {"arch", "more"}:
            return self.random.choice(["sm_75", "sm_80", "sm_90", "sm_90a", "SM100a", "120", "sm_120a"])
        if "FILE" in (param.metavar or "") or param.name in {"capture", "report"}:
            return self.random.choice(self.files)
        return str(self.random.choice([0, 0, 1, 1, 2, 3, 5, 7, 7, 15, 16, 31, 32, -1, 10**9]))

    def mutated(self, name: str) -> str:
        if self.random.random() < 0.8:
            return name
        parts = name.split(".")
        change = self.random.randrange(3)
        place = self.random.randrange(len(parts))
        if change == 0:
            del parts[place]
        elif change == 1:
            parts[place] = self.random.choice(HOSTILE)[:1000]
        else:
            self.random.shuffle(parts)
        return ".".join(parts)

    def stdin(self) -> bytes:
        if self.random.random() < 0.3:  # as many words as one of the operands has, or as many numbers
            operand = self.random.choice([*wf.get(self.name).operands.values()])
            return b"0 " * (32 * operand.words if self.verb == "unpack" else np.prod(operand.shape))
        file = Path(self.random.choice(["matrix.txt", "dump.txt", "codes.txt", *sorted(os.listdir())]))  # noqa: PTH208
        return file.read_bytes() if file.is_file() else b""


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_ends_as_it_says(run, files, verb):
    statuses = set()
    for number in range(TIMES * (10 if verb in COSTLY else 100)):
        words = Words(verb, files, number)
        line = words.line()
        answer = run(*line, stdin=words.stdin())
        said = f"{[word[:100] for word in line]}: {answer.code}\n{answer.err[:2000]}"

        statuses.add(answer.code)
        assert answer.code in {0, 1, 2}, said
        assert len(answer.err) < 5000, said
        assert all(character.isprintable() or character in "\n\t" for character in answer.out + answer.err), said
        if answer.code == 2:
            assert answer.err.startswith("warpfrag: "), said
            assert answer.err.count("\n") == 1, said
        if words.asks_for_json(line) and answer.out:
            assert json.loads(answer.out)["schema"] == 2, said
    # that nothing but refusals came would show little
    assert statuses >= ({2} if verb in {*NEEDS_GPU, "ptx"} else {0, 2})


ANSWERED = {  # a line of every verb that prints an answer
    "gpu": ["--list"],
    "record": ["-o", "launches", "--", "true"],
    "replay": ["launches"],
    "get": NAMES[:1],
    "legal": NAMES[:1],
    "emit": NAMES[:1],
    "test-vectors": NAMES[:1],
    "execute": NAMES[:1],
    "find": ["--op", "movmatrix"],
    "at": [NAMES[0], "a", "5"],
    "where": [NAMES[0], "a", "9", "3"],
    "table": [NAMES[0], "a"],
    "products": [NAMES[0], "0", "0"],
    "pack": [NAMES[0], "a"],
    "unpack": [NAMES[0], "a"],
    "diagnose": RIGHT["diagnose"],
    "relayout": [f"{NAMES[0]}:d:col=2", f"{NAMES[0]}:a"],
    "loads": [NAMES[0], "a", "--pitch", "128"],
    "stores": [NAMES[0], "d", "--pitch", "128"],
    "draw": [NAMES[0]],
    "explore": ["-o", "explorer.html"],
    "samples": [],
    "cache": [],
    "tools": [],
    "check": [],
    "verify": [NAMES[0]],
    "aliases": ["HMMA.16816.F32"],
    "descriptor": ["0x4000004000000000"],
    "identify": RIGHT["identify"],
    "find-order": RIGHT["find-order"],
    "gemm": RIGHT["gemm"],
    "batch-invariance": [*RIGHT["batch-invariance"], "--m", "1", "2"],
    "predict": RIGHT["predict"],
    "error-report": RIGHT["error-report"],
    "sweep": RIGHT["sweep"],
    "ptx": ["info", "kernel.ptx"],
    "arithmetic-table": ["sm_90", "--for", NAMES[0]],
    "explain": RIGHT["explain"],
    "survey": RIGHT["survey"],
}
NEEDS_GPU = {"verify", "survey", "record", "replay"}
CHEAP = {"at", "legal", "pack", "unpack", "samples", "descriptor", "emit", "survey"}  # one of each way to print
FULL, BROKEN, CLOSED, WRONG_WAY = "full", "broken", "closed", "wrong way"
FAILING = [CLOSED, BROKEN, WRONG_WAY] + [FULL] * (sys.platform == "linux")  # only Linux has /dev/full


def stream(kind: str) -> io.TextIOWrapper | None:
    """A stream that fails at the first byte; Python replaces one that was closed before the start by None."""
    if kind == CLOSED:
        return None
    if kind == FULL:
        return open("/dev/full", "w", encoding="utf-8")  # noqa: PTH123 (the test closes it)
    reading, writing = os.pipe()
    if kind == BROKEN:
        os.close(reading)
        return open(writing, "w", encoding="utf-8")  # noqa: PTH123
    os.close(writing)
    return open(reading, "w", encoding="utf-8", closefd=True)  # noqa: PTH123


@pytest.mark.parametrize("verb", [pytest.param(verb, marks=[pytest.mark.slow] * (verb not in CHEAP)) for verb in VERBS])
@pytest.mark.usefixtures("files")
def test_every_verb_meets_streams_that_fail(run, monkeypatch, verb):
    line = [verb, *ANSWERED[verb]]
    stdin = Path("matrix.txt" if verb == "pack" else "dump.txt").read_bytes()
    usual = run(*line, stdin=stdin)
    assert usual.code in ({2} if verb in NEEDS_GPU else {0, 1}), usual.err
    for place, kind in product(("stdout", "stderr", "stdin"), FAILING):
        with monkeypatch.context() as patched:
            given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
            patched.setattr("sys.stdin", given)
            failing = stream(kind)
            patched.setattr(f"sys.{place}", failing)
            status = main(line)
            if failing is not None:
                with suppress(OSError):
                    failing.close()
        expected = usual.code
        if place == "stdout" and (verb not in NEEDS_GPU or kind == CLOSED):
            expected = 141 if kind == BROKEN else 2
        elif place == "stdin" and verb in {"pack", "unpack"}:
            expected = 2
        assert status == expected, (place, kind)


@pytest.mark.parametrize("words", [[""], ["\x1b"], ["x" * 100_000], ["--x"], ["-"], ["FIND"]])
def test_words_that_name_no_verb_are_refused(refused, words):
    assert len(refused(*words)) < 1000
