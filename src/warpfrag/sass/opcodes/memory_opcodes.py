"""Loads, stores, atomics, per-thread asynchronous copies and fences."""

from __future__ import annotations

from functools import partial

from warpfrag.machine.ir.program import Discard, Immediate, MemoryOperand, PtxOperand, Register, VectorOperand
from warpfrag.machine.ir.state_spaces import WINDOWS
from warpfrag.sass import sass_instruction as asm
from warpfrag.sass.emitter import ONE, ZERO, Emitter, Unsupported
from warpfrag.sass.opcodes.control_opcodes import both
from warpfrag.sass.opcodes.sass_row import Modifiers, SassRow, is_predicate, is_true, row

WIDTHS = {"U8": ("u8", 1), "S8": ("s8", 1), "U16": ("u16", 1), "S16": ("s16", 1), "64": ("b32", 2), "128": ("b32", 4)}
CACHE = "E STRONG SM GPU SYS CTA CONSTANT WEAK LTC128B LTC64B LTC256B EF EL LU NA CI EU PRIVATE VC U MMIO BYPASS ACCESS"
SPACES = {"G": "global", "S": "shared", "L": "local", "": ""}


def _space(e: Emitter, modifiers: Modifiers, prefix: int) -> tuple[str, bool]:
    """Return the PTX state space of a load or store, and True if its addresses have 64 bits."""
    letter = modifiers.opcode[prefix:]
    if letter == "S":
        return (".shared::cluster" if e.shared == "cluster" else ".shared"), False
    space = SPACES[letter]
    return (f".{space}" if space else ""), letter in {"G", ""}


def _address(e: Emitter, modifiers: Modifiers, operand: asm.Operand, *, wide: bool) -> MemoryOperand:
    return e.shared_address(operand) if modifiers.opcode.endswith("S") else e.address(operand, wide=wide)


def _width(modifiers: Modifiers) -> tuple[str, int]:
    return WIDTHS.get(modifiers.first(tuple(WIDTHS)), ("b32", 1))


def _ordering(modifiers: Modifiers) -> str:
    scope = "cta" if "SM" in modifiers else "gpu"
    return f".relaxed.{scope}" if "STRONG" in modifiers else ""


