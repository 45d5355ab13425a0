"""Legality compared with the assembler: data/ptxas_accepts.csv lists the spellings that ptxas accepts on each target.

What the table cannot say is here too: refusals of spellings no assembler takes, the movers (section 4.1 of
the fact sheet), the selectors that trap on hardware, and the other spellings `get` takes for one instruction.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import warpfrag as wf
from instructions import each_of
from oracle import ptx_formulas as ptx
from warpfrag.isa.targets import targets

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).resolve().parents[1] / "data"
COLUMNS = ("sm_70", "sm_72", "sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_101a", "sm_107a", "sm_120a")

# Other target names, and the column whose answers they give
ALIASES = {
    **dict.fromkeys(("sm_86", "sm_87", "sm_88"), "sm_80"),
    **dict.fromkeys(("sm_90", "sm_100", "sm_101", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121"), "sm_90a"),
    **dict.fromkeys(("sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f"), "sm_100a"),
    "sm_101f": "sm_101a",
    "sm_107f": "sm_107a",
    "sm_121a": "sm_120a",
    **dict.fromkeys(("sm_120f", "sm_121f"), "sm_120a"),  # less the five sparse mxf4 and mxf4nvf4 forms
}


def read_table() -> dict[str, dict[str, str]]:
    """Spelling -> target -> cell."""
    with (DATA / "ptxas_accepts.csv").open(encoding="utf-8", newline="") as file:
        return {row["instruction"]: {column: row[column] for column in COLUMNS} for row in csv.DictReader(file)}


TABLE = read_table()
NAMES = tuple(TABLE)
SPARSE = tuple(name for name in NAMES if name.startswith("mma.sp"))
TRAPPING = tuple(f"{op}.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32" for op in ("mma.sp", "mma.sp::ordered_metadata"))


def refusal(name: str, **choices: object) -> wf.errors.IllegalInstruction | None:
    """Return the error that `get` raises, or None if it accepts the spelling."""
    try:
        wf.get(name, **choices)
    except wf.errors.IllegalInstruction as error:
        return error
    return None


@cache
def is_legal(name: str) -> bool:
    """Return True if `get` accepts this spelling on some target."""
    return refusal(name) is None


def selectors_of(name: str, cell: str) -> tuple[int, ...]:
    """Return the selectors that a cell lists, without those that trap; `yes` (block-scaled, not probed) is 0 by 2.1."""
    if cell == "yes":
        return (0,)
    granted = tuple(int(word) for word in cell.split())
    return tuple(selector for selector in granted if selector < 2) if name in TRAPPING else granted


# --- the table


def test_table_is_complete() -> None:
    """All 688 spellings and 10 targets are present, with the number of accepted cells in each column."""
    assert len(TABLE) == 688
    assert {*COLUMNS, *ALIASES} == set(targets())
    assert len(SPARSE) == 197
    assert {cell for row in TABLE.values() for cell in row.values()} == {"", "yes", "0", "0 1", "0 1 2 3"}
    accepted = {column: sum(bool(row[column]) for row in TABLE.values()) for column in COLUMNS}
    assert accepted == {
        "sm_70": 96, "sm_72": 180, "sm_75": 218, "sm_80": 427, "sm_89": 451, "sm_90a": 466, "sm_100a": 486,
        "sm_101a": 486, "sm_107a": 486, "sm_120a": 688,
    }  # fmt: skip


@each_of(NAMES)
def test_accepted_exactly_where_the_table_says(name: str) -> None:
    """One spelling, ten targets: `get`, `targets` and the error message agree with the assembler."""
    instruction = wf.get(name)
    for target, cell in TABLE[name].items():
        error = refusal(name, arch=target)
        assert (error is None) == bool(cell), f"{name} on {target}: {error}"
        assert (target in instruction.targets) == bool(cell)
        if error is None:
            assert wf.get(name, arch=target).name == instruction.name
        else:
            assert target in error.reason


@pytest.mark.parametrize("target", ALIASES)
def test_alias_targets(target: str) -> None:
    """The other target names accept the same as their column; sm_12xf lack the five sparse mxf4 forms."""
    lacking = [name for name in SPARSE if re.search(r"kind::mxf4(nvf4)?\.", name)]
    assert len(lacking) == 5
    if target not in {"sm_120f", "sm_121f"}:
        lacking = []
    expected = {name for name in NAMES if TABLE[name][ALIASES[target]] and name not in lacking}
    assert {name for name in NAMES if refusal(name, arch=target) is None} == expected


@pytest.mark.parametrize("target", COLUMNS)
def test_find_by_target(target: str) -> None:
    """`find(arch=...)` lists the instructions of that column, and nothing else of the table."""
    others = ("matrix", "wgmma", "tcgen05")  # the movers; wgmma and tcgen05 have tests of their own
    found = [one for one in wf.find(arch=target) if not any(word in one.name for word in others)]
    assert {instruction.name for instruction in found} == {wf.get(name).name for name in NAMES if TABLE[name][target]}


def test_find_by_target_and_type() -> None:
    """`find(arch="sm_90a", a="e4m3")` is the table's rows with A of e4m3 on sm_90a."""
    expected = {name for name in NAMES if TABLE[name]["sm_90a"] and name.startswith("mma")}
    expected = {wf.get(name).name for name in expected if ptx.spelling(name).type_of("a") == "e4m3"}
    assert len(expected) == 12  # k16 and k32, two B types, two accumulators; sparse k64, two forms, two B types
    found = {instruction.name for instruction in wf.find(arch="sm_90a", a="e4m3")}
    assert {name for name in found if not name.startswith("wgmma")} == expected
    assert len(found) == 12 + 2 * 2 * 2 * 32  # wgmma: dense and sparse, two B types, two accumulators, every width


