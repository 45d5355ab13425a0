"""The syntax tree of a PTX module; opcodes are not interpreted here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from warpfrag.machine.ir.program import FloatLiteral


@dataclass(frozen=True, slots=True)
class SymbolRef:
    """A reference to a register, variable, label or function, plus a constant offset."""

    text: str
    offset: int = 0

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"{self.text}{self.offset:+d}" if self.offset else self.text


@dataclass(frozen=True, slots=True)
class MaskedAddress:
    """Part of an address, used as an initial value, as in 0xFF00(x)."""

    name: SymbolRef
    mask: int

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"{self.mask:#x}({self.name})"

    def of(self, address: int) -> int:
        """Return the bits of an address that the mask selects, shifted down."""
        return (address & self.mask) // (self.mask & -self.mask) if self.mask else 0


@dataclass(frozen=True, slots=True)
class IntegerLiteral:
    """An integer constant; only the operators of constant expressions use `is_unsigned`."""

    value: int
    is_unsigned: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        """Return the literal in decimal, for messages."""
        return str(self.value)


@dataclass(frozen=True, slots=True)
class NegatedPredicate:
    """A negated predicate, as in !%p."""

    name: SymbolRef

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"!{self.name}"


@dataclass(frozen=True, slots=True)
class NegatedRegister:
    """A negated source of vmad, as in -%r1.h0."""

    name: SymbolRef

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"-{self.name}"


@dataclass(frozen=True, slots=True)
class BracedList:
    """A vector of operands, as in {%r1, %r2}."""

    items: tuple[OperandSyntax, ...]

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"{{{', '.join(map(str, self.items))}}}"


@dataclass(frozen=True, slots=True)
class ArgumentList:
    """The operands of a call in parentheses, as in (param0, param1)."""

    items: tuple[OperandSyntax, ...]

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class ResultPair:
    """Two results separated by a bar, as in %p|%q."""

    first: OperandSyntax
    second: OperandSyntax

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"{self.first}|{self.second}"


@dataclass(frozen=True, slots=True)
class Address:
    """A memory address, [base + offset], with coordinates if it is a tensor address."""

    base: SymbolRef | IntegerLiteral
    coordinates: tuple[OperandSyntax, ...] = ()

    def __str__(self) -> str:
        """Return the PTX spelling."""
        return f"[{', '.join(map(str, (self.base, *self.coordinates)))}]"


OperandSyntax = (
    SymbolRef
    | IntegerLiteral
    | FloatLiteral
    | NegatedPredicate
    | NegatedRegister
    | BracedList
    | ArgumentList
    | ResultPair
    | Address
)


class Statement(NamedTuple):
    """An instruction: its opcode with qualifiers, its operands and its guard."""

    line: int
    opcode: str
    operands: tuple[OperandSyntax, ...]
    guard: SymbolRef | None = None
    negated: bool = False

    @property
    def mnemonic(self) -> str:
        """The opcode without types and modifiers, such as call for call.uni."""
        return self.opcode.partition(".")[0]

    def __str__(self) -> str:
        """Return the PTX spelling."""
        guard = f"@{'!' * self.negated}{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(map(str, self.operands))}".rstrip()


@dataclass(frozen=True, slots=True)
class Label:
    """A label for an instruction, or a table of branch targets."""

    line: int
    name: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VariableDecl:
    """A declaration of a register, a parameter or a variable in memory, or of `count` registers name0, name1, ..."""

    line: int
    name: str
    space: str
    type: str
    vector: int = 1
    dims: tuple[int, ...] | None = None  # None for a scalar; an extent of 0 means that no length is given
    align: int = 0
    pointer: bool = False
    linkage: str = ""
    initial: tuple[OperandSyntax | MaskedAddress, ...] = ()
    count: int | None = None


class Scope:
    """A body in braces: declarations, labels, instructions and nested bodies, in order.

    Instead of the contents, the caller may pass a function that parses them on first use.
    """

    def __init__(self, items: ScopeItems = (), read: Callable[[], ScopeItems] | None = None) -> None:
        """Create a body from its contents, or from a function that parses them."""
        self._items, self._read = items, read

    @property
    def items(self) -> ScopeItems:
        """The contents of the body."""
        read = self._read
        if read is not None:
            self._items = read()
            self._read = None
        return self._items

    def __eq__(self, other: object) -> bool:
        """Return True if both bodies have equal contents."""
        return isinstance(other, Scope) and self.items == other.items

    def __hash__(self) -> int:
        """Return the hash of the contents."""
        return hash(self.items)

    def __repr__(self) -> str:
        """Format the contents of the body."""
        return f"Scope({self.items!r})"


ScopeItems: TypeAlias = "tuple[Statement | Label | VariableDecl | Scope, ...]"


@dataclass(frozen=True, slots=True)
class FunctionDecl:
    """An entry or a function; a mere declaration has no body."""

    line: int
    name: str
    is_entry: bool
    parameters: tuple[VariableDecl, ...]
    results: tuple[VariableDecl, ...] = ()
    linkage: str = ""
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    body: Scope | None = None


@dataclass(frozen=True, slots=True)
class ModuleSyntax:
    """A parsed module."""

    version: tuple[int, int]
    target: str
    address_size: int
    variables: tuple[VariableDecl, ...]
    functions: tuple[FunctionDecl, ...]
    aliases: dict[str, str] = field(default_factory=dict)  # function aliases, with the functions that they stand for
    is_debug: bool = False  # True for a debug module, which the assembler does not optimize
