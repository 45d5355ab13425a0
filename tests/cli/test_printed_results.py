"""`warpfrag diagnose` with realistic inputs: decimals, matrices as text, transposed results, hostile files."""

import numpy as np
import pytest

import warpfrag as wf
from warpfrag import cuda_tools

NAME = "mma.m16n8k16.f32.f16.f16.f32"
TRANS = "blocks: B: each 8 x 8 block transposed: ldmatrix .trans missing, or not needed"


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    """Return D of a kernel that lacks ldmatrix .trans; A and B are in files."""
    monkeypatch.chdir(tmp_path)
    mma = wf.get(NAME)
    random = np.random.default_rng(0)
    A, B = random.normal(size=(16, 16)).astype(np.float16), random.normal(size=(16, 8)).astype(np.float16)
    np.save("A.npy", A)
    np.save("B.npy", B)
    np.save("right.npy", mma(A, B))
    return mma(A, B.reshape(2, 8, 8).transpose(0, 2, 1).reshape(16, 8))


def rows(numbers, form, label=""):
    return "\n".join(label.format(at) + " ".join(form % number for number in row) for at, row in enumerate(numbers))


def by_lane(D):
    return wf.get(NAME).d.pack(D).view(np.float32)


WRITTEN = {
    "%f": lambda D: rows(by_lane(D), "%f", "lane {}: "),
    "%g": lambda D: rows(by_lane(D), "%g", "T{} "),
    "%.2f": lambda D: rows(by_lane(D), "%.2f"),
    "%e": lambda D: rows(by_lane(D), "%.3e", "[{}] "),
    "matrix %f": lambda D: rows(D, "%f"),
    "matrix %g": lambda D: rows(D, "%g", "row {}: "),
    "matrix %.2f": lambda D: rows(D, "%.2f", "{}: "),
    "matrix %08x": lambda D: rows(D.view(np.uint32), "%08x"),
    "transposed": lambda D: rows(D.T, "%f"),
    "numpy": repr,
    "bracketed lanes": lambda D: rows(by_lane(D), "%f,", "[thread {}] D = (").replace(",\n", ")\n"),
    "indices": lambda D: "\n".join(f"D[{index}] = {value:f}" for index, value in enumerate(D.ravel())),
    "elements": lambda D: "\n".join(f"D[{row}][{col}] = {D[row, col]:f}" for row in range(16) for col in range(8)),
}


@pytest.mark.parametrize("written", WRITTEN)
def test_the_mistake_is_found_however_d_is_printed(run, wrong, written):
    answer = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=WRITTEN[written](wrong))

    assert (answer.code, answer.lines[1]) == (1, f"  1. {TRANS}")
    assert answer.lines[2] == "     fix: add .trans to the ldmatrix of B, or remove it if it is there"
    assert ("D is stored as its transpose" in answer.out) == (written == "transposed")
    assert "fix the one that matches your code" in answer.out


def test_arrays_that_were_converted_are_compared_to_their_precision(run, wrong):
    np.save("half.npy", wrong.astype(np.float16))
    np.save("loadtxt.npy", np.array(rows(wrong, "%f").split(), float).reshape(16, 8))
    np.save("turned.npy", np.load("right.npy").T)
    for file in ("half.npy", "loadtxt.npy"):
        assert run("diagnose", NAME, "A.npy", "B.npy", file).lines[1] == f"  1. {TRANS}"
    turned = run("diagnose", NAME, "A.npy", "B.npy", "turned.npy", "--json").json
    assert [finding["kind"] for finding in turned["findings"]] == ["transposed"]
    assert turned["findings"][0]["fix"] == "store or pass D.T"


def test_a_correct_result_is_judged_by_its_digits(run, wrong):
    right = np.load("right.npy")
    answer = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=rows(right, "%.2f"))
    coarse = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=rows(right, "%.0f"))

    assert answer.lines == [
        "correct as far as the printed digits show",
        "compared at the precision of the dump: 2 decimals",
    ]
    assert "print D with %.9g or %08x for a certain answer" in " ".join(coarse.out.split())


def test_a_mistake_on_another_gpu_has_one_hint(run, wrong):
    A, B = np.load("A.npy"), np.load("B.npy")
    np.save("old.npy", wf.get(NAME)(A[np.arange(16) & 7], B, arch="sm_80"))
    answer = run("diagnose", NAME, "A.npy", "B.npy", "old.npy")

    assert answer.lines[1] == "  1. index: A: row index with too few bits (row & 7): rows repeat every 8"
    assert " ".join(answer.out.split()).count("--arch A100") == 1


