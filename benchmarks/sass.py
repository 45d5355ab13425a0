"""Compare the speed of machine code and PTX: `python benchmarks/sass.py [NAME...]`; needs ptxas and nvdisasm.

Each kernel runs in the compiled engine, once from its PTX and once from the sm_90 cubin that ptxas assembles from it.
The two take turns. Each figure is the shortest processor time of several rounds, after a round that compiles.
"""

import json
import sys
import time
import zipfile
from functools import partial

import numpy as np
from run import say

import warpfrag as wf
from ptx import PTX, SIZE

ROUNDS = 7
ROWS = 256
LIMIT = 1.5
OPTIONS = wf.ptx.LaunchOptions(threads=1)


def kernel_text(name: str) -> str:
    """Return the text of a stored kernel."""
    with zipfile.ZipFile(PTX / "kernels.zip") as archive:
        return archive.read(f"{name}.ptx").decode()


def matmul() -> tuple[str, str, dict[str, object]]:
    """Return a launch of Triton's f16 matmul, 512 x 512 x 512."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(SIZE, SIZE)).astype(np.float16) for _ in range(2)]
    numbers = [np.int32(number) for number in (SIZE, SIZE, SIZE, SIZE, 1, SIZE, 1, SIZE, 1)]
    args = [*arrays, np.zeros((SIZE, SIZE), np.float32), *numbers, None, None]
    launch = {"grid": (SIZE // 64, SIZE // 64), "block": 128, "args": args, "shared": 16384}
    return (PTX / "t_matmul_f16_sm80.ptx").read_text(encoding="utf-8"), "t_matmul", launch


def by_rows(name: str) -> tuple[str, str, dict[str, object]]:
    """Return a launch of a stored Triton kernel with a block for each of 256 rows."""
    case = json.loads((PTX / "kernels.json").read_text(encoding="utf-8"))[name]
    rng = np.random.default_rng(0)
    args: list[object] = []
    for argument in case["args"]:
        if argument is None:
            args.append(None)
        elif "kind" in argument:
            shape = [ROWS, *argument["shape"][1:]] if argument["shape"][0] == case["grid"] else argument["shape"]
            dtype = np.float32 if argument["kind"].endswith("f32") else np.uint16
            values = rng.integers(0x3000, 0x3FFF, shape)  # codes of f16 and bf16 numbers
            args.append((np.zeros(shape) if "zeros" in argument["kind"] else values).astype(dtype))
        else:
            args.append(np.dtype(argument["dtype"]).type(argument["scalar"]))
    launch = {"grid": ROWS, "block": case["block"], "args": args, "shared": case["shared"]}
    return kernel_text(case["file"]), case["entry"], launch


def tensor_copies() -> tuple[str, str, dict[str, object]]:
    """Return a launch of Triton's matmul with tensor maps and wgmma, 512 x 512 x 512."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(SIZE, SIZE)).astype(np.float16) for _ in range(2))
    args: list[object] = []
    for array, box in ((a, (128, 64)), (b, (64, 64)), (np.zeros((SIZE, SIZE), np.float16), (128, 64))):
        strides = [np.int64(stride // array.itemsize) for stride in array.strides]
        args += [wf.ptx.TensorMap(array, box, swizzle=128), *map(np.int32, array.shape), *strides]
    launch = {
        "grid": (SIZE // 128, SIZE // 64),
        "block": 256,
        "args": [*args, np.int32(SIZE), None, None],
        "shared": 73752,
    }
    with zipfile.ZipFile(PTX / "hopper" / "kernels.zip") as archive:
        return archive.read("mm_ws2_8.ptx").decode(), "mm_ws2", launch


CASES = {
    "matmul 512 cubed": matmul,
    "layer norm": partial(by_rows, "t_layernorm_90"),
    "softmax": partial(by_rows, "t_softmax_90"),
    "TMA and wgmma": tensor_copies,
}


def main() -> int:
    """Print the times; the exit status is 1 if machine code takes more than 1.5 times as long as PTX."""
    slow = 0
    for name, case in CASES.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        text, entry, launch = case()
        module = wf.ptx.load(text)
        sides = {"ptx": module[entry], "sass": module.assemble(arch="sm_90")[entry]}
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(ROUNDS + 1):
            for side, kernel in sides.items():
                start = time.process_time()
                kernel.launch(**launch, engine="compiled", level=side, options=OPTIONS)
                if number:
                    seconds[side].append(time.process_time() - start)
        ptx, sass = (min(seconds[side]) for side in ("ptx", "sass"))
        slow += sass > LIMIT * ptx
        say(f"  {name}: PTX {ptx * 1e3:.1f} ms, machine code {sass * 1e3:.1f} ms: {sass / ptx:.2f} times")
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main())
