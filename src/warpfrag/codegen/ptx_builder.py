"""A builder of PTX: registers that declare themselves, instructions, labels, functions, kernels, a module's header.

Registers are virtual in PTX: a body declares as many as it names, and the assembler allocates. So a computation is
written as a chain of `compute`, each with a register of its own, and reads like the formula that it is:

    >>> from warpfrag.layout.index_expressions import linear
    >>> code = PtxBuilder()
    >>> code.evaluate("row", linear({"lane": [0, 0, 1, 2, 4], "i": [0, 8]}), {"lane": "%lane", "i": "%i"})
    '%row_3'
    >>> for line in code.body()[2:-3]:
    ...     print(line)
        // row = (i >> 1) * 8 + (lane >> 2)
        shr.u32 %row, %i, 1;
        mul.lo.s32 %row_1, %row, 8;
        shr.u32 %row_2, %lane, 2;
        add.s32 %row_3, %row_1, %row_2;
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from warpfrag.codegen.languages import Spelling, ThreadIndex
from warpfrag.layout.index_expressions import Expression, IndexConstant, IndexVariable

# The instruction of each operator of a formula; indices are small and not negative, so signed multiplication will do.
OPERATOR_INSTRUCTIONS = {"*": "mul.lo.s32", "+": "add.s32", ">>": "shr.u32", "&": "and.b32", "^": "xor.b32"}
DECLARED_TYPES = {".f32": ".f32", ".f64": ".f64"}
NAMES_PER_LINE = 8
WARP_BARRIER = "bar.warp.sync 0xffffffff"
BLOCK_BARRIER = "bar.sync 0"


def declared_type(ptx_type: str) -> str:
    """Return the type to declare for a register that holds a PTX type; packed elements and integers are bits.

    >>> declared_type(".f16x2"), declared_type(".f64")
    ('.b32', '.f64')
    """
    return DECLARED_TYPES.get(ptx_type, ".b32")


def width(kind: str) -> int:
    """Return the bytes of a register type: 4 for .b32."""
    return int(kind[2:]) // 8


class PtxBuilder:
    """The body of a PTX function or kernel; registers are declared when they are first named."""

    def __init__(self) -> None:
        """Start with an empty body."""
        self._registers: dict[str, str] = {}
        self._ranges: list[str] = []
        self._arrays: list[str] = []
        self._prologue: list[str] = []
        self._lines: list[str] = []

    # ---- declarations

    def declare(self, name: str, kind: str = ".b32") -> str:
        """Declare a register called `name`, with a number if the name is taken."""
        register, count = f"%{name}", 0
        while register in self._registers:
            count += 1
            register = f"%{name}_{count}"
        self._registers[register] = kind
        return register

    def declare_vector(self, name: str, count: int, ptx_type: str) -> list[str]:
        """Declare the registers of an operand, `name` and a number each."""
        return [self.declare(f"{name}{reg}", declared_type(ptx_type)) for reg in range(count)]

    def declare_range(self, name: str, count: int) -> None:
        """Declare words called `%name0`, `%name1` and so on, in PTX's short form."""
        self._ranges.append(f"    .reg .b32 %{name}<{count}>;")

    def declare_shared(self, name: str, size: int, align: int = 16) -> None:
        """Declare an array of `size` bytes of shared memory, aligned for ldmatrix and stmatrix by default."""
        self._arrays.append(f"    .shared .align {align} .b8 {name}[{size}];")

    # ---- statements

    def emit(self, text: str) -> None:
        """Append an instruction, written without its semicolon or with it."""
        self._lines.append(f"    {text.removesuffix(';')};")

    def prologue(self, *texts: str) -> None:
        """Add instructions that come before all others."""
        self._prologue += [f"    {text};" for text in texts]

    def comment(self, text: str) -> None:
        """Append a comment."""
        self._lines.append(f"    // {text}")

    def label(self, name: str) -> None:
        """Append a label."""
        self._lines.append(f"{name}:")

    def compute(self, name: str, operation: str, *operands: str | int) -> str:
        """Return a new register, called after `name`, with the result of an instruction."""
        is_wide = operation.split(".")[1] == "wide" or operation.endswith("64")
        result = self.declare(name, ".b64" if is_wide else ".b32")
        self.emit(f"{operation} {', '.join([result, *map(str, operands)])}")
        return result

    def evaluate(self, name: str, expression: Expression, indices: Mapping[str, str]) -> str:
        """Return the register (or number) with the value of an index expression, written above it as a comment."""
        self.comment(f"{name} = {expression}")
        return self._evaluate(name, expression, indices)

    def _evaluate(self, name: str, expression: Expression, indices: Mapping[str, str]) -> str:
        if isinstance(expression, IndexVariable):
            return indices[expression.name]
        if isinstance(expression, IndexConstant):
            return str(expression.value)
        left, right = (self._evaluate(name, part, indices) for part in (expression.left, expression.right))
        return self.compute(name, OPERATOR_INSTRUCTIONS[expression.operator], left, right)

    def load_parameter(self, name: str, kind: str) -> str:
        """Return a new register with a parameter of the kernel."""
        register = self.declare(name, kind.replace("u", "b"))
        self.emit(f"ld.param{kind} {register}, [{name}]")
        return register

    # ---- register operations (see `languages`)

    def temporary(self, number: int) -> str:
        """Return the register that holds the result of the operation with this number."""
        return f"%t{number}"

    def declare_temporaries(self, count: int) -> None:
        """Declare the results of `count` operations."""
        self.declare_range("t", max(1, count))

    def named(self, name: str) -> str:
        """Return a register of a known name, as an operand."""
        return f"%{name}"

    def start_with_index(self, index: ThreadIndex) -> None:
        """Read the number of this thread before anything else."""
        self.declare(index.name)
        self.prologue(*index.ptx)

    def operation(self, spelling: Spelling, result: str, operands: Sequence[str | int]) -> None:
        """Append a register operation as PTX spells it."""
        self._lines.append(f"    {spelling.ptx.format(result, *operands)}")

    def load(self, instruction: str, results: Sequence[str], address: str, *, in_braces: bool) -> None:
        """Append a load from shared memory."""
        self.emit(f"{instruction} {vector(results) if in_braces else results[0]}, [{address}]")

    def store(self, instruction: str, address: str, words: Sequence[str], *, in_braces: bool) -> None:
        """Append a store to shared memory."""
        self.emit(f"{instruction} [{address}], {vector(words) if in_braces else words[0]}")

    def register_names(self, name: str, count: int) -> list[str]:
        """Return the registers of a parameter."""
        return [f"%{name}{register}" for register in range(count)]

    def register_function(self, name: str, inputs: int, results: Sequence[str], *, takes_base: bool) -> list[str]:
        """Return a function of registers `in` and `out`, and of an address `base` if it takes one."""
        outputs = [f"out{number}" for number in range(len(results))]
        for register, result in zip(outputs, results, strict=True):
            self.emit(f"mov.b32 %{register}, {result}")
        parameters = [*(f"in{number}" for number in range(inputs)), *(["base"] if takes_base else [])]
        types = [dict.fromkeys(names, ".b32") for names in (parameters, outputs)]
        return self.function(signature(name, *types, separator=" "))

    # ---- the finished text

    def body(self) -> list[str]:
        """Return declarations, then instructions, in braces; the last one returns."""
        by_type: dict[str, list[str]] = {}
        for name, kind in self._registers.items():
            by_type.setdefault(kind, []).append(name)
        registers = [
            f"    .reg {kind} {', '.join(names[start : start + NAMES_PER_LINE])};"
            for kind, names in by_type.items()
            for start in range(0, len(names), NAMES_PER_LINE)
        ]
        return ["{", *self._arrays, *self._ranges, *registers, *self._prologue, *self._lines, "    ret;", "}", ""]

    def function(self, signature: str) -> list[str]:
        """Return a device function around the body; see `signature`."""
        return [signature, *self.body()]

    def entry(self, name: str, parameters: Mapping[str, str]) -> list[str]:
        """Return a kernel around the body; `parameters` are names and their types."""
        params = [f"    .param {kind} {parameter}" for parameter, kind in parameters.items()]
        return [f".visible .entry {name}(", ",\n".join(params), ")", *self.body()]


