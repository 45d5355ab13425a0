"""The command as a whole: help, errors, exit codes, encodings, pipes and imports."""

import io
import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import warpfrag
from warpfrag.cli import VERB_GROUPS, VERBS, main, verb_command
from warpfrag.cli.io.output import WIDTH
from warpfrag.html import table_lines

NAME = "mma.m16n8k16.f32.f16.f16.f32"
FP8 = "mma.m16n8k32.f32.e4m3.e4m3.f32"
SPARSE = "mma.sp.m16n8k32.f32.f16.f16.f32"
QUERIES = ("find", "get", "aliases", "at", "where", "table", "legal", "products", "relayout", "loads", "stores")
LOOKUPS = [
    ["at", NAME, "a", "5"],
    ["where", NAME, "a", "9", "3", "--json"],
    ["where", SPARSE, "a", "9", "13", "--logical"],
    ["table", NAME, "a"],
    ["get", NAME],
    ["legal", NAME, "--arch", "sm_90"],
    ["products", SPARSE, "9", "3"],
    ["relayout", f"{NAME}:d", f"{NAME}:b"],
    ["identify", "--cute", "((4,8),(2,2)):((16,1),(8,64))", "--shape", "8x16"],
    ["get", NAME, "--to", "triton"],
    ["loads", NAME, "b:col=2", "--pitch", "128", "--swizzle", "128", "--emit", "cuda"],
    ["find", "--long"],
    ["get", "tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16"],
    ["at", "tcgen05.ld.sync.aligned.16x256b.x2.b32", "d", "5"],
    ["draw", "tcgen05.mma.cta_group::1.kind::f16.m64n64k16.f32.f16.f16", "d"],
    ["descriptor", "0x8400490", "--for", "tcgen05.mma.cta_group::1.kind::f16", "idesc"],
    ["--help"],
]