@each_of(SPARSE)
def test_selectors_exactly_as_the_table_says(name: str) -> None:
    """Each selector is accepted if the cell lists it; the trapping ones of m16n8k32 f32.f16 never are."""
    for target, cell in TABLE[name].items():
        if not cell:
            continue
        accepted = [s for s in range(-1, 6) if refusal(name, arch=target, selector=s) is None]
        assert tuple(accepted) == selectors_of(name, cell), f"{name} on {target}"
    cells = {cell for cell in TABLE[name].values() if cell}
    assert len(cells) == 1
    assert tuple(wf.get(name).selectors) == selectors_of(name, cells.pop())


@pytest.mark.parametrize("selector", [2, 3])
@pytest.mark.parametrize("name", TRAPPING)
def test_trapping_selectors_are_refused(name: str, selector: int) -> None:
    """ptxas accepts selectors 2 and 3 here, but the hardware traps: illegal everywhere, with or without a target."""
    assert TABLE[name]["sm_90a"] == "0 1 2 3"
    for target in (None, *(column for column in COLUMNS if TABLE[name][column]), *ALIASES):
        error = refusal(name, arch=target, selector=selector)
        assert error is not None
        assert "selector" in error.reason
        assert str(selector) in error.reason


@pytest.mark.parametrize(
    "target", ["sm_99", "sm_9", "sm_900", "", "gfx90a", "sm-90", "\N{FULLWIDTH DIGIT NINE}0", 90, ["90"]]
)
def test_unknown_targets_are_refused(target: object) -> None:
    """An unknown target causes the same error everywhere, which names it and, if it resembles one, the targets."""
    name = "mma.m16n8k16.f32.f16.f16.f32"
    tile = [[0] * 4] * 32
    for question in (
        lambda: wf.get(name, arch=target),
        lambda: wf.find(arch=target),
        lambda: wf.get(name).evidence(target),
        lambda: wf.execute(name, tile, tile, arch=target),
        lambda: wf.gemm([[0.0]], [[0.0]], instruction=name, arch=target),
    ):
        with pytest.raises(wf.errors.IllegalInstruction) as caught:
            question()
        assert repr(target) in caught.value.reason
        assert ("sm_107a" in caught.value.reason) == (target not in ["", "gfx90a", "\N{FULLWIDTH DIGIT NINE}0"])
        assert "a GPU such as H100" in caught.value.reason
        assert set(caught.value.nearest) <= set(targets())
    if target == "sm_99":
        assert "sm_90" in caught.value.nearest


@pytest.mark.parametrize("written", ["90a", "sm90a", "SM90A", "SM_90a", "compute_90a", " sm_90a "])
def test_a_target_may_be_written_as_people_do(written: str) -> None:
    """One function reads the names of targets and architectures, for every query."""
    name = "wmma.mma.row.col.m16n16k16.f32.f32"
    assert wf.get(name, arch=written) is wf.get(name, arch="sm_90a")
    assert wf.find(arch=written) == wf.find(arch="sm_90a")
    assert wf.get(name).evidence(written) == wf.get(name).evidence("sm_90a")
    ones = [[1.0] * 16] * 16
    assert wf.gemm(ones, ones, instruction=name, arch=written)[0, 0] == 16


