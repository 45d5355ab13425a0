"""A short tour of warpfrag (a few seconds). `make run` runs it; it writes one picture, out/tour.svg.

Every statement is checked while the tour runs, and the tour stops if one does not hold.
"""

import sys
import warnings
from pathlib import Path

import numpy as np

import warpfrag as wf
from warpfrag.samples import sample_path

NAME = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
OUT = Path("out")


def main() -> None:
    """Run every part of the tour."""
    mma = wf.get(NAME)
    find_the_mistake(mma)
    compare_gpus()
    predict_a_library()
    run_a_kernel()
    draw_a_picture(mma)


def find_the_mistake(mma: wf.Instruction) -> None:
    """Find the mistake in a kernel that loads B wrongly."""
    chapter("A kernel gives garbage. Why?")
    A, B = text_matrix("A.txt"), text_matrix("B.txt")
    observed = np.array(
        [
            [int(word, 16) for word in line.split()[2:]]
            for line in sample_path("dump.txt").read_text(encoding="utf-8").splitlines()
        ],
        np.uint32,
    )
    right, wrong = A @ B, mma.d.unpack(observed)
    print(f"  {mma.name}")
    print(f"  D[0, :4] should be {numbers(right[0, :4])}; the kernel printed {numbers(wrong[0, :4])}.")
    found = wf.diagnose(mma, observed, A, B)[0]
    print(f"  diagnose: {found}")
    blocks = B.reshape(2, 8, 8).swapaxes(1, 2).reshape(16, 8)
    check(np.array_equal(A @ blocks, wrong), "B with its 8 x 8 blocks transposed gives exactly this D")
    (place,) = mma.b.layout.where(row=3, col=1)
    print(f"  B[3, 1] should be in lane {place.lane}, register {place.reg}, {'high' if place.slot else 'low'} half\n")


def compare_gpus() -> None:
    """Compare one gemm on three GPUs."""
    chapter("The same inputs on three GPUs")
    A, B = text_matrix("cancel_A.txt"), text_matrix("cancel_B.txt")
    print(
        "  The exact sum 4096 * 2048 - 4096 * 2048 - 0.75 is -0.75. A tensor core aligns the products of a step to the"
    )
    print("  largest one, here 2^23, keeps some fraction bits below it, and truncates the rest:")
    expected = {"V100": 0.0, "A100": -0.5, "H100": -0.75}
    for gpu, bits in zip(expected, (23, 24, 25), strict=True):
        D = wf.gemm(A, B, instruction="wmma.mma.row.col.m16n16k16.f32.f32", arch=gpu)
        check(float(D[0, 0]) == expected[gpu], f"{gpu} keeps {bits} fraction bits: {D[0, 0]}")
    print()


def predict_a_library() -> None:
    """Predict the result of PyTorch on an H200."""
    chapter("What does torch.matmul return on an H200?")
    A, B, D = (np.load(sample_path(f"{name}.npy")) for name in "ABD")
    predicted = wf.predict(A, B, layout="nt", shape=(24, 1024, 5120))
    print(f"  24 x 1024 x 5120 in float16: {predicted.order}")
    plain = wf.gemm(A, B, instruction=NAME, arch="sm_90").astype(np.float16)
    both = f"{plain[1, 0]:.6f}, the library's order {predicted.D[1, 0]:.6f}"
    check(not np.array_equal(plain, predicted.D), f"one chain over k gives {both}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wf.errors.AmbiguousOrder)  # in float16, a few other orders fit these outputs
        found = wf.find_order(A, B, D)
    check(found == predicted.order, "of the orders that reproduce the outputs, this is the simplest")
    print()


def run_a_kernel() -> None:
    """Run a Triton kernel on NumPy arrays, and find a race in a variant of it."""
    chapter("A Triton kernel, without a GPU")
    kernel = wf.ptx.load("sample:softmax.ptx")["t_softmax"]
    x = np.random.default_rng(0).standard_normal((8, 200)).astype(np.float32)
    y = np.zeros_like(x)
    run = kernel.launch(grid=8, block=128, args=[x, y, 200, 200, None, None], shared=16)
    print(f"  {run}")
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    error = np.abs(y / exact - 1).max()
    check(bool(error < 1e-6), f"softmax, with a relative error of at most {error:.0e}")
    racy = wf.ptx.load(sample_path("softmax.ptx").read_text(encoding="utf-8").replace("bar.sync", "// bar.sync", 1))[
        "t_softmax"
    ]
    checked = racy.launch(grid=8, block=128, args=[x, y, 200, 200, None, None], shared=16, checks="races")
    check(checked.verdict == "findings", "without its first barrier, checks find:")
    print(f"  {checked.findings[0]}\n")


def draw_a_picture(mma: wf.Instruction) -> None:
    """Draw the fragments of the instruction."""
    chapter("A picture of the fragments")
    OUT.mkdir(exist_ok=True)
    wf.draw(mma).save(OUT / "tour.svg")
    print(f"  wrote {OUT / 'tour.svg'}: A, B and D, each cell with its lane and element")
    print("\nNext: . .venv/bin/activate, then warpfrag --help, or docs/tutorial.md.")


def text_matrix(name: str) -> np.ndarray:
    """Return a sample matrix in float16."""
    return np.loadtxt(sample_path(name), dtype=np.float16)


def numbers(values: np.ndarray) -> str:
    """Return numbers separated by spaces."""
    return " ".join(f"{value:g}" for value in values)


def chapter(title: str) -> None:
    """Print the title of a part."""
    print(title)


def check(holds: bool, statement: str) -> None:  # noqa: FBT001 (it reads as a sentence)
    """Print a statement if it is true; exit otherwise."""
    if not holds:
        sys.exit(f"this does not hold: {statement}")
    print(f"  {statement}")


if __name__ == "__main__":
    main()
