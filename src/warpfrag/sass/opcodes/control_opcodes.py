"""Branches, convergence barriers, block barriers, special registers and warp-wide operations."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.ir.actions import (
    SYSTEM_FUNCTIONS,
    Branch,
    Jump,
    LaneFunction,
    LeaveBarrier,
    Reconverge,
    Return,
    SystemCall,
    Trap,
    WarpCollective,
)
from warpfrag.machine.ir.opcode import Attributes, DecodedOpcode
from warpfrag.machine.ir.program import (
    BankOperand,
    Discard,
    Immediate,
    PtxOperand,
    Register,
    SpecialRegister,
    VectorOperand,
)
from warpfrag.machine.ir.scalar_types import B32, PRED, Codes
from warpfrag.machine.ir.state_spaces import WINDOWS
from warpfrag.machine.ops import opcode_lookup
from warpfrag.machine.ops.collectives import Mask
from warpfrag.sass import sass_instruction as asm
from warpfrag.sass.emitter import ONE, SASS_ROW, WORD, ZERO, Emitter, Unsupported
from warpfrag.sass.opcodes.sass_row import Modifiers, SassRow, is_predicate, is_true, row

ALL_LANES = Immediate(WORD)
RETURN_REGISTER = 20  # in the calling convention of driver functions, R20 and R21 hold the return address
FIRST_ARGUMENT = 4


# --- branches


def _all_hold(e: Emitter, conditions: list[asm.Operand]) -> None:
    """Add conditions to the guard of the instructions emitted next."""
    for operand in conditions:
        guard, e.guard = e.guard, None  # compute temporaries in all lanes
        e.guard = both(e, e.predicate(operand), guard)


def both(e: Emitter, held: PtxOperand, guard: Register | None) -> Register | None:
    """Return the conjunction of a predicate and a guard, computed in all lanes."""
    if held == ONE:
        return guard
    if guard is None and isinstance(held, Register):
        return held
    e.guard = None
    return e.compute("and.pred", held, ONE if guard is None else guard, bits=1)


def _go(e: Emitter, target: asm.Operand) -> None:
    """Emit a jump to a code address, under the current guard."""
    if not isinstance(target, asm.CodeTarget) or target.register is not None:
        raise Unsupported(f"the target {asm.form_of(target)}")
    inst = e.act(Attributes("bra", "bra"), Branch(), [], [])
    e.targets.append((inst, target.address))


def bra(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BRA: jump to a code address.

    .U: all active lanes jump if the condition holds for all of them, or with .ANY, for at least one. .DIV: jump if a
    lane of a mask is missing. .CONV: jump if none is.
    """
    *conditions, target = a
    if "DIV" in modifiers or "CONV" in modifiers:
        guard, e.guard = e.guard, None
        here = e.temporary()
        e.emit("vote.ballot.b32", [here], [ONE if guard is None else guard])
        missing = e.compute("lop3.b32", e.word(conditions[-1]), here, ZERO, Immediate(0x30))
        e.guard = both(
            e, e.compute("setp.ne.u32" if "DIV" in modifiers else "setp.eq.u32", missing, ZERO, bits=1), guard
        )
        _go(e, target)
        return
    _all_hold(e, conditions)
    if "U" in modifiers and e.guard is not None:
        held, e.guard, agreed = e.guard, None, e.temporary(1)
        e.emit("vote.any.pred" if "ANY" in modifiers else "vote.all.pred", [agreed], [held])
        e.guard = agreed
    _go(e, target)


