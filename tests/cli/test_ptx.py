"""`warpfrag ptx info` and `warpfrag ptx run`."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from oracle import toolkit
from warpfrag.cli.io.output import ProgressLine
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.launch.run import Run

DATA = Path(__file__).parent.parent / "data" / "ptx"
MODULES = DATA / "modules"
ADD = str(DATA / "t_add_sm80.ptx")
ARGS = [
    "--arg",
    "x.npy",
    "--arg",
    "y.npy",
    "--arg",
    "out:f32:1000",
    "--arg",
    "i32:1000",
    "--arg",
    "null",
    "--arg",
    "null",
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.arange(1000, dtype=np.float32), (np.arange(1000) ** 2 % 7).astype(np.float32)
    np.save("x.npy", x)
    np.save("y.npy", y)
    return x, y


def test_info_lists_parameters_and_opcodes(run):
    answer = run("ptx", "info", str(DATA / "c_wmma_gemm_sm80.ptx"))

    assert answer.code == 0
    assert "param 0    .u64" in answer.out
    assert "2048 bytes of static shared memory" in answer.out
    assert "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32" in answer.out
    facts = json.loads(run("ptx", "info", ADD, "--json").out)["entries"]
    assert [one["name"] for one in facts] == ["t_add"]
    assert facts[0]["opcodes"]["ret"]["level"] == "specified"


def test_a_cubin_is_inspected_and_run(run, files, monkeypatch):
    monkeypatch.delenv("WARPFRAG_LEVEL")
    toolkit.find_ptxas("sm_90")
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")
    Path("add.cubin").write_bytes(wf.ptx.load(ADD).assemble(arch="sm_90").cubin.data)
    text = run("ptx", "info", "add.cubin").out
    assert text.startswith("Machine code for sm_90;")
    assert "param 3    .b32" in text
    assert run("ptx", "info", "add.cubin", "--json").json["version"] is None
    found = run("ptx", "run", "add.cubin", "--grid", "8", "--block", "128", *ARGS, "-o", "out.npz", "--json").json
    assert found["basis"].startswith("sass sm_90")
    assert np.load("out.npz")["out"].tolist() == (files[0] + files[1]).tolist()


def test_info_is_about_the_architecture_of_a_launch(run):
    def levels(*words):
        answer = run("ptx", "info", "sample:softmax.ptx", "--json", *words).json
        return answer["arch"], [
            answer["entries"][0]["opcodes"][name]["level"] for name in ("ex2.approx.f32", "add.f32")
        ]

    assert levels() == ("sm_90", ["hardware", "hardware"])
    assert levels("--arch", "A100") == ("sm_80", ["approximate", "specified"])  # an H200 says nothing of it
    assert run("ptx", "info", ADD, "--arch", "sm_89").lines[0] == "PTX 8.7 for sm_80; evidence for sm_89"


def test_info_of_a_target_without_a_row_is_about_that_target(run, tmp_path):
    (tmp_path / "later.ptx").write_text(Path(ADD).read_text("utf-8").replace("sm_80", "sm_130"), "utf-8")

    assert run("ptx", "info", tmp_path / "later.ptx").lines[0] == "PTX 8.7 for sm_130; evidence for sm_130"


def test_run_leaves_arrays_in_a_file(run, files):
    x, y = files
    answer = run("ptx", "run", ADD, "--grid", "4", "--block", "128", *ARGS, "-o", "results.npz")

    assert answer.code == 0
    assert "512 warp instructions, PTX semantics for sm_90" in answer.out
    with np.load("results.npz") as results:
        assert sorted(results) == ["out", "x", "y"]
        assert np.array_equal(results["out"], x + y)
    found = json.loads(run("ptx", "run", ADD, "--grid", "4", *ARGS, "--json").out)  # .reqntid is 128
    assert (found["basis"], found["exact"], len(found["inexact"])) == ("ptx", False, 1)
    assert answer.lines[1] == f"not exact: {found['inexact'][0]}"
    assert found["counts"]["written"] == {"global": 4000}
    assert found["counts"]["wavefronts"] == {"global": 3 * 125}
    assert sum(found["counts"]["opcodes"].values()) == 512
    assert "global        8000     4000  375" in answer.out


@pytest.mark.parametrize(
    ("reasons", "line"),
    [
        ((), "exact: yes, every executed spelling was compared with a GPU (column known: evidence for each opcode)"),
        (("a race",), "not exact: a race"),
        (("a race", "ex2", "an order"), "not exact: a race; --json lists 2 more"),
    ],
)
@pytest.mark.usefixtures("files")
def test_run_says_whether_it_is_exact(run, monkeypatch, reasons, line):
    monkeypatch.setattr(Run, "inexact", reasons)

    assert run("ptx", "run", ADD, "--grid", "4", *ARGS).lines[1] == line


def test_findings_come_first_and_are_not_repeated(run):
    lines = run("ptx", "run", "sample:rowsum.ptx", "--block", "128", "--arg", "x:f32:1x128", "--arg", "sums:f32:1",
                "--check", "races").lines  # fmt: skip

    assert lines[1] == "verdict of races: findings"
    assert [line.split(",")[0] for line in lines[2:4]] == ["race", "race"]
    assert lines[4].startswith("not exact: ")
    assert "both access" not in lines[4]


def test_a_launch_that_spins_is_stopped(run, tmp_path):
    (tmp_path / "spin.ptx").write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry spin(.param .u64 flag)\n{\n"
        ".reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .pred %p<2>;\nld.param.u64 %rd1, [flag];\n"
        "ld.global.u32 %r1, [%rd1];\nL:\nshl.b32 %r1, %r1, 1;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;\nret;\n}\n",
        encoding="utf-8",
    )
    command = ("ptx", "run", str(tmp_path / "spin.ptx"), "--arg", "flag:u32:1", "--check", "all", "--launch-seconds")
    answer = run(*command, "0.5")

    assert answer.code == 2
    assert "the launch was stopped after 0.5 s (--launch-seconds, LaunchOptions.seconds); this line was running" in (
        answer.err
    )
    assert run(*command, "-3").code == 2


def test_names_are_those_of_cxx_and_variables_are_listed(run):
    answer = run("ptx", "info", str(MODULES / "symbols.ptx"), "--entry", "nested")
    facts = json.loads(run("ptx", "info", str(MODULES / "symbols.ptx"), "--entry", "nested", "--json").out)

    assert "nested(float***, Node const*)\n" in answer.out
    assert "physics::scale  .global  .f64  ()         8" in answer.out
    assert facts["entries"][0]["readable_name"] == "nested(float***, Node const*)"
    assert facts["variables"][-1] == {
        "name": "_ZN7physics5scaleE", "readable_name": "physics::scale", "space": "global", "type": "f64", "shape": [],
        "bytes": 8,
    }  # fmt: skip


@pytest.mark.usefixtures("files")
def test_variables_are_set_and_written(run):
    np.save("table.npy", np.arange(8, dtype=np.float32))
    words = ["--entry", "count", "--arg", "out:u32:2", "--symbol", "counter=40", "--symbol", "calls"]
    answer = run("ptx", "run", str(MODULES / "symbols.ptx"), *words, "--symbol", "table=table.npy", "-o", "results.npz")

    assert "count(unsigned int*): " in answer.out
    with np.load("results.npz") as results:
        assert {name: results[name].tolist() for name in ("out", "counter", "calls")} == {
            "out": [40, 8], "counter": 47, "calls": 8,
        }  # fmt: skip
        assert results["table"].view(np.float32).tolist() == list(range(8))


@pytest.mark.usefixtures("files")
def test_linked_modules_cooperative_grids_and_tables_of_pointers(run):
    linked = ["--link", str(MODULES / "link_b.ptx"), "--entry", "first", "--shared", "64", "--arg", "x:f32:4"]
    answer = run("ptx", "run", str(MODULES / "link_a.ptx"), *linked, "--block", "4", "-o", "linked.npz")
    words = ["--entry", "two", "--grid", "3", "--arg", "a:i32:96", "--arg", "out:i32:96", "--arg", "i32:96"]
    run("ptx", "run", str(MODULES / "cooperative.ptx"), *words, "--cooperative", "-o", "grid.npz")
    tables = [
        "--entry",
        "batched",
        "--block",
        "4",
        "--arg",
        "[x.npy,null]",
        "--arg",
        "[c:f32:4, d:f32:4]",
        "--arg",
        "i32:2",
    ]
    run("ptx", "run", str(MODULES / "symbols.ptx"), *tables, "-o", "tables.npz")

    assert answer.out.startswith("counter 15\nfirst(float*): ")
    assert np.load("linked.npz")["x"].tolist() == [2112] * 4
    assert np.load("grid.npz")["out"].tolist() == [(i + 32) % 96 * 3 + 96 for i in range(96)]
    assert (np.load("tables.npz")["c"].tolist(), np.load("tables.npz")["d"].tolist()) == ([0, 1, 2, 3], [0] * 4)


def test_blocks_are_counted_on_a_terminal(run, files, monkeypatch):
    monkeypatch.setattr(ProgressLine, "_overwrite", lambda self, text: lines.append(text))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    lines: list[str] = []
    run("ptx", "run", ADD, "--grid", "4", "--block", "128", *ARGS)

    assert lines[0] == f"[{'#' * 30}] 4/4 blocks"


@pytest.mark.usefixtures("files")
def test_an_interrupt_says_how_far_it_came(run, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(WarpBatch, "schedule_next", interrupt)
    answer = run("ptx", "run", ADD, "--grid", "4", "--block", "128", *ARGS, "-o", "results.npz")

    assert answer.code == 130
    assert answer.err.strip() == "warpfrag: interrupted after 0 of 4 blocks; nothing was written"
    assert not Path("results.npz").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "nowhere.ptx"], "nowhere.ptx"),
        (["run", ADD, "--grid", "0"], "positive integers"),
        (["run", ADD, "--grid", "a"], "expected one to three numbers"),
        (["run", ADD, "--block", "128"], "takes 6 arguments"),
        (["run", ADD, "--block", "64", *ARGS], r"blocks of \(128, 1, 1\)"),
        (["run", ADD, "--entry", "no", *ARGS], "expected one of the entries"),
        (["run", ADD, "--arg", "z.txt"], "expected FILE.npy"),
        (["run", ADD, "--arg", "z.npy"], "z.npy"),
        (["run", ADD, "--arg", "u8:300"], "expected a number of type uint8"),
        (["run", str(MODULES / "symbols.ptx")], r"7 kernels \(empty\(Empty, int, Empty, int\*\), count"),
        (["run", str(MODULES / "symbols.ptx"), "--entry", "fill"], "which matches void fill<float, 4>"),
        (
            ["run", str(MODULES / "symbols.ptx"), "--entry", "count", "--symbol", "nothing=1"],
            "expected one of the variables",
        ),
        (["run", str(MODULES / "symbols.ptx"), "--entry", "count", "--symbol", "calls=-1"], "a number of type uint32"),
        (
            ["run", str(MODULES / "symbols.ptx"), "--entry", "count", "--symbol", "calls=x.npy"],
            "calls, uint32 of shape",
        ),
        (["run", ADD, "--link", ADD], "multiple definition of 't_add' in t_add_sm80.ptx"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_cannot_be_run_is_said(refused, words, message):
    import re

    assert re.search(message, refused("ptx", *words))


MATMUL = DATA / "t_matmul_f16_sm80.ptx"
NUMBERS = (64, 64, 32, 32, 1, 64, 1, 64, 1)


@pytest.fixture
def product(tmp_path, monkeypatch):
    """A product of 64 x 32 and 32 x 64: the arguments of its launch."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    np.save("a.npy", rng.standard_normal((64, 32)).astype(np.float16))
    np.save("b.npy", rng.standard_normal((32, 64)).astype(np.float16))
    numbers = [word for number in NUMBERS for word in ("--arg", f"i32:{number}")]
    arrays = ["--arg", "a.npy", "--arg", "b.npy", "--arg", "c:f32:64x64"]
    return ["--block", "128", "--shared", "16384", *arrays, *numbers, "--arg", "null", "--arg", "null"]


