"""Exit statuses and streams: closed, full, broken or hostile streams cause a message, never a traceback."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

import warpfrag
from warpfrag.cli import main
from warpfrag.cli.io.arguments import complete_file, complete_instruction
from warpfrag.cli.io.output import STATUSES, ProgressLine, printable

NAME = "mma.m16n8k16.f32.f16.f16.f32"
WARPFRAG = f"{shlex.quote(sys.executable)} -m warpfrag"
ANOTHER_PAGE = """
import sys
from warpfrag.viz import explorer
from warpfrag.cli import main
explorer.build_page = lambda _url: "x" * 9999
sys.exit(main())
"""
needs_full = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full")
SHORT = f"{shlex.quote(sys.executable)} -c {shlex.quote(ANOTHER_PAGE)}"


def shell(command, warpfrag=WARPFRAG, **settings):
    """Run a shell command in which `warpfrag` is this installation."""
    line = command.replace("warpfrag", warpfrag, 1)
    return subprocess.run(["sh", "-c", line], capture_output=True, encoding="utf-8", check=False, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        ("warpfrag samples >&-", 2, "cannot write the output: stdout is closed"),
        ("warpfrag --help >&-", 2, "cannot write the output: stdout is closed"),
        pytest.param(
            "warpfrag samples >/dev/full", 2, "cannot write the output: No space left on device", marks=needs_full
        ),
        pytest.param("warpfrag --help >/dev/full", 2, "No space left on device", marks=needs_full),
        ("warpfrag samples </dev/null 1</dev/null", 2, "cannot write the output: Bad file descriptor"),
        (f"warpfrag pack {NAME} a <&-", 2, "expected a file, or input on stdin, which is closed"),
        (f"warpfrag unpack {NAME} a 0>/dev/null", 2, "cannot read stdin: "),
        (f"head -c 20000000 /dev/zero | warpfrag unpack {NAME} a", 2, "stdin: it has more than 16777216 bytes"),
        (f"warpfrag legal {NAME} --arch sm_70 2>&-", 1, None),
        ("warpfrag at zz a 1 2>&-", 2, None),
        pytest.param("warpfrag at zz a 1 2>/dev/full", 2, None, marks=needs_full),
        ("warpfrag samples <&- >&- 2>&-", 2, None),
    ],
)
def test_a_stream_that_fails_is_an_error(command, status, error):
    done = shell(command)

    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert not done.stdout or status == 1
    assert error is None or (done.stderr.count("\n") == 1 and error in done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        "explore -o old.html",  # of a page that need not be built
        f"emit {NAME} -o old.cuh",
        f"draw {NAME} -o old.svg",
        f"test-vectors {NAME} -o old.npz",
    ],
)
def test_a_full_disk_leaves_the_old_file(tmp_path, words):
    old = tmp_path / words.split()[-1]
    old.write_bytes(b"old")
    # a file of this process may have one block: writing more fails as on a full disk
    done = shell(f"ulimit -f 1; warpfrag {words}", SHORT if words.startswith("explore") else WARPFRAG, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr == f"warpfrag: cannot write '{old.name}': File too large\n"
    assert old.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [old.name]


@pytest.mark.parametrize("verb", ["samples", "--help", "--version"])
def test_a_pipe_that_nobody_reads_ends_quietly(verb):
    # `false` closes the pipe before anything is written to it
    done = shell(f"{{ sleep 0.2; warpfrag {verb}; echo $? >&2; }} | false")

    assert done.stderr == "141\n"


def test_the_help_says_what_the_exit_statuses_mean(run):
    section = run("--help").out.partition("Exit status:\n")[2]

    assert re.findall(r"^  (\d+) +[A-Z]", section, re.MULTILINE) == ["0", "1", "2", "3", "130", "141"]
    assert [*STATUSES] == [0, 1, 2, 3, 130, 141]


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (KeyError("x\x1b[31m\ny"), 3, "internal error (KeyError: "),
        (RecursionError("too deep"), 3, "internal error (RecursionError: 'too deep'); "),
        (OSError(24, "Too many open files", "x"), 2, "Too many open files: 'x'"),
        (EOFError("no data left"), 3, "internal error (EOFError: 'no data left'); "),
        (MemoryError(), 2, "not enough memory"),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_what_nobody_foresaw_is_one_line(run, monkeypatch, error, status, sentence):
    def fail(*_):
        raise error

    monkeypatch.setattr("warpfrag.cli.io.operand_view.operand_view", fail)
    monkeypatch.delenv("WARPFRAG_TRACEBACK", raising=False)
    answer = run("table", NAME, "a")

    assert answer.code == status
    assert answer.err.strip("\n").count("\n") == 0
    assert "\x1b" not in answer.err
    assert answer.err.strip("\n").startswith(f"warpfrag: {sentence}" if sentence else "")
    monkeypatch.setenv("WARPFRAG_TRACEBACK", "1")
    assert ("Traceback" in run("table", NAME, "a").err) == (status == 3)
    answer = run("table", NAME, "a", "--json")
    assert answer.code == status
    if sentence:
        facts = json.loads(answer.out)["error"]
        assert facts["type"] == type(error).__name__
        assert facts["message"].startswith(sentence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["get", "mma.\x1b[31m"],
        ["\x1b[31m"],
        ["at", NAME, "a", "5", "--\x1b[31m"],
        ["at", NAME, "a", "5", "0", "0", "\x1b[31m"],
        ["at", NAME, "\x1b[31m", "5"],
        ["find", "--shape", "\x1b[31m"],
        ["find", "--arch", "\x1b[31m"],
        ["draw", NAME, "--rows", "\x1b[31m"],
        ["draw", NAME, "-o", "\x1b[31m"],
        ["draw", "--figure", "\x1b[31m"],
        ["test-vectors", NAME, "-o", "\x1b[31m"],
        ["check", "--only", "\x1b[31m"],
        ["pack", NAME, "a", "\x1b[31m"],
        ["verify", "\x1b[31m"],
        ["legal", "mma.\x1b[31m"],
        ["emit", NAME, "-o", "\x1b[31m.cuh"],
        pytest.param(["explore", "-o", "\x1b[31m.html"], marks=pytest.mark.slow),
    ],
)
def test_what_a_user_types_does_not_steer_the_terminal(run, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    answer = run(*words)

    assert "\x1b" not in answer.out + answer.err
    assert "\\x1b" in answer.out + answer.err
    repeated = run(*(word.replace("\x1b[31m", "x" * 100_000) for word in words))
    assert len(repeated.out + repeated.err) < 5000
    assert repeated.code in {1, 2}


def test_text_is_left_alone():
    assert printable("A · B, 16\N{MULTIPLICATION SIGN}16\n\té") == "A · B, 16\N{MULTIPLICATION SIGN}16\n\té"
    assert printable("\r\b\u202e\udcff\x9b") == r"\r\x08\u202e\udcff\x9b"


class Terminal:
    encoding = "ascii"
    text = ""

    def write(self, text):
        self.text += text

    def flush(self): ...

    def isatty(self):
        return True


def test_progress_is_one_line_that_is_taken_away(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "41")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with ProgressLine() as progress:
        progress.show(1, 3, "mma\x1b")
        assert terminal.text.split("\r")[-1] == "[##########....................] 1/3 mma"
        progress.clear()
    blank = " " * 40
    assert terminal.text.split("\r")[-3:] == ["", blank, ""]
    assert all(len(part) in {0, 40} for part in terminal.text.split("\r"))
    monkeypatch.setattr("sys.stderr", None)
    with ProgressLine(lines=True) as progress:
        progress.show(1, 3, "mma")


def test_progress_has_an_estimate_after_a_few_seconds(monkeypatch):
    times = iter([0.0, 0.0, 10.0, 10.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    progress = ProgressLine()
    progress.show(2, 12, "first")
    assert terminal.text.endswith("] 2/12 first")
    progress.show(3, 12, "second")
    assert terminal.text.endswith("] 3/12, about 2 min left, second")


def test_progress_elsewhere_is_a_line_per_step_if_it_is_worth_one(capsys):
    for lines in (False, True):
        with ProgressLine(lines=lines) as progress:
            progress.show(1, 2, "first")
            progress.show(2, 2, "second")

    assert capsys.readouterr().err == "[1/2] first\n[2/2] second\n"


@pytest.mark.parametrize(
    ("words", "at", "offered"),
    [
        ("warpfrag whe", 1, {"where"}),
        ("warpfrag at mma.m16n8k16.row.col.f32.f16", 2, {"mma.m16n8k16.row.col.f32.f16.f16.f32"}),
        ("warpfrag at mma.m16n8k16.f32.f", 2, {"mma.m16n8k16.f32.f16.f16.f32"}),
        ("warpfrag at mma.m8n8k4.r", 2, {"mma.m8n8k4.row.col.f32.f16.f16.f32", "mma.m8n8k4.row.row.f32.f16.f16.f32"}),
        ("warpfrag unpack x b sample:A", 4, {"sample:A.txt", "sample:A.npy"}),
        ("warpfrag unpack x b sample", 4, {"sample:A.txt"}),
        ("warpfrag at mma.sync.aligned.m8n8k4.row.col.f64", 2, {"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"}),
        ("warpfrag at mma.sp.m16n8k32.f32.f16.f16.f32 m", 3, {"metadata"}),
        ("warpfrag at nonsense s", 3, {"scale_a", "scale_b"}),
        ("warpfrag execute x --arch sm_8", 4, {"sm_80", "sm_86", "sm_87", "sm_88", "sm_89"}),
        ("warpfrag legal x --arch sm_8", 4, {"sm_80", "sm_86", "sm_87", "sm_88", "sm_89"}),
        ("warpfrag legal x --arch rtx-40", 4, {"rtx-4090", "rtx-4060"}),
        ("warpfrag find -a e", 3, {"e4m3", "e5m2", "e2m1"}),
        ("warpfrag find --type nv", 3, {"nvfp4"}),
        ("warpfrag aliases ldmatrix.sync.aligned.m8n8.x4.tr", 2, {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"}),
    ],
)
def test_a_shell_completes_words(words, at, offered):
    code = "import sys; from warpfrag.cli import main\ntry: main([])\nfinally: print('numpy' in sys.modules)"
    environment = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(at), "_WARPFRAG_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, encoding="utf-8", check=True
    )

    *lines, numpy_is_loaded = done.stdout.splitlines()
    assert {line.partition(",")[2] for line in lines} >= offered
    assert all(line.partition(",")[2].startswith(words.split()[at]) for line in lines)
    assert numpy_is_loaded == "False"


def test_names_of_files_are_left_to_the_shell():
    assert [item.type for item in complete_file(None, None, "sample_")] == ["file"]


@pytest.mark.parametrize("start", ["mma.m", "mma.sp.m", "wmma.mma.row", "wgmma.mma_async.m", "ldmatrix.m"])
def test_short_names_that_a_shell_offers_mean_an_instruction_each(start):
    names = complete_instruction(None, None, start)

    assert len({warpfrag.get(name) for name in names}) == len(names) > 20


@pytest.mark.parametrize(("shell", "at"), [("zsh", "3"), ("fish", "nvf")])
def test_other_shells_complete_too(shell, at):
    """Each shell requests completions in its own way; docs/reference/cli.md has the lines for its startup file."""

    def ask(instruction, **more):
        environment = {**os.environ, "_WARPFRAG_COMPLETE": f"{shell}_{instruction}", **more}
        command = [sys.executable, "-m", "warpfrag"]
        return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False).stdout

    assert "nvfp4" in ask("complete", COMP_WORDS="warpfrag find -a nvf", COMP_CWORD=at).replace(",", "\n").splitlines()
    assert f"_WARPFRAG_COMPLETE={shell}_complete" in ask("source")


def test_more_digits_than_python_reads_are_refused(refused):
    digits = "9" * 5000
    for words in (
        ["at", NAME, "a", digits],
        ["execute", NAME, "--seed", digits],
        ["draw", NAME, "a", "--rows", f"0-{digits}"],
        ["where", NAME, "a", digits, "-" + digits],
        ["verify", "--cases", digits],
    ):
        assert len(refused(*words)) < 1000


def test_the_status_is_what_main_returns():
    assert main(["legal", NAME, "--arch", "sm_70"]) == 1
