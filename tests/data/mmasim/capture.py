"""Run mmasim 2.1.1 on random codes, and store inputs and outputs in `mmasim.npz`.

    pip install torch==2.13.0 ninja setuptools && pip install --no-deps mmasim==2.1.1
    python tests/data/mmasim/capture.py

mmasim compiles a small C++ file when it is imported. Where that fails to load for want of OpenMP symbols, set
LD_PRELOAD=libgomp.so.1. Only results are kept; the project does not need mmasim.

Of tcgen05 the results are many: `tcgen05.csv` has a digest of D for each form and class, on the same drawn inputs.

Keys: `in/<operand>/<format>/<rows>x<columns>/<class>` are codes [rows, columns], shared between instructions;
`out/<arch>/<mmasim's name of the instruction>/<class>` are the codes of D.
"""

import hashlib
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from warpfrag.formats.number_formats import FORMATS

TARGET = Path(__file__).parent / "mmasim.npz"
DIGESTS = Path(__file__).parent / "tcgen05.csv"
CLASSES = ("bits", "mixed")
ARCHITECTURES = {
    "sm_70": "Volta",
    "sm_75": "Turing",
    "sm_80": "Ampere",
    "sm_89": "Ada Lovelace",
    "sm_90": "Hopper",
    "sm_100": "Blackwell",
    "sm_120": "RTX Blackwell",
}


def parse(name: str) -> dict[str, Any]:
    """Take mmasim's name of an instruction apart."""
    words = name.split(".")
    shape = words.pop(0)
    kind = words.pop(0).removeprefix("kind::") if words[0].startswith("kind::") else ""
    block = int(words.pop(0).removeprefix("block")) if words[0].startswith("block") else 0
    scale_type = words.pop() if block else ""
    d, a, b, c = words if len(words) == 4 else (*words, words[0])  # tcgen05 does not name C
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    sizes = {"m": int(m), "n": int(n), "k": int(k)}
    return {**sizes, "kind": kind, "block": block, "scale_type": scale_type, "a": a, "b": b, "c": c, "d": d}


def draw(name: str, shape: tuple[int, int], kind: str, seed: int) -> np.ndarray[Any, Any]:
    """Return codes of a format: arbitrary bits, or mostly similar exponents with zeros and a few arbitrary codes."""
    random = np.random.default_rng(seed)
    row = FORMATS[name]
    code_type = {16: np.uint16, 32: np.uint32, 64: np.uint64}.get(row.bits, np.uint8)
    anything = random.integers(0, row.codes, shape, dtype=np.uint64)
    exponent = np.clip(row.bias + random.integers(-3, 4, shape), 0, (1 << row.exponent) - 2).astype(np.uint64)
    fraction = random.integers(0, 1 << row.fraction, shape, dtype=np.uint64)
    close = ((exponent << np.uint64(row.fraction)) | fraction) << np.uint64(row.unused)
    if row.signed:
        close |= random.integers(0, 2, shape, dtype=np.uint64) << np.uint64(row.bits - 1)
    if kind == "bits":
        return anything.astype(code_type)
    lot = random.random(shape)
    codes = np.where(lot < 0.02, anything, close)
    return np.where(lot > 0.9, np.uint64(0), codes).astype(code_type)


def inputs(facts: dict[str, Any], kind: str) -> dict[str, tuple[str, np.ndarray[Any, Any]]]:
    """Key and codes of every operand of an instruction."""
    shapes = {
        "a": (facts["a"], (facts["m"], facts["k"])),
        "b": (facts["b"], (facts["k"], facts["n"])),
        "c": (facts["c"], (facts["m"], facts["n"])),
    }
    if facts["block"]:
        scales = facts["k"] // facts["block"]
        shapes["scale_a"] = (facts["scale_type"], (facts["m"], scales))
        shapes["scale_b"] = (facts["scale_type"], (scales, facts["n"]))
    drawn = {}
    for operand, (name, shape) in shapes.items():
        key = f"in/{operand}/{name}/{shape[0]}x{shape[1]}/{kind}"
        drawn[operand] = (key, draw(name, shape, kind, zlib.crc32(key.encode())))
    return drawn


