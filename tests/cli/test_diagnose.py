"""The output and exit status of `warpfrag diagnose`."""

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.isa.immediates import Immediates

NAME = "mma.m16n8k16.f32.f16.f16.f32"


@pytest.fixture
def mma(tmp_path, monkeypatch):
    """An instruction, and its matrices in files."""
    monkeypatch.chdir(tmp_path)
    found = wf.get(NAME)
    random = np.random.default_rng(2)
    for role in "abc":
        np.save(role, random.integers(-9, 10, found.operands[role].shape).astype(float))
    return found


def ask(run, *words, **more):
    return run("diagnose", NAME, *words, **more)


def lines(words, name="d"):
    numbered = [[f"{name}{reg}=0x{word:x}" for reg, word in enumerate(row)][::-1] for row in words]
    return "\n".join(f"lane {lane}: {' '.join(row)}" for lane, row in enumerate(numbered))


def test_a_mistake_is_named_from_a_dump_of_d(run, mma):
    A, B, C = (np.load(f"{role}.npy") for role in "abc")
    dump = lines(mma.d.pack(mma(A.T, B, C)))
    answer = ask(run, "--a", "a.npy", "--b", "b.npy", "--c", "c.npy", stdin=dump)
    without = ask(run, "--a", "a.npy", "--b", "b.npy", stdin=lines(mma.d.pack(mma(A, B, C))))

    assert (answer.code, answer.lines) == (
        1,
        [
            "1 mistake explains the result:",
            "  transposed: A: read with row-major and column-major order swapped",
            "     fix: load A[row * 16 + col], not A[col * 16 + row]",
        ],
    )
    assert without.code == 1
    assert without.out.startswith("nothing found: ")


def test_d_may_be_an_array(run, mma):
    A, B = np.load("a.npy"), np.load("b.npy")
    np.save("matrix.npy", mma(A, B).T.reshape(16, 8))
    np.save("words.npy", mma.d.pack(mma(A, B)))
    inputs = ["--a", "a.npy", "--b", "b.npy"]

    assert (
        ask(run, *inputs, "matrix.npy").lines[1]
        == "  transposed: D: read with row-major and column-major order swapped"
    )
    assert ask(run, *inputs, "words.npy").out == "correct: the instruction gives this result\n"
    assert ask(run, *inputs, "words.npy", "--json").json["correct"] is True


def test_one_operand(run, mma):
    words = mma.a.pack(np.load("a.npy").T)
    answer = ask(run, "--expect", "a", "a.npy", stdin=lines(words, "a"))
    finding = ask(run, "--expect", "a", "a.npy", "--json", stdin=lines(words, "a")).json["findings"][0]

    assert answer.code == 1
    assert "A: read with row-major and column-major order swapped" in answer.out
    assert (finding["kind"], finding["operand"]) == ("transposed", "a")


def test_many_findings_are_cut(run, mma):
    one = np.zeros((16, 16))
    one[0, 0] = 1
    np.save("a.npy", one)
    np.save("b.npy", one[:, :8])
    answer = ask(run, "--a", "a.npy", "--b", "b.npy", stdin="0 0 0 0\n" * 32)

    assert answer.code == 1
    assert len([line for line in answer.lines if line.split(".")[0].strip().isdecimal()]) == 12
    assert any(line.endswith("more (--json shows all)") for line in answer.lines)


def test_a_warp_is_chosen(run, mma):
    words = mma.a.pack(np.load("a.npy"))
    dump = "\n".join(
        f"warp {warp} {line}" for warp in (0, 1) for line in lines(words ^ np.uint32(1 - warp), "a").splitlines()
    )

    assert ask(run, "--expect", "a", "a.npy", "--warp", 1, stdin=dump).out.startswith("correct")
    assert ask(run, "--expect", "a", "a.npy", "--warp", 0, stdin=dump).code == 1


@pytest.mark.parametrize(
    "line",
    [
        "D[{lane}][{i}] = {value}",
        "thread {lane}, i={i}, val={value}",
        "{lane} {i} {value}",
        "{lane} {row}",
        "{lane}, {row}",
    ],
)
def test_lanes_and_elements_without_a_name_are_read(run, mma, line):
    values = mma.d.pack(mma(np.load("a.npy").T, np.load("b.npy"))).view(np.float32)
    texts = [[f"{value:.1f}" for value in row] for row in values]
    each = range(1 if "row" in line else 4)
    dump = [
        line.format(lane=lane, i=i, value=row[i], row=", ".join(row)) for lane, row in enumerate(texts) for i in each
    ]
    answer = ask(run, "a.npy", "b.npy", "-", stdin="\n".join(["the result", *dump[::-1]]))

    assert answer.lines[1] == "  transposed: A: read with row-major and column-major order swapped"
    assert answer.code == 1
    assert ask(run, "a.npy", "b.npy", "-", stdin="\n".join(dump[1:])).code == 2