def load(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """LDG, LDS, LDL and LD: load registers from memory; .CONSTANT: memory that no thread of the launch writes."""
    space, wide = _space(e, modifiers, 2)
    if is_predicate(a[0]) or len(a) > 2:
        raise Unsupported("a load with a predicate operand")
    dtype, count = _width(modifiers)
    ordering = _ordering(modifiers) if space != ".local" else ""
    vector = f"{'.nc' if 'CONSTANT' in modifiers else ''}{f'.v{count}' if count > 1 else ''}"
    result = e.results(a[0], count) if count > 1 else e.result(a[0])
    e.emit(f"ld{ordering}{space}{vector}.{dtype}", [result], [_address(e, modifiers, a[1], wide=wide)])


def store(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """STG, STS, STL and ST: store registers to memory."""
    space, wide = _space(e, modifiers, 2)
    dtype, count = _width(modifiers)
    ordering = _ordering(modifiers) if space != ".local" else ""
    vector = f".v{count}" if count > 1 else ""
    value = e.words(a[1], count) if count > 1 else e.word(a[1])
    e.emit(f"st{ordering}{space}{vector}.{dtype}", [], [_address(e, modifiers, a[0], wide=wide), value])


def load_constant(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """LDC and ULDC: load from a constant bank, at a register plus an offset."""
    dtype, count = _width(modifiers)
    if not isinstance(a[1], asm.ConstantOperand):
        raise Unsupported(f"the constant {asm.form_of(a[1])}")
    values = [e.constant(a[1], 4 * step, dtype) for step in range(count)]
    for step, value in enumerate(values):
        e.emit("mov.b32", [e.result(a[0], step)], [value])


def is_in_window(e: Emitter, address: MemoryOperand, space: str = "shared") -> Register:
    """Emit a test of whether a generic address is in the window of a state space."""
    base = address.base if address.base is not None else ZERO
    full = e.compute("add.u64", base, Immediate(address.offset), bits=64)
    upper = e.compute("shr.u64", full, Immediate(32), bits=64)
    return e.compute("setp.eq.u64", upper, Immediate(WINDOWS[space] >> 32), bits=1)


def query_space(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """QSPC: test whether a generic address is in global, shared (.S; .D for the cluster) or local memory."""
    address = e.address(a[2], wide=True)
    if "G" in modifiers:
        full = e.compute(
            "add.u64", address.base if address.base is not None else ZERO, Immediate(address.offset), bits=64
        )
        e.emit("isspacep.global", [e.result(a[0])], [full])
        return
    held = is_in_window(e, address, "local" if "L" in modifiers else "shared")
    e.emit("mov.pred", [e.result(a[0])], [held])


ATOMIC_TYPES = {
    "S32": "s32", "S64": "s64", "U64": "u64", "U32": "u32", "F32": "f32", "F64": "f64", "F16x2": "f16x2",
    "BF16x2": "bf16x2", "64": "u64", "128": "b128", "F16x4": "v2.f16x2", "F16x8": "v4.f16x2", "BF16x4": "v2.bf16x2",
    "BF16x8": "v4.bf16x2", "F32x2": "v2.f32", "F32x4": "v4.f32",
}  # fmt: skip
OPERATIONS = ("ADD", "MIN", "MAX", "AND", "OR", "XOR", "EXCH", "INC", "DEC")


def atomic(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """ATOM, ATOMG, ATOMS, RED and REDG: update memory atomically; ATOM's predicate is false for shared memory."""
    is_shared_space = modifiers.opcode == "ATOMS"
    space = f".{e.shared if e.shared == 'shared' else 'shared::cluster'}" if is_shared_space else ""
    space = ".global" if modifiers.opcode in {"ATOMG", "REDG"} else space
    done: asm.Operand | None = None
    if is_predicate(a[0]):
        done, a = a[0], a[1:]
    target = None
    if isinstance(a[0], asm.RegisterOperand):
        target, a = a[0], a[1:]
    address = e.shared_address(a[0]) if is_shared_space else e.address(a[0], wide=True)
    dtype = ATOMIC_TYPES.get(modifiers.first(tuple(ATOMIC_TYPES)), "u32")
    guard = e.guard
    if done is not None and not is_true(done) and modifiers.opcode == "ATOM":
        outside = e.inverse(is_in_window(e, address))
        e.guard = both(e, outside, guard)
        _update(e, modifiers, dtype, space, target, address, a[1:])
        e.guard = guard
        e.emit("mov.pred", [e.result(done)], [outside])
        return
    if done is not None and not is_true(done):
        e.emit("mov.pred", [e.result(done)], [ONE])
    _update(e, modifiers, dtype, space, target, address, a[1:])


def _update(
    e: Emitter,
    modifiers: Modifiers,
    dtype: str,
    space: str,
    target: asm.RegisterOperand | None,
    address: MemoryOperand,
    operands: list[asm.Operand],
) -> None:
    """Emit the atomic operation itself, after its operands have been prepared.

    The scope is ignored, because an H200 executes atomics of every scope in the L2 cache: in random kernels, atomics
    with block scope (STRONG.SM) by several blocks wrote the same bytes as atomics with a wider scope.
    """
    vector, _, dtype = dtype.rpartition(".")
    bits = int(dtype[-2:]) if dtype[-1].isdigit() and "x" not in dtype else 32
    bits = 128 if dtype == "b128" else bits
    count = int(vector[1:]) if vector else bits // 32

    def operand(given: asm.Operand) -> PtxOperand:
        return _grouped(e.words(given, count), bits) if count > 1 else e.word(given)

    is_used = target is not None and not target.is_constant
    result = None
    if is_used and target is not None:
        result = _grouped(e.results(target, count), bits) if count > 1 else e.result(target)
    if "CAS" in modifiers or "CAST" in modifiers:
        expected, new = operand(operands[0]), operand(operands[1])
        if "CAST" in modifiers and result is not None:
            old = e.temporary(bits)
            e.emit(f"atom{space}.cas.b{bits}", [old], [address, expected, new])
            compared = e.pair(operands[0]) if bits == 64 else expected
            held = e.compute(f"setp.eq.b{bits}", old, compared, bits=1)
            e.emit(f"selp.b{bits}", [e.results(target, 2) if bits == 64 and target else result], [ONE, ZERO, held])
            return
        nowhere = VectorOperand((Discard(),) * max(1, bits // 64))
        e.emit(f"atom{space}.cas.b{bits}", [result or nowhere], [address, expected, new])
        return
    if "POPC" in modifiers:
        if is_used:
            raise Unsupported("the value that .POPC.INC returns")
        e.emit(f"red{space}.add.u32", [], [address, ONE])
        return
    name = modifiers.first(OPERATIONS)
    if not name:
        raise Unsupported("an atomic without an operation")
    if name in {"AND", "OR", "XOR", "EXCH"}:
        dtype = f"b{bits}"
    noftz = ".noftz" if dtype.endswith("16x2") and name == "ADD" else ""
    spelled = f"{space}{f'.{vector}' if vector else ''}.{name.lower()}{noftz}.{dtype}"
    if result is None and name != "EXCH":
        e.emit(f"red{spelled}", [], [address, operand(operands[0])])
    else:
        before: PtxOperand = result if result is not None else VectorOperand((Discard(),) * max(1, bits // 64))
        e.emit(f"atom{spelled}", [before], [address, operand(operands[0])])


def _grouped(modifiers: PtxOperand, bits: int) -> PtxOperand:
    """Group 32-bit registers into 64-bit elements if the type has 64 bits."""
    if bits < 64 or not isinstance(modifiers, VectorOperand):
        return modifiers
    items = modifiers.items
    return VectorOperand(tuple(VectorOperand(items[at : at + 2]) for at in range(0, len(items), 2)))


def copy_async(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """LDGSTS: copy from global to shared memory, or store zeros if the predicate is false."""
    dtype, count = _width(modifiers)
    if dtype != "b32" or len(a) > 3:
        raise Unsupported("this form of copy")
    if e.shared == "cluster":
        raise Unsupported("a copy in a cluster")
    size = 4 * count
    sources: list[PtxOperand] = [e.shared_address(a[0]), e.address(a[1], wide=True), Immediate(size)]
    if "ZFILL" in modifiers:
        held = e.predicate(a[2]) if len(a) > 2 else ONE
        e.emit("cp.async.ca.shared.global", [], _partial_copy(e, sources, size, held))
        return
    if len(a) > 2 and not is_true(a[2]):
        held = e.predicate(a[2])
        # copy 0 bytes, or pass a predicate that ignores the source
        sources.append(ZERO if held == ZERO else e.inverse(held))
    e.emit("cp.async.ca.shared.global", [], sources)


def _partial_copy(e: Emitter, sources: list[PtxOperand], size: int, held: PtxOperand) -> list[PtxOperand]:
    """Return the operands of a .ZFILL copy, whose source address has the number of zero bytes in its low bits."""
    target, source, total = sources
    if not isinstance(source, MemoryOperand):
        raise Unsupported("this form of copy")
    base = source.base if source.base is not None else ZERO
    full = e.compute("add.u64", base, Immediate(source.offset), bits=64)
    aligned = e.compute("and.b64", full, Immediate(-size & ((1 << 64) - 1)), bits=64)
    filled = e.compute("and.b32", e.compute("cvt.u32.u64", full), Immediate(size - 1))
    copied = e.compute("selp.b32", e.compute("sub.u32", Immediate(size), filled), ZERO, held)
    return [target, MemoryOperand(aligned, 0), total, copied]


def arrive_after_copies(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """ARRIVES.LDGSTSBAR: arrive at an mbarrier once the thread's copies are complete; .ARVCNT stands for .noinc."""
    name = f"cp.async.mbarrier.arrive{'.noinc' if 'ARVCNT' in modifiers else ''}.shared.b64"
    e.emit(name, [], [e.shared_address(a[0])])


def close_group(e: Emitter, _modifiers: Modifiers, _a: list[asm.Operand]) -> None:
    """LDGDEPBAR: close a group of copies."""
    e.emit("cp.async.commit_group", [], [])


def close_bulk_group(e: Emitter, _modifiers: Modifiers, _a: list[asm.Operand]) -> None:
    """UTMACMDFLUSH: close a group of bulk copies."""
    e.emit("cp.async.bulk.commit_group", [], [])


def wait_group(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """DEPBAR.LE: wait until at most n copy groups are pending; a bulk group may still write its target."""
    if "LE" in modifiers and len(a) > 1:
        e.emit("cp.async.wait_group", [], [e.word(a[1])])
        e.emit("cp.async.bulk.wait_group.read", [], [e.word(a[1])])
        return
    nothing(e, modifiers, a)


def nothing(e: Emitter, _modifiers: Modifiers, _a: list[asm.Operand]) -> None:
    """Emit nothing: the opcode is a hint, or it waits for work that completes at issue."""
    e.emit("pmevent", [], [])


def fence(name: str, e: Emitter, modifiers: Modifiers, _a: list[asm.Operand]) -> None:
    """MEMBAR and FENCE: emit a memory fence."""
    e.emit("membar.cta" if name == "membar.gl" and "CTA" in modifiers else name, [], [])


MEMORY = f"{CACHE} U8 S8 U16 S16 64 128"
ATOMIC = f"{CACHE} CAS CAST SPIN POPC 32 64 RN FTZ {' '.join(OPERATIONS)} {' '.join(ATOMIC_TYPES)}"
HINT = "a hint, without an effect on results"
ANY = "*"
ROWS: list[SassRow] = [
    *row("LDG LDS LDL LD", MEMORY, load),
    *row("STG STS STL ST", MEMORY, store),
    *row("LDC", "64 128 U8 S8 U16 S16", load_constant),
    *row("QSPC", "E G S D L", query_space),
    *row("ATOM ATOMG ATOMS RED REDG", ATOMIC, atomic),
    *row("LDGSTS", f"{CACHE} 64 128 ZFILL", copy_async),
    *row("ARRIVES", "LDGSTSBAR 64 TRANSCNT ARVCNT", arrive_after_copies),
    *row("LDGDEPBAR", "", close_group),
    *row("DEPBAR", "LE", wait_group),
    *row("MEMBAR", "ALL SC CTA GPU SYS VC", partial(fence, "membar.gl")),
    *row("FENCE", "VIEW ASYNC S T", partial(fence, "fence.proxy.async")),
    *row(
        "NOP YIELD ENDCOLLECTIVE ERRBAR CGAERRBAR CCTL CCTLL CCTLT PREFETCH PMTRIG ACQBULK PREEXIT", ANY, nothing, HINT
    ),
    *row("UTMACMDFLUSH", "", close_bulk_group),
    *row("UTMACCTL UTMAPF UBLKPF USETMAXREG", ANY, nothing, HINT),
]