def test_a_nan_does_not_hide_the_mistake(run, wrong, tmp_path):
    D = wrong.copy()
    D[2, 5] = np.nan
    np.save("D.npy", D)
    answer = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=rows(D, "%f"))
    array = run("diagnose", NAME, "A.npy", "B.npy", "D.npy")

    assert (answer.code, answer.lines[1]) == (array.code, array.lines[1]) == (1, f"  1. {TRANS}")
    assert "1 of 128 elements is NaN; the others are explained" in answer.lines
    assert "1 of 128 elements is NaN; the others are explained" in array.lines


def test_explanations_are_told_apart(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", np.ones((16, 16)))
    np.save("B.npy", np.eye(16)[:, :8])
    D = np.ones((16, 8))
    D[0] = 0
    np.save("D.npy", D)
    answer = run("diagnose", NAME, "A.npy", "B.npy", "D.npy")

    assert answer.code == 1
    assert "to tell 1 from 2: with A[i][k] = (16 * i + k) % 7 and B[k][j] = (8 * k + j) % 5" in " ".join(answer.lines)


def test_bad_files_are_refused_in_a_sentence(refused, wrong, tmp_path):
    lines = WRITTEN["%f"](wrong).splitlines()
    files = {
        "empty": ("", "is empty"),
        "mixed": ("\n".join([*lines[:31], "lane 31: 0x0 0x0 0x0 0x0"]), "has the hex number '0x0', line 1 the decimal"),
        "beside": ("\n".join(line + " 0x0" for line in lines), "got 1 with 0x; numbers without 0x are not counted"),
        "twice": (
            "\n".join([*lines, lines[0]]),
            "expected 4 values for lane 0, got 8: lane 0 appears twice; print each lane once",
        ),
        "repeated": ("\n".join([lines[0], *lines[:31]]), "31 of 32 lanes, and lane 0 appears twice"),
        "from 1": (
            "\n".join(f"lane {n + 1}: 1.5 2 3 4" for n in range(32)),
            "'from 1': line 32: expected a lane from 0",
        ),
        "few": ("\n".join(lines[:16]), "lane 16 is missing: the dump has 16 of 32 lanes; print from every lane"),
        "stream": (rows(wrong.reshape(1, 128), "%f"), "add --as matrix or --as registers"),
        "short": (rows(wrong[:5], "%f"), "expected a matrix, 16 lines of 8 numbers, or registers, a line of 4"),
        "abbreviated": ("[[1. 2. ... 3.]]", "is abbreviated (...)"),
    }
    for name, (text, message) in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert message in refused("diagnose", NAME, "A.npy", "B.npy", name)
    (tmp_path / "binary").write_bytes(wrong.tobytes())
    assert "is binary; expected a text file, or a .npy file from np.save" in refused(
        "diagnose", NAME, "A.npy", "B.npy", "binary"
    )
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    assert "has more than 16777216 bytes" in refused("diagnose", NAME, "A.npy", "B.npy", "large")
    assert (
        "expected the result alone, A B RESULT, or A B C RESULT; got 2 files: the third, RESULT, is missing"
        in refused("diagnose", NAME, "A.npy", "B.npy")
    )
    assert "A is given twice" in refused("diagnose", NAME, "--a", "A.npy", "A.npy", "B.npy", "right.npy")


def test_an_ambiguous_text_is_read_as_the_user_says(run, wrong):
    text = rows(wrong.reshape(1, 128), "%f")
    assert run("diagnose", NAME, "A.npy", "B.npy", "-", "--as", "matrix", stdin=text).lines[1] == f"  1. {TRANS}"


def test_nan_and_inf_are_counted(run, wrong):
    wrong[3, 2], wrong[5, 1] = np.nan, -np.inf
    answer = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=rows(wrong, "%f"))

    assert answer.code == 1
    assert "1 of 128 wrong elements are NaN" in answer.lines
    assert "1 of 128 wrong elements are infinite" in answer.lines


