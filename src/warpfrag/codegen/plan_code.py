"""Generate code for relayouts and access plans: a function on registers and, if needed, a shared-memory address.

A plan is lowered once to register operations, which the builder of each language writes. CUDA C++ computes an address
in one readable expression, PTX in register operations.
"""

import math

from warpfrag.codegen.cuda_builder import CudaBuilder
from warpfrag.codegen.operation_texts import (
    OPERATION_TEXTS,
    THREAD_INDICES,
    check_function_name,
    check_language,
    fill_template,
)
from warpfrag.codegen.ptx_builder import PtxBuilder
from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.coordinates import LANES
from warpfrag.plans import relayout_operations as ops
from warpfrag.plans.access_plan import Access, AccessPlan, address_sum, sum_expression, swizzle_expression
from warpfrag.plans.relayout import Relayout
from warpfrag.plans.shuffle_search import Select, Shuffle, Swap
from warpfrag.plans.tensor_relayout import TensorRelayout
from warpfrag.smem.shared_memory import ROW_OF_UNITS, SWIZZLES, UNIT

Cells = tuple[ops.RegisterSlot | None, ...]
INCLUDE = "#include <cstdint>"  # so that the code compiles on its own
MOVMATRIX = "movmatrix.sync.aligned.m8n8.trans.b16"


def emit_plan(plan: object, lang: str = "cuda", name: str = "") -> str:
    """Return the code of a plan: a device function in CUDA C++, or a function in PTX."""
    if not isinstance(plan, Relayout | AccessPlan):
        raise InvalidOperand(f"expected a relayout or access plan, got {quote(plan)}")
    check_language(lang)
    if isinstance(plan, AccessPlan):
        return _access_plan(plan, lang, check_function_name(name, plan.direction))
    name = check_function_name(name, "relayout")
    return _tensor_relayout(plan, lang, name) if isinstance(plan, TensorRelayout) else _relayout(plan, lang, name)


class RegisterOperations:
    """Register operations that a builder writes in order; every result has its own register.

    Every operation is a row of `OPERATION_TEXTS`. An operation that is repeated on the same operands is computed once.

    >>> from warpfrag.codegen.cuda_builder import CudaBuilder
    >>> operations = RegisterOperations(CudaBuilder())
    >>> operations.do("and", operations.thread, 3), operations.do("and", operations.thread, 3)
    ('r0', 'r0')
    >>> operations.finish()
    >>> for line in operations.builder.body():
    ...     print(line)
    uint32_t lane; asm("mov.u32 %0, %laneid;" : "=r"(lane));
    uint32_t r0 = lane & 0x3;
    """

    def __init__(self, builder: PtxBuilder | CudaBuilder, threads: int = 32) -> None:
        """Create an empty list of operations, which may use the index of the thread among `threads` threads."""
        self.builder = builder
        self.index = THREAD_INDICES[threads]
        self.thread = builder.named(self.index.name)
        self.uses_thread = False
        self._results: dict[tuple[str, tuple[str | int, ...]], str] = {}
        self._count = 0

    def temporary(self) -> str:
        """Return the name of a new register."""
        self._count += 1
        return self.builder.temporary(self._count - 1)

    def do(self, name: str, *operands: str | int) -> str:
        """Return the register with the result of an operation; append the operation unless it was computed before."""
        key = name, operands
        if key not in self._results:
            self.uses_thread |= self.thread in operands
            self._results[key] = self.temporary()
            self.builder.operation(OPERATION_TEXTS[name], self._results[key], operands)
        return self._results[key]

    def load(self, instruction: str, count: int, address: str, *, in_braces: bool) -> list[str]:
        """Append a load from shared memory; return the registers that it fills."""
        results = [self.temporary() for _ in range(count)]
        self.builder.load(instruction, results, address, in_braces=in_braces)
        return results

    def finish(self) -> None:
        """Declare the result registers, and read the thread index first if an operation uses it."""
        self.builder.declare_temporaries(self._count)
        if self.uses_thread:
            self.builder.start_with_index(self.index)