# --- movers: section 4.1

SINCE_75 = {target for target in (*COLUMNS, *ALIASES) if target not in {"sm_70", "sm_72"}}
SINCE_90 = SINCE_75 - {"sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89"}
BLACKWELL = {f"sm_{number}{suffix}" for number in (100, 101, 103, 107, 110, 120, 121) for suffix in "af"}
RETIRED = {"sm_101a", "sm_101f"}  # no assembler of PTX 9.4 knows them


def mover_targets() -> dict[str, set[str]]:
    """Return every form of 4.1 and the targets that accept it."""
    legal = {}
    for mover in ptx.movers():
        if ".m8n8." in mover.name:
            legal[mover.name] = SINCE_75 if mover.name.startswith("ldmatrix") else SINCE_90
        else:
            legal[mover.name] = BLACKWELL
    legal |= dict.fromkeys(ptx.UNKNOWN_MOVERS, BLACKWELL - RETIRED | {"sm_90a"})
    legal[ptx.MOVMATRIX] = SINCE_75
    return legal


MOVER_TARGETS = mover_targets()


@pytest.mark.parametrize("name", MOVER_TARGETS)
def test_movers_accepted_exactly_where_the_document_says(name: str) -> None:
    """Each of the 31 forms of ldmatrix, stmatrix and movmatrix, on every target name."""
    assert len(MOVER_TARGETS) == 31
    accepted = {target for target in (*COLUMNS, *ALIASES) if refusal(name, arch=target) is None}
    assert accepted == MOVER_TARGETS[name]
    assert accepted == set(wf.get(name).targets) & {*COLUMNS, *ALIASES}


# --- refusals that are not in the table
# spelling -> words of which the reason must name at least one

K = "mma.sync.aligned"
SP = "mma.sp.sync.aligned"
ORDERED = "mma.sp::ordered_metadata.sync.aligned"
W = "wmma.mma.sync.aligned"