def instruction_names() -> list[tuple[str, str]]:
    """Every (architecture, instruction) that mmasim models with mma."""
    from mmasim.nv_ptx import isa_mma

    names = []
    for arch, theirs in ARCHITECTURES.items():
        plain = isa_mma.mma_shape_and_type[theirs]
        scaled = isa_mma.mma_block_scale_shape_and_type.get(theirs, [])
        names += [(arch, name) for name in [*plain, *scaled]]
    return names


def tensor_memory_names() -> list[str]:
    """Return every tcgen05 form that mmasim models, in its smallest shape: the sums do not depend on m and n."""
    from mmasim.nv_ptx import isa_tcgen05mma

    theirs = ARCHITECTURES["sm_100"]
    names = [
        *isa_tcgen05mma.tcgen05mma_shape_and_type[theirs],
        *isa_tcgen05mma.tcgen05mma_block_scale_shape_and_type[theirs],
    ]
    return [name for name in names if name.startswith(("m64n8k", "m128n8k") if "block" in name else "m64n8k")]


def run_tensor_memory(name: str, operands: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the codes of D from mmasim's tcgen05."""
    from mmasim.nv_ptx import sim

    return multiply(sim.TCGen05MMABlockScale if parse(name)["block"] else sim.TCGen05MMA, "sm_100", name, operands)


def digest(codes: np.ndarray[Any, Any]) -> str:
    """Return a short digest of codes."""
    return hashlib.sha256(codes.tobytes()).hexdigest()[:16]


def to_tensor(codes: np.ndarray[Any, Any], name: str, *, is_packed: bool = False, axis: int = 1) -> Any:
    """Codes as the tensor mmasim takes: 4-bit codes packed high first along K, or in bits 5..2 of a byte."""
    import torch

    if name == "e2m1" and is_packed:
        pairs = np.moveaxis(codes, axis, 1)
        packed = (pairs[:, 0::2] << 4) | pairs[:, 1::2]
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(packed, 1, axis)))
    if name == "e2m1":
        return torch.from_numpy(codes << 2)
    if name in ("e3m2", "e2m3"):
        return torch.from_numpy(codes.copy())
    kinds = {
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "tf32": torch.float32,
        "f32": torch.float32,
        "f64": torch.float64,
        "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
        "ue8m0": torch.float8_e8m0fnu,
        "ue4m3": torch.float8_e4m3fn,
    }
    signed = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[codes.itemsize]
    return torch.from_numpy(codes.copy().view(signed)).view(kinds[name])


def run(arch: str, name: str, operands: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the codes of D from mmasim."""
    from mmasim.nv_ptx import MMA, MMABlockScale

    return multiply(MMABlockScale if parse(name)["block"] else MMA, arch, name, operands)


def multiply(model: Any, arch: str, name: str, operands: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the codes of D from mmasim's model of an instruction."""
    facts = parse(name)
    is_packed = facts["kind"] in ("mxf4", "mxf4nvf4")
    tensors = [
        to_tensor(operands["a"], facts["a"], is_packed=is_packed, axis=1),
        to_tensor(operands["b"], facts["b"], is_packed=is_packed, axis=0),
        to_tensor(operands["c"], facts["c"]),
    ]
    if facts["block"]:
        tensors += [to_tensor(operands[scale], facts["scale_type"]) for scale in ("scale_a", "scale_b")]
    result = model(ARCHITECTURES[arch], name)(*tensors)
    values = np.ascontiguousarray(result.numpy())
    return values.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[values.itemsize])


def main() -> None:
    """Capture everything mmasim models."""
    arrays = {}
    for arch, name in instruction_names():
        facts = parse(name)
        for kind in CLASSES:
            drawn = inputs(facts, kind)
            arrays.update(dict(drawn.values()))
            operands = {operand: codes for operand, (_key, codes) in drawn.items()}
            arrays[f"out/{arch}/{name}/{kind}"] = run(arch, name, operands)
    np.savez_compressed(TARGET, **arrays)
    capture_tensor_memory()


def capture_tensor_memory() -> None:
    """Capture the digests of tcgen05."""
    lines = []
    for name in tensor_memory_names():
        for kind in CLASSES:
            operands = {operand: codes for operand, (_key, codes) in inputs(parse(name), kind).items()}
            lines.append(f"{name},{kind},{digest(run_tensor_memory(name, operands))}")
    DIGESTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