def test_a_dump_of_nan_alone_has_no_note_about_digits(run, wrong):
    text = "\n".join(f"lane {lane}: nan -nan(0x7fffff) NaN NAN" for lane in range(32))
    answer = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=text)

    assert (answer.code, answer.lines[-1]) == (1, "128 of 128 wrong elements are NaN")


def test_a_constant_d_is_a_kernel_that_stores_nothing(run, wrong):
    answer = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=rows(np.zeros((16, 8)), "%f"))
    hint = "every element is 0: check that the kernel ran, and that it stores D"

    assert (answer.code, hint in answer.lines) == (1, True)
    assert hint not in run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=rows(wrong**2, "%f")).lines


def test_matrices_that_are_not_one_tile_are_those_of_a_kernel(run, refused, wrong):
    random = np.random.default_rng(2)
    X, W = random.normal(size=(2, 48, 48)).astype(np.float16)
    short = W[:32]
    for name, array in (("X", X), ("W", W), ("Y", X.astype(np.float32) @ W.T.astype(np.float32)), ("short", short)):
        np.save(f"{name}.npy", array)
    found = run("diagnose", NAME, "X.npy", "W.npy", "Y.npy")
    printed = rows(X.astype(float) @ short.T.astype(float), "%.4f")
    turned = run("diagnose", NAME, "X.npy", "short.npy", "-", stdin=printed)
    np.save("Bt.npy", np.load("B.npy").T.copy())

    assert "  transposed: B: the whole matrix transposed" in found.lines
    assert "     fix: pass B.T, or exchange row and column in the index of B" in found.lines
    assert "B is column-major: 32 x 48 in memory" in turned.lines
    assert (turned.code, turned.lines[0]) == (0, "correct as far as the printed digits show"), turned.out
    assert run("diagnose", NAME, "A.npy", "Bt.npy", "right.npy").lines == [
        "correct: the instruction gives this result",
        "B is column-major: 8 x 16 in memory",
    ]
    assert refused("diagnose", "X.npy", "W.npy", "Y.npy").startswith("X.npy is a file: expected an instruction")
    assert "expected an architecture, got the file 'A.npy'" in refused("execute", NAME, "A.npy", "B.npy")


def test_too_few_digits_are_not_a_certain_answer(run, wrong):
    reversed_bits = (wrong.view(np.uint32) & 0xFFFF) << 16 | wrong.view(np.uint32) >> 16
    answer = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=rows(reversed_bits.view(np.float32) * 0, "%f"))

    assert "explains the result" not in answer.out


def test_lines_that_are_not_data_are_skipped_and_counted(run, refused, wrong, tmp_path):
    printed = {
        "by lane": ("$ ./a.out\nNVIDIA H100, 132 SMs\n16 8 16\n", WRITTEN["%f"], "\ndone in 0.3 ms\nmax error 12.5", 5),
        "matrix": ("D =\n", WRITTEN["matrix %f"], "\nelapsed: 3 ms", 2),
        "words": ("(cuda-gdb) info registers\n", WRITTEN["matrix %08x"], "", 1),
    }
    for before, write, after, count in printed.values():
        (tmp_path / "out.txt").write_text(before + write(wrong) + after, encoding="utf-8")
        answer = run("diagnose", NAME, "A.npy", "B.npy", "out.txt")
        assert (answer.code, answer.lines[1]) == (1, f"  1. {TRANS}")
        lines = "line" if count == 1 else "lines"
        assert answer.lines[-1] == f"skipped {count} {lines} of out.txt that are not data; the first is line 1"
    (tmp_path / "few.txt").write_text(
        "$ ./a.out\n" + "\n".join(WRITTEN["%f"](wrong).splitlines()[:9]), encoding="utf-8"
    )
    message = refused("diagnose", NAME, "A.npy", "B.npy", "few.txt")
    assert message.startswith("'few.txt': lane 9 is missing")
    assert message.endswith("; skipped line 1: '$' is not a hex number")


