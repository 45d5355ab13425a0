"""LLVM code that runs an instruction sequence for one warp: loops over its lanes, and calls for the whole warp."""

from itertools import starmap

import numpy as np
from llvmlite import ir as llvm

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.store_tags import HAS_WAITED_SHIFT
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import (
    BankOperand,
    DecodedInstruction,
    Discard,
    Immediate,
    InexactCause,
    MemoryOperand,
    PtxOperand,
    Register,
    SpecialRegister,
    VectorOperand,
)
from warpfrag.machine.ir.scalar_types import TYPES, Type
from warpfrag.machine.jit import context as ctx
from warpfrag.machine.jit import warp_ops
from warpfrag.machine.jit.context import ALL_LANES
from warpfrag.machine.jit.ir_builder import (
    GROUP,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    IRBuilder,
    Value,
    constant,
    integers,
    splat,
    vector,
    width,
)
from warpfrag.machine.jit.lane_loop import LaneLoop
from warpfrag.machine.jit.lane_ops import LOWERINGS, choose_nan, is_nan, lower_contracted, lower_lop3
from warpfrag.machine.jit.memory_access import Helper, helper_name
from warpfrag.machine.jit.register_flow import REGISTER_ALIGN, LiveSet, RegisterLayout
from warpfrag.machine.jit.register_marks import RegisterMarks
from warpfrag.machine.ops.collectives import shuffle

COMPILED = (
    actions.NoOp, actions.LaneOp, actions.Move, actions.MemoryLoad, actions.MemoryStore, actions.AsyncCopy,
    actions.MatrixOp, actions.WarpCollective,
)  # fmt: skip
"""Actions that can be compiled."""
WIDTHS = {1, 8, 16, 32, 64}
MAX_ACCESS_BITS = 128  # maximum number of bits that a lane accesses at once
COPY_SIZES = {4, 8, 16}  # the sizes of cp.async in bytes
UNLIKELY = [1, 1000]  # branch weights
PLAIN_MATRICES = ((8, 8), "b16", "", "shared")
SEGMENT_FUNCTION = llvm.FunctionType(VOID, [POINTER, POINTER, POINTER, I64])
"""The function type of a segment; the parameters are the context, the warps' rows and lane masks, and their number."""


class UnsupportedInstruction(Exception):
    """Raised for an instruction that cannot be compiled, so that the interpreter must run it."""


