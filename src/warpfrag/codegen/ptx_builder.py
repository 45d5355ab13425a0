"""A builder for PTX: automatically declared registers, instructions, labels, functions, kernels and module headers.

PTX registers are virtual: a body declares any number of them, and the assembler allocates physical registers. Each
`compute` therefore returns a new register.
"""

from collections.abc import Iterable, Mapping, Sequence

from warpfrag.codegen.operation_texts import Spelling, ThreadIndex
from warpfrag.grouping import grouped

DECLARED_TYPES = {".f32": ".f32", ".f64": ".f64"}
NAMES_PER_LINE = 8
WARP_BARRIER = "bar.warp.sync 0xffffffff"
BLOCK_BARRIER = "bar.sync 0"


def declared_type(ptx_type: str) -> str:
    """Return the declared type of a register for a PTX type; packed elements and integers are declared as bits.

    >>> declared_type(".f16x2"), declared_type(".f64")
    ('.b32', '.f64')
    """
    return DECLARED_TYPES.get(ptx_type, ".b32")


def width(ptx_type: str) -> int:
    """Return the size of a register type in bytes, such as 4 for .b32."""
    return int(ptx_type[2:]) // 8


class PtxBuilder:
    """The body of a PTX function or kernel; registers are declared when they are first named."""

    def __init__(self) -> None:
        """Start with an empty body."""
        self._registers: dict[str, str] = {}
        self._ranges: list[str] = []
        self._prologue: list[str] = []
        self._lines: list[str] = []

    # ---- declarations

    def declare(self, name: str, ptx_type: str = ".b32") -> str:
        """Declare a register called `name`, with a number appended if the name is taken."""
        register, count = f"%{name}", 0
        while register in self._registers:
            count += 1
            register = f"%{name}_{count}"
        self._registers[register] = ptx_type
        return register

    def declare_vector(self, name: str, count: int, ptx_type: str) -> list[str]:
        """Declare the registers of an operand, each called `name` plus a number."""
        return [self.declare(f"{name}{reg}", declared_type(ptx_type)) for reg in range(count)]

    def declare_range(self, name: str, count: int) -> None:
        """Declare 32-bit registers `%name0`, `%name1` and so on, in PTX's short form."""
        self._ranges.append(f"    .reg .b32 %{name}<{count}>;")

    # ---- statements

    def emit(self, text: str) -> None:
        """Append an instruction, given with or without its semicolon."""
        self._lines.append(f"    {text.removesuffix(';')};")

    def label(self, name: str) -> None:
        """Append a label."""
        self._lines.append(f"{name}:")

    def compute(self, name: str, operation: str, *operands: str | int) -> str:
        """Append an instruction, and return its result: a new register named after `name`."""
        is_wide = operation.split(".")[1] == "wide" or operation.endswith("64")
        result = self.declare(name, ".b64" if is_wide else ".b32")
        self.emit(f"{operation} {', '.join([result, *map(str, operands)])}")
        return result

    def load_parameter(self, name: str, ptx_type: str) -> str:
        """Return a new register into which a kernel parameter is loaded."""
        register = self.declare(name, ptx_type.replace("u", "b"))
        self.emit(f"ld.param{ptx_type} {register}, [{name}]")
        return register

    # ---- register operations (see `operation_texts`)

    def temporary(self, number: int) -> str:
        """Return the register that holds the result of operation `number`."""
        return f"%t{number}"

    def declare_temporaries(self, count: int) -> None:
        """Declare registers for the results of `count` operations."""
        self.declare_range("t", max(1, count))

    def named(self, name: str) -> str:
        """Return a register that already has a name, as an operand."""
        return f"%{name}"

    def start_with_index(self, index: ThreadIndex) -> None:
        """Prepend the code that reads the index of this thread."""
        self.declare(index.name)
        self._prologue += [f"    {text};" for text in index.ptx]

    def operation(self, spelling: Spelling, result: str, operands: Sequence[str | int]) -> None:
        """Append a register operation in PTX."""
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
        """Return a PTX function: parameters in0, in1, ... and, if `takes_base`, an address; results out0, out1, ..."""
        outputs = [f"out{number}" for number in range(len(results))]
        for register, result in zip(outputs, results, strict=True):
            self.emit(f"mov.b32 %{register}, {result}")
        parameters = [*(f"in{number}" for number in range(inputs)), *(["base"] if takes_base else [])]
        listed = [", ".join(f".reg .b32 %{register}" for register in names) for names in (parameters, outputs)]
        results_text = f"({listed[1]}) " if outputs else ""
        return [f".func {results_text}{name} ({listed[0]})", *self.body()]

    # ---- the finished text

    def body(self) -> list[str]:
        """Return the body in braces: declarations, instructions and a final ret."""
        by_type = grouped((ptx_type, name) for name, ptx_type in self._registers.items())
        registers = [
            f"    .reg {ptx_type} {', '.join(names[start : start + NAMES_PER_LINE])};"
            for ptx_type, names in by_type.items()
            for start in range(0, len(names), NAMES_PER_LINE)
        ]
        return ["{", *self._ranges, *registers, *self._prologue, *self._lines, "    ret;", "}", ""]

    def entry(self, name: str, parameters: Mapping[str, str]) -> list[str]:
        """Return the lines of a kernel with this body; `parameters` maps names to types."""
        params = [f"    .param {ptx_type} {parameter}" for parameter, ptx_type in parameters.items()]
        return [f".visible .entry {name}(", ",\n".join(params), ")", *self.body()]


def vector(registers: Iterable[str]) -> str:
    """Return registers in braces, as one operand of an instruction."""
    return f"{{{', '.join(registers)}}}"


def dynamic_shared(name: str, align: int) -> str:
    """Return the declaration of dynamic shared memory; a module has only one."""
    return f".extern .shared .align {align} .b8 {name}[];"


def module_header(version: tuple[int, int], target: str, declarations: Iterable[str] = ()) -> list[str]:
    """Return the first lines of a module: the PTX version, the target and common declarations."""
    lines = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64", ""]
    for declaration in declarations:
        lines += [declaration, ""]
    return lines