@pytest.mark.parametrize("form", ["%f", "%g", "%.4f", "%.2f"])
def test_inputs_that_were_printed_with_few_digits_are_compared_to_them(run, refused, wrong, form):
    for name in "AB":
        np.savetxt(f"{name}.txt", np.load(f"{name}.npy").astype(float), form)
    np.save("D.npy", wrong)
    answer = run("diagnose", NAME, "A.txt", "B.txt", "D.npy")
    right = run("diagnose", NAME, "A.txt", "B.npy", "right.npy")

    assert (answer.code, answer.lines[1]) == (1, f"  1. {TRANS}")
    assert "A and B: the decimals are read as the nearest values" in answer.lines
    assert (right.code, right.lines[0].startswith("correct")) == (0, True)
    assert ("the digits of the inputs determine D to" in answer.out) == (form in {"%.4f", "%.2f"})
    np.savetxt("A.txt", np.full((16, 16), 1 / 3), "%.9f")  # not a value of f16
    assert "is not exact in f16" in refused("diagnose", NAME, "A.txt", "B.npy", "D.npy")


def test_archives_of_arrays_are_read_by_name(run, refused, wrong):
    np.savez("one.npz", anything=wrong)
    np.savez("all.npz", A=np.load("A.npy"), B=np.load("B.npy"), D=wrong, other=wrong.T)
    for files in (
        ["A.npy", "B.npy", "one.npz"],
        ["A.npy", "B.npy", "all.npz"],
        ["all.npz"],
        ["A.npy", "B.npy", "all.npz:d"],
    ):
        assert run("diagnose", NAME, *files).lines[1] == f"  1. {TRANS}"
    assert "'all.npz' has no array 'q'; it has 'A, B, D, other'; name one as FILE:NAME" in refused(
        "diagnose", NAME, "A.npy", "B.npy", "all.npz:q"
    )
    np.save("small.npy", wrong[:5])
    assert refused("diagnose", NAME, "A.npy", "B.npy", "small.npy").startswith("'small.npy': operand d of")


KERNEL = """
extern "C" __global__ void tile(const unsigned *A, const unsigned short *B, float *D) {
    int lane = threadIdx.x, g = lane >> 2, t = lane & 3;
    unsigned a[4] = {A[g * 8 + t], A[(g + 8) * 8 + t], A[g * 8 + t + 4], A[(g + 8) * 8 + t + 4]};
    unsigned b[2];
    for (int i = 0; i < 2; i++) b[i] = LOAD;
    float d[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    D[g * 8 + t * 2] = d[0]; D[g * 8 + t * 2 + 1] = d[1];
    D[(g + 8) * 8 + t * 2] = d[2]; D[(g + 8) * 8 + t * 2 + 1] = d[3];
}
"""
BY_BLOCKS = """
    __shared__ __align__(16) unsigned short tile[128];
    for (int i = lane; i < 128; i += 32) tile[i] = B[i];
    __syncwarp();
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1]) : "r"((unsigned)__cvta_generic_to_shared(tile + lane % 16 * 8)));
"""
WRONG_LOAD = "((const unsigned *)B)[(g + 8 * i) * 4 + t]"
RIGHT_LOAD = "B[(2 * t + 8 * i) * 8 + g] | (unsigned)B[(2 * t + 1 + 8 * i) * 8 + g] << 16"


