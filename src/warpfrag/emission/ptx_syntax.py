"""Pieces of PTX: bodies that declare their registers, and index formulas as instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.core.expressions import IndexConstant, IndexVariable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from warpfrag.core.expressions import Expression
    from warpfrag.execution.operand import Registers

OPERATIONS = {"*": "mul.lo.s32", "+": "add.s32", ">>": "shr.u32", "&": "and.b32", "^": "xor.b32"}
REGISTER_TYPES = {".f32": ".f32", ".f64": ".f64"}


def register_type(operand: Registers) -> str:
    """The type to declare the registers of an operand with; packed elements and integers are bits."""
    return REGISTER_TYPES.get(operand.ptx_type, ".b32")


class Body:
    """The instructions of a function or kernel; registers are declared when they are first named."""

    def __init__(self) -> None:
        """Nothing is declared yet."""
        self._declared: dict[str, str] = {}
        self._lines: list[str] = []
        self._spaces: list[str] = []

    def new(self, name: str, kind: str = ".b32") -> str:
        """A register called after `name`, with a number where the name is taken."""
        wanted, count = f"%{name}", 0
        while wanted in self._declared:
            count += 1
            wanted = f"%{name}_{count}"
        self._declared[wanted] = kind
        return wanted

    def vector(self, name: str, operand: Registers) -> list[str]:
        """The registers of an operand."""
        return [self.new(f"{name}{reg}", register_type(operand)) for reg in range(operand.regs)]

    def shared(self, name: str, size: int, align: int = 16) -> None:
        """Bytes of shared memory, aligned for ldmatrix and stmatrix unless for more."""
        self._spaces.append(f"    .shared .align {align} .b8 {name}[{size}];")

    def do(self, text: str) -> None:
        """One instruction."""
        self._lines.append(f"    {text};")

    def say(self, text: str) -> None:
        """A comment."""
        self._lines.append(f"    // {text}")

    def label(self, name: str) -> None:
        """A place to jump to."""
        self._lines.append(f"{name}:")

    def compute(self, name: str, operation: str, *operands: str | int) -> str:
        """A new register with the result of an instruction."""
        target = self.new(name, ".b64" if operation.split(".")[1] == "wide" or operation.endswith("64") else ".b32")
        self.do(f"{operation} {', '.join([target, *map(str, operands)])}")
        return target

    def formula(self, name: str, formula: Expression, indices: Mapping[str, str]) -> str:
        """A new register with the value of an index formula, written above it as a comment."""
        self.say(f"{name} = {formula}")
        return self._part(name, formula, indices)

    def _part(self, name: str, part: Expression, indices: Mapping[str, str]) -> str:
        if isinstance(part, IndexVariable):
            return indices[part.name]
        if isinstance(part, IndexConstant):
            return str(part.value)
        left, right = self._part(name, part.left, indices), self._part(name, part.right, indices)
        return self.compute(name, OPERATIONS[part.operator], left, right)

    def lines(self, ending: Iterable[str] = ()) -> list[str]:
        """Declarations, then instructions."""
        kinds: dict[str, list[str]] = {}
        for name, kind in self._declared.items():
            kinds.setdefault(kind, []).append(name)
        declarations = [
            f"    .reg {kind} {', '.join(names[start : start + 8])};"
            for kind, names in kinds.items()
            for start in range(0, len(names), 8)
        ]
        return ["{", *self._spaces, *declarations, *self._lines, *(f"    {line};" for line in ending), "}", ""]


def entry(name: str, parameters: Mapping[str, str], body: Body) -> list[str]:
    """A kernel."""
    listed = [f"    .param {kind} {parameter}" for parameter, kind in parameters.items()]
    return [f".visible .entry {name}(", ",\n".join(listed), ")", *body.lines(["ret"])]


def load_parameter(body: Body, name: str, kind: str) -> str:
    """A new register with a parameter of the kernel."""
    register = body.new(name, kind.replace("u", "b"))
    body.do(f"ld.param{kind} {register}, [{name}]")
    return register


def width(kind: str) -> int:
    """Bytes of a register type."""
    return int(kind[2:]) // 8