def signature(
    name: str, inputs: Mapping[str, str], outputs: Mapping[str, str] | None = None, *, separator: str = ""
) -> str:
    """Return the first line of a function whose parameters are registers, each with its type.

    >>> signature("load", {"base": ".b32"}, {"out0": ".b32"}, separator=" ")
    '.func (.reg .b32 %out0) load (.reg .b32 %base)'
    """
    results = f"({_parameters(outputs)}) " if outputs else ""
    return f".func {results}{name}{separator}({_parameters(inputs)})"


def _parameters(registers: Mapping[str, str]) -> str:
    return ", ".join(f".reg {kind} %{name}" for name, kind in registers.items())


def vector(registers: Iterable[str]) -> str:
    """Return registers as one operand of an instruction: in braces."""
    return f"{{{', '.join(registers)}}}"


def dynamic_shared(name: str, align: int) -> str:
    """Return the declaration of dynamic shared memory, which a module has once."""
    return f".extern .shared .align {align} .b8 {name}[];"


def module_header(version: tuple[int, int], target: str, declarations: Iterable[str] = ()) -> list[str]:
    """Return the first lines of a module: the PTX version, the target, and shared declarations."""
    lines = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64", ""]
    for declaration in declarations:
        lines += [declaration, ""]
    return lines