def test_every_mma_of_a_kernel_is_diagnosed_with_its_line(run, refused, wrong, tmp_path):
    if next(cuda_tools.installed("nvcc"), None) is None:
        pytest.skip("needs nvcc: the extra assembler")
    (tmp_path / "wrong.cu").write_text(KERNEL.replace("LOAD", WRONG_LOAD), encoding="utf-8")
    (tmp_path / "right.cu").write_text(KERNEL.replace("LOAD", RIGHT_LOAD), encoding="utf-8")
    answer = run("diagnose", "wrong.cu", "A.npy", "B.npy", "--entry", "tile")
    right = run("diagnose", "right.cu", "A.npy", "B.npy", "--json")

    assert answer.code == 1
    assert answer.lines[0].startswith("wrong.cu:8: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, block (0, 0, 0)")
    assert answer.lines[1].startswith("    wrong.cu:8: asm volatile(")
    assert answer.lines[2] == "  A: correct: the tile of A at row 0, column 0"
    assert answer.lines[3].startswith(
        "  B: loaded with A's lane layout (16 x 8, 16-bit) instead of B's (the tile"
    )  # there is no ldmatrix
    assert answer.lines[4].startswith("     fix: element i of each lane must be B[")
    assert "     loaded at wrong.cu:6" in answer.lines
    assert (right.code, right.json["correct"], right.json["executed"]) == (0, True, 1)
    assert [operand["findings"] for operand in right.json["mmas"][0]["operands"]] == [[], [], []]
    assert "expected the intended A and B" in refused("diagnose", "wrong.cu", "A.npy")
    loop = next(line for line in KERNEL.splitlines() if "LOAD" in line)
    swapped = KERNEL.replace("LOAD", RIGHT_LOAD).replace(*("A[(g + 8) * 8 + t]", "A[g * 8 + t + 4]")).replace(
        "A[g * 8 + t + 4], A[g * 8 + t + 4]", "A[g * 8 + t + 4], A[(g + 8) * 8 + t]"
    )  # fmt: skip
    mistakes = {
        "trans.cu": (KERNEL.replace(loop, BY_BLOCKS), "     fix: add .trans to the ldmatrix of B", "trans.cu:10"),
        "swapped.cu": (swapped, "     fix: swap registers 1 and 2 of A", "swapped.cu:4"),
        "stored.cu": (
            KERNEL.replace("LOAD", RIGHT_LOAD).replace("= d[2]; D[(g + 8) * 8 + t * 2 + 1] = d[3]",
                                                       "= d[3]; D[(g + 8) * 8 + t * 2 + 1] = d[2]"),
            "  D: registers 2 and 3 swapped (argument D)", "",
        ),
    }  # fmt: skip
    for name, (source, fix, loaded) in mistakes.items():
        (tmp_path / name).write_text(source, encoding="utf-8")
        answer = run("diagnose", name, "A.npy", "B.npy")
        assert (answer.code, fix in answer.lines) == (1, True), answer.out
        assert not loaded or any(line.startswith(f"     loaded at {loaded}") for line in answer.lines)
    assert "--shared apply only to a kernel" in refused("diagnose", NAME, "A.npy", "B.npy", "right.npy", "--entry", "k")


def swapped_b(A, B):
    """B with its registers exchanged: k and k + 8."""
    return A, np.roll(B, 8, axis=0)


def wrong_row(A, B):
    """B whose second register is loaded from row 2 * t + 4, not + 8."""
    return A, np.concatenate([B[:8], B[4:12]])


def wrong_factor(A, B):
    """B that is loaded from row t, not from row 2 * t."""
    row = np.arange(16)
    return A, B[row // 8 * 8 + row % 8 // 2 + row % 2]


def repeated_register(A, B):
    """A whose last register is loaded without the + 8 in its row."""
    changed = A.copy()
    changed[8:, 8:] = A[:8, 8:]
    return changed, B


PLANTED = {
    swapped_b: "B: registers 0 and 1 swapped",
    wrong_row: "B: register 1 loaded from row - 4",
    wrong_factor: "B: row with (lane % 4) * 1 instead of * 2",
    repeated_register: "A: register 3 holds the elements of register 2",
}


@pytest.mark.parametrize("converted", ["float32", "float16"])
@pytest.mark.parametrize("plant", PLANTED)
def test_a_mistake_in_a_numpy_reference_is_found_up_to_rounding(run, wrong, plant, converted):
    A, B = plant(*(np.load(f"{name}.npy").astype(np.float64) for name in "AB"))
    answer = run("diagnose", NAME, "A.npy", "B.npy", "-", stdin=rows((A @ B).astype(converted), "%f"))

    assert answer.code == 1
    assert any(line.endswith(PLANTED[plant]) for line in answer.lines[1:2])
    assert "With this mistake, D matches except for rounding" in answer.out


def test_several_gpus_that_explain_a_mistake_are_all_named(run, wrong):
    A, B = (np.load(f"{name}.npy") for name in "AB")
    np.save("ampere.npy", wf.get(NAME)(*swapped_b(A, B), arch="A100"))
    answer = run("diagnose", NAME, "A.npy", "B.npy", "ampere.npy")
    text = " ".join(answer.out.split())

    assert answer.lines[1].endswith("B: registers 0 and 1 swapped")
    assert "matches exactly with the arithmetic of A100: pass --arch A100 (arch= in Python)" in text
    assert "only the arithmetic" not in text


def test_no_gpu_is_named_if_nothing_explains_the_result(run, wrong):
    noise = np.random.default_rng(3).normal(size=(16, 8)).astype(np.float32)
    np.save("noise.npy", noise)
    answer = run("diagnose", NAME, "A.npy", "B.npy", "noise.npy")

    assert (answer.code, "--arch" in answer.out, "nothing found" in answer.out) == (1, False, True)