def test_rounding_is_no_mistake(run, mma):
    random = np.random.default_rng(3)
    A, B = random.normal(size=(16, 16)).astype(np.float16), random.normal(size=(16, 8)).astype(np.float16)
    np.save("a.npy", A)
    np.save("b.npy", B)
    np.save("d.npy", np.nextafter(mma(A, B), np.float32(9)))
    np.save("far.npy", mma(A, B) * np.float32(1.01))
    answer = ask(run, "a.npy", "b.npy", "d.npy")

    assert (answer.code, answer.lines[0]) == (0, "no mistake: D differs only by rounding:")
    assert "128 of 128 elements differ, by at most 1 ulp " in answer.out
    assert ask(run, "a.npy", "b.npy", "far.npy").code == 1


SPARSE = "mma.sp.m16n8k32.f32.f16.f16.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def hexadecimal(words):
    return "\n".join(f"lane {lane}: 0x{word:08x}" for lane, word in enumerate(words))


def test_a_sparse_product_with_its_metadata_and_selector(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sp, random = wf.get(SPARSE), np.random.default_rng(5)
    A, B = random.integers(1, 9, (16, 32)).astype(float), random.integers(-9, 9, (32, 8)).astype(float)
    A[:, 1::4] = A[:, 2::4] = 0
    np.save("a", A)
    np.save("b", B)
    stored, codes = sp.compress(A)
    other = sp.metadata.pack(random.choice(list(sp.pattern.rising), codes.shape), selector=0)
    e = sp.metadata.pack(codes, selector=1) | other
    (tmp_path / "e.txt").write_text(hexadecimal(e), encoding="utf-8")
    (tmp_path / "codes.txt").write_text("\n".join(" ".join(map(str, row)) for row in codes), encoding="utf-8")
    wrong, right = (
        wf.execute(sp, sp.a.pack(stored), sp.b.pack(B), metadata=e, immediates=Immediates(one)) for one in (0, 1)
    )
    words = ["diagnose", SPARSE, "--a", "a.npy", "--b", "b.npy", "--metadata", "e.txt", "--selector", 1]
    expect = ["diagnose", SPARSE, "--expect", "metadata", "codes.txt", "--selector", 1]

    assert "metadata: selector 0 instead of 1" in run(*words, stdin=lines(wrong)).out
    assert run(*words, stdin=lines(right)).out.startswith("correct")
    assert run(*expect, stdin=hexadecimal(e)).out.startswith("correct")
    written = run(*expect, stdin=hexadecimal(sp.metadata.pack(codes)))
    assert (written.code, written.lines[1]) == (1, "  1. selector: metadata: written for selector 0 instead of 1")


def test_scale_factors_with_their_ids(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mx, random = wf.get(SCALED), np.random.default_rng(6)
    A, B = (random.choice([-3, -1, 0.5, 2, 6], operand.shape).astype(float) for operand in (mx.a, mx.b))
    SA, SB = (np.exp2(random.integers(-3, 4, scale.shape).astype(float)) for scale in (mx.scale_a, mx.scale_b))
    sa = random.integers(120, 134, (32, 4)).astype(np.uint8).view(np.uint32)[:, 0]
    for name, array in {"a": A, "b": B, "sa": SA, "sb": SB, "words": sa}.items():
        np.save(name, array)
    packed = [mx.a.pack(A), mx.b.pack(B), None]
    more = {"scales": (sa, mx.scale_b.pack(SB, thread_id=1)), "arch": "sm_120"}
    wrong, right = (wf.execute(mx, *packed, **more, immediates=Immediates(0, (at, 0), (1, 1))) for at in (0, 2))
    words = ["diagnose", SCALED, "--arch", "sm_120", "--a", "a.npy", "--b", "b.npy", "--scale-b", "sb.npy"]
    words += ["--scale-a", "words.npy", "--byte-id", 2, 0, "--thread-id", 1, 1]
    expect = ["diagnose", SCALED, "--expect", "scale_a", "sa.npy", "--byte-id", 2, 0]

    assert "scale_a: byte_id 0 instead of 2" in run(*words, stdin=lines(wrong)).out
    assert run(*words, stdin=lines(right)).out.startswith("correct")
    assert run(*expect, stdin=hexadecimal(mx.scale_a.pack(SA, byte_id=2))).out.startswith("correct")
    answer = run(*expect, "--json", stdin=hexadecimal(mx.scale_a.pack(SA))).json
    assert ("selector", "scale_a") in [(one["kind"], one["operand"]) for one in answer["findings"]]


def test_refusals(refused, mma):
    one = refused("diagnose", NAME, "--expect", "a", "a.npy", "--b", "b.npy")
    assert "expected --a and --b, or --expect alone" in one
    assert "the intended B is missing: pass A B RESULT, or --b FILE" in refused(
        "diagnose", NAME, "--a", "a.npy", stdin="0 " * 128
    )
    both = ["--a", "a.npy", "--b", "b.npy"]
    assert "takes no a" in refused("diagnose", "ldmatrix.m8n8.x4.b16", "--a", "a.npy", "--b", "b.npy")
    assert "takes no metadata" in refused("diagnose", NAME, *both, "--metadata", "a.npy")
    assert "has no operand scale_a, only a, b, c, d" in refused("diagnose", NAME, "--expect", "scale_a", "a.npy")
    assert "'-1' is not in the range" in refused("diagnose", NAME, "--byte-id", -1, 0)
    assert "takes no scale_a" in refused("diagnose", NAME, *both, "--scale-a", "a.npy")
    assert "the dump has the warps 0, 1: choose one" in refused(
        "diagnose", NAME, "--expect", "a", "a.npy", stdin="\n".join(f"thread {at}: 0 0 0 0" for at in range(64))
    )


WGMMA = "wgmma.mma_async.m64n32k16.f32.f16.f16"


def test_wgmma_is_asked_about_with_its_descriptors(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    w = wf.get(WGMMA)
    random = np.random.default_rng(3)
    A, B, C = (random.integers(-9, 10, operand.shape).astype(float) for operand in (w.a, w.b, w.c))
    for role, matrix in zip("abc", (A, B, C), strict=True):
        np.save(role, matrix)
    right, wrong = wf.Descriptor(stride=256, swizzle=32), wf.Descriptor(stride=256, swizzle=64)
    tile = w.b.store(B, right)
    memory = np.concatenate([tile.memory, np.zeros(4096, np.uint8)])
    d = wf.execute(w, w.a.pack(A), wf.Shared(memory, wrong), w.c.pack(C))
    inputs = ["--a", "a.npy", "--b", "b.npy", "--c", "c.npy"]
    dump = "\n".join(lines(words).replace("lane", f"warp {warp} lane") for warp, words in enumerate(d))
    ask = lambda *words, **more: run("diagnose", WGMMA, *inputs, *words, **more)  # noqa: E731

    answer = ask("--descriptor-b", f"{right.word:#x}", stdin=dump)
    assert answer.lines[1] == "  descriptor: B: read with swizzle 64 instead of swizzle 32"
    np.save(
        "d.npy",
        wf.execute(w, w.a.store(A), tile, w.c.pack(C), immediates=Immediates(scale_d=False, negate=(True, False))),
    )
    word = f"{w.a.descriptors()[0].word:#x}"
    assert ask("--descriptor-a", word, "--negate", "a", "--scale-d", "0", "d.npy").out.startswith("correct")
    assert "c: C: missing: scale-d is 0 where it should be 1" in ask("--negate", "a", "d.npy").out
    np.save("t.npy", wf.execute(w, w.a.pack(A), w.b.store(B, trans=True), w.c.pack(C)))
    assert ask("--trans", "b", "t.npy").out.startswith("correct")
    np.save("words.npy", w.a.pack(A)[[1, 0, 2, 3]])
    one = run("diagnose", WGMMA, "--expect", "a", "a.npy", "words.npy")
    assert one.lines[1] == "  lanes: A: warps 0 and 1 swapped"
    assert "is held by warps 0 to 3" in ask(stdin=lines(d[0])).err
    assert "apply to wgmma" in run("diagnose", NAME, *inputs[:4], "--trans", "b", "d.npy").err