def test_an_instruction_is_explained_with_its_matrices(run, product):
    line = next(at for at, text in enumerate(MATMUL.read_text("utf-8").splitlines(), 1) if "mma.sync" in text)
    answer = run("ptx", "explain", f"{MATMUL}:{line}", *product, "--warp", "2", "-o", "mma.svg")
    assert answer.code == 0
    assert f"tri.py:27 (line {line} of the PTX); block (0, 0, 0), warp 2, visit 0; sm_90" in answer.out
    assert "A (16 x 16), f16, before" in answer.out
    assert "D (16 x 8), f32, after" in answer.out
    assert Path("mma.svg").read_text(encoding="utf-8").count("<text") > 16 * 16
    facts = json.loads(run("ptx", "explain", f"{MATMUL}:{line}", *product, "--json").out)["instruction"]
    values = {item["name"]: np.array(item["values"]) for item in facts["operands"]}
    a = np.load("a.npy").astype(float)
    assert any((a[row : row + 16, :16] == values["a"]).all() for row in range(0, 64, 16))
    assert np.allclose(values["d"], values["a"] @ values["b"], atol=1e-3)
    other = run("ptx", "explain", f"{MATMUL}:{line - 1}", *product)
    assert other.code == 2
    assert f"no instruction at line {line - 1}; the nearest lines with instructions are" in other.err
    late = run("ptx", "explain", f"{MATMUL}:{line}", *product, "--visit", "5")
    assert (late.code, "reached the line only" in late.err) == (2, True)
    assert "expected FILE:LINE" in run("ptx", "explain", str(MATMUL), *product).err


