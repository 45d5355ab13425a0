"""Opcodes for tensor cores, matrix moves, mbarriers and TMA copies."""

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.ir.actions import WarpCollective
from warpfrag.machine.ir.opcode import Attributes
from warpfrag.machine.ir.program import Discard, Immediate, MemoryOperand, PtxOperand, Register, VectorOperand
from warpfrag.machine.ir.scalar_types import B32, B64, PRED, Codes
from warpfrag.sass import sass_instruction as asm
from warpfrag.sass.emitter import ONE, WORD, ZERO, Emitter, Unsupported
from warpfrag.sass.opcodes.sass_row import Modifiers, SassRow, row

SHAPES = {
    "16816": (16, 8, 16), "1688": (16, 8, 8), "1684": (16, 8, 4), "16832": (16, 8, 32), "16864": (16, 8, 64),
    "168128": (16, 8, 128), "168256": (16, 8, 256), "8816": (8, 8, 16), "88128": (8, 8, 128),
}  # fmt: skip
DOUBLE_SHAPES = {
    "884": (8, 8, 4, 1, 1, 2), "8x8x4": (8, 8, 4, 1, 1, 2), "16x8x16": (16, 8, 16, 8, 4, 4),
    "16x8x8": (16, 8, 8, 4, 2, 4), "16x8x4": (16, 8, 4, 2, 1, 4),
}  # fmt: skip
"""The shape of each DMMA, and the numbers of f64 registers in A, B and C."""
MATRICES = {"": 1, "2": 2, "4": 4}
GMMA_TYPES = ("F32", "F16", "BF16", "TF32", "S8", "U8", "E4M3", "E5M2")
GMMA_SHAPES = tuple(f"64x{n}x{k}" for n in range(8, 257, 8) for k in (8, 16, 32, 64, 256))
INIT_ARRIVALS = 1 << 20
SIGN_BITS = {"f16": 0x80008000, "bf16": 0x80008000, "tf32": 0x80000000}
"""The sign bits of the elements in a register of A or B, by element type."""


def _multiply(e: Emitter, name: str, a: list[asm.Operand], counts: tuple[int, int, int]) -> None:
    """Emit mma with the registers of A, B and C; for a sparse A, also the metadata and the selector."""
    orders = [getattr(operand, "selector", "") for operand in a[1:3]]
    if orders not in (["", ""], ["ROW", "COL"]):
        raise Unsupported(f"matrices stored as {orders}")
    sources = [_matrix(e, name, operand, count) for operand, count in zip(a[1:4], counts, strict=True)]
    e.emit(name, [e.results(a[0], counts[2])], [*sources, *(e.word(operand) for operand in a[4:])])


def _matrix(e: Emitter, name: str, operand: asm.Operand, count: int) -> PtxOperand:
    """Return the registers of a matrix; sign modifiers are applied to a copy, and leave an f64 NaN unchanged."""
    codes = [e.bits_of(operand, step) for step in range(count)]
    signs = [sign for word, sign in (("absolute", "abs"), ("negate", "neg")) if getattr(operand, word, False)]
    if ".f64." in name:
        for sign in signs:
            pairs = [VectorOperand(tuple(codes[at : at + 2])) for at in range(0, count, 2)]
            codes = [e.temporary() for _ in codes]
            for at, pair in enumerate(pairs):
                e.emit(f"{sign}.f64", [VectorOperand(tuple(codes[2 * at : 2 * at + 2]))], [pair])
    elif signs == ["neg"] and (bits := [bits for kind, bits in SIGN_BITS.items() if f".{kind}.{kind}." in name]):
        codes = [e.compute("xor.b32", code, Immediate(bits[0])) for code in codes]
    elif signs:
        raise Unsupported("a sign modifier on a matrix operand of this type")
    return VectorOperand(tuple(codes))