class WarpCode:
    """Builds the LLVM function of one segment; `loops` has its loops over lanes, of which the last may be open."""

    def __init__(self, layout: RegisterLayout, module: llvm.Module) -> None:
        """Start an empty function that loops over warps."""
        self.layout, self.module = layout, module
        self.function = llvm.Function(module, SEGMENT_FUNCTION, module.get_unique_name("segment"))
        self.context, rows, masks, self.count = self.function.args
        for pointer in (self.context, rows, masks):
            pointer.add_attribute("noalias")
        ir = self.ir = IRBuilder(self.function.append_basic_block("entry"))
        entry, self.loop, self.next = (ir.block, *(self.function.append_basic_block(name) for name in ("loop", "next")))
        spaces = (vector(64), llvm.ArrayType(vector(64), 8), vector(32))
        self.addresses, self.items, self.src_bytes = (ir.entry_alloca(ptx_type, 256) for ptx_type in spaces)
        registers = ir.element(self.context, ctx.REGISTERS, POINTER)
        stride = ir.element(self.context, ctx.WARP_BYTES)
        ir.branch(self.loop)
        ir.position_at_end(self.loop)
        self.index = ir.phi(I64)
        self.index.add_incoming(constant(I64, 0), entry)
        self.row, self.mask = ir.element(rows, self.index), ir.element(masks, self.index, I32)
        self.warp = ir.at(registers, ir.mul(self.row, stride), I8)
        self.loops: list[LaneLoop] = []
        self.is_in_loop = False
        self.helpers: set[Helper] = set()
        self.marks = RegisterMarks(ir, layout, self.warp, self.context)

    @property
    def lanes(self) -> LaneLoop:
        """The open loop over lanes; opens one if necessary."""
        if not self.is_in_loop:
            self.loops.append(LaneLoop(self.ir, self.warp, self.mask))
            self.is_in_loop = True
        return self.loops[-1]

    def leave(self) -> None:
        """Leave the loop over lanes, so that later code applies to the whole warp."""
        if self.is_in_loop:
            self.loops[-1].leave()
            self.is_in_loop = False

    def guard(self, inst: DecodedInstruction) -> Value | None:
        """Return a predicate for the lanes in the group whose guard is true, or None for all lanes."""
        if inst.guard is None:
            return None
        active = self.register(inst.guard)
        return self.ir.not_(active) if inst.guard.negated else active

    def collect_mask(self, inst: DecodedInstruction) -> Value:
        """Leave the loop over lanes; return the mask of active lanes in which the guard is true."""
        active = self.guard(inst)
        bits = None if active is None else self.lanes.collect(active)
        self.leave()
        return self.mask if bits is None else self.ir.and_(self.mask, bits)

    # --- operands

    def register(self, register: Register) -> Value:
        """Return a register's value in the current group of lanes, loading it at the first read."""
        if register.bits not in WIDTHS:
            raise UnsupportedInstruction
        lanes = self.lanes
        if register.index not in lanes.current:
            value = lanes.load(self.layout.offsets[register.index], register.bits)
            lanes.current[register.index] = lanes.loaded[register.index] = value
        return lanes.current[register.index]

    def read(self, operand: PtxOperand, ptx_type: Type) -> Value:
        """Return an operand's codes as type `ptx_type`."""
        if ptx_type.bits not in WIDTHS:
            raise UnsupportedInstruction
        if isinstance(operand, Register):
            value = self.register(operand)
            if operand.negated:
                value = self.ir.not_(value)
            if ptx_type.bits == 1 and width(value) != 1:
                raise UnsupportedInstruction
            return self.ir.resize(value, ptx_type.bits)
        if isinstance(operand, Immediate):
            return splat(int(operand.code(ptx_type)), ptx_type.bits)
        if isinstance(operand, VectorOperand):
            return self.read_words(operand, ptx_type)
        if isinstance(operand, BankOperand):
            return self.ir.broadcast(self.constant(operand.offset, ptx_type.bits), GROUP)
        if isinstance(operand, SpecialRegister) and operand.name in self.layout.special:
            return self.ir.resize(self.lanes.load(self.layout.special[operand.name], 32), ptx_type.bits)
        if isinstance(operand, MemoryOperand) and operand.base is None:
            return splat(operand.offset, ptx_type.bits)
        raise UnsupportedInstruction

    def read_words(self, operand: VectorOperand, ptx_type: Type) -> Value:
        """Return several 32-bit registers as one integer, low word first."""
        ir = self.ir
        words = [
            ir.resize(self.read(part, TYPES["b32"]), ptx_type.bits) for part in operand.items[: ptx_type.bits // 32]
        ]
        value = words[0]
        for index, word in enumerate(words[1:], 1):
            value = ir.or_(value, ir.shl(word, 32 * index))
        return value

    def constant(self, offset: int, bits: int) -> Value:
        """Load a scalar from the constant buffer, which is large enough for every offset in the program."""
        ir = self.ir
        banks = ir.element(self.context, ctx.PARAMETERS, POINTER)
        return ir.load(ir.at(banks, offset, I8), typ=llvm.IntType(bits), align=min(4, bits // 8))

    def write(self, operand: PtxOperand, value: Value, active: Value | None, ptx_type: Type | None = None) -> None:
        """Write a register in the `active` lanes; values of signed types are sign-extended."""
        if isinstance(operand, Discard):
            return
        if isinstance(operand, VectorOperand):
            for index, part in enumerate(operand.items):
                self.write(part, self.ir.resize(self.ir.lshr(value, 32 * index), 32), active)
            return
        if not isinstance(operand, Register) or operand.bits not in WIDTHS:
            raise UnsupportedInstruction
        if (operand.bits == 1) != (width(value) == 1):
            raise UnsupportedInstruction
        value = self.ir.resize(value, operand.bits, signed=ptx_type is not None and ptx_type.kind == "s")
        if active is not None:
            value = self.ir.select(active, value, self.register(operand))
        self.lanes.current[operand.index] = value
        self.lanes.changed[operand.index] = operand

    def whole(self, operand: PtxOperand, ptx_type: Type) -> Value:
        """Return an operand's codes in all 32 lanes; no earlier instruction of the segment may write the operand."""
        if isinstance(operand, Immediate):
            return splat(int(operand.code(ptx_type)), ptx_type.bits, LANES)
        is_fitting = (
            isinstance(operand, Register) and operand.bits in WIDTHS and (operand.bits == 1) == (ptx_type.bits == 1)
        )
        if not isinstance(operand, Register) or not is_fitting:
            raise UnsupportedInstruction
        self.leave()
        place = self.ir.at(self.warp, self.layout.offsets[operand.index], I8)
        value = self.ir.load(place, typ=vector(max(8, operand.bits)), align=REGISTER_ALIGN)
        if operand.bits == 1:
            value = self.ir.icmp("ne", value, 0)
        return self.ir.resize(self.ir.not_(value) if operand.negated else value, ptx_type.bits)

    def write_whole(self, operand: PtxOperand, value: Value) -> None:
        """Write a register in all 32 lanes."""
        if isinstance(operand, Discard):
            return
        if (
            not isinstance(operand, Register)
            or operand.bits not in WIDTHS
            or (operand.bits == 1) != (width(value) == 1)
        ):
            raise UnsupportedInstruction
        self.leave()
        place = self.ir.at(self.warp, self.layout.offsets[operand.index], I8)
        value = self.ir.resize(self.ir.resize(value, operand.bits), max(8, operand.bits))
        self.ir.store(value, place, REGISTER_ALIGN)

    # --- instructions

    def inst(self, at: int, inst: DecodedInstruction) -> None:
        """Append an instruction; raise UnsupportedInstruction if it cannot be compiled."""
        action = inst.action
        if isinstance(action, actions.NoOp):
            for left in warp_ops.group_events(inst):
                numbers = (constant(I64, number) for number in (left or 0, left is None, at))
                self.ir.call_named("tell_groups", VOID, self.context, self.row, self.collect_mask(inst), *numbers)
            return
        if not self.marks.concern(at):
            self.compute(at, inst, action)
            return
        moved = self.shuffled_lanes(inst)[0] if inst.attributes.opcode == "shfl" else None
        number = {"selp": 2, "first_value": 1}.get(inst.attributes.opcode)
        chooser = inst.sources[number] if number else None
        chosen = self.lanes.collect(self.read(chooser, TYPES["pred"])) if isinstance(chooser, Register) else None
        mask = self.collect_mask(inst)
        self.compute(at, inst, action)
        self.leave()
        if inst.guard is not None:  # an instruction with an unwritten guard may or may not have run
            self.marks.suspect(self.marks.of([inst.guard.index]), self.mask)
        self.marks.follow(inst, mask, moved, chosen)

    def compute(self, at: int, inst: DecodedInstruction, action: actions.Action) -> None:
        """Emit an instruction's effects on registers and memory."""
        if isinstance(action, actions.LaneOp):
            self.pure(at, inst, action)
        elif isinstance(action, actions.Move):
            self.move(inst, action)
        elif isinstance(action, actions.MemoryLoad | actions.MemoryStore):
            self.access(at, inst, action)
        elif isinstance(action, actions.AsyncCopy):
            self.async_copy(at, inst)
        elif isinstance(action, actions.MatrixOp):
            self.move_matrices(at, inst, action)
        elif isinstance(action, actions.WarpCollective):
            self.collective(inst, action)
        else:
            raise UnsupportedInstruction

    def pure(self, at: int, inst: DecodedInstruction, action: actions.LaneOp) -> None:
        """Emit an instruction that each lane computes independently."""
        active = self.guard(inst)
        attributes = inst.attributes
        operands: list[Value] = []
        immediates: list[int] = []
        for operand, ptx_type in zip(inst.sources, action.sources, strict=True):
            if ptx_type is not None:
                operands.append(self.read(operand, ptx_type))
            elif isinstance(operand, Immediate):
                immediates.append(operand.code(None))
            else:
                raise UnsupportedInstruction
        results = self.folded(inst, action)
        if results is not None:
            pass
        elif action.fused is not None:
            if action.fused.opcode == "mul":
                results = lower_contracted(self.ir, attributes, operands, action.fused[1:])
        elif attributes.opcode == "lop3":
            results = lower_lop3(self.ir, attributes, operands, *immediates)
        elif attributes.opcode in LOWERINGS:
            results = LOWERINGS[attributes.opcode](self.ir, attributes, operands)
        if results is None:
            raise UnsupportedInstruction
        if action.nan_order:
            chosen = self.choose_nan(
                at, results[0], operands, action.nan_order, active, is_certain=action.is_nan_order_certain
            )
            results = (chosen,)
        for target, value, ptx_type in zip(inst.results, results, action.results, strict=False):
            self.write(target, value, active, ptx_type if action.extends else None)

    def folded(self, inst: DecodedInstruction, action: actions.LaneOp) -> tuple[Value, ...] | None:
        """Return the results of an instruction with constant operands, which ptxas emits to load constants, or None."""
        if action.nan_order or not all(isinstance(operand, Immediate) for operand in inst.sources):
            return None
        operands = [
            operand.code(None) if ptx_type is None else np.full((1, 1), operand.code(ptx_type), ptx_type.dtype)
            for operand, ptx_type in zip(inst.sources, action.sources, strict=True)
            if isinstance(operand, Immediate)
        ]
        values = action.function(*operands)
        codes = values if isinstance(values, tuple) else (values,)
        return tuple(
            splat(int(code.item()), ptx_type.bits) for code, ptx_type in zip(codes, action.results, strict=False)
        )

    def choose_nan(
        self,
        at: int,
        result: Value,
        operands: list[Value],
        order: tuple[int, ...],
        active: Value | None,
        *,
        is_certain: bool,
    ) -> Value:
        """Return an f64 result with NaNs taken from operands, and record whether a GPU may choose another NaN."""
        ir = self.ir
        before, after = ir.block, ir.append_basic_block("chosen")
        nan = ir.append_basic_block("nan")
        ir.cbranch(ir.any(is_nan(ir, result)), nan, after).set_weights(UNLIKELY)
        ir.position_at_end(nan)
        chosen, differs = choose_nan(ir, result, operands, order)
        if not is_certain:
            here = ir.and_(self.lanes.active(), differs)
            with ir.if_then(ir.any(here if active is None else ir.and_(here, active))):
                place = ir.at(ir.element(self.context, ctx.INST_CAUSES, POINTER), at, I8)
                ir.store(ir.or_(ir.load(place, typ=I8), int(InexactCause.NAN_OPERANDS)), place)
        last = ir.block
        ir.branch(after)
        ir.position_at_end(after)
        either = ir.phi(result.type)
        either.add_incoming(result, before)
        either.add_incoming(chosen, last)
        return either

    def move(self, inst: DecodedInstruction, action: actions.Move) -> None:
        """Emit mov, which copies, packs or unpacks registers."""
        active, ptx_type = self.guard(inst), action.type
        target, source = inst.results[0], inst.sources[0]
        if ptx_type.bits not in WIDTHS:
            raise UnsupportedInstruction
        if isinstance(source, VectorOperand):
            bits = ptx_type.bits // len(source.items)
            value = splat(0, ptx_type.bits)
            for index, part in enumerate(source.items):
                piece = self.ir.resize(self.read(part, TYPES[f"b{bits}"]), ptx_type.bits)
                value = self.ir.or_(value, self.ir.shl(piece, bits * index))
        else:
            value = self.read(source, ptx_type)
        if not isinstance(target, VectorOperand):
            self.write(target, value, active)
            return
        bits = ptx_type.bits // len(target.items)
        for index, part in enumerate(target.items):
            piece = self.ir.lshr(value, bits * index)
            self.write(part, self.ir.resize(piece, bits), active)

    # --- memory: all lanes' data is passed in %items, their addresses in %addresses

    def addresses_of(self, place: PtxOperand) -> Value:
        """Return a memory operand's address in each lane of the current group."""
        if not isinstance(place, MemoryOperand):
            raise UnsupportedInstruction
        if place.base is None:
            return splat(place.offset, 64)
        if isinstance(place.base, VectorOperand):
            return self.ir.add(self.read(place.base, TYPES["b64"]), place.offset)
        base = self.register(place.base)
        if width(base) not in {32, 64}:
            raise UnsupportedInstruction
        return self.ir.resize(self.ir.add(base, place.offset), 64)

    def access(self, at: int, inst: DecodedInstruction, action: actions.MemoryLoad | actions.MemoryStore) -> None:
        """Emit ld or st as a call to a helper, which moves the data or returns a fault."""
        ptx_type, space = action.type, action.space
        if space == "cluster" or (space == "generic" and self.layout.maps_addresses):
            raise UnsupportedInstruction
        if ptx_type.bits not in WIDTHS or ptx_type.bits == 1 or ptx_type.bits * action.count > MAX_ACCESS_BITS:
            raise UnsupportedInstruction
        ir = self.ir
        is_load = isinstance(action, actions.MemoryLoad)
        if not is_load:
            self.free_items(ptx_type.bits)
        addresses = self.addresses_of(inst.sources[0])
        operand = inst.results[0] if is_load else inst.sources[1]
        items = operand.items if isinstance(operand, VectorOperand) else (operand,)
        if len(items) != action.count:
            raise UnsupportedInstruction
        self.put_lanes(addresses, self.addresses)
        places = [ir.at(self.items, LANES * ptx_type.bits // 8 * index, I8) for index in range(len(items))]
        if not is_load:
            for part, place in zip(items, places, strict=True):
                self.put_lanes(self.read(part, ptx_type), place)
        mask = self.collect_mask(inst)
        self.move_data(at, ("load" if is_load else "store", space, ptx_type.bits, len(items)), mask)
        if is_load:
            active = self.guard(inst)
            for part, place in zip(items, places, strict=True):
                self.write(part, self.take_lanes(place, ptx_type.bits), active, ptx_type)
        if isinstance(action, actions.MemoryLoad) and action.polls:
            across = 0 if space == "shared" else 1 << HAS_WAITED_SHIFT
            self.leave()
            ir.call_named("end_wait", VOID, self.context, self.row, mask, constant(I64, across))

    def free_items(self, bits: int) -> None:
        """Leave a loop that loads items of a different size, because its groups would overwrite later groups' items."""
        if self.is_in_loop and self.lanes.taken - {bits}:
            self.leave()

    def put_lanes(self, value: Value, array: Value) -> None:
        """Store the current group's values in an array."""
        size = width(value) // 8
        self.ir.store(value, self.lanes.place(array, size), min(REGISTER_ALIGN, GROUP * size))

    def take_lanes(self, array: Value, bits: int) -> Value:
        """Load the current group's values from an array."""
        size = bits // 8
        self.lanes.taken.add(bits)
        place = self.lanes.place(array, size)
        return self.ir.load(place, typ=vector(bits, GROUP), align=min(REGISTER_ALIGN, GROUP * size))

    def async_copy(self, at: int, inst: DecodedInstruction) -> None:
        """Emit cp.async, which copies the source bytes and pads them with zeros."""
        ir = self.ir
        target, source, size_operand, *rest = inst.sources
        size = size_operand.code(None) if isinstance(size_operand, Immediate) else 0
        if size not in COPY_SIZES:
            raise UnsupportedInstruction
        src_bytes = splat(size, 32)
        if rest and isinstance(rest[0], Register) and rest[0].bits == 1:  # ignore-src
            src_bytes = ir.select(self.read(rest[0], TYPES["pred"]), splat(0, 32), src_bytes)
        elif rest and not (isinstance(rest[0], Register) and rest[0].bits == 64):  # src-size; 64 bits: a cache policy
            src_bytes = ir.minimum(self.read(rest[0], TYPES["u32"]), src_bytes, signed=False)
        self.put_lanes(self.addresses_of(source), self.addresses)
        self.put_lanes(src_bytes, self.src_bytes)
        mask = self.collect_mask(inst)
        self.helpers.add(("copy", "global", 32, size // 4))
        lanes = (self.context, self.row, mask, self.addresses, self.items)
        fault = ir.call_named(f"copy_{size // 4}", I32, *lanes, self.src_bytes, constant(I64, at))
        self.stop_on_fault(at, mask, fault)
        self.put_lanes(self.addresses_of(target), self.addresses)
        self.leave()
        self.move_data(at, ("store", "shared", 32, size // 4), mask)

    def move_data(self, at: int, helper: Helper, mask: Value) -> None:
        """Call a helper that moves the data of the lanes in `mask`."""
        self.helpers.add(helper)
        lanes = (self.context, self.row, mask, self.addresses, self.items)
        self.stop_on_fault(at, mask, self.ir.call_named(helper_name(*helper), I32, *lanes, constant(I64, at)))

    def stop_on_fault(self, at: int, mask: Value, fault: Value) -> None:
        """Emit code that records a helper's fault, if there is one, and continues with the next warp."""
        ir = self.ir
        bad, good = (ir.append_basic_block(name) for name in ("bad", "good"))
        ir.cbranch(ir.icmp("ne", fault, 0), bad, good).set_weights(UNLIKELY)
        ir.position_at_end(bad)
        ir.call_named("fault", VOID, self.context, constant(I64, at), self.row, mask, self.addresses)
        ir.branch(self.next)
        ir.position_at_end(good)

    # --- whole warps

    def move_matrices(self, at: int, inst: DecodedInstruction, action: actions.MatrixOp) -> None:
        """Emit ldmatrix or stmatrix with 16-bit elements."""
        form = action.form
        if (form.shape[:2], form.d, form.memory, action.space) != PLAIN_MATRICES or inst.guard is not None:
            raise UnsupportedInstruction
        if form.op not in {"ldmatrix", "stmatrix"}:
            raise UnsupportedInstruction
        operand = inst.results[0] if form.op == "ldmatrix" else inst.sources[1]
        items = operand.items if isinstance(operand, VectorOperand) else (operand,)
        if len(items) != form.num:
            raise UnsupportedInstruction
        mask = constant(I32, (1 << (8 * form.num)) - 1)
        if form.op == "stmatrix":
            for matrix, part in enumerate(items):
                self.put_rows(matrix, self.whole(part, TYPES["b32"]), trans=form.trans)
        self.put_lanes(self.addresses_of(inst.sources[0]), self.addresses)
        self.leave()
        self.move_data(at, ("load" if form.op == "ldmatrix" else "store", "matrices", 64, 2), mask)
        if form.op == "ldmatrix":
            self.take_fragments(items, trans=form.trans)

    def put_rows(self, matrix: int, words: Value, *, trans: bool) -> None:
        """Rearrange a fragment into the eight rows to store: the first halves of all rows, then the second halves."""
        ir, bits = self.ir, 16 if trans else 32
        elements = ir.bitcast(words, vector(bits, LANES * 32 // bits))
        for half in range(2):
            place = ir.at(self.items, 8 * (LANES * half + 8 * matrix), I8)
            ir.store(ir.permute(elements, warp_ops.row_elements(half, trans=trans)), place, 32)

    def take_fragments(self, items: tuple[PtxOperand, ...], *, trans: bool) -> None:
        """Rearrange eight rows, loaded as first halves and then second halves, into the words of every lane."""
        ir, bits = self.ir, 16 if trans else 32
        ptx_type = vector(bits, LANES * 64 // bits)
        places = (self.items, ir.at(self.items, LANES * 8, I8))
        low, high = (ir.load(place, typ=ptx_type, align=32) for place in places)
        for matrix, part in enumerate(items):
            words = ir.permute(low, warp_ops.fragment_elements(matrix, trans=trans), high)
            self.write_whole(part, ir.bitcast(words, vector(32)))

    def collective(self, inst: DecodedInstruction, action: actions.WarpCollective) -> None:
        """Emit an operation across all lanes of the warp, or a vote or similar operation of the active lanes."""
        if warp_ops.is_masked(inst):
            self.masked(inst, action)
            return
        if inst.guard is not None:
            raise UnsupportedInstruction
        members = inst.sources[-1] if action.synced else None
        named = isinstance(members, Immediate) and members.code(TYPES["b32"]) == ALL_LANES
        lower = warp_ops.WARP_LOWERINGS.get(inst.attributes.opcode)
        is_shuffle = inst.attributes.opcode == "shfl"
        if (lower is None and not is_shuffle) or (members is not None and not named):
            raise UnsupportedInstruction
        if lower is None:
            self.shuffle(inst)
            return
        operands = [*starmap(self.whole, zip(inst.sources, action.sources, strict=True))]
        results = lower(self.ir, inst.attributes, operands)
        if results is None:
            raise UnsupportedInstruction
        for target, value in zip(inst.results, results, strict=False):
            self.write_whole(target, value)

    def masked(self, inst: DecodedInstruction, action: actions.WarpCollective) -> None:
        """Emit a vote of the active lanes, their mask, or the value in the first lane whose predicate is true."""
        ir, opcode = self.ir, inst.attributes.opcode
        if opcode == "first_value":
            self.free_items(action.sources[0].bits)
        operands = [*starmap(self.read, zip(inst.sources, action.sources, strict=True))]
        bits = None
        if opcode == "first_value":
            self.put_lanes(operands[0], self.items)
            bits = self.lanes.collect(operands[1])
        elif operands:
            bits = self.lanes.collect(operands[0])
        mask = self.collect_mask(inst)
        if opcode == "first_lane" and bits is not None:
            held = ir.and_(bits, mask)
            self.write(inst.results[0], self.lanes.active(ir.and_(held, ir.neg(held))), self.guard(inst))
            return
        if opcode != "first_value" or bits is None:
            result = ir.broadcast(
                warp_ops.vote_of_active(ir, inst.attributes, mask if bits is None else bits, mask), GROUP
            )
            self.write(inst.results[0], result, self.guard(inst))
            return
        held = ir.and_(bits, mask)
        first = ir.and_(ir.intrinsic("cttz", held, flag=False), LANES - 1)
        value = ir.element(self.items, ir.zext(first, I64), llvm.IntType(action.sources[0].bits))
        old = self.read(inst.sources[2], action.sources[2])
        chosen = ir.select(ir.broadcast(ir.icmp("ne", held, 0), GROUP), ir.broadcast(value, GROUP), old)
        self.write(inst.results[0], chosen, self.guard(inst))

    def shuffle(self, inst: DecodedInstruction) -> None:
        """Emit shfl with constant operands, run by all lanes of the warp."""
        lanes, inside = self.shuffled_lanes(inst)
        moved = self.ir.permute(self.whole(inst.sources[0], TYPES["b32"]), lanes)
        for operand, result in zip(inst.results, (moved, integers(inside, 1)), strict=False):
            self.write_whole(operand, result)

    @staticmethod
    def shuffled_lanes(inst: DecodedInstruction) -> tuple[list[int], list[bool]]:
        """Return each lane's source lane in a shfl with constant operands, and a mask of the lanes in range."""
        numbers = [operand.code(TYPES["u32"]) for operand in inst.sources[1:3] if isinstance(operand, Immediate)]
        if len(numbers) != 2:
            raise UnsupportedInstruction
        args = [np.full((1, LANES), number, np.uint32) for number in numbers]
        lanes, inside = shuffle(None, np.arange(LANES)[None, :], *args, mode=inst.attributes.operation or "")
        return lanes[0].tolist(), inside[0].tolist()

    def finish(self, live: LiveSet) -> None:
        """Write the changed registers that are in `live` back to memory, in the active lanes, and end the function."""
        ir = self.ir
        self.leave()
        self.marks.finish()
        end = ir.block
        needed = {index for loop in self.loops for index in loop.changed if index in live}
        for loop in reversed(self.loops):
            stored = [register for index, register in loop.changed.items() if index in needed]
            loop.finish(stored, self.layout.offsets)
            needed = needed - loop.changed.keys() | loop.loaded.keys()
        ir.position_at_end(end)
        ir.branch(self.next)
        ir.position_at_end(self.next)
        following = ir.add(self.index, 1)
        self.index.add_incoming(following, self.next)
        done = ir.append_basic_block("done")
        ir.cbranch(ir.icmp("ult", following, self.count), self.loop, done)
        ir.position_at_end(done)
        ir.ret_void()