def test_values_of_lanes_are_listed_where_there_are_no_matrices(run, files):
    line = next(at for at, text in enumerate(Path(ADD).read_text("utf-8").splitlines(), 1) if "add.f32" in text)
    answer = run("ptx", "explain", f"{ADD}:{line}", "--grid", "4", "--block", "128", *ARGS)
    x, y = files
    assert answer.code == 0
    rows = [list(map(float, text.split())) for text in answer.out.splitlines() if text.split()[0].isdigit()]
    assert len(rows) == 32
    assert all(first + second == total for _, first, second, total in rows)
    assert {total for *_, total in rows} <= set((x + y).tolist())
    picture = run("ptx", "explain", f"{ADD}:{line}", "--grid", "4", "--block", "128", *ARGS, "-o", "a.svg")
    assert (picture.code, "is not a matrix instruction" in picture.err) == (2, True)


def test_a_profile_is_text_json_and_a_page(run, product):
    answer = run("ptx", "profile", str(MATMUL), *product, "-o", "profile.html")
    assert answer.code == 0
    assert "tri.py:27" in answer.out
    assert "262,144 tensor operations" in answer.out
    assert "By source line" in Path("profile.html").read_text(encoding="utf-8")
    profile = json.loads(run("ptx", "profile", str(MATMUL), *product, "--json").out)["profile"]
    assert profile["total"]["tensor_operations"] == 2 * 64 * 64 * 32
    by_line = run("ptx", "profile", str(MATMUL), *product, "--by", "line").out
    assert f"{len(profile['lines']) - 30} more; --json has all" in by_line
    assert "ends in .html" in run("ptx", "profile", str(MATMUL), *product, "-o", "x.npz").err