class PlanFunction:
    """A function on registers `in` and `out`, and on an address `base`, in either language."""

    def __init__(self, lang: str, threads: int = LANES) -> None:
        """Start a function that is called by `threads` threads together."""
        self.code: CudaBuilder | PtxBuilder = CudaBuilder() if lang == "cuda" else PtxBuilder()
        self.registers = RegisterOperations(self.code, threads)

    def inputs(self, count: int) -> list[str]:
        """Return the argument registers."""
        return self.code.register_names("in", count)

    def finish(self, name: str, inputs: int, state: list[str], *, takes_base: bool = False) -> list[str]:
        """Assign the results, and return the lines of the function."""
        self.registers.finish()
        return self.code.register_function(name, inputs, state, takes_base=takes_base)

    def address(self, plan: AccessPlan, access: Access) -> str:
        """Append code that computes the address that this thread passes; return its register."""
        total = address_sum(access.addresses, plan.memory)
        if isinstance(self.code, CudaBuilder):
            self.registers.uses_thread = True
            address = self.registers.temporary()
            self.code.line(f"uint32_t {address} = {sum_expression(total)};")
            if plan.memory.swizzle:
                self.code.line(f"{address} = {swizzle_expression(plan.memory, address)};")
            return address
        do, thread = self.registers.do, self.registers.thread
        address = do("add", "%base", total.origin) if total.origin else "%base"
        for term in total.terms:
            part = do("shr", thread, term.low) if term.low else thread
            if term.is_masked:
                part = do("and", part, (1 << term.bits) - 1)
            address = do("mad", part, term.stride, address)
        if not plan.memory.swizzle:
            return address
        row = do("shr", address, ROW_OF_UNITS.bit_length() - 1)
        if plan.memory.base_offset:
            row = do("add", row, -plan.memory.base_offset)
        low_bits = do("and", row, (1 << SWIZZLES[plan.memory.swizzle]) - 1)
        return do("xor", address, do("shl", low_bits, UNIT.bit_length() - 1))


def _access_plan(plan: AccessPlan, lang: str, name: str) -> str:
    preposition = "from" if plan.direction == "load" else "to"
    head = [
        *([INCLUDE, ""] if lang == "cuda" else []),
        f"// {plan.operand.role} of {plan.operand.instruction}, {preposition} shared memory: {plan.memory.description}",
        f"// {plan}",
        *([f"// base is a multiple of {8 * plan.memory.swizzle}"] if plan.memory.swizzle else []),
    ]
    function = PlanFunction(lang, math.prod(plan.operand.threads))
    lines = (_load if plan.direction == "load" else _store)(plan, function, name)
    return "\n".join([*head, *lines])


def _is_vector(access: Access) -> bool:
    """Return True if an access instruction takes its registers in braces."""
    return len(access.words) > 1 or "matrix" in access.instruction


def _slot_shift(access: Access) -> int:
    """Return the number of bits below the element that an access moves, or 0 if it moves whole registers."""
    return 8 * access.width * (access.slot or 0)


def _load(plan: AccessPlan, function: PlanFunction, name: str) -> list[str]:
    do = function.registers.do
    state: dict[int, str] = {}
    for access in plan.accesses:
        address = function.address(plan, access)
        loaded = function.registers.load(access.instruction, len(access.words), address, in_braces=_is_vector(access))
        shift = _slot_shift(access)
        if shift:
            (word,) = access.words
            state[word] = do("or", state[word], do("shl", loaded[0], shift))
        else:
            state |= dict(zip(access.words, loaded, strict=True))
    words = [state[word] for word in range(plan.operand.words)]
    if plan.transposes:
        words = [do("collective", MOVMATRIX, word) for word in words]
    if plan.shift:
        words = [do("shl", word, plan.shift) for word in words]
    return function.finish(name, 0, words, takes_base=True)


def _store(plan: AccessPlan, function: PlanFunction, name: str) -> list[str]:
    do = function.registers.do
    state = function.inputs(plan.operand.words)
    if plan.transposes:
        state = [do("collective", MOVMATRIX, word) for word in state]
    for access in plan.accesses:
        address = function.address(plan, access)
        words = [state[word] for word in access.words]
        if access.slot:
            words = [do("shr", words[0], _slot_shift(access))]
        function.code.store(access.instruction, address, words, in_braces=_is_vector(access))
    return function.finish(name, plan.operand.words, [], takes_base=True)


def _relayout(plan: Relayout, lang: str, name: str) -> str:
    source, target = plan.source, plan.target
    head = [
        *([INCLUDE, ""] if lang == "cuda" else []),
        f"// {source.role} of {source.instruction} -> {target.role} of {target.instruction}",
        f"// {plan}. {plan.permutation_text}".rstrip(". "),
    ]
    function = PlanFunction(lang)
    state, lowering = function.inputs(source.words), RelayoutLowering(plan, function.registers)
    for op in plan.operations:
        state = lowering.lower(op, state)
    return "\n".join([*head, *function.finish(name, source.words, state)])


