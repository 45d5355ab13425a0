"""The call graph of a module: recursive functions need a frame for each call.

A call by address may reach every function whose address is taken, in an initial value or by an instruction.
"""

from collections.abc import Iterator
from functools import cached_property

from warpfrag.ptx.reader.syntax import FunctionDecl, MaskedAddress, ModuleSyntax, Scope, Statement, SymbolRef


def statements(scope: Scope) -> Iterator[Statement]:
    """Yield every instruction of a body, including nested scopes."""
    for node in scope.items:
        if isinstance(node, Scope):
            yield from statements(node)
        elif isinstance(node, Statement):
            yield node


def callee_of(statement: Statement) -> SymbolRef | None:
    """Return the callee operand of a call: the name of a function, or a register that holds an address."""
    return next((operand for operand in statement.operands if isinstance(operand, SymbolRef)), None)


class CallGraph:
    """The functions of a module that have a body, and the calls between them."""

    def __init__(self, source: ModuleSyntax) -> None:
        """Create the graph; calls are analysed on first use, because most kernels have none."""
        self.source = source
        self.known: dict[str, bool] = {}  # keyed by name: True if the function is recursive
        self.called: dict[str, set[str]] = {}
        self.names = {function.name for function in source.functions}
        self.bodies: dict[str, FunctionDecl] = {
            function.name: function for function in source.functions if function.body is not None
        }

    @cached_property
    def addressed(self) -> tuple[str, ...]:
        """The functions whose address is taken, in module order."""
        values = [value for variable in self.source.variables for value in variable.initial]
        values = [value.name if isinstance(value, MaskedAddress) else value for value in values]
        named = {value.text for value in values if isinstance(value, SymbolRef)}
        for function in self.bodies.values():
            for statement in statements(function.body) if function.body else ():
                is_call = statement.mnemonic == "call"
                named |= {ref.text for ref in statement.operands if isinstance(ref, SymbolRef) and not is_call}
        return tuple(name for name, function in self.bodies.items() if name in named and not function.is_entry)

    def calls_of(self, caller: str) -> set[str]:
        """Return the names of the functions that a function calls."""
        if caller not in self.called:
            callees: set[str] = set()
            body = self.bodies[caller].body if caller in self.bodies else None
            for statement in statements(body) if body else ():
                callee = callee_of(statement) if statement.mnemonic == "call" else None
                if callee is not None:
                    name = self.source.aliases.get(callee.text, callee.text)
                    callees |= {name} if name in self.names else set(self.addressed)
            self.called[caller] = callees
        return self.called[caller]

    def comes_back(self, caller: str, callee: str) -> bool:
        """Return True if a callee may call its caller again, directly or indirectly."""
        reached, queue = {callee}, [callee]
        while queue:
            for other in self.calls_of(queue.pop()):
                if other not in reached:
                    reached.add(other)
                    queue.append(other)
        return caller in reached

    def is_recursive(self, name: str) -> bool:
        """Return True if a function may be active more than once in one thread."""
        if name not in self.known:
            self.known[name] = any(self.comes_back(name, callee) for callee in self.calls_of(name))
        return self.known[name]