def call(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """CALL.NOINC: jump, because the return address is already in a register."""
    target = a[-1]
    if isinstance(target, asm.RegisterOperand):
        _call_address(e, modifiers, target)
    elif isinstance(target, asm.CodeTarget) and target.register is not None:
        jump(e, modifiers, a)
    else:
        _go(e, target)


def _call_address(e: Emitter, modifiers: Modifiers, target: asm.RegisterOperand) -> None:
    """CALL.ABS to an address in registers: run a driver function directly, or jump to any other function."""
    guard, e.guard = e.guard, None
    called, next_address = (e.compute("mov.b64", e.pair(target), bits=64) for _ in range(2))
    returns = VectorOperand((e.register("R", RETURN_REGISTER), e.register("R", RETURN_REGISTER + 1)))
    for name, address in e.driver_functions.items():
        e.guard = None
        is_called = e.compute("setp.eq.u64", called, Immediate(address), bits=1)
        e.guard = both(e, is_called, guard)
        function = SYSTEM_FUNCTIONS[name]
        e.act(
            Attributes("call", "call"),
            SystemCall(name),
            _call_registers(e, function.results),
            _call_registers(e, function.arguments),
        )
        e.emit("mov.b64", [next_address], [returns])
    e.guard = guard
    e.act(Attributes(modifiers.opcode, modifiers.opcode), Jump({}), [], [next_address])


def _call_registers(e: Emitter, sizes: tuple[int, ...]) -> list[PtxOperand]:
    """Return the registers of arguments or results with these sizes: R4 and up, each aligned to its size."""
    found: list[PtxOperand] = []
    at = FIRST_ARGUMENT
    for count in (size // 4 for size in sizes):
        at = -(-at // count) * count
        modifiers = tuple(e.register("R", at + step) for step in range(count))
        found.append(VectorOperand(modifiers) if count > 1 else modifiers[0])
        at += count
    return found


def jump(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BRX and RET: jump to a register pair plus an offset; `lowering` adds the valid target addresses."""
    target = a[-1]
    if not isinstance(target, asm.CodeTarget) or target.register is None:
        raise Unsupported(f"the target {asm.form_of(target)}")
    if target.register.file == "UR" or modifiers.opcode == "BRXU":
        value: PtxOperand = e.register("UR", target.register.index)
    else:
        value = e.word(target.register)
    _all_hold(e, a[:-1])
    wide = e.compute("cvt.s64.s32", value, bits=64)
    address = e.compute("add.u64", wide, Immediate(target.address), bits=64)
    e.act(Attributes(modifiers.opcode, modifiers.opcode), Jump({}), [], [address])


def lepc(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """LEPC: return the address of an instruction, which code uses as a return address."""
    target = a[-1]
    if not isinstance(target, asm.CodeTarget) or target.register is not None:
        raise Unsupported(f"the target {asm.form_of(target)}")
    e.emit("mov.b64", [e.results(a[0], 2)], [Immediate(target.address)])


def rpcmov(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """RPCMOV.32: move half of the return-address register, which ptxas also uses for other values."""
    if "32" not in modifiers:
        raise Unsupported("a 64-bit RPCMOV")
    halves = {"LO": "rpc_lo", "HI": "rpc_hi"}
    places = [e.hidden(halves[part.selector], 32) if getattr(part, "file", "") == "Rpc" else None for part in a]  # type: ignore[union-attr]
    e.emit("mov.b32", [places[0] or e.result(a[0])], [places[1] or e.word(a[1])])


def nanosleep(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """NANOSLEEP: let other warps run."""
    e.emit("nanosleep.u32", [], [e.word(a[-1])])


def exit_thread(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """EXIT: end the threads in which all predicates are true."""
    _all_hold(e, a)
    e.act(Attributes("exit", "exit"), Return(whole_thread=True), [], [])


def trap(e: Emitter, modifiers: Modifiers, _a: list[asm.Operand]) -> None:
    """BPT.TRAP: end the launch."""
    if "TRAP" not in modifiers and "DRAIN" not in modifiers:
        raise Unsupported("a breakpoint other than .TRAP or .DRAIN")
    e.act(Attributes("trap", "trap"), Trap(), [], [])


# --- convergence


def bssy(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BSSY: create a convergence barrier from the active lanes."""
    e.emit("activemask.b32", [e.result(a[0])], [])


def bsync(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BSYNC: wait until all lanes of the barrier have arrived, exited or left it."""
    _all_hold(e, a[:-1])
    e.act(Attributes(modifiers.opcode, modifiers.opcode), Reconverge(), [], [e.result(a[-1])])
    if e.has_groups:
        e.emit("mov.b32", [e.hidden("group", 32)], [ZERO])


def leave(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BREAK: remove lanes from a convergence barrier."""
    _all_hold(e, a[:-1])
    barrier = e.result(a[-1])
    e.act(Attributes(modifiers.opcode, modifiers.opcode), LeaveBarrier(), [barrier], [barrier])


def bmov(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BMOV: move a convergence barrier to or from a register; .CLEAR empties it afterwards."""
    target, source = a
    if not all(isinstance(part, asm.RegisterOperand | asm.ImmediateOperand) for part in a):
        raise Unsupported("this form of BMOV")
    files = [getattr(part, "file", "") for part in a]
    if "B" not in files or not set(files) <= {"B", "R", "UR", ""}:
        raise Unsupported("this form of BMOV")
    value = e.result(source) if files[1] == "B" else e.word(source)
    e.emit("mov.b32", [e.result(target)], [value])
    if "CLEAR" in modifiers and files[1] == "B":
        e.emit("mov.b32", [e.result(source)], [ZERO])


def warpsync(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """WARPSYNC: wait for the lanes in a mask."""
    masks: list[asm.Operand] = [
        operand
        for operand in a
        if isinstance(operand, asm.ImmediateOperand | asm.ConstantOperand)
        or (isinstance(operand, asm.RegisterOperand) and operand.file in {"R", "UR"})
    ]
    if "ALL" not in modifiers and len(masks) != 1:
        raise Unsupported("WARPSYNC without a mask")
    if "COLLECTIVE" in modifiers:
        masks = masks[:1]
    mask = ALL_LANES if "ALL" in modifiers else e.word(masks[0])
    e.emit("bar.warp.sync", [], [mask])
    if e.has_groups:
        e.emit("mov.b32", [e.hidden("group", 32)], [mask if "EXCLUSIVE" in modifiers else ZERO])


def bar(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """BAR.SYNC, .ARV and .RED: operate on a block barrier; B2R.RESULT reads the result of .RED."""
    numbers = _barrier_numbers(e, [operand for operand in a if not is_predicate(operand)])
    if "RED" not in modifiers:
        e.emit("barrier.arrive" if "ARV" in modifiers else "barrier.sync", [], numbers)
        return
    reduction = modifiers.first(("POPC", "AND", "OR")).lower()
    dtype, result = ("u32", e.hidden("bar_count", 32)) if reduction == "popc" else ("pred", e.hidden("bar_vote", 1))
    votes = [e.predicate(operand) for operand in a if is_predicate(operand)]
    e.emit(f"barrier.red.{reduction}.{dtype}", [result], [*numbers, *votes])


def _barrier_numbers(e: Emitter, operands: list[asm.Operand]) -> list[PtxOperand]:
    """Return a barrier's number and thread count.

    If a register holds both, the count starts at bit 16; 0 means all threads.
    """
    if not isinstance(operands[0], asm.RegisterOperand) or operands[-1] != operands[0]:
        return [e.word(operand) for operand in operands]
    packed = e.word(operands[0])
    number = e.compute("and.b32", packed, Immediate(0xF))
    count = e.compute("shr.u32", packed, Immediate(16))
    start = e.banks[0] + e.driver_words.block
    area = e.compute("mul.lo.u32", BankOperand(start), BankOperand(start + 4))
    threads = e.compute("mad.lo.u32", area, BankOperand(start + 8), Immediate(LANES - 1))
    whole = e.compute("and.b32", threads, Immediate(-LANES & WORD))
    is_whole = e.compute("setp.eq.u32", count, ZERO, bits=1)
    return [number, e.compute("selp.b32", whole, count, is_whole)]


def b2r(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """B2R.RESULT: read the result of the last BAR.RED."""
    if "RESULT" not in modifiers:
        raise Unsupported("B2R without .RESULT")
    e.emit("mov.b32", [e.result(a[0])], [e.hidden("bar_count", 32)])
    if len(a) > 1:
        e.emit("mov.pred", [e.result(a[1])], [e.hidden("bar_vote", 1)])


def cluster_arrive(e: Emitter, _modifiers: Modifiers, _a: list[asm.Operand]) -> None:
    """UCGABAR_ARV: arrive at the cluster barrier without a release, which a MEMBAR before it provides."""
    e.emit("barrier.cluster.arrive.relaxed", [], [])


def cluster_wait(e: Emitter, _modifiers: Modifiers, _a: list[asm.Operand]) -> None:
    """UCGABAR_WAIT: wait for the cluster barrier."""
    e.emit("barrier.cluster.wait", [], [])


# --- special registers

LANE_MASKS = {f"SR_{name.upper()}MASK": f"%lanemask_{name}" for name in ("eq", "lt", "le", "gt", "ge")}
SPECIAL = {
    **{f"SR_TID.{axis.upper()}": f"%tid.{axis}" for axis in "xyz"},
    **{f"SR_CTAID.{axis.upper()}": f"%ctaid.{axis}" for axis in "xyz"},
    **LANE_MASKS,
    "SR_LANEID": "%laneid", "SR_CgaCtaId": "%cluster_ctarank", "SR_CLOCKLO": "%clock", "SR_CLOCKHI": "%clock_hi",
    "SR_VIRTUALSMID": "%smid", "SR_VIRTID": "%smid", "SR_GLOBALTIMERLO": "%globaltimer_lo",
    "SR_GLOBALTIMERHI": "%globaltimer_hi", "SR_NSMID": "%nsmid", "SR_SMEMSZ": "%total_smem_size",
}  # fmt: skip
FIXED = {"SRZ": 0, "SR_SWINHI": WINDOWS["shared"] >> 32, "SR_LMEMHIOFF": 0}


def _special(e: Emitter, name: str) -> PtxOperand:
    if name == "SR_SWINHI" and not e.driver_words.shared_start:
        raise Unsupported("a generic shared-memory address before sm_90")
    if name in FIXED:
        return Immediate(FIXED[name])
    if name in SPECIAL:
        return SpecialRegister(SPECIAL[name])
    raise Unsupported(f"the special register {name}")


def s2r(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """S2R, S2UR and CS2R: read a special register; CS2R without .32 writes 64 bits."""
    if not isinstance(a[1], asm.SpecialRegisterOperand):
        raise Unsupported(f"the special register {asm.form_of(a[1])}")
    name = a[1].name
    if modifiers.opcode == "S2UR":
        from_first_lane(e, e.result(a[0]), _special(e, name))
    elif modifiers.opcode != "CS2R" or "32" in modifiers:
        e.emit("mov.b32", [e.result(a[0])], [_special(e, name)])
    else:
        _wide_special(e, name, a[0])


def _wide_special(e: Emitter, name: str, target: asm.Operand) -> None:
    wide = {"SR_CLOCKLO": SpecialRegister("%clock64"), "SR_GLOBALTIMERLO": SpecialRegister("%globaltimer")}.get(name)
    e.emit("mov.b64", [e.results(target, 2)], [wide or _special(e, name)])


def r2ur(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """R2UR: return the first active lane's value.

    The predicate is true in lanes whose value differs or, with .OR, in which it was already true.
    """
    differs = None
    if is_predicate(a[0]):
        differs, a = e.result(a[0]), a[1:]
    value, result = e.word(a[1]), e.result(a[0])
    if differs is None or isinstance(differs, Discard):
        from_first_lane(e, result, value)
        return
    first = e.temporary() if isinstance(result, Discard) else result
    from_first_lane(e, first, value)
    e.emit("setp.ne.or.u32", [differs], [value, first, differs if "OR" in modifiers else ZERO])


# --- across lanes


def vote(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """VOTE: return the active lanes whose predicate is true, and the result of .ALL, .ANY or .EQ."""
    target = None
    if not is_predicate(a[0]):
        target, a = a[0], a[1:]
    held = e.predicate(a[1])
    if target is not None and not isinstance(e.result(target), Discard):
        ballot, needs_move = to_uniform(e, target)
        collective(e, "vote.ballot.b32", [ballot], [held])
        if needs_move:
            from_first_lane(e, e.result(target), ballot)
    mode = {"ALL": "all", "ANY": "any", "EQ": "uni"}[modifiers.first(("ALL", "ANY", "EQ"))]
    if not is_true(a[0]):
        collective(e, f"vote.{mode}.pred", [to_uniform(e, a[0])[0]], [held])


def collective(e: Emitter, name: str, results: list[PtxOperand], sources: list[PtxOperand]) -> None:
    """Emit an operation across the active lanes, given by its PTX spelling; its lane mask, if any, is omitted."""
    opcode = opcode_lookup.find(name, len(results) + len(sources))
    action = opcode.action
    if not isinstance(action, WarpCollective):
        raise Unsupported(name)
    if action.synced:
        function = partial(_without_members, action.function)
        action = replace(action, sources=action.sources[:-1], function=function, synced=False)
    act_together(e, opcode, action, results, sources)


def act_together(
    e: Emitter, opcode: DecodedOpcode, action: WarpCollective, results: list[PtxOperand], sources: list[PtxOperand]
) -> None:
    """Append an operation across the active lanes; if lanes form groups, each group acts separately."""
    if e.has_groups:
        function = partial(_by_group, action.function)
        action = replace(action, sources=(*action.sources, B32), function=function)
        sources = [*sources, e.hidden("group", 32)]
        opcode = replace(opcode, attributes=replace(opcode.attributes, opcode="grouped"))
    e.append(opcode, action, results, sources)


def _without_members(function: LaneFunction, mask: Mask, *codes: Codes) -> Codes | tuple[Codes, ...]:
    return function(mask, *codes, np.full(mask.shape, WORD, np.uint32))


def _by_group(function: LaneFunction, mask: Mask, *codes: Codes) -> Codes | tuple[Codes, ...]:
    """Apply a function to each group of lanes separately."""
    *values, groups = codes
    total: tuple[Codes, ...] = ()
    for group in np.unique(groups[mask]):
        chosen = mask & (groups == group)
        found = function(chosen, *values)
        parts = found if isinstance(found, tuple) else (found,)
        total = tuple(np.where(chosen, new, old) for new, old in zip(parts, total or parts, strict=True))
    return total


def first_value(mask: Mask, a: Codes, held: Codes, old: Codes) -> Codes:
    """Return, in every lane, the value of the first lane whose predicate is true, or the old value if there is none."""
    active = mask & held
    first = np.take_along_axis(a, active.argmax(axis=1)[:, None], axis=1)
    return np.where(active.any(axis=1, keepdims=True), first, old)


def from_first_lane(e: Emitter, result: PtxOperand, source: PtxOperand) -> None:
    """Emit a move of the first active lane's value to a uniform register, in all active lanes."""
    if isinstance(result, Discard):
        return
    guard, e.guard = e.guard, None
    opcode = DecodedOpcode(SASS_ROW, Attributes("first_value", "first_value", (B32,)))
    action = WarpCollective((B32,), (B32, PRED, B32), first_value, synced=False)
    act_together(e, opcode, action, [result], [source, ONE if guard is None else guard, result])
    e.guard = guard


def to_uniform(e: Emitter, operand: asm.Operand) -> tuple[PtxOperand, bool]:
    """Return a result's destination, and True if `from_first_lane` must then move it to a uniform register."""
    guard = e.sass.guard
    is_by_lane = guard is not None and guard.file == "P" and not guard.is_constant
    if getattr(operand, "file", "") == "UP" and is_by_lane:
        raise Unsupported("a uniform predicate result under a per-lane guard")
    needs_move = is_by_lane and getattr(operand, "file", "") == "UR" and not isinstance(e.result(operand), Discard)
    return (e.temporary() if needs_move else e.result(operand)), needs_move


def match(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """MATCH.ANY: return the active lanes with the same value.

    .ALL: if all values are equal, return all active lanes and true.
    """
    done = None
    if is_predicate(a[0]):
        done, a = a[0], a[1:]
    wide = "U64" in modifiers
    value = e.pair(a[1]) if wide else e.word(a[1])
    dtype = "b64" if wide else "b32"
    if "ALL" in modifiers:
        collective(e, f"match.all.sync.{dtype}", [e.result(a[0]), e.result(done) if done else Discard()], [value])
    else:
        collective(e, f"match.any.sync.{dtype}", [e.result(a[0])], [value])


def redux(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """REDUX: reduce a value over the active lanes; the default operation is AND."""
    name = modifiers.first(("MIN", "MAX", "SUM", "OR", "XOR"), "AND")
    dtype = ("s32" if "S32" in modifiers else "u32") if name in {"MIN", "MAX", "SUM"} else "b32"
    result, needs_move = to_uniform(e, a[0])
    collective(e, f"redux.sync.{'add' if name == 'SUM' else name.lower()}.{dtype}", [result], [e.word(a[1])])
    if needs_move:
        from_first_lane(e, e.result(a[0]), result)


def elect(e: Emitter, _modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """ELECT: return a predicate that is true only in the first active lane, and that lane's number."""
    number, needs_move = to_uniform(e, a[1]) if len(a) > 1 else (Discard(), False)
    collective(e, "elect.sync", [number, e.result(a[0])], [])
    if needs_move:
        from_first_lane(e, e.result(a[1]), number)


def shfl(e: Emitter, modifiers: Modifiers, a: list[asm.Operand]) -> None:
    """SHFL: return another lane's value, and a predicate that is true if that lane is in range."""
    mode = {"IDX": "idx", "UP": "up", "DOWN": "down", "BFLY": "bfly"}[modifiers.all[0]]
    collective(e, f"shfl.{mode}.b32", [e.result(a[1]), e.result(a[0])], [e.word(operand) for operand in a[2:5]])


ANY = "*"
ROWS: list[SassRow] = [
    *row("BRA", "DIV U CONV UNIFORM ANY", bra),
    *row("CALL", "ABS REL NOINC", call),
    *row("RET", "ABS REL NODEC", jump),
    *row("LEPC", "", lepc),
    *row("BRX BRXU", "", jump),
    *row("RPCMOV", "32", rpcmov),
    *row("NANOSLEEP", "", nanosleep),
    *row("EXIT", "KEEPREFCOUNT", exit_thread),
    *row("BPT", "TRAP DRAIN PAUSE INT", trap),
    *row("BSSY", "RELIABLE RECONVERGENT", bssy),
    *row("BSYNC", "RELIABLE RECONVERGENT", bsync),
    *row("BREAK", "", leave),
    *row("BMOV", "32 CLEAR", bmov),
    *row("WARPSYNC", "ALL COLLECTIVE EXCLUSIVE", warpsync),
    *row("BAR", "SYNC DEFER_BLOCKING ARV RED POPC AND OR", bar),
    *row("B2R", "RESULT", b2r),
    *row("UCGABAR_ARV", "", cluster_arrive),
    *row("UCGABAR_WAIT", "", cluster_wait),
    *row("S2R S2UR CS2R", "32", s2r),
    *row("R2UR", "FILL OR", r2ur),
    *row("VOTE VOTEU", "ALL ANY EQ", vote),
    *row("MATCH", "ALL ANY U64", match),
    *row("REDUX", "MIN MAX S32 OR SUM XOR AND", redux),
    *row("ELECT", "", elect),
    *row("SHFL", "IDX UP DOWN BFLY", shfl),
]
