"""Run the examples of a page: every Python block, and every command of a console block.

python docs/examples.py PAGE...            # run them; report differences from the page
python docs/examples.py --write PAGE...    # write the commands' output into the pages

The blocks of a page run in order, in one folder and one Python namespace, so a block may use earlier results.
In shown output, a line of dots stands for any lines, and dots in a line for any text. A command without shown output
must succeed. So must a command inside a sentence or a table, if it names an instruction:
`warpfrag at mma.m16n8k16.f32.f16.f16.f32 a 5`.
A block whose first line is a comment that contains only a name (`# matmul.py`, `// saxpy.cu`) is that file. A later
block with the same name replaces it from there on.
A block after the line `<!-- needs torch triton -->` runs only if these packages are installed.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from warpfrag.cli import main as warpfrag

if TYPE_CHECKING:
    from collections.abc import Iterator

os.environ.setdefault("WARPFRAG_LEVEL", "ptx")  # pages show output that is the same with and without ptxas
BLOCK = re.compile(
    r"(?:^<!-- needs (?P<needs>[\w ]+) -->\n)?^(?P<fence>`{3,})(?P<language>[\w-]+)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"(?:#|//) (\w+\.(?:py|cu|toml|ptx))\n")
INLINE = re.compile(r"`(warpfrag [a-z-]+ [a-z][^`\s]*\.[^`\n]*)`")
DOTS = "..."
# files that a command inside a sentence may read: registers of four words, matrices, a sweep
FILES = {"dump.txt": "0 0 0 0\n" * 32, "A.txt": "0 " * 15 + "0\n", "B.txt": "0 " * 7 + "0\n"}
FILES |= {name: FILES[name] * 16 for name in ("A.txt", "B.txt")}
FILES["sweep.toml"] = """
instruction = "mma.m16n8k16.f32.f16.f16.f32"
arch = "sm_90"
shape = [16, 8, 16]
data = "normal"
"""

# Commands that are shown but not run here, each with the reason.
NOT_RUN = {
    r"warpfrag survey": "it needs a GPU",
    r"warpfrag cache --clear": "others need what it removes",
    r"make\b": "it sets an environment up and takes minutes; continuous integration runs it",
    r"(python -m )?pip\b": "it installs packages",
    r"\.venv/bin/pytest\b": "it is what runs this test",
    r"\.venv/bin/warpfrag\b": "it needs what make installs",
    r"(nvcc|ptxas|cuda-gdb|cuobjdump)\b": "it needs the CUDA toolkit",
    r"git\b": "it changes the checkout",
    r"pre-commit\b": "it needs a git checkout",
    r"warpfrag verify\b": "it needs a GPU",
    r"warpfrag diagnose kernel\.cu": "it needs the reader's kernel",
    r"warpfrag gpu (?!--list)": "it needs a CUDA program",
    r"warpfrag (record|replay)\b": "it needs a GPU, or what was recorded there",
    r"python (docs|examples|benchmarks)/": "it needs the checkout; the tests of that folder run it",
    r"python -m tools\.": "it needs the checkout, and writes into it",
    r"python -m warpfrag\.tensorcore\.kernels": "it compiles every kernel, which takes a minute",
    r"python -m build\b": "it needs a fresh environment",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    start: int
    needs: tuple[str, ...] = ()

    @property
    def is_runnable(self) -> bool:
        """True if the packages that the block needs are installed, or are required."""
        return os.environ.get("WARPFRAG_REQUIRE_TRITON") == "1" or all(map(find_spec, self.needs))


@dataclass
class Outcome:
    """The outcome of a page: the number of examples that ran, those only shown, and the failures."""

    ran: int = 0
    not_run: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    written: str = ""


@dataclass(frozen=True)
class Command:
    """A command line and the output that the page shows for it."""

    line: str
    shown: list[str]


def blocks(page: str) -> list[Block]:
    """Return the Python and console blocks, in order."""
    return [
        Block(
            language=found["language"],
            text=found["text"],
            line=page.count("\n", 0, found.start("fence")) + 1,
            start=found.start("text"),
            needs=tuple((found["needs"] or "").split()),
        )
        for found in BLOCK.finditer(page)
        if found["language"] in {"python", "console"} and not FILE.match(found["text"])
    ]


def files(page: str) -> list[tuple[str, str]]:
    """Return the names and texts of the files that blocks of a page define, in order."""
    return [(file[1], found["text"]) for found in BLOCK.finditer(page) if (file := FILE.match(found["text"]))]


def commands(text: str) -> list[Command]:
    """Return the commands in a console block."""
    if not any(line.startswith("$ ") for line in text.splitlines()):  # no prompt: every line is a command
        return [Command(line, []) for line in text.splitlines() if line.strip()]
    found: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
        elif found and found[-1].line.endswith("\\"):  # a command continues on the next line
            found[-1] = Command(f"{found[-1].line}\n{line}", [])
        elif found:
            found[-1].shown.append(line)
    return found


def reason_not_to_run(line: str) -> str | None:
    """Return the reason why a command is only shown, or None if it is run."""
    bare = re.sub(r"\s+#.*$", "", line.replace("\\\n", " "))
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, bare)), None)


def same(shown: list[str], printed: list[str]) -> bool:
    """Return True if output is as shown; a line of dots stands for any lines, and dots in a line for any text."""
    if not shown:
        return not printed
    if shown[0].strip() == DOTS:
        return any(same(shown[1:], printed[place:]) for place in range(len(printed) + 1))
    line = ".*".join(map(re.escape, shown[0].rstrip().split(DOTS)))
    return bool(printed) and re.fullmatch(line, printed[0].rstrip()) is not None and same(shown[1:], printed[1:])


def stages(line: str) -> tuple[list[list[str]], str | None]:
    """Return the commands of a pipe, as words, and the file that receives the output."""
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars="|>")
    lexer.commenters = "#"
    lexer.wordchars += "#:%,@"
    piped: list[list[str]] = [[]]
    words = iter(lexer)
    file = None
    for word in words:
        if word == "|":
            piped.append([])
        elif word == ">":
            file = next(words)
        else:
            piped[-1].append(word)
    return piped, file


def run_command(line: str) -> tuple[int, str]:
    """Return the exit code and output of a command line: warpfrag, pytest, cat, pipes of these, and > FILE."""
    piped, file = stages(line)
    text, status = "", 0
    for words in piped:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        if words[0] == "cat":
            stream.write(Path(words[1]).read_text(encoding="utf-8"))
        elif words[0] == "warpfrag":
            before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
            try:
                with redirect_stdout(stream), redirect_stderr(stream):
                    status = warpfrag(words[1:])
            finally:
                sys.stdin = before
        elif words[0] == "pytest":
            own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
            finished = subprocess.run(  # noqa: S603 (the page's own tests)
                [sys.executable, "-m", *words], capture_output=True, text=True, check=False, env=own
            )
            stream.write(finished.stdout + finished.stderr)
            status = finished.returncode
        else:
            msg = f"{words[0]!r} is not warpfrag, pytest or cat; if it cannot run here, give the reason in NOT_RUN"
            raise ValueError(msg)
        stream.seek(0)
        text = stream.read()
    if file is not None:
        Path(file).write_text(text, encoding="utf-8")
        text = ""
    return status, text


def run_inline(text: str, outcome: Outcome) -> None:
    """Run the commands inside sentences and tables: each must succeed or answer no."""
    for name, content in FILES.items():
        Path(name).write_text(content, encoding="utf-8")
    for line in INLINE.findall(BLOCK.sub("", text)):
        if reason_not_to_run(line):
            outcome.not_run.append(line)
            continue
        outcome.ran += 1
        status, printed = run_command(line)
        if status > 1:
            outcome.failures.append(f"{line}\nexit code {status}:\n{printed}")


def run_console(block: Block, outcome: Outcome) -> str:
    """Run the commands of a block; return the block with their actual output."""
    written = []
    for command in commands(block.text):
        written.append(f"$ {command.line}" if f"$ {command.line}" in block.text else command.line)
        if reason_not_to_run(command.line):
            outcome.not_run.append(command.line)
            written += command.shown
            continue
        outcome.ran += 1
        status, text = run_command(command.line)
        printed = text.rstrip("\n").splitlines()
        shown = command.shown
        while shown and not shown[-1].strip():
            shown.pop()
        if shown and not same(shown, printed):
            both = "\n".join(["shown:", *shown, "printed:", text])
            outcome.failures.append(f"line {block.line}: {command.line}\n{both}")
        if not shown and status > 1:
            outcome.failures.append(f"line {block.line}: {command.line}\nexit code {status}:\n{text}")
        written += shown if not shown or same(shown, printed) else printed
    return "\n".join(written) + "\n"


def run_python(block: Block, namespace: dict[str, object], outcome: Outcome) -> None:
    """Run a Python block: as a doctest if it is a session, else as a program."""
    outcome.ran += 1
    if ">>> " in block.text:
        name = f"line {block.line}"
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        examples = doctest.DocTestParser().get_doctest(block.text, namespace, name, name, block.line)
        report = io.StringIO()
        runner = doctest.DocTestRunner(verbose=False, optionflags=options)
        if runner.run(examples, out=report.write, clear_globs=False).failed:
            outcome.failures.append(report.getvalue())
        namespace.update(examples.globs)
        return
    try:
        source = compile("\n" * block.line + block.text, "page", "exec")
        with redirect_stdout(io.StringIO()):
            exec(source, namespace)  # noqa: S102 (the page's own code)
    except Exception:  # noqa: BLE001 (any exception from a page's code is a failure of the page)
        outcome.failures.append(f"line {block.line}:\n{traceback.format_exc(limit=-1)}")


@contextmanager
def importable(folder: str) -> Iterator[None]:
    """Make the modules of a folder importable, and forget them afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                del sys.modules[name]


