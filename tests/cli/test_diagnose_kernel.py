"""`warpfrag diagnose kernel.cu`: kernels whose mma instructions use each other's results."""

import re

import numpy as np
import pytest

from warpfrag import cuda_tools

KERNELS = """
__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ unsigned pack(float low, float high) {
    unsigned word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
__device__ void load_b(unsigned (&b)[2], const unsigned short *B, int g, int t) {
    for (int r = 0; r < 2; r++) b[r] = B[(t * 2 + r * 8) * 8 + g] | (unsigned)B[(t * 2 + r * 8 + 1) * 8 + g] << 16;
}
extern "C" __global__ void attend(const unsigned *Q, const unsigned *K, const unsigned short *V, float *O) {
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    unsigned a[4], b[2];
    float s[2][4] = {}, o[4] = {};
    for (int r = 0; r < 4; r++) a[r] = Q[(g + r % 2 * 8) * 8 + t + r / 2 * 4];
    for (int n = 0; n < 2; n++) {
        for (int r = 0; r < 2; r++) b[r] = K[(n * 8 + g) * 8 + t + r * 4];
        mma(s[n], a, b);
    }
    for (int h = 0; h < 2; h++) {
        float sum = 0;
        for (int n = 0; n < 2; n++)
            for (int c = 0; c < 2; c++) sum += s[n][h * 2 + c] = FUNCTION(s[n][h * 2 + c]);
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        for (int n = 0; n < 2; n++)
            for (int c = 0; c < 2; c++) s[n][h * 2 + c] /= sum;
    }
    unsigned p[4] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]), pack(s[1][0], s[1][1]), pack(s[1][2], s[1][3])};
    load_b(b, V, g, t);
    mma(o, p, b);
    for (int i = 0; i < 4; i++) O[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = o[i];
}
extern "C" __global__ void loop(const unsigned *A, const unsigned short *B, float *D, int k) {
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    float d[4] = {};
    for (int at = 0; at < k; at += 16) {
        unsigned a[4], b[2];
        for (int r = 0; r < 4; r++) a[r] = A[(g + r % 2 * 8) * k / 2 + at / 2 + t + r / 2 * 4];
        load_b(b, B + at * 8, g, t);
        mma(d, a, b);
    }
    for (int i = 0; i < 4; i++) D[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
"""
TILE = f"""{KERNELS[: KERNELS.index("__device__ unsigned pack")]}
extern "C" __global__ void tile(const unsigned *A, const unsigned *B, float *D) {{
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    unsigned a[4], b[2];
    for (int r = 0; r < 4; r++) a[r] = A[(g + r % 2 * 8) * 8 + t + r / 2 * 4];
    for (int r = 0; r < 2; r++) b[r] = B[g * 8 + t + r * 4];
    float d[4] = {{}};
    mma(d, a, b);
    for (int i = 0; i < 4; i++) D[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}}
"""
ATTEND = ["--entry", "attend", "--arg", "Q.npy", "--arg", "K.npy", "--arg", "V.npy", "--arg", "O:f32:16x8"]
LOOP = ["--entry", "loop", "--arg", "A.npy", "--arg", "B.npy", "--arg", "D:f32:16x8", "--arg", "i32:48"]
SHAPES = {"Q": (16, 16), "K": (16, 16), "A16": (16, 16), "Bt": (8, 16), "V": (16, 8), "A": (16, 48), "B": (48, 8)}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Return a function that writes the kernels, with a function and a changed line, and returns the file."""
    if next(cuda_tools.installed("nvcc"), None) is None:
        pytest.skip("needs nvcc: the extra assembler")
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    for name, shape in SHAPES.items():
        np.save(f"{name}.npy", random.normal(size=shape).astype(np.float16))

    def write(old="", new="", function="exp2f"):
        text = KERNELS.replace("FUNCTION", function)
        assert old in text
        (tmp_path / "kernel.cu").write_text(text.replace(old, new) if old else text, encoding="utf-8")
        return "kernel.cu"

    return write


def text_of(answer):
    """Return the output in one line; compilers name the first or the last line of a long asm statement."""
    return re.sub(r"\(in kernel.cu:[35]\)", "(in kernel.cu:3)", " ".join(answer.out.split()))


def test_a_chained_mma_is_compared_with_the_results_it_is_computed_from(run, kernel):
    answer = run("diagnose", kernel(), *ATTEND)
    lines = KERNELS.splitlines()
    first, second = (1 + next(i for i, line in enumerate(lines) if call in line) for call in ("mma(s[n]", "mma(o, p"))

    assert answer.code == 0
    found = "D is correct; no mistake found in the operands of 3 executed mma instructions"
    assert f"{found} (compared: A and B: 6 of 6, C: 3 of 3)" in text_of(answer)
    assert "  D: correct: argument O" in answer.lines
    assert "  A: the tile of Q at row 0, column 0" in answer.lines
    assert "  B: the tile of K.T at row 0, column 0" in answer.lines
    assert f"kernel.cu:{second} (in kernel.cu:3): mma" in text_of(answer)
    computed = f"A: the results of the mma at kernel.cu:{first} (in kernel.cu:3), element by element"
    assert computed in text_of(answer)
    assert "  B: the tile of V at row 0, column 0" in answer.lines


def test_a_mistake_in_a_computed_operand_is_found(run, kernel):
    swapped = kernel("pack(s[0][2], s[0][3]), pack(s[1][0], s[1][1])", "pack(s[1][0], s[1][1]), pack(s[0][2], s[0][3])")
    answer = run("diagnose", swapped, *ATTEND)

    assert answer.code == 1
    assert "A: registers 1 and 2 swapped (the results of the mma at kernel.cu:" in text_of(answer)
    assert "     fix: swap registers 1 and 2 of A" in answer.lines
    assert answer.out.count(": mma.sync") == 1


def test_a_mistake_beside_a_computed_operand_is_found(run, kernel):
    wrong = "for (int r = 0; r < 2; r++) b[r] = ((const unsigned *)V)[g * 8 + t + r * 4]"
    answer = run("diagnose", kernel("load_b(b, V, g, t)", wrong), *ATTEND)

    assert answer.code == 1
    assert "A: the results of the mma at kernel.cu:" in text_of(answer)
    assert "B: written with row-major and column-major order swapped (the tile of V at row 0, column 0)" in text_of(
        answer
    )
    assert "fix: load B[row * 8 + col], not B[col * 16 + row]; or, if B is meant to be column-major" in text_of(answer)


def test_a_function_without_an_order_is_not_called_correct(run, kernel):
    answer = run("diagnose", kernel(function="cosf"), *ATTEND, "--json")

    assert (answer.code, answer.json["not_compared"], answer.json["correct"]) == (3, 1, False)
    chained = answer.json["mmas"][-1]["operands"][0]
    assert chained["uncompared"].startswith("no earlier results have the same order in each row")
    assert (chained["findings"], "kernel.cu:3" in chained["matrix"]) == ([], True)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("pack(s[0][0], s[0][1])", "pack(s[0][1], s[0][0])", "A: the halves of register 0 swapped"),
        ("pack(s[0][0], s[0][1])", "pack(s[0][0], s[0][0])", "A: both halves of register 0 hold its low half"),
        ("pack(s[1][2], s[1][3])};", "p1};", "A: register 3 holds the elements of register 1"),
    ],
)
def test_a_mistake_in_one_register_of_a_computed_operand_is_found(run, kernel, old, new, found):
    again = new.replace("p1", "pack(s[0][2], s[0][3])")
    answer = run("diagnose", kernel(old, again), *ATTEND)

    assert (answer.code, found in text_of(answer)) == (1, True)


def test_infinite_results_are_compared_by_their_order(run, kernel):
    big = "1e5f * __expf"
    right = run("diagnose", kernel("s[n][h * 2 + c] /= sum", "s[n][h * 2 + c] *= 1", function=big), *ATTEND)

    assert (right.code, "(compared: A and B: 6 of 6, " in text_of(right)) == (0, True)


def test_accumulators_are_compared_in_a_loop(run, kernel):
    swapped = kernel("{%0,%1,%2,%3};", "{%0,%2,%1,%3};")
    answer = run("diagnose", swapped, "A.npy", "B.npy", *LOOP)
    right = run("diagnose", kernel(), "A.npy", "B.npy", *LOOP)

    assert answer.code == 1
    assert "C: registers 1 and 2 swapped (the result of the mma at kernel.cu:" in text_of(answer)
    assert (right.code, "C: 3 of 3)" in text_of(right)) == (0, True)


def test_a_kernel_without_arrays_says_what_to_pass(run, kernel):
    answer = run("diagnose", kernel(), "--entry", "loop")

    assert answer.code == 2
    assert (
        "loop has 4 parameters: warpfrag diagnose kernel.cu --arg FILE.npy --arg FILE.npy --arg FILE.npy" in answer.err
    )
    assert "--arg u32:NUMBER" in answer.err


def test_a_loop_is_compared_with_matrices_as_text(run, kernel):
    file = kernel()
    for name in "AB":
        np.savetxt(f"{name}.txt", np.load(f"{name}.npy").astype(float), "%.3f")
    named = run("diagnose", file, "A.npy", "B.npy", *LOOP, "--json")
    text = run("diagnose", file, "A.txt", "B.txt", *LOOP)
    early = run("diagnose", kernel("at < k;", "at < k - 16;"), "A.npy", "B.npy", *LOOP)

    assert (named.code, named.json["executed"], named.json["complete"]) == (0, 3, True)
    assert (named.json["d"]["matrix"], named.json["d"]["findings"]) == ("argument D", [])
    assert (text.code, "  A: correct: the tile of A at row 0, column 0" in text.lines) == (0, True)
    assert early.code == 1
    assert "D: the last tile of k is missing: the loop ends too early" in text_of(early)


def test_visits_count_every_copy_of_an_inlined_line(run, kernel):
    file = kernel()
    asm = 3 if run("ptx", "explain", f"{file}:3", *ATTEND).code == 0 else 5
    titles = [run("ptx", "explain", f"{file}:{asm}", *ATTEND, "--visit", str(visit)) for visit in range(4)]
    inlined = [re.findall(r"kernel.cu:(\d+) \(in kernel.cu:3\)", text_of(answer)) for answer in titles]
    loaded = run("ptx", "explain", f"{file}:13", *ATTEND)

    assert inlined[0] == inlined[1] != inlined[2]
    assert (titles[3].code, titles[3].err.strip().endswith("reached the line only 3 times")) == (2, True)
    assert "ld.global.u16" in loaded.lines[0]
    value = np.load("V.npy")[0, 0]
    assert re.search(rf"^ +0 .* {value.view(np.uint16)} \(f16 {value:.5g}\)", loaded.out, re.MULTILINE)


def test_an_intended_matrix_that_no_mma_reads_is_named(run, refused, kernel, tmp_path):
    file = kernel()
    np.save("other.npy", np.ones((16, 48), np.float16))
    answer = run("diagnose", file, "other.npy", "B.npy", *LOOP)
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")

    assert answer.code == 1
    assert "  no mma reads a tile of the intended A" in answer.lines
    assert "  A: the tile of argument A at row 0, column 0" in answer.lines
    assert refused("diagnose", file, "empty.txt", "B.npy", *LOOP) == "'empty.txt' has no numbers"


@pytest.fixture
def tile(kernel, tmp_path):
    """Return a function that writes a kernel of one mma with a changed line; it loads B column by column."""

    def write(old="", new=""):
        assert old in TILE
        (tmp_path / "tile.cu").write_text(TILE.replace(old, new) if old else TILE, encoding="utf-8")
        return "tile.cu"

    np.save("B16.npy", np.load("Bt.npy").T.copy())
    np.save("fortran.npy", np.load("Bt.npy").T)
    return write


@pytest.mark.parametrize(
    ("old", "new", "code", "found"),
    [
        ("", "", 0, "D: correct: argument D"),
        ("t * 2 + i % 2] = d", "t * (1 + i % 2) + i % 2] = d", 1, "no known mistake explains it 80 of 128 elements"),
        ("d[4] = {}", "d[4] = {1}", 1, "D: wrong in 32 of 128 elements of argument D; no known mistake explains it"),
        ("i < 4; i++) D", "i < 0; i++) D", 3, "D: not compared: the kernel changes no argument that can be D"),
        ("* 8 + t + r / 2", "* 8 + t + r % 2", 1, "D: wrong in 128 of 128 elements of argument D"),
    ],
)
def test_the_d_that_a_kernel_stores_is_compared(run, tile, old, new, code, found):
    answer = run("diagnose", tile(old, new), "A16.npy", "Bt.npy")
    as_json = run("diagnose", "tile.cu", "A16.npy", "Bt.npy", "--json").json

    assert (answer.code, found in text_of(answer), as_json["correct"]) == (code, True, code == 0), answer.out
    assert ("     stored at tile.cu:15" in answer.lines) == (code == 1)
    assert as_json["d"]["loaded_at"] == (["tile.cu:15"] if code < 3 else [])


def test_a_column_major_b_is_recognised(run, refused, tile):
    stored = [run("diagnose", tile(), "A16.npy", name) for name in ("Bt.npy", "fortran.npy")]
    by_row = run("diagnose", tile(), "A16.npy", "B16.npy")
    half = "((const unsigned short *)B)[(t * 2 + r * 8 + {}) * 8 + g]"
    by_column = tile("B[g * 8 + t + r * 4]", f"{half.format(0)} | (unsigned){half.format(1)} << 16")
    wrong = run("diagnose", by_column, "A16.npy", "Bt.npy")
    message = refused("diagnose", "tile.cu", "A16.npy", "B.npy")

    assert [(answer.code, answer.lines[-1]) for answer in stored] == [(0, "B is column-major: 8 x 16 in memory")] * 2
    assert (by_row.code, "or, if B is meant to be column-major, pass the kernel B.T" in text_of(by_row)) == (1, True)
    assert "fix: load element (row, col) from col * 16 + row" in text_of(wrong)
    assert message.startswith(
        "expected A as M x K, and B as K x N or, if it is column-major, as N x K; got (16, 16) and"
    )
    assert "--arg FILE.npy" in message


def test_wrong_lane_numbers_are_found_in_a_matrix_with_more_columns(run, tile, kernel):
    exchanged = "loaded with groupID = lane % 4 and threadID_in_group = lane / 4"
    both = run("diagnose", tile("g = lane / 4, t = lane % 4", "g = lane % 4, t = lane / 4"), "A16.npy", "Bt.npy")
    loads = "A[(g + r % 2 * 8) * k / 2 + at / 2 + t + r / 2 * 4]"
    swapped = kernel(loads, loads.replace("g +", "lane % 4 +").replace("+ t +", "+ lane / 4 +"))
    loop = run("diagnose", swapped, "A.npy", "B.npy", *LOOP)

    assert all(f"  {name}: {exchanged} (the tile of {name}" in both.out for name in "AB")
    assert "fix: use groupID = lane / 4 and threadID_in_group = lane % 4: element i" in text_of(both)
    index = "(lane & 3) * 48 + (lane >> 2) * 2 in the index instead of (lane & 3) * 2 + (lane >> 2) * 48"
    assert f"A: loaded with {index} (the tile of A at row 0, column 0)" in text_of(loop)
    assert "fix: element i of each lane must be A[(i >> 1 & 1) * 8 + (lane >> 2)][" in text_of(loop)


@pytest.mark.parametrize(
    ("new", "found"),
    [
        ("(t + i / 2 * 8) * 8 + g * 2 + i % 2", "(lane & 3) * 8 + (lane >> 2) * 2 in the index instead of {lane}"),
        ("g * 8 + t * 2 + i % 2", "i & 1 in the index instead of {i}"),
        ("(g + i / 2 * 8) * 8 + t + i % 2", "(lane & 3) + (lane >> 2) * 8 in the index instead of {lane}"),
        ("(g + i % 2 * 4) * 8 + t * 2 + i / 2", "(i & 1) * 32 + (i >> 1) in the index instead of {i}"),
        (
            "g * 4 + t + i / 2 * 64 + i % 2 * 2",
            "lane + (i & 1) * 2 + (i >> 1) * 64 in the index instead of {lane} + {i}",
        ),
        ("i", "i in the index instead of {lane} + {i}"),
        ("(g + i / 2 * 8) * 8 + t * 2 + (i == 1)", "{{0, 1, 64, 64}}[i] in the index instead of {i}"),
    ],
)
def test_the_index_of_wrong_stores_is_found(run, tile, new, found):
    answer = run("diagnose", tile("(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d", f"{new}] = d"), "A16.npy", "Bt.npy")
    right = {"lane": "(lane & 3) * 2 + (lane >> 2) * 8", "i": "(i & 1) + (i >> 1) * 64"}

    assert answer.code == 1
    assert f" D: stored with {found.format(**right)}" in text_of(answer)
    assert "fix: element i of each lane must be D[(i >> 1) * 8 + (lane >> 2)][(lane & 3) * 2 + (i & 1)]" in answer.out


def test_swapped_registers_in_the_stores_are_found(run, tile):
    answer = run(
        "diagnose", tile("t * 2 + i % 2] = d[i]", "t * 2 + i % 2] = d[i % 2 * 2 + i / 2]"), "A16.npy", "Bt.npy"
    )

    assert "  D: registers 1 and 2 swapped (argument D)" in answer.lines


def test_the_first_wrong_lane_is_described(run, tile):
    strange = tile("a[r] = A[", "a[r] = A[lane == 5 && r == 2 ? 0 : ")
    answer = run("diagnose", strange, "A16.npy", "Bt.npy")

    assert "     lane 5 holds A[0][0..1] in register 2, but should hold A[1][10..11]" in answer.lines


def test_a_fault_has_the_source_line(run, tile):
    answer = run("diagnose", tile("t + r / 2 * 4", "t + r / 2 * 400"), "A16.npy", "Bt.npy")

    assert (answer.code, answer.err.startswith("warpfrag: tile.cu:11 (line ")) == (2, True)
    assert answer.err.splitlines()[1].startswith("    tile.cu:11: for (int r = 0; r < 4; r++) a[r]")


def test_a_kernel_takes_no_result(refused, tile):
    message = refused("diagnose", tile(), "A16.npy", "Bt.npy", "V.npy")

    assert message.startswith("the result is not an input, because the kernel is run; expected the intended A and B")
