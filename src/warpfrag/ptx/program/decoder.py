"""From what was read to what is run: names become numbers, statements steps.

Labels get places; where variables lie, `variables` says. Functions are decoded when the first call of them is met.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from warpfrag.errors import PtxError, quote
from warpfrag.ptx.interpreter.special_registers import is_special
from warpfrag.ptx.opcodes.table import find
from warpfrag.ptx.program import state_spaces
from warpfrag.ptx.program.actions import (
    Across,
    Action,
    Atomic,
    Branch,
    Call,
    IndirectCall,
    Leave,
    Load,
    Matrix,
    MemoryBarrier,
    Move,
    Pure,
    Refused,
    Store,
    SystemCall,
)
from warpfrag.ptx.program.call_graph import CallGraph
from warpfrag.ptx.program.program import (
    Constant,
    Copy,
    Operand,
    Place,
    Program,
    Register,
    Sink,
    Special,
    Step,
    Vector,
)
from warpfrag.ptx.program.variables import Names, Variables, parameters_of, size_of
from warpfrag.ptx.reader.syntax import (
    Address,
    Braced,
    Either,
    Float,
    Function,
    Group,
    Integer,
    Label,
    Name,
    Negation,
    Scope,
    Source,
    Statement,
    Variable,
)

if TYPE_CHECKING:
    from warpfrag.ptx.program.actions import Space
    from warpfrag.ptx.reader import syntax

MOST_LOCAL = 512 * 1024  # bytes of a thread, as on every GPU
MOST_FRAMES = 512  # of functions that call themselves
FRAMES_BYTES = 64 * 1024  # what all of them take, unless one is larger
STACK_BYTES = 16 * 1024  # for alloca
SYSTEM = {"vprintf", "__assertfail", "malloc", "free"}  # functions that every GPU's driver brings


def decode(source: Source, entry: str) -> Program:
    """Decode an entry and all that it calls."""
    functions = {function.name: function for function in source.functions if not function.is_entry}
    functions |= {function.name: function for function in source.functions if function.body}
    functions |= {other: functions[name] for other, name in source.aliases.items() if name in functions}
    found = functions.get(entry)
    if found is None or not found.is_entry:
        names = ", ".join(function.name for function in source.functions if function.is_entry) or "none"
        raise PtxError(0, f"expected one of the entries ({names}), got {quote(entry)}")
    return Decoder(source, functions, found).run()


class Decoder:
    """Decodes one entry; functions are decoded when the first call of them is met."""

    def __init__(self, source: Source, functions: dict[str, Function], entry: Function) -> None:
        """Nothing is decoded yet; the variables of the module have their places."""
        self.source, self.functions, self.entry = source, functions, entry
        self.graph = CallGraph(source)
        self.variables = Variables(source, functions, self.graph, entry.name)
        self.steps: list[Step] = []
        self.pending: list[tuple[int, list[list[int]], int]] = []
        self.called: dict[str, tuple[int, Function, Names]] = {}
        self.by_address: list[int] = []  # the calls of functions by their address
        self.waiting_frames: list[tuple[Step, str]] = []  # calls that may come back, and their callers
        self.allocates: set[str] = set()  # functions with an alloca

    def run(self) -> Program:
        """The program."""
        parameters, total = parameters_of(self.entry)
        outer = Names(self.variables.module)
        for parameter in parameters:
            outer.known[parameter.name] = Place(None, parameter.offset, "param", parameter.name)
        self.function(self.entry, outer)
        while waiting := [name for name, (start, _, _) in self.called.items() if start < 0]:
            for name in waiting:
                _, function, names = self.called[name]
                self.called[name] = (len(self.steps), function, names)
                self.function(function, names)
        for step, caller in self.waiting_frames:  # all registers of the callers are known now
            step.saves, step.deepens = tuple(self.variables.owned[caller]), True
        leaders = self.link()
        start = self.variables.place_dynamic()
        self._fill_dynamic(start)
        self.variables.initialise()
        local = self.frames() * self.variables.local  # which frames() has rounded up
        if self.allocates:
            local = self._place_stack(local)
        if self.variables.local > MOST_LOCAL:
            raise PtxError(
                self.entry.line, f"expected at most {MOST_LOCAL} bytes of local memory, got {self.variables.local}"
            )
        return Program(
            self.entry.name,
            self.source.target,
            self.steps,
            self.variables.bits,
            parameters,
            total,
            self.variables.shared - state_spaces.SHARED_START,
            start,
            self.variables.has_dynamic,
            local,
            self.variables.frame,
            self.variables.local,
            self.entry.directives,
            self.variables.values,
            leaders,
        )

    def frames(self) -> int:
        """How many frames local memory holds: one, unless functions call themselves."""
        if not any(step.deepens for step in self.steps):
            return 1
        self.variables.local = max(16, -(-self.variables.local // 16) * 16)
        return max(16, min(MOST_FRAMES, FRAMES_BYTES // self.variables.local))

    def link(self) -> set[int]:
        """Fill in the targets of branches and calls; the starts of blocks."""
        leaders = {0}
        for at, targets, _line in self.pending:
            self.steps[at].targets = tuple(target[0] for target in targets)
        for at in self.by_address:
            self.link_by_address(at)
        for at, step in enumerate(self.steps):
            if isinstance(step.action, Call):
                step.targets = (self.called[step.text][0],)
            if isinstance(step.action, Branch | Call | IndirectCall):
                leaders.update(step.targets)
            if step.action.ends_block:
                leaders.add(at + 1)
        return leaders

    def _place_stack(self, start: int) -> int:
        """Put what alloca gives behind all else; the end of local memory. A function's part ends with it."""
        start = -(-start // 16) * 16
        for step in self.steps:
            if step.name.startswith("alloca."):
                step.sources = (*step.sources[:-1], Constant(start))
            elif isinstance(step.action, Call) and step.text in self.allocates:
                step.saves = (*step.saves, self.variables.stack)
        return start + STACK_BYTES

    def link_by_address(self, at: int) -> None:
        """Give a call by address a call of each function that it may reach, with a branch back behind it."""
        step = self.steps[at]
        action = step.action
        if not isinstance(action, IndirectCall):
            return
        for call in action.calls:
            step.targets = (*step.targets, len(self.steps))
            back = Step(step.line, "bra", *find("bra", 1), None, targets=(at + 1,), text=step.text)
            self.steps += [call, back]

    # --- functions

    def function(self, function: Function, names: Names) -> None:
        """Decode the body of a function."""
        if function.body is None:
            raise PtxError(function.line, f"expected a body of {function.name}")
        self.variables.current = function.name
        self.scope(function.body, names)
        last = self.steps[-1] if self.steps else None
        if last is None or last.guard is not None or not isinstance(last.action, Leave):
            self.steps.append(Step(function.line, "ret", *find("ret", 0), None, text="the end of the body"))

    def scope(self, scope: Scope, names: Names) -> None:
        """Decode a body in braces."""
        for item in scope.items:  # a branch may lead to a label that comes later
            if isinstance(item, Label):
                if item.name in names.labels or item.name in names.tables:
                    raise PtxError(item.line, f"expected one label {item.name}, got a second")
                if item.targets:
                    names.tables[item.name] = item.targets
                else:
                    names.labels[item.name] = [-1]
        for item in scope.items:
            if isinstance(item, Variable):
                self.variables.declare(item, names)
            elif isinstance(item, Scope):
                self.scope(item, Names(names))
            elif isinstance(item, Label):
                if not item.targets:
                    names.labels[item.name][0] = len(self.steps)
            else:
                self.steps.append(self.step(item, names))

    def step(self, statement: Statement, names: Names) -> Step:
        """Decode an instruction."""
        opcode = statement.opcode
        if opcode.startswith("cvta.param") and self.variables.current != self.entry.name:
            opcode = opcode.replace(".param", ".local")  # where the parameters of functions lie
        row, action = find(opcode, len(statement.operands))
        guard = None
        if statement.guard is not None:
            found = names.known.find(statement.guard.text)
            if not isinstance(found, Register) or found.bits != 1:
                raise PtxError(statement.line, f"expected a predicate after @, got {statement.guard}")
            guard = Register(found.index, 1, found.name, statement.negated)
        step = Step(statement.line, opcode, row, action, guard, text=str(statement))
        if isinstance(action, Refused):
            return step
        if isinstance(action, Branch):
            self.branch(step, statement, names)
        elif isinstance(action, Call):
            self.call(step, statement, names)
        else:
            self.operands(step, statement, names)
        return step

    def operands(self, step: Step, statement: Statement, names: Names) -> None:
        """Results and sources of everything but branches and calls."""
        action = step.action
        given = list(statement.operands)
        if given and has_result(action):
            first = given.pop(0)
            pair = (first.first, first.second) if isinstance(first, Either) else (first,)
            step.results = tuple(self.operand(one, names, statement) for one in pair)
        step.sources = tuple(self.operand(one, names, statement) for one in given)
        if isinstance(action, Pure) and row_has_carry(step):
            if (
                step.name.split(".", maxsplit=1)[0].endswith("c")
                and step.row
                and step.row.opcode in {"addc", "subc", "madc"}
            ):
                step.sources = (*step.sources, self.variables.carry)
            if ".cc" in step.name:
                step.results = (*step.results, self.variables.carry)
        if step.row is not None and step.row.opcode in {"alloca", "stacksave", "stackrestore"}:
            self.use_stack(step)
        if isinstance(action, Pure | Across):
            self.check(step, statement)
        if isinstance(action, Move):
            self.move_vector(step, statement)
        if isinstance(action, Load | Store | Atomic) and action.space == "generic":
            place = step.sources[0]
            if isinstance(place, Place) and place.space in state_spaces.WINDOWS:  # a variable says where it is
                step.action = replace(action, space=cast("Space", place.space))
        if isinstance(action, Load | Store) and action.space == "param":
            place = next(one for one in (*step.results, *step.sources) if isinstance(one, Place))
            if place.space == "local" or (place.base is not None and self.variables.current != self.entry.name):
                step.action = (
                    Load("local", action.type, action.count)
                    if isinstance(action, Load)
                    else Store("local", action.type, action.count)
                )

    def use_stack(self, step: Step) -> None:
        """alloca, stacksave and stackrestore read or write how much of the stack is taken."""
        if step.name.startswith("alloca."):
            self.allocates.add(self.variables.current)
            align = step.sources[1] if len(step.sources) > 1 else Constant(8)
            step.results = (*step.results, self.variables.stack)
            step.sources = (*step.sources[:1], align, self.variables.stack, Constant(0))
        elif step.name.startswith("stacksave."):
            step.sources = (self.variables.stack,)
        else:
            step.results, step.sources = (self.variables.stack,), step.results

    def move_vector(self, step: Step, statement: Statement) -> None:
        """A move from vector to vector: one move for each register, by way of others, since both may share some."""
        target, source = step.results[0], step.sources[0] if step.sources else None
        if not (isinstance(target, Vector) and isinstance(source, Vector)):
            return
        bits = {one.bits for one in target.items if isinstance(one, Register)}
        if len(target.items) != len(source.items) or len(bits) != 1:
            raise PtxError(statement.line, f"expected as many registers of one size on both sides, got {statement}")
        name = f"mov.b{bits.pop()}"
        kept = [self.variables.register("", int(name[5:])) for _ in source.items]
        pairs = [*zip(kept, source.items, strict=True), *zip(target.items, kept, strict=True)]
        row, action = find(name, 2)
        moves = [Step(step.line, name, row, action, step.guard, (to,), (one,), text=step.text) for to, one in pairs]
        self.steps += moves[:-1]
        step.name, step.row, step.action = name, row, action
        step.results, step.sources = moves[-1].results, moves[-1].sources

    def check(self, step: Step, statement: Statement) -> None:
        """Refuse too many operands, or too few."""
        action = step.action
        if not isinstance(action, Pure | Across):
            return
        if step.row is not None and step.row.any_words:
            step.sources = ()
            return
        if len(step.sources) != len(action.sources) or not 1 <= len(step.results) <= len(action.results):
            want = f"{len(action.sources)} sources"
            raise PtxError(statement.line, f"expected a result and {want} for {statement.opcode}, got {statement}")
        for result in step.results:
            if not isinstance(result, Register | Sink):
                raise PtxError(
                    statement.line, f"expected a register as the result of {statement.opcode}, got {statement}"
                )
        for kind, one in zip(action.sources, step.sources, strict=True):
            if kind is None and not isinstance(one, Constant):
                raise PtxError(statement.line, f"expected a constant in {statement}")
            if isinstance(one, (Sink, Vector)):
                raise PtxError(statement.line, f"expected a register or a number as a source in {statement}")

    def branch(self, step: Step, statement: Statement, names: Names) -> None:
        """Targets of a branch; they are known when all is read."""
        wanted: list[str] = []
        given = statement.operands
        action = step.action
        if isinstance(action, Branch) and action.indexed:
            table = names.tables.find(given[1].text) if len(given) == 2 and isinstance(given[1], Name) else None
            if table is None:
                raise PtxError(statement.line, f"expected an index and a table of targets, got {statement}")
            step.sources = (self.operand(given[0], names, statement),)
            wanted += table
        elif len(given) == 1 and isinstance(given[0], Name):
            wanted.append(given[0].text)
        else:
            raise PtxError(statement.line, f"expected a label, got {statement}")
        places = []
        for name in wanted:
            place = names.labels.find(name)
            if place is None:
                raise PtxError(statement.line, f"expected a label, got {quote(name)}, which is nowhere")
            places.append(place)
        self.pending.append((len(self.steps), places, statement.line))

    def call(self, step: Step, statement: Statement, names: Names) -> None:
        """The function that is called, and how its parameters and results are copied."""
        given = list(statement.operands)
        results = _take_group(given)
        name = given.pop(0) if given else None
        arguments = _take_group(given)
        holder = names.known.find(name.text) if isinstance(name, Name) else None
        if isinstance(holder, Register):
            self.call_by_address(step, statement, names, holder)
            return
        function = self.functions.get(name.text) if isinstance(name, Name) else None
        if function is not None and function.body is None and function.name in SYSTEM and not given:
            step.action = SystemCall(function.name)
            step.results = tuple(self.operand(one, names, statement) for one in results)
            step.sources = tuple(self.operand(one, names, statement) for one in arguments)
            return
        if function is None or function.body is None or given:
            what = str(name) if name is not None else "nothing"
            step.action = Refused(f"call of {what}: only functions with a body in this module are modelled")
            return
        if len(results) != len(function.results) or len(arguments) != len(function.parameters):
            raise PtxError(statement.line, f"expected the parameters of {function.name}, got {statement}")
        self.call_function(step, function, [self.operand(one, names, statement) for one in (*arguments, *results)])

    def call_function(self, step: Step, function: Function, given: list[Operand]) -> None:
        """Copy operands of a caller, arguments and then results, to and from the parameters of a function."""
        if function.name not in self.called:
            inner, caller = Names(self.variables.module), self.variables.current
            self.variables.current = function.name
            for variable in (*function.results, *function.parameters):
                self.variables.declare(variable, inner)
            self.variables.current = caller
            self.called[function.name] = (-1, function, inner)
        inner = self.called[function.name][2]
        step.text = function.name
        formals = [(one, inner.known[one.name]) for one in (*function.parameters, *function.results)]
        copies = [(outer, own, size_of(formal)) for outer, (formal, own) in zip(given, formals, strict=True)]
        count = len(function.parameters)
        step.copies = tuple(Copy(outer, own, size) for outer, own, size in copies[:count])
        step.returns = tuple(Copy(own, outer, size) for outer, own, size in copies[count:])
        if self.graph.comes_back(self.variables.current, function.name):
            self.waiting_frames.append((step, self.variables.current))

    def call_by_address(self, step: Step, statement: Statement, names: Names, holder: Register) -> None:
        """Every function that a register may hold the address of: those of a table, or all that fit."""
        given = list(statement.operands)
        results = _take_group(given)
        given.pop(0)
        arguments = _take_group(given)
        listed = given[0].text if len(given) == 1 and isinstance(given[0], Name) else ""
        table = names.tables.find(listed)
        wanted = self.graph.addressed if table is None else table
        fitting = [
            function
            for function in (self.functions.get(name) for name in wanted)
            if function is not None
            and function.body is not None
            and (len(function.results), len(function.parameters)) == (len(results), len(arguments))
        ]
        operands = [self.operand(one, names, statement) for one in (*arguments, *results)]
        calls = []
        for function in fitting:
            call = Step(statement.line, step.name, step.row, Call(), None)
            self.call_function(call, function, operands)
            calls.append(call)
        addresses = tuple(self.variables.function_address(function.name) or 0 for function in fitting)
        step.action = IndirectCall(addresses, tuple(calls))
        step.sources = (holder,)
        self.by_address.append(len(self.steps))

    # --- operands

    def operand(self, given: syntax.Operand, names: Names, statement: Statement) -> Operand:
        """One operand, its names looked up."""
        if isinstance(given, Integer):
            return Constant(given.value)
        if isinstance(given, Float):
            return Constant(given)
        if isinstance(given, Braced):
            return Vector(tuple(self.operand(item, names, statement) for item in given.items))
        if isinstance(given, Negation):
            found = names.known.find(given.name.text)
            if not isinstance(found, Register) or found.bits != 1:
                raise PtxError(statement.line, f"expected a predicate after !, got {given.name}")
            return Register(found.index, 1, found.name, negated=True)
        if isinstance(given, Address):
            return self.place(given, names, statement)
        if isinstance(given, Name):
            return self.named(given, names, statement)
        raise PtxError(statement.line, f"expected a register, a number or an address, got {given}")

    def named(self, given: Name, names: Names, statement: Statement) -> Operand:
        """A name on its own: a register, a variable's address, a special register or the sink."""
        if given.text == "_":
            return Sink()
        found = names.known.find(given.text)
        if isinstance(found, Register) and given.offset:
            return self.sum_of(found, given.offset, statement)
        if isinstance(found, Place):
            return Place(found.base, found.offset + given.offset, found.space, given.text)
        if found is not None:
            return found
        if is_special(given.text):
            return Special(given.text)
        address = self.variables.function_address(given.text)
        if address is not None:
            return Constant(address + given.offset)
        raise PtxError(statement.line, f"expected a name that is declared, got {quote(given.text)}")

    def sum_of(self, register: Register, offset: int, statement: Statement) -> Register:
        """A register plus a constant where an operand is wanted: an addition of its own, as ptxas makes it."""
        if register.bits not in {16, 32, 64}:
            raise PtxError(statement.line, f"expected a register or a number, got {register.name}{offset:+d}")
        name, result = f"add.s{register.bits}", self.variables.register(f"{register.name}{offset:+d}", register.bits)
        given = (register, Constant(offset))
        self.steps.append(Step(statement.line, name, *find(name, 3), None, (result,), given, text=str(statement)))
        return result

    def place(self, given: Address, names: Names, statement: Statement) -> Operand:
        """An address."""
        if isinstance(given.base, Integer):
            return Place(None, given.base.value)
        found = names.known.find(given.base.text)
        if isinstance(found, Register):
            return Place(found, given.base.offset)
        if isinstance(found, Place):
            return Place(found.base, found.offset + given.base.offset, found.space, given.base.text)
        raise PtxError(statement.line, f"expected a register or a variable in brackets, got {given}")

    def _fill_dynamic(self, start: int) -> None:
        """Put the address of dynamic shared memory where it was left open."""

        def filled(operand: Operand) -> Operand:
            if isinstance(operand, Place) and operand.space == "dynamic":
                return Place(operand.base, operand.offset + 1 + start, "shared", operand.name)
            if isinstance(operand, Vector):
                return Vector(tuple(filled(item) for item in operand.items))
            return operand

        for step in self.steps:
            step.results = tuple(filled(one) for one in step.results)
            step.sources = tuple(filled(one) for one in step.sources)


def _take_group(given: list[syntax.Operand]) -> tuple[syntax.Operand, ...]:
    """The operands in the parentheses that come first, if they do."""
    if given and isinstance(given[0], Group):
        group = given.pop(0)
        return group.items if isinstance(group, Group) else ()
    return ()


def row_has_carry(step: Step) -> bool:
    """Whether a step reads or writes the carry."""
    return step.row is not None and (step.row.opcode in {"addc", "subc", "madc"} or "cc" in step.row.required)


def has_result(action: Action) -> bool:
    """Whether the first operand is a result."""
    if isinstance(action, Pure | Move | Load | Across):
        return True
    if isinstance(action, Atomic):
        return action.returns
    if isinstance(action, MemoryBarrier):
        return action.name in {"test_wait", "try_wait", "pending_count", "arrive", "arrive_drop"}
    if isinstance(action, Matrix):
        return action.operation != "stmatrix" and "store" not in action.name
    return bool(getattr(action, "reduction", ""))
