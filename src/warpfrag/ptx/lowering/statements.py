"""Decode the statements of an entry, and of the functions that it calls, to instructions.

Names become registers, addresses and labels; the qualifiers of an opcode become typed attributes. Later passes
(`passes`) bind opcodes to actions and link targets. A function is lowered when its first call is found.
"""

from collections.abc import Sequence

from warpfrag.errors import PtxError, quote
from warpfrag.machine.ir.actions import SYSTEM_FUNCTIONS, DirectCall, IndirectCall, Refused, SystemCall
from warpfrag.machine.ir.program import (
    SELECTORS,
    Copy,
    DecodedInstruction,
    Discard,
    FloatLiteral,
    Immediate,
    MemoryOperand,
    PtxOperand,
    Register,
    SpecialRegister,
    VectorOperand,
)
from warpfrag.machine.ir.state_spaces import is_special
from warpfrag.machine.ops.opcode_lookup import find
from warpfrag.ptx.lowering.call_graph import CallGraph
from warpfrag.ptx.lowering.operand_checks import SharedAddresses, address_count, take_reduction
from warpfrag.ptx.lowering.storage import StorageAllocator, SymbolTable, parameters_of, size_of
from warpfrag.ptx.reader import syntax

SCALAR_BYTES = {1, 2, 4, 8}  # sizes of scalar arguments in bytes
SCALAR_VIDEO = {"vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset", "vmad"}
RESOURCES = {"tex", "tld4", "suld", "sust", "sured"}  # opcodes with a texture or surface handle as an operand


