"""Names of tcgen05 instructions in other notations: CuTe atoms, LLVM intrinsics, MLIR operations and machine code.

A name usually contains less information than a spelling (an mma intrinsic takes its kind as a number), so a name maps
to every spelling that it matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from warpfrag.grouping import grouped
from warpfrag.isa.tcgen05_forms import TensorForm, listed_spellings, untyped
from warpfrag.isa.tcgen05_spelling import TensorSpelling

CUTE_KINDS = {
    "f16": "F16BF16",
    "tf32": "TF32",
    "f8f6f4": "F8F6F4",
    "i8": "S8",
    "mxf8f6f4": "MXF8F6F4",
    "mxf4": "MXF4",
    "mxf4nvf4": "MXF4",
}
SASS_KINDS = {"f16": "UTCHMMA", "tf32": "UTCHMMA", "ti16": "UTCHMMA", "f8f6f4": "UTCQMMA", "mxf8f6f4": "UTCQMMA"}
SASS_KINDS |= {"i8": "UTCIMMA", "mxf4": "UTCOMMA", "mxf4nvf4": "UTCOMMA"}
SASS = {"ld": "LDTM", "st": "STTM", "cp": "UTCCP", "shift": "UTCSHIFT.DOWN", "commit": "UTCBAR", "alloc": "UTCATOMSWS"}
CUTE_COPIES = {
    "128x256b": "128dp256bit",
    "128x128b": "128dp128bit",
    "4x256b": "4dp256bit",
    "32x128b": "4x32dp128bit",
    "64x128b.warpx2::02_13": "2x64dp128bitlw02_13",
    "64x128b.warpx2::01_23": "2x64dp128bitlw01_23",
}


def cute_names(spelling: TensorSpelling) -> tuple[str, ...]:
    """Return the CuTe atoms for a spelling; mma has two, for A in shared memory (SS) or tensor memory (TS)."""
    op = spelling.op
    if op in ("ld", "st") and spelling.qualifier("lanes"):
        packed = "_16b" if spelling.qualifier("pack") or spelling.qualifier("unpack") else ""
        stem = "LOAD" if op == "ld" else "STORE"
        lanes = spelling.qualifier("lanes").removesuffix("x2").replace("x", "dp", 1)
        return (f"SM100_TMEM_{stem}_{lanes}{spelling.repeat}x{packed}",)
    if op == "cp" and not spelling.qualifier("narrow"):
        rows = spelling.qualifier("rows")
        shape = f"{rows}.{spelling.qualifier('copies')}" if rows == "64x128b" else rows
        return (f"SM100_UTCCP_{CUTE_COPIES[shape]}_{spelling.blocks}cta",)
    if op in ("mma", "mma.ws") and spelling.kind in CUTE_KINDS:
        qualifiers = [CUTE_KINDS[spelling.kind], *(["WS"] if op == "mma.ws" else [])]
        qualifiers += ["2x1SM"] if spelling.blocks == 2 else []
        tail = ["SPARSE"] if spelling.is_sparse else []
        return tuple("_".join(["SM100_MMA", *qualifiers, source, *tail]) for source in ("SS", "TS"))
    return ()


def nvvm_names(spelling: TensorSpelling) -> tuple[str, ...]:
    """Return the LLVM intrinsics for a spelling."""
    op, group = spelling.op, f"cg{spelling.blocks}"
    if op in ("ld", "st"):
        return (f"llvm.nvvm.tcgen05.{op}.{spelling.qualifier('lanes')}.x{spelling.repeat}",)
    if op == "cp":
        copies = spelling.qualifier("copies").replace("::", ".")
        shape = ".".join(filter(None, (spelling.qualifier("rows"), copies))).replace("warpx2.", "warpx2_")
        narrow = spelling.qualifier("narrow")
        return (".".join(filter(None, ("llvm.nvvm.tcgen05.cp", shape, narrow, group))),)
    if op == "mma":
        stem = "llvm.nvvm.tcgen05.mma" + (".sp" if spelling.is_sparse else "")
        scale = ""
        if spelling.qualifier("block_scale"):
            size = spelling.qualifier("scale_size")
            scale = f".{spelling.kind}.block_scale" + (f".{size}" if size else "")
        return tuple(f"{stem}.{home}{scale}" for home in ("shared", "tensor"))
    if op == "mma.ws":
        stem = "llvm.nvvm.tcgen05.mma.ws" + (".sp" if spelling.is_sparse else "")
        return tuple(f"{stem}.{home}" for home in ("shared", "tensor"))
    plain = {"shift": f"shift.down.{group}", "alloc": f"alloc.{group}", "dealloc": f"dealloc.{group}"}
    plain |= {"relinquish_alloc_permit": f"relinq.alloc.permit.{group}", "commit": f"commit.{group}"}
    plain |= {"wait::ld": "wait.ld", "wait::st": "wait.st"}
    plain |= {f"fence::{when}_thread_sync": f"fence.{when}.thread.sync" for when in ("before", "after")}
    return (f"llvm.nvvm.tcgen05.{plain[op]}",) if op in plain else ()


def sass_name(spelling: TensorSpelling) -> str:
    """Return the machine instruction that ptxas generates for a spelling, or an empty string."""
    if not spelling.kind:
        return SASS.get(spelling.op, "")
    name = SASS_KINDS[spelling.kind]
    name += ".4X" if name == "UTCOMMA" and spelling.qualifier("scale_size") in ("scale_vec::4X", "block16") else ""
    return name + (".2CTA" if spelling.blocks == 2 else "") + (".WS" if spelling.is_weight_stationary else "")


def mlir_name(spelling: TensorSpelling) -> str:
    """Return the name of a spelling's operation in MLIR's nvvm dialect."""
    op = spelling.op.replace("fence::before_thread_sync", "fence").replace("fence::after_thread_sync", "fence")
    op = "wait" if op.startswith("wait") else op
    op = "mma_smem_desc" if op == "mma_desc" else op
    return f"nvvm.tcgen05.{op}" + (".sp" if spelling.is_sparse else "")


def _names(spelling: TensorSpelling) -> Iterator[str]:
    yield from cute_names(spelling)
    yield from nvvm_names(spelling)
    yield from filter(None, (sass_name(spelling), mlir_name(spelling)))


@cache
def _by_name() -> dict[str, tuple[TensorSpelling, ...]]:
    by_name = grouped((name.lower(), spelling) for spelling in listed_spellings() for name in _names(spelling))
    return {name: tuple(spellings) for name, spellings in by_name.items()}


ELSEWHERE = r"(?i)(?:cute::)?(?:sm100_(?:mma|tmem|utccp)|(?:llvm\.)?nvvm\.tcgen05|utc|ldtm|sttm)"


def forms_named(text: str) -> tuple[TensorForm, ...] | None:
    """Return the forms that match a CuTe, NVVM, MLIR or SASS name, or None if the text is not such a name.

    >>> [form.name for form in forms_named("SM100_TMEM_LOAD_16dp256b8x")]
    ['tcgen05.ld.sync.aligned.16x256b.x8.b32']
    """
    name = re.split(r"[<\s(;]", text.strip(), maxsplit=1)[0]
    if not re.match(ELSEWHERE, name):
        return None
    return tuple(untyped(spelling) for spelling in _by_name().get(name.lower().removeprefix("cute::"), ()))