def run_page(path: Path) -> Outcome:
    """Run the examples of a page in a separate folder."""
    text = path.read_text(encoding="utf-8")
    outcome = Outcome(written=text)
    namespace: dict[str, object] = {"__name__": "page"}
    replaced = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder), importable(folder):
        for name, content in reversed(files(text)):  # the first version of each file remains
            Path(name).write_text(content, encoding="utf-8")
        for block in blocks(text):
            for name, content in files(text[: block.start]):
                Path(name).write_text(content, encoding="utf-8")
            if not block.is_runnable:
                outcome.not_run.append(f"line {block.line} needs {' '.join(block.needs)}")
            elif block.language == "python":
                run_python(block, namespace, outcome)
            else:
                replaced.append((block, run_console(block, outcome)))
        run_inline(text, outcome)
    for block, new in reversed(replaced):
        outcome.written = outcome.written[: block.start] + new + outcome.written[block.start + len(block.text) :]
    return outcome


def main(arguments: list[str]) -> int:
    """Run or write pages; return exit code 1 if a page is wrong."""
    os.environ["COLUMNS"] = "100"
    write = "--write" in arguments
    failed = False
    for name in arguments:
        if name == "--write":
            continue
        outcome = run_page(Path(name))
        if write and outcome.written != Path(name).read_text(encoding="utf-8"):
            Path(name).write_text(outcome.written, encoding="utf-8", newline="\n")
        print(f"{name}: {outcome.ran} ran, {len(outcome.not_run)} only shown, {len(outcome.failures)} differ")
        for failure in outcome.failures:
            print(failure)
        failed |= bool(outcome.failures)
    return 1 if failed and not write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