def call(words, **settings):
    """Run the command in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "warpfrag", *words], capture_output=True, encoding="utf-8", check=False, **settings
    )


def test_a_lookup_imports_neither_numpy_nor_ml_dtypes_nor_numba():
    """All lines run in one process; the first line after which a module is imported is reported."""
    code = (
        "import json, sys; from warpfrag.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    code = main(words)\n"
        "    print(json.dumps([code, *sorted({name.partition('.')[0] for name in sys.modules})]), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, json.dumps(LOOKUPS)]
    said = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stderr.splitlines()

    for words, (status, *modules) in zip(LOOKUPS, map(json.loads, said), strict=True):
        assert status == 0, words
        assert {"warpfrag", "click"} <= set(modules)
        assert not {"numpy", "ml_dtypes", "numba"} & set(modules), words


def test_a_verb_imports_no_other_verb():
    code = "import sys; from warpfrag.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, "at", NAME, "a", "5"]
    found = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stderr.split()

    modules = {module for module, _ in VERBS.values()}
    assert [module for module in modules if f"warpfrag.cli.{module}" in found] == ["element_verbs"]


def test_python_m_warpfrag_is_the_command():
    found = call(["--version"])

    assert (found.returncode, found.stdout, found.stderr) == (0, f"warpfrag {warpfrag.__version__}\n", "")


def test_the_command_alone_shows_help_and_a_first_example(run):
    answer = run()

    assert answer.code == 0
    assert "Example:\n  warpfrag where" in answer.out
    assert all(f"\n  {verb} " in answer.out for verb in VERBS)
    headings = [f"{heading}:" for heading in VERB_GROUPS]
    assert [line for line in answer.lines if line in headings] == headings
    assert max(len(group) for group in VERB_GROUPS.values()) <= 10
    assert answer.out == run("--help").out == run("-h").out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(run, verb):
    answer = run(verb, "--help")

    assert answer.code == 0
    assert answer.out.startswith(f"Usage: warpfrag {verb} ")
    assert f"\n  warpfrag {verb} " in answer.out.partition("\nExample")[2]
    assert "--json" in answer.out or verb not in QUERIES
    comments = [example.partition("  #")[2] for example in verb_command(verb).examples]
    assert [comment for comment in comments if re.search(r"\w_\w", comment)] == []  # words, not identifiers


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Return the files that the examples name, in the folder in which they run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.txt").write_text("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" * 16, encoding="utf-8")
    (tmp_path / "sparse.txt").write_text("1 0 0 2 " * 8 * 16, encoding="utf-8")
    (tmp_path / "dump.txt").write_text("0x3f800000 0 0 0x40000000\n" * 32, encoding="utf-8")
    mma, A, B = warpfrag.get(NAME), np.arange(256.0).reshape(16, 16), np.arange(128.0).reshape(16, 8) % 7
    np.save("A.npy", A)
    np.save("B.npy", B)
    np.savetxt("C.txt", np.ones((16, 8)), fmt="%d")
    np.save("D.npy", mma(A, B))
    np.savetxt("a.txt", mma.a.pack(A.T), fmt="0x%08x")
    np.savetxt("full.txt", np.tile([1, 0, 0, 2], (16, 8)), fmt="%d")
    np.savetxt("wide.txt", np.ones((32, 8)), fmt="%d")
    np.savetxt("e.txt", np.full(32, 0xCCCCCCCC), fmt="0x%08x")
    np.savetxt("scales.txt", np.ones((16, 2)), fmt="%d")
    for name, shape in (("A64", (64, 16)), ("B64", (16, 64)), ("D64", (64, 64))):
        np.save(f"{name}.npy", np.zeros(shape))
    np.savetxt("words.txt", np.full(32, 0x7F7F0000), fmt="0x%08x")
    return tmp_path


def examples():
    for verb in (*QUERIES, "pack", "unpack", "diagnose"):
        yield from (example for example in verb_command(verb).examples if ".cu " not in example)  # needs nvcc
    yield from (example for example in verb_command("ptx").examples if "sample:" in example)


@pytest.mark.parametrize("example", list(examples()))
@pytest.mark.usefixtures("files")
def test_the_examples_of_the_help_work(run, example):
    stages = example.partition("  #")[0].split(" | ")
    piped = " ".join(["0x3f800000"] * 32 + ["0x0"] * 96) if stages[0].startswith("cuda-gdb") else ""
    for stage in stages:
        if stage.startswith("warpfrag"):
            answer = run(*shlex.split(stage)[1:], stdin=piped)
            assert answer.code in ({0, 1} if {"legal", "diagnose", "--check"} & {*stage.split()} else {0})
            assert answer.out
            assert not answer.err
            piped = answer.out


def test_an_unknown_verb_suggests_the_nearest(refused):
    assert refused("whre", NAME, "a", 9, 3) == "unknown verb 'whre': the nearest is 'where'"
    assert refused("xyzzy").startswith("unknown verb 'xyzzy': `warpfrag --help` lists the verbs")
    assert refused("run", "k.cu").startswith("unknown verb 'run': use `ptx run` for a kernel, `gpu` for a program")


def test_bad_options_and_arguments_are_one_sentence_that_names_the_help(refused):
    assert refused("at", NAME, "a") == "Missing argument 'LANE' (see warpfrag at --help)"
    assert refused("at", NAME, "a", "x") == (
        "Invalid value for 'LANE': 'x' is not a valid integer (see warpfrag at --help)"
    )
    assert "--jsn" in refused("at", NAME, "a", 5, "--jsn")


def test_an_unknown_instruction_is_refused_with_reason_and_what_is_near(refused):
    message = refused("get", "mma.m16n8k12.f32.f16.f16.f32")

    assert "'m16n8k12' is not a valid shape with mma" in message
    assert "nearest: mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" in message


def test_a_file_of_ptx_is_refused_with_the_verb_for_it(refused):
    assert refused("execute", "saxpy.ptx", "--seed", 1).endswith("; for a whole kernel: warpfrag ptx run saxpy.ptx")
    assert refused("at", "saxpy.cu", "a", 1).endswith("; for a whole kernel: warpfrag ptx info saxpy.cu")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["find", "e4m3", "sm_89"],
            "Got unexpected extra arguments (e4m3 sm_89); expected no arguments; options: --arch --type --a ",
        ),
        (
            ["relayout", "I", "d", "I", "a"],
            "arguments (I a); expected INSTRUCTION:OPERAND INSTRUCTION:OPERAND; options: --permute ",
        ),
        (
            ["ptx", "run", "x.ptx", "--kernel", "k"],
            "No such option '--kernel'; expected ACTION FILE; options: --entry --link ",
        ),
        (["ptx", "run", "sample:rowsum.ptx", "--arg", "100"], "TYPE:NUMBER (such as i32:100)"),
    ],
)
def test_unknown_options_and_arguments_are_answered_with_the_options(refused, words, message):
    assert message in refused(*words)


def test_the_table_of_rules_says_what_its_cells_mean(run):
    assert "\n8/24: 8 products per step, 24 fraction bits kept; fma: " in run("arithmetic-table").out
    assert "8/24: " not in run("arithmetic-table", "sm_90").out


@pytest.mark.parametrize("short", ["m16n8k16", "mma.m16n8k16", "mma.m16n8k16.f16", "m16n8k16.f32.f16.f16.f32"])
def test_a_short_name_is_refused_with_a_command_that_works(run, refused, short):
    message = refused("where", short, "a", 9, 3)
    _, _, command = message.partition("; try: warpfrag ")
    answer = run(*shlex.split(command))

    assert answer.code == 0
    assert answer.out.splitlines()[-1].split() == ["5", "1", "1", "31:16", "a3", "9", "3"]


def test_an_unknown_operand_is_refused_with_those_there_are(refused):
    assert refused("at", NAME, "e", 5).endswith("has no operand 'e'; expected one of a, b, c, d")
    assert refused("at", "ldmatrix.m8n8.x4.b16", "a", 5).endswith("has no operand 'a'; expected one of d, addresses")


def test_an_unknown_target_is_refused_with_those_there_are(refused):
    message = refused("get", NAME, "--arch", "sm_99")

    assert "unknown arch 'sm_99'; expected one of sm_70, sm_72, sm_75, sm_80" in message
    assert "nearest: sm_90, sm_89, sm_90a" in message


@pytest.mark.parametrize("spelling", ["sm_90a", "SM_90A", "sm90a", "90a"])
def test_targets_may_be_written_as_people_do(run, spelling):
    assert run("legal", NAME, "--arch", spelling, "--json").json["arch"] == "sm_90a"


def test_a_refusal_with_json_is_also_an_object_on_stdout(run):
    answer = run("at", NAME, "a", 32, "--json")

    assert answer.code == 2
    assert answer.err == "warpfrag: lane must be in 0..31, got 32\n"
    assert answer.json == {"schema": 2, "error": {"type": "InvalidOperand", "message": "lane must be in 0..31, got 32"}}

    error = run("table", "mma.m16n8k12.f32.f16.f16.f32", "a", "--json").json["error"]

    assert error["type"] == "IllegalInstruction"
    assert error["nearest"][0] == "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    assert error["reason"] in error["message"]


@pytest.mark.parametrize(
    "words",
    [
        ["find", "-a", "e2m1"],
        ["get", NAME],
        ["at", NAME, "a", "5"],
        ["where", NAME, "a", "9", "3"],
        ["table", NAME, "a"],
        ["legal", NAME],
        ["products", NAME, "9", "3"],
        ["relayout", f"{NAME}:a", f"{NAME}:a"],
        ["loads", NAME, "a"],
        ["stores", NAME, "d"],
    ],
    ids=lambda words: words[0],
)
def test_every_query_answers_in_json_with_a_schema(run, words):
    answer = run(*words, "--json")

    assert answer.code == 0
    assert answer.json["schema"] == 2
    assert answer.json["verb"] == words[0]


def test_operands_may_be_written_in_any_case(run):
    assert run("at", NAME, "A", 5).out == run("at", NAME, "a", 5).out
    assert run("at", SPARSE, "Metadata", 5).code == 0


def test_text_falls_back_to_ascii():
    found = {
        encoding: call(["get", NAME], env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}).stdout
        for encoding in ("utf-8", "ascii")
    }

    assert "16\N{MULTIPLICATION SIGN}16" in found["utf-8"]
    assert "16x16" in found["ascii"]
    assert "D = A * B + C" in found["ascii"]
    assert found["ascii"].isascii()


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(("no_color", "is_bold"), [(None, True), ("", True), ("1", False)])
def test_headings_are_bold_on_a_terminal_unless_no_color_is_set(monkeypatch, no_color, is_bold):
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)

    assert main(["at", NAME, "a", "5"]) == 0
    assert ("\x1b[1m" in sys.stdout.getvalue()) == is_bold


def test_output_that_is_no_terminal_has_no_escapes(run):
    assert "\x1b" not in run("get", NAME).out


@pytest.mark.parametrize(
    "words", [["find", "--json"], ["table", "mma.m16n8k256.s32.b1.b1.s32.xor.popc", "a", "--json"]]
)
def test_a_broken_pipe_ends_quietly(words):
    # more than a pipe holds, so that the command is still writing when its reader has gone
    with subprocess.Popen(
        [sys.executable, "-m", "warpfrag", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert errors == b""
    assert process.returncode == 141


def test_words_that_are_no_text_are_refused_quietly():
    found = subprocess.run(
        [sys.executable, "-m", "warpfrag", "get", b"mma\xff"], capture_output=True, encoding="utf-8", check=False
    )

    assert found.returncode == 2
    assert "'mma\\udcff': " in found.stderr


def test_tables_are_aligned():
    assert table_lines(["n", "name"], [[1, "x"], [10, "longer"]]) == [" n  name", " 1  x", "10  longer"]


@pytest.mark.parametrize(
    "words",
    [["get", NAME], ["table", NAME, "a"], ["table", SPARSE, "b"], ["products", SPARSE, "9", "3"]]
    + [["relayout", f"{FP8}:d:col=4", f"{FP8}:a", *more] for more in ([], ["--permute", "col"])]
    + [["loads", NAME, "b:col=2", "--pitch", "128", "--swizzle", "128", "--lanes"], ["stores", NAME, "d", "--search"]],
)
def test_text_fits_the_width(run, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    assert max(map(len, run(*words).lines)) <= WIDTH


def test_json_answers_hold_no_numbers_that_json_has_not(run):
    dump = "7fc00000 ff800000 7f800000 80000000\n" * 32
    found = run("unpack", NAME, "d", "--json", stdin=dump)
    matrix = json.loads(found.out, parse_constant=pytest.fail)["matrix"]

    assert matrix[0][:2] == ["nan", "-inf"]
    assert matrix[8][:2] == ["inf", -0.0]


@pytest.mark.parametrize(("only", "cases"), [("mma.m16n8k16.f32.f16.f16.f32", 24), ("mma.m16n8k16.f32.f16", 216)])
def test_check_takes_names_as_people_write_them(run, only, cases):
    assert run("check", "--only", only, "--json").json["cases"] == cases
