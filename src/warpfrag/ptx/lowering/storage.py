"""Allocate storage for declarations: register numbers, variable addresses, parameter offsets.

A register in a range, `.reg .b32 %r<1000>`, gets a number only when it is first named, so unused registers cost
nothing.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Literal

from warpfrag.errors import PtxError, quote
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.ir.program import (
    FloatLiteral,
    Immediate,
    MemoryOperand,
    ModuleVariable,
    Parameter,
    Register,
    VectorOperand,
)
from warpfrag.machine.ir.scalar_types import TYPES, Type
from warpfrag.ptx.lowering.call_graph import CallGraph
from warpfrag.ptx.reader.syntax import (
    FunctionDecl,
    IntegerLiteral,
    MaskedAddress,
    ModuleSyntax,
    OperandSyntax,
    SymbolRef,
    VariableDecl,
)

FUNCTION_BYTES = 16  # the distance between the addresses of functions
MAX_DIGITS = 9  # maximum number of digits in a register number
VECTOR_PARTS = "xyzw"
MAX_VECTOR = 16  # maximum size of a vector in bytes
MAX_VARIABLES = 1 << 30  # maximum size of a module's variables in bytes
MAX_CONSTANTS = 64 * 1024  # maximum size of .const variables in bytes, on every GPU
MAX_PARAMETERS = 32764  # maximum size of an entry's parameters in bytes, on every GPU
MAX_LOCAL = 512 * 1024  # maximum size of local memory per thread in bytes, on every GPU
MAX_STATIC = 1 << 20  # maximum size of static shared memory in bytes; a launch checks the GPU's own limit
VALUES = {"f": (FloatLiteral,), "b": (IntegerLiteral, FloatLiteral), "u": (IntegerLiteral,), "s": (IntegerLiteral,)}
"""The types of constants that may initialise a variable, by type category."""


class SymbolTable:
    """The names in a scope: registers, variables, labels and label tables; names of the `outer` scope are visible.

    A register in a range is declared when it is first looked up.
    """

    def __init__(self, outer: SymbolTable | None = None) -> None:
        """Create an empty scope."""
        self.outer = outer
        self.symbols: dict[str, Register | MemoryOperand | VectorOperand] = {}
        # keyed by name prefix: a function that declares one register of the range
        self.ranges: dict[str, Callable[[str, int], None]] = {}
        # instruction indices are filled in later
        self.labels: ChainMap[str, list[int]] = outer.labels.new_child() if outer else ChainMap()
        self.tables: ChainMap[str, tuple[str, ...]] = outer.tables.new_child() if outer else ChainMap()

    def find(self, name: str) -> Register | MemoryOperand | VectorOperand | None:
        """Return a register or variable from the innermost scope that declares it."""
        scope: SymbolTable | None = self
        while scope is not None:
            if name not in scope.symbols and scope.ranges:
                scope.declare_member(name.partition(".")[0])  # %v1.x is an element of the vector %v1
            if name in scope.symbols:
                return scope.symbols[name]
            scope = scope.outer
        return None

    def declare_member(self, name: str) -> None:
        """Declare a register if its name belongs to a range of this scope."""
        for at in range(len(name) - 1, 0, -1):
            if not name[at].isdecimal():
                break
            if name[:at] in self.ranges and (name[at] != "0" or at == len(name) - 1) and name not in self.symbols:
                self.ranges[name[:at]](name, int(name[at:][:MAX_DIGITS]))


class StorageAllocator:
    """Allocates storage for a module's variables and for those in the functions of one entry, as they are declared."""

    def __init__(self, source: ModuleSyntax, functions: dict[str, FunctionDecl], graph: CallGraph, entry: str) -> None:
        """Create the allocator and lay out the module's variables."""
        self.functions, self.graph = functions, graph
        self.current = entry  # the function whose declarations are being read
        self.bits: list[int] = []
        self.owned: dict[str, list[Register]] = {}  # the registers of each function
        self.shared = state_spaces.SHARED_START
        self.shared_align = 16
        self.has_dynamic = False
        self.dynamic: list[tuple[SymbolTable, VariableDecl]] = []
        self.local = 0
        self.sizes: dict[int, int] = {}  # the size of each variable in local memory, by address
        self.memory_map = state_spaces.GLOBAL_MEMORY_MAPS[source.address_size]
        self.next_address = {"constants": self.memory_map.constants, "variables": self.memory_map.variables}
        self.used_bytes = dict.fromkeys(self.next_address, 0)
        self.external: set[str] = set()  # variables that are declared but not yet defined
        # variables in global and constant memory, by name; those of a function body, by function and name
        self.values: dict[str, ModuleVariable] = {}
        self.waiting: list[tuple[VariableDecl, str]] = []
        self.carry = self.register("%cc", 1)
        self.frame = self.register("%frame", 64)
        self.stack = self.register("%stack", 64)
        self.module = SymbolTable()
        defined = {variable.name for variable in source.variables if variable.linkage != "extern"}
        self.undefined: set[str] = set()
        for variable in source.variables:
            if variable.linkage != "extern" or variable.space.startswith("shared"):
                self.declare(variable, self.module)
            elif variable.name not in defined:
                self.undefined.add(variable.name)

    def register(self, name: str, bits: int) -> Register:
        """Return a new register with this name and width."""
        self.bits.append(bits)
        register = Register(len(self.bits) - 1, bits, name)
        self.owned.setdefault(self.current, []).append(register)
        return register

    def declare(self, variable: VariableDecl, names: SymbolTable) -> None:
        """Allocate storage for a variable."""
        known = names.ranges if variable.count is not None else names.symbols
        if variable.name in known:
            if variable.linkage == "extern":
                return  # its definition has already been read
            if variable.name not in self.external:
                raise PtxError(variable.line, f"duplicate declaration of {quote(variable.name)}")
        if variable.linkage == "extern":
            self.external.add(variable.name)
        else:
            self.external.discard(variable.name)
        if variable.space == "reg":
            self._declare_register(variable, names)
            return
        if variable.type not in TYPES:
            return  # textures and samplers need no storage; instructions that use them are rejected
        size, align = size_of(variable), alignment_of(variable)
        if variable.vector > 1 and size > MAX_VECTOR * prod(variable.dims or (1,)):
            msg = f"expected a vector of at most {MAX_VECTOR} bytes, got {quote(variable.name)}"
            raise PtxError(variable.line, msg)
        if variable.space.startswith("shared"):
            self._declare_shared(variable, names, size, align)
        elif variable.space in {"local", "param"}:
            self.local = _aligned(self.local, align)
            base = self.frame if self.graph.is_recursive(self.current) else None
            names.symbols[variable.name] = MemoryOperand(base, self.local, "local", variable.name)
            if size:
                self.sizes[self.local] = size
            self.local = self._grown("local", self.local, size, MAX_LOCAL, variable)
        else:
            self._declare_global(variable, names, size, align)

    def _declare_register(self, variable: VariableDecl, names: SymbolTable) -> None:
        """Declare a register, a range of registers, a vector, or the halves of a 128-bit register."""
        kind = TYPES.get(variable.type)
        if kind is None:
            raise PtxError(variable.line, f"expected the type of a register, got .{quote(variable.type)[1:-1]}")
        if variable.count is not None:
            self.declare_range(variable, variable.count, names)
        elif kind.bits == 128:  # two 64-bit registers, the low half first
            names.symbols[variable.name] = VectorOperand(
                tuple(self.register(f"{variable.name}.{half}", 64) for half in ("low", "high"))
            )
        elif variable.vector > 1:
            if variable.vector > len(VECTOR_PARTS):
                raise PtxError(variable.line, f"expected a vector of at most 4 registers, got {quote(variable.name)}")
            suffixes = VECTOR_PARTS[: variable.vector]
            parts = tuple(self.register(f"{variable.name}.{suffix}", kind.bits) for suffix in suffixes)
            names.symbols[variable.name] = VectorOperand(parts)
            for part in parts:
                names.symbols[part.name] = part
        else:
            names.symbols[variable.name] = self.register(variable.name, kind.bits)

    def _declare_shared(self, variable: VariableDecl, names: SymbolTable, size: int, align: int) -> None:
        """Declare a static shared variable, or the name of dynamic shared memory."""
        if variable.linkage == "extern" and size == 0:
            self.has_dynamic = True
            self.shared_align = max(self.shared_align, align)
            self.dynamic.append((names, variable))
            names.symbols[variable.name] = MemoryOperand(None, -1, "dynamic", variable.name)
            return
        self.shared = _aligned(self.shared, align)
        names.symbols[variable.name] = MemoryOperand(None, self.shared, "shared", variable.name)
        self.shared = self._grown("static shared", self.shared, size, MAX_STATIC, variable)

    def _declare_global(self, variable: VariableDecl, names: SymbolTable, size: int, align: int) -> None:
        """Declare a variable in global or constant memory; constants have an address range of their own."""
        region: Literal["constants", "variables"] = "constants" if variable.space == "const" else "variables"
        address = self.next_address[region] = _aligned(self.next_address[region], max(align, state_spaces.ALIGNMENT))
        names.symbols[variable.name] = MemoryOperand(None, address, "global", variable.name)
        key = variable.name if names is self.module else f"{self.current}.{variable.name}"
        shape = (*(variable.dims or ()), *((variable.vector,) if variable.vector > 1 else ()))
        self.values[key] = ModuleVariable(address, size, variable.space, variable.type, shape)
        self.waiting.append((variable, key))
        label, limit = ("constant", MAX_CONSTANTS) if region == "constants" else ("global", MAX_VARIABLES)
        self.used_bytes[region] = self._grown(label, self.used_bytes[region], size, limit, variable)
        self.next_address[region] += size + state_spaces.ALIGNMENT
        if self.next_address[region] > self.memory_map.end(region):
            raise PtxError(variable.line, f"{label} memory is full: {quote(variable.name)} does not fit")

    def declare_range(self, variable: VariableDecl, count: int, names: SymbolTable) -> None:
        """Declare a range of registers; each register is allocated on first use."""

        def declare_member(name: str, number: int) -> None:
            if number < count:
                self.declare(replace(variable, name=name, count=None), names)

        names.ranges[variable.name] = declare_member

    @staticmethod
    def _grown(label: str, used: int, size: int, limit: int, variable: VariableDecl) -> int:
        """Return the used size of a memory after adding a variable; raise an error above the limit."""
        if used + size > limit:
            msg = f"expected at most {limit} bytes of {label} memory, got {used + size} with {quote(variable.name)}"
            raise PtxError(variable.line, msg)
        return used + size

    def place_dynamic(self) -> int:
        """Return the address at which dynamic shared memory starts, after all static variables."""
        start = -(-self.shared // self.shared_align) * self.shared_align
        for names, variable in self.dynamic:
            names.symbols[variable.name] = MemoryOperand(None, start, "shared", variable.name)
        return start

    def initialise(self) -> None:
        """Compute the initial bytes of variables, now that all addresses are known."""
        for variable, key in self.waiting:
            size = self.values[key].size
            ptx_type = TYPES[variable.type]
            data = bytearray()
            for value in variable.initial:
                if isinstance(value, SymbolRef | MaskedAddress):
                    name = value.name if isinstance(value, MaskedAddress) else value
                    address = self.address_of(name, variable.line)
                    address = value.of(address) if isinstance(value, MaskedAddress) else address
                    data += (address & ((1 << ptx_type.bits) - 1)).to_bytes(ptx_type.bits // 8, "little")
                else:
                    data += _code(value, variable, ptx_type).to_bytes(max(1, ptx_type.bits // 8), "little")
            if len(data) > size:
                raise PtxError(variable.line, f"expected at most {size} bytes for {variable.name}, got {len(data)}")
            self.values[key] = replace(self.values[key], initial=bytes(data))

    def address_of(self, name: SymbolRef, line: int) -> int:
        """Return the generic address of a module's variable or function."""
        place = self.module.find(name.text)
        if isinstance(place, MemoryOperand):
            window = state_spaces.WINDOWS.get(place.space, 0)
            if window and self.memory_map.code < window:
                raise PtxError(line, f"a 32-bit generic address of {name}, which is .{place.space}, is not modelled")
            return window + place.offset + name.offset
        function = self.function_address(name.text)
        if function is None:
            raise PtxError(line, f"expected a variable or a function as a value, got {name}{self.hint(name.text)}")
        return function + name.offset

    def hint(self, name: str) -> str:
        """Return a hint to append to the message about an undefined name, or an empty string."""
        return ", which is .extern and which no linked module defines" if name in self.undefined else ""

    def function_address(self, name: str) -> int | None:
        """Return the address that stands for a function, which no other function has."""
        if name not in self.functions:
            return None
        return self.memory_map.code + FUNCTION_BYTES * (1 + list(self.functions).index(name))


def _aligned(address: int, align: int) -> int:
    """Return the smallest multiple of `align` that is at least `address`."""
    return -(-address // align) * align


def functions_of(source: ModuleSyntax) -> dict[str, FunctionDecl]:
    """Return the functions and entries of a module by name; a definition replaces its declarations."""
    functions = {function.name: function for function in source.functions if not function.is_entry}
    functions |= {function.name: function for function in source.functions if function.body}
    return functions | {other: functions[name] for other, name in source.aliases.items() if name in functions}


def module_variables(source: ModuleSyntax, graph: CallGraph) -> dict[str, ModuleVariable]:
    """Return the variables of a module; their addresses are the same in every entry."""
    allocator = StorageAllocator(source, functions_of(source), graph, "")
    allocator.initialise()
    return allocator.values


def parameters_of(function: FunctionDecl) -> tuple[list[Parameter], int]:
    """Return the parameters of an entry with their offsets, and their total size in bytes."""
    parameters: list[Parameter] = []
    offset = 0
    for variable in function.parameters:
        size, align = size_of(variable), alignment_of(variable)
        offset = -(-offset // align) * align
        if any(variable.name == other.name for other in parameters):
            raise PtxError(variable.line, f"duplicate parameter {quote(variable.name)}")
        parameters.append(Parameter(variable.name, variable.type, size, align, offset, variable.dims is not None))
        offset += size
    if offset > MAX_PARAMETERS:
        msg = f"expected at most {MAX_PARAMETERS} parameter bytes in {quote(function.name)}, got {offset}"
        raise PtxError(function.line, msg)
    return parameters, offset


def size_of(variable: VariableDecl) -> int:
    """Return the size of a variable in bytes, or 0 for an array of unspecified length."""
    kind = TYPES.get(variable.type)
    if kind is None:
        raise PtxError(
            variable.line,
            f"expected a type for .{variable.space} memory, such as .b32; got .{quote(variable.type)[1:-1]}",
        )
    return max(1, kind.bits // 8) * variable.vector * prod(variable.dims or (1,))


def alignment_of(variable: VariableDecl) -> int:
    """Return the alignment of a variable's address."""
    kind = TYPES.get(variable.type)
    natural = max(1, kind.bits // 8) * variable.vector if kind else 1
    return variable.align or natural


def _code(value: OperandSyntax, variable: VariableDecl, ptx_type: Type) -> int:
    """Return the code of an initial value; as in ptxas, its category must match that of the type."""
    if not isinstance(value, VALUES.get(ptx_type.kind, ())) or (
        isinstance(value, FloatLiteral) and ptx_type.bits not in {32, 64}
    ):
        label = f"for .{ptx_type.name} {quote(variable.name)}"
        raise PtxError(variable.line, f"expected an initial value of a matching type {label}, got {value}")
    if isinstance(value, FloatLiteral) and value.bits < ptx_type.bits:
        return value.code  # 64-bit variables take the bits of a 0f... literal's f32, as in ptxas
    return Immediate(value.value if isinstance(value, IntegerLiteral) else value).code(ptx_type)
