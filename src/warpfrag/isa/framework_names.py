"""Names of several instructions: functions of CUDA C++, CUTLASS's Mma, MLIR's warpgroup, Triton's layouts.

Each gives some qualifiers, such as the shape or the type of A, and matches every instruction that has them. A pattern
finds a name in a text, and a reader extracts the qualifiers in and around it.

    >>> [str(form.shape) for form in forms_of("__hmma_m16n16k16_mma_f32f32(d, a, b, c, 0, 0)")][0]
    'm16n16k16'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warpfrag.isa.qualifiers import Form
from warpfrag.isa.rows import forms

Qualifiers = Mapping[str, object]

TYPES = {
    "half": "f16",
    "half_t": "f16",
    "__half": "f16",
    "bfloat16_t": "bf16",
    "__nv_bfloat16": "bf16",
    "tfloat32_t": "tf32",
    "float": "f32",
    "double": "f64",
    "int8_t": "s8",
    "signed char": "s8",
    "uint8_t": "u8",
    "unsigned char": "u8",
    "int4b_t": "s4",
    "uint4b_t": "u4",
    "uint1b_t": "b1",
    "int": "s32",
    "int32_t": "s32",
    "float_e4m3_t": "e4m3",
    "float_e5m2_t": "e5m2",
    "f8E4M3FN": "e4m3",
    "f8E5M2": "e5m2",
    "i8": "s8",
    "i32": "s32",
}
"""Element types as C++ and MLIR call them."""
FAMILIES = {"hmma": "f16", "imma": "", "bmma": "b1", "dmma": "f64", "mma_bf16": "bf16", "mma_tf32": "tf32"}
BUILTIN = (
    r"\b__(hmma|imma|bmma|dmma|mma_bf16|mma_tf32)_(m\d+n\d+k\d+)_(mma|ld_a|ld_b|ld_c|st_c)(?:_(?:xor|and)_popc)?_?(\w*)"
)
FRAGMENT = r"fragment<\s*(?:\w+::)*matrix_([ab])\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(?:\w+::)*(\w+)"
ACCUMULATOR = r"fragment<\s*(?:\w+::)*accumulator\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(?:\w+::)*(\w+)"
CUTLASS_SHAPE = r"GemmShape<\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*>\s*,\s*\d+\s*,\s*([\s\S]*)"
MLIR_SHAPE = r"m\s*=\s*(\d+)\s*,\s*n\s*=\s*(\d+)\s*,\s*k\s*=\s*(\d+)"
MLIR_SIDES = r"\b([ABD])\s*\[\s*(?:#nvvm\.wgmma_type)?<\s*(\w+)\s*>"
MEMREF = r"memref<(?:\d+x)+(\w+)"
VERSION = r"versionMajor\s*=\s*(\d)"
SHAPE = r"instrShape\s*=\s*\[([\d,\s]+)\]"
K_WIDTH = r"kWidth\s*=\s*(\d+)"
WORD_BITS = 32
TRITON_OPS = {"1": ("mma", "m8n8k4"), "2": ("mma", ""), "3": ("wgmma.mma_async", "")}


@dataclass(frozen=True)
class Framework:
    """A category of names: its pattern, its notation, and the function that reads its qualifiers."""

    notation: str
    pattern: str
    read: Callable[[str], Qualifiers]
    how: str


def _of_builtin(text: str) -> Qualifiers:
    match = re.search(BUILTIN, text)
    if match is None:
        return {}
    family, shape, operation, types = match.groups()
    op = {"mma": "wmma.mma", "st_c": "wmma.store.d"}.get(operation, f"wmma.load.{operation[-1]}")
    qualifiers: dict[str, object] = {"op": op, "shape": shape}
    if op != "wmma.mma":
        return qualifiers
    qualifiers["a"] = FAMILIES[family] or types
    if family == "hmma" and len(types) == 6:
        qualifiers |= {"d": types[:3], "c": types[3:]}
    return {name: qualifier for name, qualifier in qualifiers.items() if qualifier}


def _of_wmma(text: str) -> Qualifiers:
    qualifiers: dict[str, object] = {"op": "wmma.mma"}
    if match := re.search(ACCUMULATOR, text):
        qualifiers |= {"shape": "m{}n{}k{}".format(*match.groups()), "d": TYPES.get(match[4], match[4])}
    for role, m, n, k, name in re.findall(FRAGMENT, text):
        qualifiers |= {"shape": f"m{m}n{n}k{k}", role: TYPES.get(name, name)}
    return qualifiers


def _of_cutlass(text: str) -> Qualifiers:
    qualifiers: dict[str, object] = {"op": "mma"}
    match = re.search(CUTLASS_SHAPE, text)
    if match is None:
        return qualifiers
    qualifiers["shape"] = "m{}n{}k{}".format(*match.groups())
    names = [part.strip().split("::")[-1] for part in match[4].split(",")]
    types = [TYPES[name] for name in names if name in TYPES]
    qualifiers |= dict(zip("abd", types, strict=False))
    return qualifiers


def _of_warpgroup(text: str) -> Qualifiers:
    qualifiers: dict[str, object] = {"op": "wgmma.mma_async"}
    if match := re.search(MLIR_SHAPE, text):
        qualifiers["shape"] = "m{}n{}k{}".format(*match.groups())
    qualifiers |= {side.lower(): TYPES.get(name, name) for side, name in re.findall(MLIR_SIDES, text)}
    types = [TYPES.get(name, name) for name in re.findall(MEMREF, text)]
    if "a" not in qualifiers and types:
        qualifiers |= dict(zip("ab", ["tf32" if name == "f32" else name for name in types[:2]], strict=False))
    return qualifiers


def _of_triton(text: str) -> Qualifiers:
    match = re.search(VERSION, text)
    version = "2" if match is None else match[1]
    if version not in TRITON_OPS:
        return {}
    op, shape = TRITON_OPS[version]
    qualifiers: dict[str, object] = {"op": op, **({"shape": shape} if shape else {"m": 16 if version == "2" else 64})}
    if match := re.search(SHAPE, text):
        extents = [int(extent) for extent in match[1].replace(" ", "").split(",") if extent]
        if version == "2" and len(extents) >= 2:
            qualifiers |= {"m": extents[-2], "n": extents[-1]}
        elif version == "3" and len(extents) == 3:
            qualifiers |= {"n": extents[1], "k": extents[2]}
    if match := re.search(K_WIDTH, text):
        qualifiers["bits"] = WORD_BITS // int(match[1]) if int(match[1]) else 0
    return qualifiers


FRAMEWORKS = (
    Framework("cuda", BUILTIN, _of_builtin, "a builtin function of CUDA C++ that these implement"),
    Framework("cuda", r"\bwmma::(?:mma_sync|bmma_sync)\b", _of_wmma, "a function of CUDA C++ for these"),
    Framework("cutlass", r"\bcutlass::arch::Mma\b", _of_cutlass, "a template of CUTLASS that wraps these"),
    Framework(
        "mlir",
        r"(?<![\w.])(?:nvgpu\.warpgroup\.mma|nvvm\.wgmma\.mma_async)(?![\w.])",
        _of_warpgroup,
        "an MLIR operation that becomes these",
    ),
    Framework(
        "triton",
        r"#?(?:ttg|triton_gpu)\.(?:nvidia_mma|dot_op)\b|#?nvidia_mma\b",
        _of_triton,
        "a layout of Triton, that of the operands of these",
    ),
)
PLAIN_LAYOUT = r"#?(?:ttg|triton_gpu)\.(blocked|linear|slice|shared|swizzled_shared|nvmma_shared)\b"
"""Layouts of Triton that belong to no instruction."""


def find(text: str) -> tuple[Framework, str] | None:
    """Return the category of the name in a text, and the name."""
    for framework in FRAMEWORKS:
        if match := re.search(framework.pattern, text):
            return framework, match[0]
    return None


def forms_of(text: str) -> tuple[Form, ...]:
    """Return the instructions that fit every qualifier of a text."""
    kind = find(text)
    qualifiers = kind[0].read(text) if kind else {}
    return tuple(
        form for form in forms() if qualifiers and all(_fits(form, *qualifier) for qualifier in qualifiers.items())
    )


def _fits(form: Form, name: str, qualifier: object) -> bool:
    """Return True if a form has a qualifier: a field, an extent of its shape, or the bits of an element."""
    if name in {"m", "n", "k"}:
        return bool(getattr(form.shape, name) == qualifier)
    if name == "bits":
        from warpfrag.formats.number_formats import FORMATS

        return FORMATS[form.a].bits == qualifier
    field = getattr(form, name)
    return str(field) == qualifier if name == "shape" else field == qualifier