class KernelLowering:
    """The state of an entry while it is lowered, which the passes read and modify."""

    def __init__(
        self, source: syntax.ModuleSyntax, functions: dict[str, syntax.FunctionDecl], entry: syntax.FunctionDecl
    ) -> None:
        """Create the state before the first instruction."""
        self.source, self.functions, self.entry = source, functions, entry
        self.graph = CallGraph(source)
        self.variables = StorageAllocator(source, functions, self.graph, entry.name)
        self.parameters, self.parameter_bytes = parameters_of(entry)
        self.instructions: list[DecodedInstruction] = []
        self.shared_addresses = SharedAddresses(self.instructions, self.variables.register)
        self.entry_end = 0  # the number of the entry's own instructions; those of other functions follow
        # for each branch, its index and the labels that it may jump to
        self.branches: list[tuple[int, list[list[int]]]] = []
        self.called: dict[str, tuple[int, syntax.FunctionDecl, SymbolTable]] = {}
        # calls by address, with the direct calls that they expand to
        self.indirect_calls: list[tuple[int, list[DecodedInstruction]]] = []
        # calls that may recurse, with the name of the caller
        self.recursive_calls: list[tuple[DecodedInstruction, str]] = []
        self.allocates: set[str] = set()  # functions that use alloca
        self.leaders: set[int] = set()  # starts of blocks
        self.local_bytes = 0
        self.dynamic_start = 0

    def lower(self) -> None:
        """Lower the entry's body, then the bodies of called functions until none is left."""
        outer = SymbolTable(self.variables.module)
        for parameter in self.parameters:
            outer.symbols[parameter.name] = MemoryOperand(None, parameter.offset, "param", parameter.name)
        self.function(self.entry, outer)
        self.entry_end = len(self.instructions)
        while waiting := [name for name, (start, _, _) in self.called.items() if start < 0]:
            for name in waiting:
                _, function, names = self.called[name]
                self.called[name] = (len(self.instructions), function, names)
                self.function(function, names)

    # --- functions

    def function(self, function: syntax.FunctionDecl, names: SymbolTable) -> None:
        """Decode the body of a function."""
        if function.body is None:
            raise PtxError(function.line, f"expected a body for {function.name}")
        self.variables.current = function.name
        self.scope(function.body, names)
        last = self.instructions[-1] if self.instructions else None
        if last is None or last.guard is not None or last.row is None or last.attributes.opcode not in {"ret", "exit"}:
            self.instructions.append(DecodedInstruction(function.line, find("ret", 0), text="the end of the body"))

    def scope(self, scope: syntax.Scope, names: SymbolTable) -> None:
        """Decode a body."""
        for statement in scope.items:  # declare all labels first, because branches may refer to later ones
            if isinstance(statement, syntax.Label):
                if statement.name in names.labels.maps[0] or statement.name in names.tables.maps[0]:
                    raise PtxError(statement.line, f"duplicate label {statement.name}")
                if statement.targets:
                    names.tables[statement.name] = statement.targets
                else:
                    names.labels[statement.name] = [-1]
        for statement in scope.items:
            if isinstance(statement, syntax.VariableDecl):
                self.variables.declare(statement, names)
            elif isinstance(statement, syntax.Scope):
                self.scope(statement, SymbolTable(names))
            elif isinstance(statement, syntax.Label):
                if not statement.targets:
                    names.labels[statement.name][0] = len(self.instructions)
            else:
                self.instructions.append(self.inst(statement, names))

    def inst(self, statement: syntax.Statement, names: SymbolTable) -> DecodedInstruction:
        """Decode an instruction: opcode, guard and operands."""
        opcode = find(statement.opcode, len(statement.operands))
        guard = None
        if statement.guard is not None:
            predicate = names.find(statement.guard.text)
            if not isinstance(predicate, Register) or predicate.bits != 1:
                raise PtxError(statement.line, f"expected a predicate after @, got {statement.guard}")
            guard = Register(predicate.index, 1, predicate.name, statement.negated)
        inst = DecodedInstruction(statement.line, opcode, guard=guard, text=str(statement))
        if opcode.row is None:
            return inst
        if opcode.attributes.opcode in {"bra", "brx"}:
            self.branch(inst, statement, names)
        elif opcode.attributes.opcode == "call":
            self.call(inst, statement, names)
        else:
            self.operands(inst, statement, names)
            inst = self.shared_addresses.follow(inst)
        return inst

    def operands(self, inst: DecodedInstruction, statement: syntax.Statement, names: SymbolTable) -> None:
        """Decode the results and sources of an instruction other than a branch or call."""
        operands, attributes = list(statement.operands), inst.attributes
        if attributes.opcode in SCALAR_VIDEO:
            self.select_parts(inst, statement, names)
            return
        named = [
            reg.base for reg in operands if isinstance(reg, syntax.Address) and isinstance(reg.base, syntax.SymbolRef)
        ]
        if attributes.opcode in RESOURCES and any(names.find(base.text) is None for base in named):
            inst.action = Refused(
                f"{inst.name} of {named[0]}: only handles are modelled, not .texref or .surfref variables"
            )
            return
        count = address_count(inst.opcode.action)
        if count is not None and sum(isinstance(operand, syntax.Address) for operand in operands) != count:
            label = f"{count} operands" if count > 1 else "one operand" if count else "no operand"
            raise PtxError(statement.line, f"expected {label} in brackets, got {statement}")
        if operands and inst.row is not None and inst.row.has_result:
            first = operands.pop(0)
            pair = (first.first, first.second) if isinstance(first, syntax.ResultPair) else (first,)
            inst.results = tuple(self.operand(result, names, statement) for result in pair)
        sources = [
            reg
            # each coordinate in brackets is a separate operand of a texture or surface instruction
            for source in operands
            for reg in (source, *(source.coordinates if isinstance(source, syntax.Address) else ()))
        ]
        inst.sources = tuple(self.operand(source, names, statement) for source in sources)
        if attributes.carry_in:
            inst.sources = (*inst.sources, self.variables.carry)
        if attributes.carry_out:
            inst.results = (*inst.results, self.variables.carry)
        if attributes.opcode in {"alloca", "stacksave", "stackrestore"}:
            self.use_stack(inst)
        elif attributes.opcode == "mov":
            self.move_vector(inst, statement)
        elif attributes.opcode == "tcgen05":
            take_reduction(inst)
        elif attributes.opcode in {"mapa", "getctarank"}:
            inst.sources = (*inst.sources, SpecialRegister("%cluster_ctarank"))

    def select_parts(self, inst: DecodedInstruction, statement: syntax.Statement, names: SymbolTable) -> None:
        """Decode a scalar video instruction: registers, then the part selectors of d, a and b, and the negations."""
        registers: list[PtxOperand] = []
        selectors: list[int] = []
        signs = 0
        for number, node in enumerate(statement.operands):
            name = node
            if isinstance(node, syntax.NegatedRegister) and inst.attributes.opcode == "vmad" and number:
                name = node.name
                signs |= 1 << (number - 1)
            text, _, selector = name.text.rpartition(".") if isinstance(name, syntax.SymbolRef) else ("", "", "")
            if text and selector in SELECTORS and number < 3 and names.find(str(name)) is None:
                name = syntax.SymbolRef(text)
            else:
                selector = ""
            registers.append(self.operand(name, names, statement))
            selectors.append(SELECTORS.index(selector))
        is_merged = bool(selectors) and selectors[0] > 0
        takes = 4 if is_merged or inst.attributes.operation or inst.attributes.opcode == "vmad" else 3
        if len(registers) != takes or (is_merged and inst.attributes.operation) or signs in {5, 6, 7}:
            raise PtxError(statement.line, f"expected a result and {takes - 1} sources in {inst.name}, got {statement}")
        inst.results = (registers[0],)
        constants = [Immediate(number) for number in (*selectors[:3], signs)]
        inst.sources = (*registers[1:], *[Immediate(0)] * (4 - takes), *constants)

    def use_stack(self, inst: DecodedInstruction) -> None:
        """Make alloca, stacksave and stackrestore use the register that holds the current size of the stack."""
        if inst.attributes.opcode == "alloca":
            self.allocates.add(self.variables.current)
            align = inst.sources[1] if len(inst.sources) > 1 else Immediate(8)
            inst.results = (*inst.results, self.variables.stack)
            inst.sources = (*inst.sources[:1], align, self.variables.stack, Immediate(0))
        elif inst.attributes.opcode == "stacksave":
            inst.sources = (self.variables.stack,)
        else:
            inst.results, inst.sources = (self.variables.stack,), inst.results

    def move_vector(self, inst: DecodedInstruction, statement: syntax.Statement) -> None:
        """Split a vector-to-vector mov into register moves, through temporaries in case the vectors overlap."""
        target, source = inst.results[0] if inst.results else None, inst.sources[0] if inst.sources else None
        if not (isinstance(target, VectorOperand) and isinstance(source, VectorOperand)):
            return
        widths = {reg.bits for reg in target.items if isinstance(reg, Register)}
        if len(target.items) != len(source.items) or len(widths) != 1 or 1 in widths:
            raise PtxError(statement.line, f"expected the same number of registers of the same width, got {statement}")
        bits = widths.pop()
        copies = [self.variables.register("", bits) for _ in source.items]
        inst.opcode = find(f"mov.b{bits}", 2)
        moves = [
            DecodedInstruction(inst.line, inst.opcode, guard=inst.guard, results=(to,), sources=(reg,), text=inst.text)
            for to, reg in [*zip(copies, source.items, strict=True), *zip(target.items, copies, strict=True)]
        ]
        self.instructions += moves[:-1]
        inst.results, inst.sources = moves[-1].results, moves[-1].sources

    def branch(self, inst: DecodedInstruction, statement: syntax.Statement, names: SymbolTable) -> None:
        """Record the labels that a branch may jump to; they are resolved once everything is lowered."""
        labels: list[str] = []
        operands = statement.operands
        if inst.attributes.opcode == "brx":
            label = operands[1] if len(operands) == 2 else None
            table = names.tables.get(label.text) if isinstance(label, syntax.SymbolRef) else None
            if table is None:
                raise PtxError(statement.line, f"expected an index and a table of targets, got {statement}")
            inst.sources = (self.operand(operands[0], names, statement),)
            labels += table
        elif len(operands) == 1 and isinstance(operands[0], syntax.SymbolRef):
            labels.append(operands[0].text)
        else:
            raise PtxError(statement.line, f"expected a label, got {statement}")
        places = []
        for name in labels:
            place = names.labels.get(name)
            if place is None:
                raise PtxError(statement.line, f"expected a label, got {quote(name)}, which is not defined")
            places.append(place)
        self.branches.append((len(self.instructions), places))

    def call(self, inst: DecodedInstruction, statement: syntax.Statement, names: SymbolTable) -> None:
        """Decode a call: look up the function, and copy its arguments and results."""
        rest = list(statement.operands)
        results = _take_group(rest)
        name = rest.pop(0) if rest else None
        arguments = _take_group(rest)
        holder = names.find(name.text) if isinstance(name, syntax.SymbolRef) else None
        if isinstance(holder, Register):
            self.call_by_address(inst, statement, names, holder)
            return
        function = self.functions.get(name.text) if isinstance(name, syntax.SymbolRef) else None
        if function is not None and function.body is None and function.name in SYSTEM_FUNCTIONS and not rest:
            inst.action = SystemCall(function.name)
            inst.results = tuple(self.operand(result, names, statement) for result in results)
            inst.sources = tuple(self.operand(argument, names, statement) for argument in arguments)
            self.check_arguments(statement, inst.sources, SYSTEM_FUNCTIONS[function.name].arguments)
            self.check_arguments(statement, inst.results, SYSTEM_FUNCTIONS[function.name].results)
            return
        if function is None or function.body is None or rest:
            label = str(name) if name is not None else "nothing"
            inst.action = Refused(f"cannot call {label}: the function has no body in this module or in a linked one")
            return
        if len(results) != len(function.results) or len(arguments) != len(function.parameters):
            raise PtxError(statement.line, f"expected the arguments and results of {function.name}, got {statement}")
        operands = tuple(self.operand(operand, names, statement) for operand in (*arguments, *results))
        self.check_arguments(statement, operands, formal_sizes(function))
        self.call_function(inst, function, operands)

    def check_arguments(
        self, statement: syntax.Statement, operands: Sequence[PtxOperand], sizes: Sequence[int]
    ) -> None:
        """Raise an error unless a call's operands match the function's parameters and results in number and size."""
        if not self.fits(operands, sizes):
            expected = f"operands of {', '.join(map(str, sizes))} bytes" if sizes else "no operands"
            raise PtxError(statement.line, f"expected {expected} in the call, got {statement}")

    def fits(self, operands: Sequence[PtxOperand], sizes: Sequence[int]) -> bool:
        """Return True if a call's operands match the function's parameters and results in number and size."""
        if len(operands) != len(sizes):
            return False
        for operand, size in zip(operands, sizes, strict=True):
            if isinstance(operand, Register):
                fits = operand.bits == 8 * size
            elif isinstance(operand, VectorOperand):
                fits = sum(reg.bits for reg in operand.items if isinstance(reg, Register)) == 8 * size
            elif isinstance(operand, MemoryOperand):
                fits = operand.space == "local" and self.variables.sizes.get(operand.offset) == size
            else:
                fits = isinstance(operand, Discard) or size in SCALAR_BYTES
            if not fits:
                return False
        return True

    def call_function(
        self, inst: DecodedInstruction, function: syntax.FunctionDecl, operands: Sequence[PtxOperand]
    ) -> None:
        """Bind a call to a function, adding copies of the arguments and results."""
        if function.name not in self.called:
            inner, caller = SymbolTable(self.variables.module), self.variables.current
            self.variables.current = function.name
            for variable in (*function.results, *function.parameters):
                self.variables.declare(variable, inner)
            self.variables.current = caller
            self.called[function.name] = (-1, function, inner)
        inner = self.called[function.name][2]
        inst.action, inst.text = DirectCall(), function.name
        formals = [(formal, inner.symbols[formal.name]) for formal in (*function.parameters, *function.results)]
        copies = [(outer, own, size_of(formal)) for outer, (formal, own) in zip(operands, formals, strict=True)]
        count = len(function.parameters)
        inst.arguments = tuple(Copy(outer, own, size) for outer, own, size in copies[:count])
        inst.returns = tuple(Copy(own, outer, size) for outer, own, size in copies[count:])
        if self.graph.comes_back(self.variables.current, function.name):
            self.recursive_calls.append((inst, self.variables.current))

    def call_by_address(
        self, inst: DecodedInstruction, statement: syntax.Statement, names: SymbolTable, holder: Register
    ) -> None:
        """Bind a call by address to the functions that match: those in its table, or all whose address is taken."""
        rest = list(statement.operands)
        results = _take_group(rest)
        rest.pop(0)
        arguments = _take_group(rest)
        listed = rest[0].text if len(rest) == 1 and isinstance(rest[0], syntax.SymbolRef) else ""
        table = names.tables.get(listed)
        candidates = self.graph.addressed if table is None else table
        operands = tuple(self.operand(operand, names, statement) for operand in (*arguments, *results))
        fitting = [
            function
            for function in (self.functions.get(name) for name in candidates)
            if function is not None
            and function.body is not None
            and (len(function.results), len(function.parameters)) == (len(results), len(arguments))
            and self.fits(operands, formal_sizes(function))
        ]
        calls = []
        for function in fitting:
            call = DecodedInstruction(statement.line, inst.opcode)
            self.call_function(call, function, operands)
            calls.append(call)
        addresses = tuple(self.variables.function_address(function.name) or 0 for function in fitting)
        inst.action = IndirectCall(addresses)
        inst.sources = (holder,)
        self.indirect_calls.append((len(self.instructions), calls))

    # --- operands

    def operand(self, node: syntax.OperandSyntax, names: SymbolTable, statement: syntax.Statement) -> PtxOperand:
        """Decode one operand, looking up its names."""
        if isinstance(node, syntax.IntegerLiteral):
            return Immediate(node.value)
        if isinstance(node, FloatLiteral):
            return Immediate(node)
        if isinstance(node, syntax.BracedList):
            return VectorOperand(tuple(self.operand(reg, names, statement) for reg in node.items))
        if isinstance(node, syntax.NegatedPredicate):
            predicate = names.find(node.name.text)
            if not isinstance(predicate, Register) or predicate.bits != 1:
                raise PtxError(statement.line, f"expected a predicate after !, got {node.name}")
            return Register(predicate.index, 1, predicate.name, negated=True)
        if isinstance(node, syntax.Address):
            return self.place(node, names, statement)
        if isinstance(node, syntax.SymbolRef):
            return self.named(node, names, statement)
        raise PtxError(statement.line, f"expected a register, a number or an address, got {node}")

    def named(self, ref: syntax.SymbolRef, names: SymbolTable, statement: syntax.Statement) -> PtxOperand:
        """Decode a single name: a register, a variable's address, a special register or the discarded result."""
        if ref.text == "_":
            return Discard()
        symbol = names.find(ref.text)
        if isinstance(symbol, Register) and ref.offset:
            return self.sum_of(symbol, ref.offset, statement)
        if isinstance(symbol, MemoryOperand):
            return MemoryOperand(symbol.base, symbol.offset + ref.offset, symbol.space, ref.text)
        if symbol is not None:
            return symbol
        if is_special(ref.text):
            return SpecialRegister(ref.text)
        address = self.variables.function_address(ref.text)
        if address is not None:
            return Immediate(address + ref.offset)
        hint = self.variables.hint(ref.text)
        raise PtxError(statement.line, f"expected a declared name, got {quote(ref.text)}{hint}")

    def sum_of(self, register: Register, offset: int, statement: syntax.Statement) -> Register:
        """Emit an add for an operand of the form register + constant, as ptxas does, and return its result."""
        if register.bits not in {16, 32, 64}:
            raise PtxError(statement.line, f"expected a register or a number, got {register.name}{offset:+d}")
        result = self.variables.register(f"{register.name}{offset:+d}", register.bits)
        self.instructions.append(
            DecodedInstruction(
                statement.line,
                find(f"add.s{register.bits}", 3),
                results=(result,),
                sources=(register, Immediate(offset)),
                text=str(statement),
            )
        )
        return result

    def place(self, address: syntax.Address, names: SymbolTable, statement: syntax.Statement) -> PtxOperand:
        """Decode a memory address."""
        if isinstance(address.base, syntax.IntegerLiteral):
            return MemoryOperand(None, address.base.value)
        base = names.find(address.base.text)
        if isinstance(base, Register):
            return MemoryOperand(base, address.base.offset)
        if isinstance(base, MemoryOperand):
            return MemoryOperand(base.base, base.offset + address.base.offset, base.space, address.base.text)
        hint = self.variables.hint(address.base.text)
        raise PtxError(statement.line, f"expected a register or a variable in brackets, got {address}{hint}")


def formal_sizes(function: syntax.FunctionDecl) -> list[int]:
    """Return the sizes in bytes of a function's parameters, followed by the sizes of its results."""
    return [size_of(formal) for formal in (*function.parameters, *function.results)]


def _take_group(operands: list[syntax.OperandSyntax]) -> tuple[syntax.OperandSyntax, ...]:
    """Remove a leading parenthesised list from the operands and return it, or () if there is none."""
    if operands and isinstance(operands[0], syntax.ArgumentList):
        group = operands.pop(0)
        return group.items if isinstance(group, syntax.ArgumentList) else ()
    return ()