class RelayoutLowering:
    """Lowers a relayout's operations to register operations."""

    def __init__(self, plan: Relayout, registers: RegisterOperations) -> None:
        """Create a lowering that appends operations to `registers`."""
        self.do = registers.do
        self.lane = registers.thread
        self.source, self.target = plan.source.spec, plan.target.spec

    def lower(self, op: ops.RelayoutOperation, state: list[str]) -> list[str]:
        """Append one operation of the relayout; return its result registers."""
        if isinstance(op, ops.Permute):
            return [self._joined(cells, state, op.bits) for cells in op.words]
        if isinstance(op, ops.LanePermute):
            parity = self._parity(op.mask)
            pairs = zip(op.words, op.others, strict=True)
            return [self._joined_by_lane(*pair, state, op.bits, parity) for pair in pairs]
        if isinstance(op, ops.Convert):
            return [self._converted(op, cells, state) for cells in op.words]
        if isinstance(op, ops.Transpose):
            return [self.do("collective", MOVMATRIX, state[word]) for word in op.words]
        if isinstance(op, Shuffle):
            return [
                word if flip is None else self._shuffled(op, flip, word)
                for flip, word in zip(op.flips, state, strict=True)
            ]
        if isinstance(op, Swap):
            bits = min(self.source.container, self.target.container)
            swapped = [self._swapped(word, op.flip, bits) for word in state]
            return [self.do("select", new, old, self._parity(op.mask)) for new, old in zip(swapped, state, strict=True)]
        return self._selected(op, state)

    def _selected(self, op: Select, state: list[str]) -> list[str]:
        if not op.mask:
            return [state[word] for word in op.words]
        parity = self._parity(op.mask)
        return [self.do("select", state[word], state[at], parity) for at, word in enumerate(op.words)]

    def _parity(self, mask: int) -> str:
        """Return a register that is nonzero in lanes whose number has an odd number of bits in common with a mask."""
        bits = self.do("and", self.lane, mask)
        return self.do("and", self.do("popc", bits), 1) if mask.bit_count() > 1 else bits

    def _shuffled(self, op: Shuffle, flip: int, word: str) -> str:
        if list(op.columns) == [1 << bit for bit in range(len(op.columns))]:
            return self.do("bfly", word, flip)
        return self.do("shfl", word, self._lane_read(op.columns, flip))

    def _lane_read(self, columns: tuple[int, ...], flip: int) -> str:
        """Return a register with the lane to read: the xor of columns selected by the bits of this lane's number."""
        parts: list[str | int] = []
        width = len(columns)
        for shift in range(1 - width, width):
            mask = sum(
                1 << bit for bit in range(width) if 0 <= bit + shift < width and columns[bit] >> (bit + shift) & 1
            )
            if mask:
                part = self.do("and", self.lane, mask)
                parts.append(part if not shift else self.do("shl" if shift > 0 else "shr", part, abs(shift)))
        if flip or not parts:
            parts.append(flip)
        read = str(parts[0])
        for more in parts[1:]:
            read = self.do("xor", read, more)
        return read

    def _joined(self, cells: Cells, state: list[str], bits: int) -> str:
        """Return a register assembled from cells: whole bytes with prmt, smaller pieces with shifts."""
        whole = ops.whole_word(cells)
        if whole is not None:
            return state[whole]
        if bits < 8:
            return self._by_shifts(cells, state, bits)
        size = bits // 8
        pieces = [None if cell is None else (cell.word, cell.slot * size + at) for cell in cells for at in range(size)]
        return self._by_prmt(pieces, state)

    def _joined_by_lane(self, cells: Cells, others: Cells, state: list[str], bits: int, parity: str) -> str:
        """Join bytes of two registers with one prmt, whose selector depends on the lane."""
        words = list(dict.fromkeys(cell.word for cell in (*cells, *others) if cell))
        size = bits // 8
        selectors = []
        for some in (others, cells):
            pieces = [cell and (cell.word, cell.slot * size + byte) for cell in some for byte in range(size)]
            chosen = [piece[1] + 4 * words.index(piece[0]) if piece else 0 for piece in pieces]
            selectors.append(sum(choice << 4 * byte for byte, choice in enumerate(chosen)))
        first, second = state[words[0]], state[words[-1]]
        if selectors[0] == selectors[1]:
            return self.do("prmt", first, second, selectors[0])
        return self.do("prmt by lane", first, second, self.do("select", *selectors, parity))

    def _by_prmt(self, pieces: list[tuple[int, int] | None], state: list[str]) -> str:
        """Join four bytes with prmt; each is a byte of a register, or None if its value does not matter."""
        words = list(dict.fromkeys(piece[0] for piece in pieces if piece))
        result = state[words[0]]
        if all(piece is None or piece == (words[0], byte) for byte, piece in enumerate(pieces)):
            return result
        for at, word in enumerate(words[1:] or words):
            selector = 0
            for byte, piece in enumerate(pieces):
                if piece is None:
                    choice = 0
                elif piece[0] == word:
                    choice = piece[1] + (4 if words[1:] else 0)
                elif at == 0:
                    choice = piece[1] if piece[0] == words[0] else 0
                else:
                    choice = byte  # keep the byte that an earlier prmt has set
                selector |= choice << (4 * byte)
            result = self.do("prmt", result, state[word], selector)
        return result

    def _by_shifts(self, cells: Cells, state: list[str], bits: int) -> str:
        """Join small pieces; pieces with the same shift are moved together."""
        pieces = [(cell.word, cell.slot * bits, slot * bits) for slot, cell in enumerate(cells) if cell is not None]
        return self._gathered(pieces, (1 << bits) - 1, state)

    def _gathered(self, pieces: list[tuple[int, int, int]], code: int, state: list[str]) -> str:
        """Assemble a register from pieces, each given by its source register, first source bit and first target bit."""
        # keyed by register and distance: the bits of the register that move by that distance
        moved: dict[tuple[int, int], int] = {}
        for word, there, here in pieces:
            moved[word, here - there] = moved.get((word, here - there), 0) | code << there
        parts = []
        for (word, distance), mask in moved.items():
            part = self.do("and", state[word], mask) if mask != (1 << ops.WORD_BITS) - 1 else state[word]
            parts.append(part if not distance else self.do("shl" if distance > 0 else "shr", part, abs(distance)))
        joined = parts[0]
        for part in parts[1:]:
            joined = self.do("or", joined, part)
        return joined

    def _swapped(self, word: str, flip: int, bits: int) -> str:
        """Return a register in which cells have been exchanged."""
        if bits < 8:
            cells = tuple(ops.RegisterSlot(0, slot ^ flip) for slot in range(ops.WORD_BITS // bits))
            return self._by_shifts(cells, [word], bits)
        size = bits // 8
        return self._by_prmt([(0, (byte // size ^ flip) * size + byte % size) for byte in range(4)], [word])

    def _converted(self, op: ops.Convert, cells: Cells, state: list[str]) -> str:
        """Return a register of converted elements."""
        row = ops.conversion(op.source, op.target)
        source, target = self.source, self.target
        if row is None:  # the same format in another container
            pieces = [
                (cell.word, cell.slot * source.container + source.low, slot * target.container + target.low)
                for slot, cell in enumerate(cells)
                if cell is not None
            ]
            return self._gathered(pieces, source.format.codes - 1, state)
        if source.container not in {16, 32} or target.low:
            raise InvalidOperand(
                f"cannot convert {op.source} in {source.container} bits to {op.target} in {target.container} bits"
            )
        size = 2 if row.pair else 1
        together = [cells[at : at + size] for at in range(0, len(cells), size)]
        parts = [self._converted_together(row, some, state) if any(some) else None for some in together]
        width = size * target.container // 8
        made = [(at, byte) if part else None for at, part in enumerate(parts) for byte in range(width)]
        return self._by_prmt(made, [part or "" for part in parts])

    def _converted_together(self, row: ops.Conversion, cells: Cells, state: list[str]) -> str:
        """Append one cvt; return the register whose low bits hold the converted element or pair."""
        container = self.source.container
        if container == 16 and row.pair:
            return self.do("cvt word to half", row.cvt, self._joined(cells, state, container))
        first = next(cell for cell in cells if cell)
        if container == 16:
            return self.do("cvt high half" if first.slot else "cvt low half", row.cvt, state[first.word])
        if not row.pair:
            return self.do("cvt", row.cvt, state[first.word])
        low, high = (state[(cell or first).word] for cell in cells)
        return self.do("cvt pair to word" if self.target.container == 16 else "cvt pair to half", row.cvt, high, low)


def _tensor_relayout(plan: TensorRelayout, lang: str, name: str) -> str:
    """Return a device function that all threads of a warp call, with the addresses of D and A."""
    if lang != "cuda":
        raise InvalidOperand(f"lang: expected cuda for a relayout in tensor memory, got {quote(lang)}")
    inputs, outputs = plan.registers.source.words, plan.registers.target.words
    loaded = ", ".join(f"%{i}" for i in range(inputs))
    stored = ", ".join(f"%{1 + i}" for i in range(outputs))
    results = ", ".join(f'"=r"(in[{i}])' for i in range(inputs))
    operands = ", ".join(f'"r"(out[{i}])' for i in range(outputs))
    function = fill_template(
        "tensor_relayout.cuh", name=name, plan=plan, inputs=inputs, outputs=outputs, loaded=loaded, stored=stored,
        results=results, operands=operands, count=plan.count, columns=plan.columns, width=plan.stored,
        load=plan.load.ptx, store=plan.store.ptx,
    )  # fmt: skip
    return "\n".join([_relayout(plan.registers, lang, f"{name}_registers"), function, ""])