def _multiply_shape(
    e: Emitter, modifiers: Modifiers, a: list[asm.Operand], bits: int, dtypes: str, total_bits: int
) -> None:
    """Emit mma with the shape that the modifiers give; a sparse A stores half of its elements."""
    sparse = "SP" in modifiers
    m, n, k = SHAPES[modifiers.first(tuple(SHAPES))]
    name = f"mma{'.sp::ordered_metadata' if sparse else ''}.sync.aligned.m{m}n{n}k{k}.row.col{dtypes}"
    counts = (m * k * bits // (2048 if sparse else 1024), n * k * bits // 1024, m * n * total_bits // 1024)
    _multiply(e, name, a, counts)


def hmma(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """HMMA: multiply f16, bf16 or tf32 matrices."""
    dtype = modifiers.first(("BF16", "TF32"), "F16").lower()
    total = "f32" if "F32" in modifiers else "f16"
    _multiply_shape(e, modifiers, a, 32 if dtype == "tf32" else 16, f".{total}.{dtype}.{dtype}.{total}", int(total[1:]))


def imma(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """IMMA: multiply integer matrices."""
    dtypes = [word.lower() for word in modifiers.chosen(("S8", "U8", "S4", "U4"))]
    dtypes = dtypes * 2 if len(dtypes) == 1 else dtypes
    sat = ".satfinite" if "SAT" in modifiers else ""
    _multiply_shape(e, modifiers, a, int(dtypes[0][1:]), f"{sat}.s32.{dtypes[0]}.{dtypes[1]}.s32", 32)


def bmma(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BMMA: count the common bits (and) or the differing bits (xor) of two matrices."""
    _multiply_shape(e, modifiers, a, 1, f".s32.b1.b1.s32.{modifiers.first(('AND', 'XOR')).lower()}.popc", 32)


def dmma(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """DMMA: multiply f64 matrices held in register pairs."""
    m, n, k, *counts = DOUBLE_SHAPES[modifiers.all[0]]
    rounding = modifiers.first(("RZ", "RM", "RP")).lower()
    name = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.f64.f64.f64.f64{f'.{rounding}' if rounding else ''}"
    count_a, count_b, count_c = (2 * count for count in counts)
    _multiply(e, name, a, (count_a, count_b, count_c))


def matrix_load(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """LDSM: load 8x8 matrices of 16-bit elements."""
    count = MATRICES[modifiers.first(("2", "4"))]
    e.emit(_matrix_name(e, "ldmatrix", modifiers, count), [e.results(a[0], count)], [e.shared_address(a[1])])


def matrix_store(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """STSM: store 8x8 matrices of 16-bit elements."""
    count = MATRICES[modifiers.first(("2", "4"))]
    sources = [e.shared_address(a[0]), e.words(a[1], count)]
    e.emit(_matrix_name(e, "stmatrix", modifiers, count), [], sources)


def _matrix_name(e: Emitter, opcode: str, modifiers: Modifiers, count: int) -> str:
    trans = ".trans" if "MT88" in modifiers else ""
    space = "shared::cluster" if e.shared == "cluster" else "shared"
    return f"{opcode}.sync.aligned.m8n8.x{count}{trans}.{space}.b16"


def movm(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """MOVM: transpose an 8x8 matrix."""
    e.emit("movmatrix.sync.aligned.m8n8.trans.b16", [e.result(a[0])], [e.word(a[1])])


def _gmma_types(modifiers: Modifiers) -> tuple[str, str, str]:
    """Return the types of D, A and B in a wgmma."""
    dtypes = [word.lower() for word in modifiers.chosen(GMMA_TYPES)]
    if modifiers.opcode == "HGMMA":
        dtype = dtypes[1] if len(dtypes) > 1 else "f16"
        return dtypes[0], dtype, dtype
    if modifiers.opcode == "IGMMA":
        return "s32", dtypes[0], dtypes[1]
    if modifiers.opcode == "BGMMA":
        return "s32", "b1", "b1"
    return dtypes[0], dtypes[1], dtypes[2]


def _gmma_scale(
    e: Emitter, target: asm.Operand, addend: asm.Operand, rest: list[asm.Operand], count: int
) -> PtxOperand:
    """Return the scale-d predicate, false if C is not read; if C is in other registers than D, copy it to D first."""
    scale: PtxOperand = ONE
    for operand in rest:
        if isinstance(operand, asm.RegisterOperand) and operand.file in {"P", "UP"}:
            scale = e.predicate(operand)
        elif not isinstance(operand, asm.RegisterOperand) or operand.file != "gsb":
            raise Unsupported(f"the operand {asm.form_of(operand)}")
    if not isinstance(addend, asm.RegisterOperand) or not isinstance(target, asm.RegisterOperand):
        raise Unsupported(f"the accumulator {asm.form_of(addend)}")
    if addend.is_constant:
        return ZERO
    if addend.index != target.index:
        steps = range(count) if addend.index > target.index else range(count - 1, -1, -1)
        for step in steps:
            e.emit("mov.b32", [e.result(target, step)], [e.word(addend, step)])
    return scale


def _registers(e: Emitter, operand: asm.RegisterOperand, count: int, *, is_saved: bool) -> list[PtxOperand]:
    """Return registers or, if `is_saved`, copies of them, because D is written before they are read and may overlap."""
    modifiers = [e.word(operand, step) for step in range(count)]
    return [e.compute("mov.b32", word) for word in modifiers] if is_saved else modifiers


def _gmma_metadata(
    e: Emitter, options: list[asm.Operand], *, is_saved: bool
) -> tuple[list[PtxOperand], list[asm.Operand]]:
    """Return a sparse A's metadata and selector (0 for 8-bit elements), followed by the remaining operands."""
    registers = [part for part in options if isinstance(part, asm.RegisterOperand) and part.file == "R"]
    selectors = [part for part in options if isinstance(part, asm.ImmediateOperand)]
    if len(registers) != 1 or len(selectors) > 1:
        raise Unsupported("this form of metadata")
    selector = e.word(selectors[0]) if selectors else ZERO
    return [*_registers(e, registers[0], 1, is_saved=is_saved), selector], [
        part for part in options if part not in (*registers, *selectors)
    ]


def gmma(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """HGMMA, IGMMA, QGMMA, BGMMA: issue wgmma; with the predicate !UPT, it does not read the accumulator."""
    _, n, k = (int(extent) for extent in modifiers.first(GMMA_SHAPES).split("x"))
    total, kind_a, kind_b = _gmma_types(modifiers)
    count = n // 4 if total == "f16" else n // 2
    rest, in_registers = a[1:], None
    if isinstance(rest[0], asm.RegisterOperand):
        in_registers, rest = rest[0], rest[1:]
    descriptor = rest[0]
    if not isinstance(descriptor, asm.AddressOperand) or descriptor.prefix != "gdesc" or descriptor.uniform is None:
        raise Unsupported(f"the descriptor {asm.form_of(descriptor)}")
    if set(descriptor.suffixes) - {"tnspA", "tnspB", "negA", "negB"}:
        raise Unsupported(f"the descriptor {asm.form_of(descriptor)}")
    is_moved = rest[1] != a[0] and not getattr(rest[1], "is_constant", False)
    if in_registers is None:
        a_operand: PtxOperand = _descriptor_half(e, descriptor.uniform, 0)
    else:
        a_operand = VectorOperand(tuple(_registers(e, replace(in_registers, negate=False), 4, is_saved=is_moved)))
    sources: list[PtxOperand] = [a_operand, _descriptor_half(e, descriptor.uniform, 2)]
    options = rest[2:]
    if "SP" in modifiers:
        metadata, options = _gmma_metadata(e, options, is_saved=is_moved)
        sources += metadata
    sources.append(_gmma_scale(e, a[0], rest[1], options, count))
    if total != "s32":
        negated = {*descriptor.suffixes, "negA" if in_registers and in_registers.negate else ""}
        sources += [Immediate(-1) if suffix in negated else ONE for suffix in ("negA", "negB")]
    if kind_a in {"f16", "bf16"}:
        turned = [Immediate(int(suffix in descriptor.suffixes)) for suffix in ("tnspA", "tnspB")]
        sources += turned[1:] if in_registers else turned
    satfinite = ".satfinite" if "SAT" in modifiers else ""
    sparse = ".sp" if "SP" in modifiers else ""
    bits = ".and.popc" if kind_a == "b1" else ""
    name = f"wgmma.mma_async{sparse}.sync.aligned.m64n{n}k{k}{satfinite}.{total}.{kind_a}.{kind_b}{bits}"
    result = e.results(a[0], count)
    if getattr(a[0], "is_constant", False):  # the product reads the accumulators when it completes
        result = VectorOperand(tuple(e.hidden(f"unused{step}", 32) for step in range(count)))
    e.emit(name, [result], sources)
    if any(isinstance(operand, asm.RegisterOperand) and operand.file == "gsb" for operand in a):
        e.emit("wgmma.commit_group.sync.aligned", [], [])


def _descriptor_half(e: Emitter, uniform: asm.RegisterOperand, first: int) -> Register:
    """Copy a descriptor to a 64-bit temporary: register `uniform` + `first` and the next one, or 0 for URZ."""
    half = VectorOperand((e.bits_of(uniform, first), e.bits_of(uniform, first + 1)))
    return e.compute("mov.b64", half, bits=64)


def warpgroup(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """WARPGROUP.ARRIVE and .DEPBAR: order wgmma, and wait for wgmma."""
    if "DEPBAR" in modifiers:
        e.emit("wgmma.wait_group.sync.aligned", [], [e.word(a[-1])])
    elif "ARRIVE" in modifiers:
        e.emit("wgmma.fence.sync.aligned", [], [])
    else:
        raise Unsupported("this form of WARPGROUP")


# --- mbarriers


def syncs(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """SYNCS: run an mbarrier operation."""
    space = "shared::cluster" if e.shared == "cluster" else "shared"
    if "CCTL" in modifiers:
        e.emit(f"mbarrier.inval.{space}.b64", [], [e.shared_address(a[0])])
        return
    address = e.shared_address(a[1])
    if "EXCH" in modifiers:
        # The word of a new mbarrier holds 2**20 minus the arrival count, starting at bit 1.
        upper = e.compute("shr.u32", e.word(a[2]), ONE)
        field = e.compute("and.b32", upper, Immediate(INIT_ARRIVALS - 1))
        count = e.compute("sub.u32", Immediate(INIT_ARRIVALS), field)
        if getattr(a[0], "file", "") == "UR":
            _once(e, f"mbarrier.init.{space}.b64", [address, count])
        else:
            e.emit(f"mbarrier.init.{space}.b64", [], [address, count])
    elif "PHASECHK" in modifiers:
        parity = e.compute("shr.u32", e.word(a[2]), Immediate(31))
        name = "try_wait" if "TRYWAIT" in modifiers else "test_wait"
        e.emit(f"mbarrier.{name}.parity.{space}.b64", [e.result(a[0])], [address, parity])
    elif "ARRIVE" in modifiers:
        if isinstance(e.result(a[0]), Discard):
            _arrive(e, modifiers, space, address, e.word(a[2]), Discard())
        else:
            token = e.temporary(64)
            _arrive(e, modifiers, space, address, e.word(a[2]), token)
            word: PtxOperand = e.temporary(64) if "TMASK" in modifiers else e.results(a[0], 2)
            e.call("mbarrier_word", ((B64,), (B64,)), hardware_word, [word], [token])
            if "TMASK" in modifiers:
                action = WarpCollective((B64,), (B64, B32), arrivals_together, synced=False)
                base = address.base if address.base is not None else ZERO
                e.act(Attributes("arrivals", "arrivals"), action, [e.results(a[0], 2)], [word, base])
    else:
        raise Unsupported("this form of SYNCS")


def hardware_word(token: Codes) -> Codes:
    """Return an mbarrier's state as the hardware encodes it: 2**20 minus total and pending arrivals, and the phase.

    The expected byte count is omitted, because its position in the word is not known.
    """
    field = np.uint64(INIT_ARRIVALS - 1)
    pending, count = token & field, token >> np.uint64(20) & field
    phase = token >> np.uint64(63)
    total = (np.uint64(INIT_ARRIVALS) - count & field) << np.uint64(1)
    return total | (np.uint64(INIT_ARRIVALS) - pending & field) << np.uint64(43) | phase << np.uint64(63)


def arrivals_together(mask: NDArray[np.bool_], modifiers: Codes, addresses: Codes) -> Codes:
    """Return a mask of the lanes that arrive at the same mbarrier and, above it, the upper half of its old state."""
    same = (addresses[:, :, None] == addresses[:, None, :]) & mask[:, None, :]
    lanes = (same << np.arange(LANES, dtype=np.uint64)).sum(axis=2, dtype=np.uint64)
    first = np.take_along_axis(modifiers, same.argmax(axis=2), axis=1)
    return first & np.uint64(WORD << 32) | lanes


def _arrive(
    e: Emitter, modifiers: Modifiers, space: str, address: MemoryOperand, count: PtxOperand, result: PtxOperand
) -> None:
    """Emit an arrival (A1), an expect_tx (TR), or both."""
    if "OPTOUT" in modifiers and "A1T0" in modifiers:
        e.emit(f"mbarrier.arrive_drop.{space}.b64", [result], [address])
    elif "A0TX" in modifiers:
        e.emit(f"mbarrier.complete_tx.relaxed.cta.{space}.b64", [], [address, count])
    elif "ART0" in modifiers:
        e.emit(f"mbarrier.arrive.{space}.b64", [result], [address, count])
    elif "A1T0" in modifiers:
        e.emit(f"mbarrier.arrive.{space}.b64", [result], [address])
    elif "A0TR" in modifiers or "A0T1" in modifiers:
        e.emit(f"mbarrier.expect_tx.relaxed.cta.{space}.b64", [], [address, count])
    elif "TRANS64" not in modifiers:
        raise Unsupported("this form of SYNCS.ARRIVE")
    else:
        e.emit(f"mbarrier.arrive.expect_tx.{space}.b64", [result], [address, count])


# --- TMA copies


def _uniform(operand: asm.Operand) -> int:
    """Return the index of the first uniform register in a bracketed list."""
    if not isinstance(operand, asm.AddressOperand) or operand.uniform is None or operand.offset or operand.base:
        raise Unsupported(f"the operand {asm.form_of(operand)}")
    return operand.uniform.index


def _word_address(e: Emitter, index: int) -> MemoryOperand:
    return MemoryOperand(e.register("UR", index), 0)


def _pair_address(e: Emitter, index: int) -> MemoryOperand:
    return MemoryOperand(VectorOperand((e.register("UR", index), e.register("UR", index + 1))), 0)


def tensor_load(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """UTMALDG: load a box through a tensor map; registers hold [box, mbarrier, coordinates...]."""
    rank, first = int(modifiers.all[0][0]), _uniform(a[0])
    coordinates = VectorOperand(tuple(e.register("UR", first + 2 + axis) for axis in range(rank)))
    addresses = _word_address(e, first), _pair_address(e, _uniform(a[1]))
    sources: list[PtxOperand] = [*addresses, coordinates, _word_address(e, first + 1)]
    mode = multicast = ""
    if "IM2COL" in modifiers:  # the lower half of the last operand holds 16, 8 or 5 bits for each offset
        mode, bits = ".im2col", 16 // (rank - 2)
        fields = [(Immediate(bits * axis), Immediate(bits)) for axis in range(rank - 2)]
        sources.append(VectorOperand(tuple(e.compute("bfe.u32", e.word(a[2]), *field) for field in fields)))
    if "MULTICAST" in modifiers:
        multicast = ".multicast::cluster"
        sources.append(e.compute("shr.u32", e.word(a[2]), Immediate(16)))
    name = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes{multicast}"
    _once(e, name, sources)


def tensor_store(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """UTMASTG and UTMAREDG: store or reduce a box through a tensor map; registers hold [box, coordinates...]."""
    rank, first = int(modifiers.all[0][0]), _uniform(a[0])
    coordinates = VectorOperand(tuple(e.register("UR", first + 1 + axis) for axis in range(rank)))
    sources: list[PtxOperand] = [_pair_address(e, _uniform(a[1])), coordinates, _word_address(e, first)]
    reduction = modifiers.first(("ADD", "MIN", "MAX", "AND", "OR", "XOR", "INC", "DEC")).lower()
    dtype = f".reduce.async.bulk.tensor.{rank}d" if reduction else f".async.bulk.tensor.{rank}d"
    mode = ".im2col_no_offs" if "IM2COL" in modifiers else ""
    _once(e, f"cp{dtype}.global.shared::cta{f'.{reduction}' if reduction else ''}{mode}.bulk_group", sources)


def bulk_copy(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """UBLKCP and UBLKRED: copy or reduce consecutive bytes; the size is given in 16-byte units."""
    direction, x, y = modifiers.all[:2], _uniform(a[0]), _uniform(a[1])
    rest = [word for word in modifiers.all[2:] if word != "MULTICAST"]
    units, mask = e.word(a[2]), []
    if "MULTICAST" in modifiers:  # the upper half holds the mask of destination blocks
        mask, units = [e.compute("shr.u32", units, Immediate(16))], e.compute("and.b32", units, Immediate(0xFFFF))
    size = e.compute("shl.b32", units, Immediate(4))
    sources: list[PtxOperand]
    signal = "mbarrier::complete_tx::bytes"
    if direction == ("S", "G") and not rest and modifiers.opcode == "UBLKCP":
        sources = [_word_address(e, x), _pair_address(e, y), size, _word_address(e, x + 1), *mask]
        path = f"shared::cluster.global.{signal}{'.multicast::cluster' if mask else ''}"
    elif direction == ("S", "S") and not mask:
        sources = [_word_address(e, x), _word_address(e, y), size, _word_address(e, x + 1)]
        path = f"shared::cluster.shared::cta.{signal}"
    elif direction == ("G", "S") and not mask:
        sources = [_pair_address(e, x), _word_address(e, y), size]
        path = "global.shared::cta.bulk_group"
    else:
        raise Unsupported("this form of bulk copy")
    _once(e, f"cp.reduce.async.bulk.{path}{_reduction(rest)}" if rest else f"cp.async.bulk.{path}", sources)


def _reduction(rest: list[str]) -> str:
    """Return the PTX qualifiers for the operation and type of a bulk reduction."""
    operation = rest[0].lower()
    dtype = next((word.lower() for word in rest[1:] if re.fullmatch(r"[USF](16|32|64)|BF16", word)), "u32")
    dtype = "u64" if "64" in rest else dtype
    if operation in {"and", "or", "xor"}:
        dtype = f"b{dtype[-2:]}"
    noftz = ".noftz" if dtype in {"f16", "bf16"} and operation == "add" else ""
    return f".{operation}{noftz}.{dtype}"


def _once(e: Emitter, name: str, sources: list[PtxOperand]) -> None:
    """Emit an operation that a warp issues only once, in its first active lane."""
    guard, e.guard = e.guard, None
    first = e.temporary(1)
    action = WarpCollective((PRED,), (PRED,), _first_lane, synced=False)
    e.act(Attributes("elect", "first_lane"), action, [first], [ONE if guard is None else guard])
    e.guard = first
    e.emit(name, [], sources)


def _first_lane(mask: NDArray[np.bool_], held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    active = mask & held
    return active & (np.cumsum(active, axis=1) == 1)


def store_async(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """STAS and REDAS: store registers to the shared memory of a block in the cluster, or reduce them into it.

    A register pair holds the address and the mbarrier.
    """
    count = {"64": 2, "128": 4}.get(modifiers.first(("64", "128")), 1)
    place = a[0]
    if not isinstance(place, asm.AddressOperand) or place.base is None or place.offset or place.uniform:
        raise Unsupported(f"the address {asm.form_of(place)}")
    target, barrier = (MemoryOperand(e.register("R", place.base.index + step), 0) for step in (0, 1))
    value = e.words(a[1], count) if count > 1 else e.word(a[1])
    path = "shared::cluster.mbarrier::complete_tx::bytes"
    if modifiers.opcode == "REDAS":
        e.emit(f"red.async.relaxed.cluster.{path}{_reduction(list(modifiers.all))}", [], [target, value, barrier])
    else:
        e.emit(f"st.async.weak.{path}{f'.v{count}' if count > 1 else ''}.b32", [], [target, value, barrier])


ALL_SHAPES = " ".join(SHAPES)
ROWS: list[SassRow] = [
    *row("HMMA", f"{ALL_SHAPES} SP F32 F16 BF16 TF32", hmma),
    *row("IMMA", f"{ALL_SHAPES} SP S8 U8 S4 U4 SAT ROW COL", imma),
    *row("BMMA", f"{ALL_SHAPES} AND XOR POPC", bmma),
    *row("DMMA", f"{' '.join(DOUBLE_SHAPES)} RZ RM RP", dmma),
    *row("LDSM", "16 M88 MT88 2 4", matrix_load),
    *row("STSM", "16 M88 MT88 2 4", matrix_store),
    *row("MOVM", "16 MT88", movm),
    *row("HGMMA IGMMA QGMMA", f"SP SAT {' '.join((*GMMA_TYPES, *GMMA_SHAPES))}", gmma),
    *row("BGMMA", f"AND POPC {' '.join(GMMA_SHAPES)}", gmma),
    *row("WARPGROUP", "ARRIVE DEPBAR LE", warpgroup),
    *row("SYNCS", "EXCH 64 PHASECHK TRANS64 TRYWAIT ARRIVE A1T0 A0TR A0T1 A0TX ART0 TMASK OPTOUT RED CCTL IV", syncs),
    *row("UTMALDG", "1D 2D 3D 4D 5D IM2COL MULTICAST", tensor_load),
    *row("UTMASTG UTMAREDG", "1D 2D 3D 4D 5D IM2COL ADD MIN MAX AND OR XOR INC DEC", tensor_store),
    *row(
        "UBLKCP UBLKRED", "S G MULTICAST ADD MIN MAX AND OR XOR INC DEC U32 S32 U64 S64 F16 BF16 F32 F64 RN", bulk_copy
    ),
    *row("STAS", "64 128", store_async),
    *row("REDAS", "ADD MIN MAX AND OR XOR INC DEC S32 64", store_async),
]
