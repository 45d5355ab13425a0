"""Opcode rows for textures and surfaces, whose handles are cudaTextureObject_t and cudaSurfaceObject_t in CUDA.

PTX does not specify every bit of the texture unit's results: `semantics.textures` reproduces those of an H200. The
result type of an instruction has no effect, because the texture unit does not convert to it.
"""

import numpy as np

from warpfrag.machine.ir import actions
from warpfrag.machine.ir.opcode import Attributes, Modifier, OpcodeRow
from warpfrag.machine.ir.scalar_types import S32, types_of
from warpfrag.machine.ops.opcode_rows import optional, required, row
from warpfrag.machine.semantics.integers import on_values

UNIT = "the texture unit of an H200, compared with `tools.textures`"
SURFACES = "PTX ISA, Surface Instructions"
SAMPLED, GATHERED = 358_912, 27_648  # the numbers of tex and tld4 threads that were compared with an H200
RESULTS = types_of("f32 s32 u32")
STORED = types_of("b8 b16 b32 b64")
GEOMETRY = required("1d", "2d", "3d", "a1d", "a2d")
# the operand count of each mode, without offsets and depth comparisons
OPERANDS = {None: 2, "base": 2, "level": 3, "grad": 4}
ACCESS: dict[str, Modifier] = {
    "unformatted": required("b"),
    "geometry": GEOMETRY,
    "vector": optional("v2", "v4"),
    "boundary": required("trap", "clamp", "zero"),
}
REDUCTION = {**ACCESS, "geometry": required("1d", "2d", "3d"), "vector": optional()}
UPDATES: dict[str, actions.CodeFunction] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip


def _fetch(attributes: Attributes) -> actions.TextureFetch | actions.Refused:
    if attributes.operand_count != OPERANDS[attributes.lod]:
        return actions.Refused(f"{attributes.name} is not modelled with an offset or a depth comparison")
    if attributes.lod is not None and attributes.types[1] == S32:
        return actions.Refused(f"{attributes.name} is not modelled: a mipmap level with integer coordinates")
    return actions.TextureFetch(attributes.geometry, attributes.types[1], attributes.lod, attributes.channel)


def _load(attributes: Attributes) -> actions.SurfaceLoad:
    return actions.SurfaceLoad(attributes.geometry, attributes.types[0], attributes.vector, attributes.boundary)


def _store(attributes: Attributes) -> actions.SurfaceStore:
    return actions.SurfaceStore(attributes.geometry, attributes.types[0], attributes.vector, attributes.boundary)


def _reduce(attributes: Attributes) -> actions.SurfaceReduction:
    ptx_type = attributes.types[0]
    update = on_values(UPDATES[attributes.operation or ""], ptx_type.kind)
    return actions.SurfaceReduction(attributes.geometry, ptx_type, attributes.boundary, update)


ROWS: list[OpcodeRow] = [
    row(
        "tex", [RESULTS, "f32 s32"], _fetch, UNIT, level="measured", cases=SAMPLED,
        lod=optional("base", "level", "grad"), geometry=GEOMETRY, vector=required("v4"),
    ),
    row(
        "tld4", [RESULTS, "f32"], _fetch, UNIT, level="measured", cases=GATHERED,
        channel=required("r", "g", "b", "a"), geometry=required("2d"), vector=required("v4"),
    ),
    row("suld", [STORED], _load, SURFACES, like=ACCESS),
    row("sust", [STORED], _store, SURFACES, has_result=False, like=ACCESS),
    row(
        "sured", ["u32 s32 u64 s64"], _reduce, SURFACES, has_result=False,
        operation=required("add"), like=REDUCTION,
    ),
    row("sured", ["u32 s32"], _reduce, SURFACES, has_result=False, operation=required("min", "max"), like=REDUCTION),
    row("sured", ["b32"], _reduce, SURFACES, has_result=False, operation=required("and", "or"), like=REDUCTION),
]  # fmt: skip