REFUSED: dict[str, tuple[str, ...]] = {
    # unknown shapes
    f"{K}.m16n8k7.row.col.f32.f16.f16.f32": ("m16n8k7",),
    f"{K}.m16n16k16.row.col.f32.f16.f16.f32": ("m16n16k16",),
    f"{K}.m32n8k16.row.col.f32.f16.f16.f32": ("m32n8k16",),
    f"{K}.m8n8k8.row.col.f32.tf32.tf32.f32": ("m8n8k8",),
    f"{K}.m16n8k512.row.col.s32.b1.b1.s32.and.popc": ("m16n8k512",),
    f"{K}.m16n8.row.col.f32.f16.f16.f32": ("m16n8",),
    f"{K}.m016n8k16.row.col.f32.f16.f16.f32": ("m016n8k16",),
    f"{SP}.m16n8k24.row.col.f32.f16.f16.f32": ("m16n8k24",),
    f"{W}.row.col.m16n8k16.f32.f32": ("m16n8k16",),
    f"{W}.row.col.m16n16k32.s32.s8.s8.s32": ("m16n16k32",),
    "wmma.load.a.sync.aligned.row.m16n8k16.global.f16": ("m16n8k16",),
    # shapes that exist, but not for these types
    f"{K}.m16n8k32.row.col.f32.f16.f16.f32": ("m16n8k32", "f16"),
    f"{K}.m16n8k32.row.col.f32.bf16.bf16.f32": ("m16n8k32", "bf16"),
    f"{K}.m16n8k16.row.col.f32.tf32.tf32.f32": ("m16n8k16", "tf32"),
    f"{K}.m16n8k4.row.col.f32.bf16.bf16.f32": ("m16n8k4", "bf16"),
    f"{K}.m16n8k4.row.col.f32.f16.f16.f32": ("m16n8k4", "f16"),
    f"{K}.m16n8k64.row.col.s32.s8.s8.s32": ("m16n8k64", "s8"),
    f"{K}.m16n8k128.row.col.s32.s4.s4.s32": ("m16n8k128", "s4"),
    f"{K}.m16n8k64.row.col.s32.b1.b1.s32.xor.popc": ("m16n8k64", "b1"),
    f"{K}.m16n8k32.row.col.f64.f64.f64.f64": ("m16n8k32", "f64"),
    f"{K}.m16n8k64.row.col.f32.e4m3.e4m3.f32": ("m16n8k64", "e4m3"),
    f"{K}.m8n8k4.row.col.f32.tf32.tf32.f32": ("m8n8k4", "tf32"),
    f"{SP}.m16n8k8.row.col.f32.f16.f16.f32": ("m16n8k8", "f16"),
    f"{SP}.m16n8k64.row.col.f32.f16.f16.f32": ("m16n8k64", "f16"),
    f"{SP}.m16n8k32.row.col.f32.e4m3.e4m3.f32": ("m16n8k32", "e4m3"),
    f"{ORDERED}.m16n8k32.row.col.f32.e4m3.e4m3.f32": ("m16n8k32", "e4m3"),
    f"{SP}.m16n8k16.row.col.f64.f64.f64.f64": ("f64", "m16n8k16"),
    f"{SP}.m16n8k256.row.col.s32.b1.b1.s32.and.popc": ("b1", "m16n8k256", "and", "popc"),
    f"{W}.row.col.m16n16k16.f32.tf32.tf32.f32": ("m16n16k16", "tf32"),
    f"{W}.row.col.m8n32k16.f64.f64.f64.f64": ("m8n32k16", "f64"),
    # type pairs
    f"{K}.m16n8k16.row.col.f32.bf16.f16.f32": ("bf16", "f16"),
    f"{K}.m16n8k16.row.col.f32.f16.bf16.f32": ("bf16", "f16"),
    f"{K}.m16n8k8.row.col.f32.bf16.tf32.f32": ("bf16", "tf32"),
    f"{K}.m16n8k8.row.col.f32.tf32.bf16.f32": ("bf16", "tf32"),
    f"{K}.m16n8k32.row.col.s32.s8.s4.s32": ("s8", "s4"),
    f"{K}.m16n8k32.row.col.s32.u4.u8.s32": ("u4", "u8"),
    f"{K}.m16n8k128.row.col.s32.b1.s8.s32.xor.popc": ("b1", "s8"),
    f"{K}.m16n8k16.row.col.f32.e4m3.f16.f32": ("e4m3", "f16"),
    f"{K}.m16n8k16.row.col.f32.s8.s8.f32": ("f32", "s8"),
    f"{K}.m16n8k16.row.col.s32.f16.f16.s32": ("s32", "f16"),
    f"{K}.m16n8k16.row.col.f16.bf16.bf16.f16": ("f16", "bf16"),
    f"{K}.m16n8k8.row.col.f16.tf32.tf32.f16": ("f16", "tf32"),
    f"{K}.m16n8k16.row.col.bf16.bf16.bf16.bf16": ("bf16",),
    f"{K}.m8n8k4.row.col.f32.f64.f64.f32": ("f32", "f64"),
    f"{SP}.m16n8k32.row.col.f32.bf16.f16.f32": ("bf16", "f16"),
    f"{SP}.m16n8k64.row.col.s32.s8.u4.s32": ("s8", "u4"),
    f"{SP}.m16n8k64.row.col.f16.e4m3.e4m3.f16": ("f16", "e4m3", "ordered_metadata"),
    f"{W}.row.col.m16n16k16.s32.s8.u8.s32": ("s8", "u8"),
    f"{W}.row.col.m8n8k32.s32.s4.u4.s32": ("s4", "u4"),
    f"{W}.row.col.m16n16k16.f16.bf16.bf16.f16": ("f16", "bf16"),
    # layouts
    f"{K}.m16n8k16.col.row.f32.f16.f16.f32": ("col", "row"),
    f"{K}.m16n8k16.row.row.f32.f16.f16.f32": ("row",),
    f"{K}.m16n8k16.col.col.f32.f16.f16.f32": ("col",),
    f"{K}.m8n8k4.col.row.f64.f64.f64.f64": ("col", "row"),
    f"{K}.m8n8k16.col.col.s32.s8.s8.s32": ("col",),
    f"{K}.m16n8k32.row.row.f32.e4m3.e4m3.f32": ("row",),
    f"{SP}.m16n8k32.col.col.f32.f16.f16.f32": ("col",),
    f"{W}.col.row.m8n8k32.s32.s4.s4.s32": ("col", "row"),
    "wmma.mma.xor.popc.sync.aligned.row.row.m8n8k128.s32.b1.b1.s32": ("row",),
    "wmma.load.a.sync.aligned.col.m8n8k32.global.s4": ("col",),
    "wmma.load.b.sync.aligned.row.m8n8k128.global.b1": ("row",),
    f"{K}.m8n8k4.f16.f16.f16.f16": ("row", "col", "layout", "f16"),
    f"{W}.row.m16n16k16.f32.f32": ("row", "col", "layout", "m16n16k16"),
    # D unlike C
    f"{K}.m16n8k16.row.col.f16.f16.f16.f32": ("f16", "f32"),
    f"{K}.m16n8k16.row.col.f32.f16.f16.f16": ("f16", "f32"),
    f"{K}.m8n8k4.row.col.f16.f16.f16.f32": ("f16", "f32"),
    f"{K}.m16n8k32.row.col.f32.e4m3.e4m3.f16": ("f16", "f32"),
    f"{K}.m16n8k32.row.col.kind::f8f6f4.f16.e2m1.e4m3.f32": ("f16", "f32"),
    f"{SP}.m16n8k32.row.col.f32.f16.f16.f16": ("f16", "f32"),
    f"{W}.row.col.m16n16k16.f32.bf16.bf16.f16": ("f16", "f32"),
    # kinds
    f"{K}.m16n8k32.row.col.f32.e3m2.e3m2.f32": ("kind", "e3m2"),
    f"{K}.m16n8k32.row.col.f32.e4m3.e2m3.f32": ("kind", "e2m3"),
    f"{K}.m16n8k32.row.col.f32.e2m1.e4m3.f32": ("kind", "e2m1"),
    f"{ORDERED}.m16n8k64.row.col.f32.e2m3.e4m3.f32": ("kind", "e2m3"),
    f"{K}.m16n8k16.row.col.kind::f8f6f4.f32.e3m2.e4m3.f32": ("m16n8k16", "e3m2"),
    f"{K}.m16n8k32.row.col.kind::f8f6f4.s32.s8.s8.s32": ("f8f6f4", "s8", "s32"),
    f"{K}.m16n8k16.row.col.kind::f8f6f4.f32.f16.f16.f32": ("f8f6f4", "f16"),
    f"{K}.m16n8k32.row.col.kind::f16.f32.e4m3.e4m3.f32": ("kind::f16",),
    f"{K}.m16n8k32.row.col.kind::.f32.e4m3.e4m3.f32": ("kind",),
    f"{SP}.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32": ("f8f6f4", "ordered_metadata", "sp"),
    f"{K}.m16n8k64.row.col.kind::mxf4.block_scale.f32.e4m3.e4m3.f32.ue8m0": ("e4m3", "mxf4"),
    f"{K}.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f16.e4m3.e4m3.f16.ue8m0": ("f16",),
    # scales
    f"{K}.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue4m3": ("ue4m3",),
    f"{K}.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue4m3": ("ue4m3",),
    f"{K}.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue4m3": ("ue4m3", "2x"),
    f"{K}.m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue8m0": ("scale_vec", "mxf4nvf4"),
    f"{K}.m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue4m3": (
        "scale_vec",
        "mxf4nvf4",
        "ue4m3",
    ),
    f"{K}.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::2X.f32.e4m3.e4m3.f32.ue8m0": ("2x",),
    f"{K}.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0": ("4x",),
    f"{K}.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::3X.f32.e2m1.e2m1.f32.ue8m0": ("3x",),
    f"{K}.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32": ("ue8m0", "scale"),
    f"{K}.m16n8k32.row.col.kind::mxf8f6f4.f32.e4m3.e4m3.f32.ue8m0": ("block_scale", "ue8m0"),
    f"{K}.m16n8k32.row.col.kind::mxf8f6f4.f32.e4m3.e4m3.f32": ("block_scale", "mxf8f6f4", "ue8m0"),
    f"{K}.m16n8k32.row.col.kind::f8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0": (
        "block_scale",
        "ue8m0",
        "f8f6f4",
    ),
    f"{K}.m16n8k16.row.col.f32.f16.f16.f32.ue8m0": ("ue8m0",),
    # satfinite, rounding, bit operations
    f"{K}.m16n8k16.row.col.satfinite.f32.f16.f16.f32": ("satfinite",),
    f"{K}.m16n8k8.row.col.satfinite.f32.tf32.tf32.f32": ("satfinite",),
    f"{K}.m8n8k4.row.col.satfinite.f64.f64.f64.f64": ("satfinite",),
    f"{K}.m16n8k32.row.col.satfinite.f32.e4m3.e4m3.f32": ("satfinite",),
    f"{SP}.m16n8k32.row.col.satfinite.f32.f16.f16.f32": ("satfinite",),
    f"{W}.row.col.m16n16k16.f32.f32.satfinite": ("satfinite",),
    f"{K}.m16n8k32.row.col.satfinite.satfinite.s32.s8.s8.s32": ("satfinite",),
    f"{K}.m16n8k16.row.col.f32.f16.f16.f32.rn": ("rn",),
    f"{K}.m16n8k8.row.col.f32.tf32.tf32.f32.rz": ("rz",),
    f"{K}.m16n8k32.row.col.s32.s8.s8.s32.rm": ("rm",),
    f"{K}.m8n8k4.row.col.f64.f64.f64.f64.rna": ("rna",),
    f"{K}.m8n8k4.row.col.f64.f64.f64.f64.rn.rz": ("rn", "rz"),
    f"{W}.row.col.m16n16k16.rn.f32.f32": ("rn",),
    f"{K}.m8n8k128.row.col.s32.b1.b1.s32.or.popc": ("or",),
    f"{K}.m8n8k128.row.col.s32.b1.b1.s32.xor": ("popc", "xor"),
    f"{K}.m8n8k128.row.col.s32.b1.b1.s32": ("popc", "xor", "b1"),
    f"{K}.m16n8k32.row.col.s32.s8.s8.s32.xor.popc": ("xor", "popc"),
    # words missing or doubled, and the few that keep their order
    f"{K}.m16n8k32.kind::mxf8f6f4.block_scale.row.col.f32.ue8m0.e4m3.e4m3.f32": ("ue8m0",),
    f"{K}.m16n8k32.kind::mxf8f6f4.block_scale.row.col.ue8m0.f32.e4m3.e4m3.f32": ("ue8m0",),
    f"{K}.m16n8k16.row.col.f16.f32.f32.f16": ("f16", "f32"),
    f"{K}.m8n8k128.row.col.popc.xor.s32.b1.b1.s32": ("popc", "xor"),
    "wmma.store.sync.d.aligned.row.m16n16k16.global.f32": ("wmma.store",),
    "wmma.sync.load.a.aligned.row.m16n16k16.global.f16": ("wmma.sync",),
    "mma.sp.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32": ("sp",),
    "ldmatrix.sync.aligned.m8n8.x4.x4.shared.b16": ("x4",),
    "ldmatrix.sync.aligned.m8n8.x4.shared.shared.b16": ("shared",),
    "ldmatrix.sync.aligned.m8n8.x4.global.b16": ("global",),
    "stmatrix.sync.aligned.m8n8.x4.shared::cluster.b16": ("shared::cluster",),
    "wmma.load.a.sync.aligned.row.m16n16k16.local.f16": ("local",),
    "movmatrix.sync.aligned.m8n8.trans.shared.b16": ("shared",),
    f"{K}.m16n8k16.row.col.f32.f16.f16": ("f16", "type"),
    f"{K}.m16n8k16.row.col.f32.f16.f16.f32.f32": ("f32", "type"),
    f"{K}.m16n8k16.row.col.row.col.f32.f16.f16.f32": ("row", "col"),
    f"{K}.m16n8k16.m16n8k16.row.col.f32.f16.f16.f32": ("m16n8k16",),
    "m16n8k16.mma.sync.aligned.row.col.f32.f16.f16.f32": ("m16n8k16",),
    "sync.aligned.mma.m16n8k16.row.col.f32.f16.f16.f32": ("sync",),
    f"{K}.m16n8k16.row.col.f32.f16.f16.f32.banana": ("banana",),
    f"{K}.banana.m16n8k16.row.col.f32.f16.f16.f32": ("banana",),
    f"{K}..m16n8k16.row.col.f32.f16.f16.f32": ("",),
    # other operands
    "mma.sp::banana.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32": ("banana",),
    "mma.async.aligned.m16n8k16.row.col.f32.f16.f16.f32": ("async",),
    "wmma.load.d.sync.aligned.row.m16n16k16.global.f32": ("d",),
    "wmma.store.a.sync.aligned.row.m16n16k16.global.f16": ("a",),
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f32": ("f32",),
    "wmma.load.c.sync.aligned.row.m16n16k16.global.bf16": ("bf16",),
    "wmma.load.a.sync.aligned.row.m16n16k8.global.f16": ("m16n16k8", "f16"),
    "wmma.store.d.sync.aligned.row.m16n16k16.global.u8": ("u8",),
    # movers (4.1, "Refused")
    "ldmatrix.sync.aligned.m8n8.x1.shared.b8": ("b8",),
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b16": ("b16", "m16n16"),
    "ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8": ("x4",),
    "ldmatrix.sync.aligned.m16n16.x1.shared.b8": ("trans",),
    "ldmatrix.sync.aligned.m16n16.x2.shared.b8x16.b6x16_p32": ("trans",),
    "ldmatrix.sync.aligned.m8n16.x1.trans.shared.b8x16.b6x16_p32": ("trans",),
    "ldmatrix.sync.aligned.m8n16.x1.trans.shared.s8.s4": ("trans",),
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8": ("b8", "m8n16"),
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b5x16_p48": ("b5x16_p48",),
    "ldmatrix.sync.aligned.m8n8.x3.shared.b16": ("x3",),
    "ldmatrix.sync.aligned.m8n8.x8.shared.b16": ("x8",),
    "ldmatrix.sync.aligned.m8n8.shared.b16": ("x1", "x2", "x4", "count", "num"),
    "ldmatrix.sync.aligned.m16n8.x1.shared.b16": ("m16n8",),
    "stmatrix.sync.aligned.m8n8.x1.shared.b8": ("b8",),
    "stmatrix.sync.aligned.m16n8.x1.shared.b8": ("trans",),
    "stmatrix.sync.aligned.m16n16.x1.trans.shared.b8": ("m16n16",),
    "stmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32": ("m8n16", "b8x16"),
    "movmatrix.sync.aligned.m8n8.b16": ("trans",),
    "movmatrix.sync.aligned.m8n8.trans.b8": ("b8",),
    "movmatrix.sync.aligned.m16n16.trans.b8": ("m16n16", "b8"),
}


