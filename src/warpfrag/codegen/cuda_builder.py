"""A builder for CUDA C++: statements, unrolled loops, inline assembly, functions and kernels.

Statements are text; the builder indents them, closes braces, and numbers the operands of inline assembly.

    >>> code = CudaBuilder()
    >>> code.repeat(4, "d[i] = -d[i];")
    >>> for line in code.function("__device__ void negate(float (&d)[4])"):
    ...     print(line)
    __device__ void negate(float (&d)[4]) {
    #pragma unroll
        for (int i = 0; i < 4; ++i) {
            d[i] = -d[i];
        }
    }
    <BLANKLINE>
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from warpfrag.codegen.operation_texts import Spelling, ThreadIndex
from warpfrag.codegen.ptx_builder import vector

# The C++ type and the inline-assembly constraint for registers of each PTX type; packed elements are 32-bit words.
C_TYPES = {".f32": ("float", "f"), ".f64": ("double", "d"), ".s32": ("int32_t", "r")}
WORD = ("uint32_t", "r")
DEVICE = "__device__ __forceinline__"  # inline, so that any number of files may include the function
INDENT = "    "


class AsmOperand(NamedTuple):
    """An operand of inline assembly: its constraint, such as "r" or "=f", and its expression."""

    constraint: str
    expression: str


@dataclass(frozen=True)
class RegisterArray:
    """The registers of one operand, as a C++ array."""

    name: str
    count: int
    ptx_type: str = ".b32"

    @property
    def c_type(self) -> str:
        """The element type of the array."""
        return C_TYPES.get(self.ptx_type, WORD)[0]

    @property
    def constraint(self) -> str:
        """The inline-assembly constraint letter for these registers."""
        return C_TYPES.get(self.ptx_type, WORD)[1]

    @property
    def elements(self) -> list[str]:
        """Every register as an expression."""
        return [f"{self.name}[{reg}]" for reg in range(self.count)]

    def parameter(self, *, const: bool = True) -> str:
        """Return the array as a function parameter; it is a reference, so that the compiler checks its extent."""
        return f"{'const ' if const else ''}{self.c_type} (&{self.name})[{self.count}]"

    def operands(self, modifier: str = "") -> list[AsmOperand]:
        """Return every register as an operand of inline assembly: `=` if it is only written, `+` if it is also read."""
        return [AsmOperand(f"{modifier}{self.constraint}", element) for element in self.elements]

    def declaration(self, name: str = "") -> str:
        """Return the declaration of a local array of this type, called `name` if given."""
        return f"{self.c_type} {name or self.name}[{self.count}];"


class InlineAssembly:
    """The operands of an asm statement, numbered as the assembly text refers to them.

    Outputs are numbered before inputs, so they come first. The operands that one call adds share a line.
    """

    def __init__(self, *, memory: bool = False) -> None:
        """Create a statement without operands; with `memory`, it accesses memory that is not an operand."""
        self._outputs: list[str] = []
        self._inputs: list[str] = []
        self._count = 0
        self._clobbers = ['"memory"'] if memory else []

    def output(self, *operands: AsmOperand) -> list[str]:
        """Add outputs; return their names in the text: %0, %1, ..."""
        return self._add(self._outputs, operands)

    def input(self, *operands: AsmOperand) -> list[str]:
        """Add inputs; return their names in the text."""
        return self._add(self._inputs, operands)

    def _add(self, lines: list[str], operands: Sequence[AsmOperand]) -> list[str]:
        lines.append(", ".join(f'"{operand.constraint}"({operand.expression})' for operand in operands))
        first, self._count = self._count, self._count + len(operands)
        return [f"%{number}" for number in range(first, self._count)]

    def statement(self, text: str) -> str:
        """Return the whole statement in one line."""
        parts = [", ".join(self._outputs), ", ".join(self._inputs), *self._clobbers]
        return f'asm volatile("{text}"' + "".join(f" : {part}" if part else " :" for part in parts) + ");"

    def lines(self, *texts: str) -> list[str]:
        """Return the statement as several lines: texts, outputs, then inputs."""
        parts = [",\n      ".join(self._outputs), ",\n      ".join(self._inputs), *self._clobbers]
        lines = ["asm volatile(", *(f'    "{text}"' for text in texts), *(f"    : {part}" for part in parts)]
        lines[-1] += ");"
        return [part.rstrip() for line in lines for part in line.split("\n")]


class CudaBuilder:
    """The body of a function or kernel in CUDA C++."""

    def __init__(self) -> None:
        """Start with an empty body."""
        self._prologue: list[str] = []
        self._lines: list[str] = []
        self._depth = 0

    # ---- statements

    def line(self, *lines: str) -> None:
        """Append lines; preprocessor lines and empty ones are not indented."""
        self._lines += [line if not line or line.startswith("#") else f"{INDENT * self._depth}{line}" for line in lines]

    @contextmanager
    def braces(self, head: str, end: str = "}") -> Iterator[None]:
        """Enclose the lines appended in this context in braces after `head`; a type or a table ends with `};`."""
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(end)

    def repeat(self, count: int, *lines: str) -> None:
        """Append these lines in a loop over `i`, unrolled so that register indices are constants."""
        self.line("#pragma unroll")
        with self.braces(f"for (int i = 0; i < {count}; ++i)"):
            self.line(*lines)

    def assembly(self, text: str, *, memory: bool = False) -> None:
        """Append an asm statement that has no operands."""
        self.line(InlineAssembly(memory=memory).statement(text))

    # ---- register operations (see `operation_texts`)

    def temporary(self, number: int) -> str:
        """Return the variable that holds the result of operation `number`."""
        return f"r{number}"

    def declare_temporaries(self, count: int) -> None:
        """Do nothing, because C++ variables are declared when they are assigned."""

    def named(self, name: str) -> str:
        """Return a variable that already has a name, as an operand."""
        return name

    def start_with_index(self, index: ThreadIndex) -> None:
        """Prepend the code that reads the index of this thread."""
        self._prologue += index.cuda

    def operation(self, spelling: Spelling, result: str, operands: Sequence[str | int]) -> None:
        """Append a register operation in CUDA C++, and declare its result."""
        text = spelling.cuda.format(result, *operands)
        self.line(f"uint32_t {result}; {text}" if text.startswith("asm") else f"uint32_t {text}")

    def load(self, instruction: str, results: Sequence[str], address: str, *, in_braces: bool) -> None:
        """Append a load from shared memory to new variables."""
        assembly = InlineAssembly(memory=True)
        numbers = assembly.output(*(AsmOperand("=r", result) for result in results))
        (pointer,) = assembly.input(AsmOperand("r", address))
        self.line(f"uint32_t {', '.join(results)};")
        self.line(assembly.statement(f"{instruction} {vector(numbers) if in_braces else numbers[0]}, [{pointer}];"))

    def store(self, instruction: str, address: str, words: Sequence[str], *, in_braces: bool) -> None:
        """Append a store to shared memory."""
        assembly = InlineAssembly(memory=True)
        pointer, *numbers = assembly.input(*(AsmOperand("r", word) for word in (address, *words)))
        self.line(assembly.statement(f"{instruction} [{pointer}], {vector(numbers) if in_braces else numbers[0]};"))

    def register_names(self, name: str, count: int) -> list[str]:
        """Return the elements of an array parameter."""
        return RegisterArray(name, count).elements

    def register_function(self, name: str, inputs: int, results: Sequence[str], *, takes_base: bool) -> list[str]:
        """Return a device function with the arrays `in` and `out` as parameters, and `base` if it needs an address."""
        out = RegisterArray("out", len(results))
        self.line(*(f"{element} = {result};" for element, result in zip(out.elements, results, strict=True)))
        parameters = [RegisterArray("in", inputs).parameter()] if inputs else []
        parameters += [out.parameter(const=False)] if results else []
        parameters += ["uint32_t base"] if takes_base else []
        return self.function(f"static {DEVICE} void {name}({', '.join(parameters)})")

    # ---- the finished text

    def body(self) -> list[str]:
        """Return the finished lines of the body."""
        return [*self._prologue, *self._lines]

    def function(self, signature: str) -> list[str]:
        """Return the lines of a function with this body."""
        return [f"{signature} {{", *indented(self.body()), "}", ""]

    def kernel(self, name: str, parameters: Sequence[str]) -> list[str]:
        """Return the lines of a kernel that has this body and an unmangled name."""
        return self.function(f'extern "C" __global__ void {name}(\n    ' + ",\n    ".join(parameters) + ")")


def device_function(name: str, parameters: Sequence[str], body: CudaBuilder, result: str = "void") -> list[str]:
    """Return the lines of an inline device function with the given body."""
    return body.function(f"{DEVICE} {result} {name}({', '.join(parameters)})")


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines indented by four columns, except preprocessor lines and empty lines."""
    return [line if not line or line.startswith("#") else f"{INDENT}{line}" for line in lines]


def guarded(macro: str, namespace: str, lines: Iterable[str], before: Sequence[str] = ()) -> str:
    """Return lines in a namespace with an include guard; `before` precedes the namespace inside the guard."""
    head = [f"#ifndef {macro}", f"#define {macro}", "", *before, f"namespace {namespace} {{", ""]
    return "\n".join([*head, *lines, f"}}  // namespace {namespace}", "#endif", ""])


def in_namespace(comment: str, namespace: str, lines: Iterable[str]) -> str:
    """Return lines in a namespace, under a comment."""
    head = [f"// {comment}", f"namespace {namespace} {{", ""]
    return "\n".join([*head, *lines, f"}}  // namespace {namespace}", ""])