def test_refused_spellings_are_not_in_the_table() -> None:
    """The list is long, and the assembler accepts none of its spellings."""
    assert len(REFUSED) >= 140
    assert not set(REFUSED) & set(NAMES)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    """IllegalInstruction everywhere; the reason names the wrong word, and the suggestions are legal."""
    error = refusal(name)
    assert error is not None, f"{name} was accepted"
    assert isinstance(error, wf.WarpfragError)
    assert isinstance(error, ValueError)
    assert any(word in error.reason.lower() for word in REFUSED[name]), error.reason
    assert len(error.nearest) >= 1
    assert [near for near in error.nearest if not is_legal(near)] == []
    assert name not in error.nearest
    if name.split(".", maxsplit=1)[0] in {"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"}:
        assert {near.split(".")[0] for near in error.nearest} == {name.split(".", maxsplit=1)[0]}
    for target in ("sm_80", "sm_90a", "sm_120a"):
        assert refusal(name, arch=target) is not None


OUT_OF_SCOPE = {
    "wgmma.fence.sync.aligned": "a wgmma fence or wait",
    "cp.async.cg.shared.global": "copy",
    "ld.shared.v4.b32": "not a matrix instruction",
    "dp4a.s32.s32": "not a matrix instruction",
    "v_mfma_f32_32x32x8_f16": "AMD",
    "llvm.amdgcn.mfma.f32.32x32x8f16": "AMD",
    "SM90_TMA_LOAD": "copies",
    "SM61_DP4A": "one thread",
    "llvm.nvvm.wmma.m16n16k16.mma.col.col.f16.f16.satfinite": "saturates floating-point results",
}


@pytest.mark.parametrize("name", OUT_OF_SCOPE)
def test_what_is_out_of_scope_is_said_and_nothing_is_called_near(name: str) -> None:
    """The instructions of other units are recognised by name; no wmma is suggested for them."""
    error = refusal(name)
    assert error is not None
    assert error.reason.startswith("out of scope: ")
    assert OUT_OF_SCOPE[name] in error.reason
    assert error.nearest == ()


NONSENSE = {
    "empty": "",
    "blank": "   \t\n",
    "dot": ".",
    "dots": "." * 40,
    "semicolon": ";",
    "operands only": "{%0, %1}, {%2};",
    "head only": "mma",
    "head and dot": "mma.",
    "wmma head": "wmma",
    "no types": "mma.sync.aligned.m16n8k16.row.col",
    "words": "hello world",
    "sentence": "the tensor core multiplies matrices.",
    "number": "42",
    "nul": "\0",
    "nul inside": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\0",
    "owl": "\N{OWL}",
    "kelvin sign for k": "mma.sync.aligned.m16n8\N{KELVIN SIGN}16.row.col.f32.f16.f16.f32",
    "long s for s": "mma.\N{LATIN SMALL LETTER LONG S}ync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "fullwidth digits": "mma.sync.aligned.m\uff11\uff16n8k16.row.col.f32.f16.f16.f32",
    "arabic digits": "mma.sync.aligned.m\u0661\u0666n8k16.row.col.f32.f16.f16.f32",
    "cyrillic letters": "mma.sync.aligned.m16n8k16.row.\u0441\u043el.f32.f16.f16.f32",
    "zero width space": "mma.sync.aligned.m16n8k16\u200b.row.col.f32.f16.f16.f32",
    "long word": "a" * 100_000,
    "many words": "mma." * 50_000,
    "many shapes": "mma.sync.aligned" + ".m16n8k16" * 20_000,
    "huge shape": "mma.sync.aligned.m16n8k" + "9" * 5_000 + ".row.col.f32.f16.f16.f32",
    "brackets": "((((((((((",
    "pattern": ".*",
    "format string": "{0.__class__}%s%n",
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_refused(case: str) -> None:
    """An unknown instruction raises IllegalInstruction with a short reason; its neighbours are legal."""
    error = refusal(NONSENSE[case])
    assert error is not None
    assert 0 < len(error.reason) < 1000
    assert [near for near in error.nearest if not is_legal(near)] == []
    assert str(error)


# --- other spellings of the same instruction

OPERANDS = " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"


def test_name_is_canonical() -> None:
    """`get` of an instruction, or of its name, is that instruction; equal spellings have equal hashes."""
    for name in NAMES:
        instruction = wf.get(name)
        assert wf.get(instruction) is instruction
        assert wf.get(instruction.name) is instruction
        assert hash(wf.get(name)) == hash(instruction)
        if name.startswith("mma") and "f64" not in name and ".block_scale" not in name:
            assert instruction.name == name


@pytest.mark.parametrize(
    "write",
    [
        str.upper,
        str.lower,
        "  {}\n".format,
        "{};".format,
        f"{{}}{OPERANDS.replace('{', '{{').replace('}', '}}')}".format,
        "{} {{%r0, %r1}}, [%rd4], 16;".format,
        "{}\t%r0, %r1 ;".format,
        '"{} "'.format,
        lambda name: name.replace(".sync.aligned", ""),
    ],
)
def test_what_people_paste(write: Callable[[str], str]) -> None:
    """Upper case, spaces around, trailing operands and `;`, and a name without `.sync.aligned`: the same object."""
    for name in (*NAMES, *MOVER_TARGETS):
        assert write(name) != name or write is str.lower
        assert wf.get(write(name)) is wf.get(name), name


def test_short_form_without_row_col() -> None:
    """`.row.col` may be omitted if it is the only layout; m8n8k4.f16 has four, so there it may not."""
    for name in NAMES:
        short = re.sub(r"\.(row|col)\.(row|col)", "", name)
        if name.startswith("wmma.") or short == name:
            continue
        words = ptx.spelling(name)
        if words.shape == "m8n8k4" and words.type_of("a") == "f16":
            assert refusal(short) is not None
            assert refusal(short.replace(".sync.aligned", "")) is not None
        else:
            assert wf.get(short) is wf.get(name)
            assert wf.get(short.replace(".sync.aligned", "")) is wf.get(name)


SPACES = {"global": ("", ".shared", ".shared::cta"), "shared": ("", ".shared::cta")}


@pytest.mark.slow
@each_of(name for name in (*NAMES, *MOVER_TARGETS) if re.search(r"\.(global|shared)\.", name))
def test_a_state_space_stays_in_the_name(name: str) -> None:
    """Another space, or none, is another name of the family: legal on the same targets, with the same operands."""
    listed = wf.get(name)
    usual = listed.form.space
    assert listed.name == name
    for space in SPACES[usual]:
        other = wf.get(name.replace(f".{usual}.", f"{space}."))
        assert other.name == name.replace(f".{usual}.", f"{space}.")
        assert other != listed
        assert (other.targets, other.addresses) == (listed.targets, listed.addresses)
        assert [operand.spec for operand in other.operands.values()] == [o.spec for o in listed.operands.values()]
        assert wf.get(other.name.replace(".sync.aligned", "")) is other
        assert other not in wf.find(op=listed.op)
    assert listed in wf.find(op=listed.op)
