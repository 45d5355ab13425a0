"""`warpfrag pack` and `warpfrag unpack`: convert a matrix to hex registers, and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from warpfrag.cli.io.arguments import Arch, ElementChoice, File, InstructionName, Natural, OperandName, RoundingName
from warpfrag.cli.io.matrix_files import code_text, matrix_lines, read_codes, read_source, short_text
from warpfrag.cli.io.operand_view import OperandView, operand_view
from warpfrag.cli.io.output import echo
from warpfrag.cli.io.register_dumps import dump_lines, dump_of, read_registers
from warpfrag.cli.io.verbs import Answer, verb
from warpfrag.errors import InvalidOperand
from warpfrag.formats.number_formats import Rounding
from warpfrag.tensorcore.operand import Metadata, Scale
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.formats.arrays import Words


class PackedRegisters(NamedTuple):
    """The registers that hold a matrix.

    instruction: canonical name
    operand: a, b, c, d, metadata, scale_a or scale_b
    words: 32-bit words by lane, and by warp in a warpgroup; by lane and column in tensor memory
    """

    instruction: str
    operand: str
    words: list[Any]


class UnpackedMatrix(NamedTuple):
    """The matrix that registers hold.

    instruction: canonical name
    operand: a, b, c, d, metadata, scale_a or scale_b
    raw: true if the numbers are codes
    matrix: rows of numbers; nan, inf and -inf are strings
    """

    instruction: str
    operand: str
    raw: bool
    matrix: list[Any]


@verb
def pack(
    instruction: InstructionName,
    operand: OperandName,
    file: File = "-",
    *,
    raw: bool = False,
    rounding: RoundingName | None = None,
    full: bool = False,
    choice: ElementChoice = ElementChoice(),  # noqa: B008 (immutable)
    arch: Arch | None = None,
) -> Answer[PackedRegisters]:
    """Convert a matrix to hex registers: one line per lane (and warp), with its 32-bit words.

    For an operand in tensor memory, a line is a tensor-memory lane, and a word is a column.

    FILE is .npy, or text with one line per row and numbers separated by spaces or commas (0x... and 0b... are
    accepted); default: stdin. Values must be exactly representable in the operand's format, unless --rounding is given.
    Without --full, a sparse A contains only the stored elements, and metadata has one code per row and chunk.

    Options:
        raw: The numbers are codes, not values.
        full: FILE contains the full A of a sparse instruction, which is compressed first.

    For example:
        warpfrag pack mma.m16n8k16.f32.f16.f16.f32 a matrix.txt
        warpfrag pack mma.m16n8k16.f32.f16.f16.f32 a matrix.txt | warpfrag unpack mma.m16n8k16.f32.f16.f16.f32 a
        warpfrag pack mma.sp.m16n8k32.f32.f16.f16.f32 metadata sparse.txt --full
    """
    view = operand_view(get(instruction, arch), operand)
    next(view.chosen(choice))  # raises an error if an option does not apply to this operand
    packed = _pack(view, file, choice, raw=raw, rounding=rounding, full=full)
    group = dump_of(view.matrix_registers).group
    words = packed if group == "block" else packed.reshape(*view.matrix_registers.threads, -1)
    lines = dump_lines(words, group if group == "block" or "warp" in view.threads else "")
    return Answer(PackedRegisters(view.instruction.name, view.name, words.tolist()), lambda: echo("\n".join(lines)))


def _pack(
    view: OperandView, file: str, choice: ElementChoice, *, raw: bool, rounding: Rounding, full: bool
) -> NDArray[Any]:
    """Return the words of every lane."""
    registers, instruction = view.matrix_registers, view.instruction
    if full:
        if view.name not in {"a", "metadata"}:
            raise InvalidOperand(f"--full applies to A and metadata of a sparse instruction, not to {view.name}")
        shape = (instruction.shape.m, instruction.shape.k)
        matrix = read_codes(file, instruction.a.format, shape, raw=raw, rounding=rounding)
        stored, fields = instruction.compress(matrix, raw=True)
        codes = stored if view.name == "a" else fields
    else:
        is_raw = raw or isinstance(registers, Metadata)
        codes = read_codes(file, registers.format, registers.shape, raw=is_raw, rounding=rounding)
    if isinstance(registers, Metadata):
        return registers.pack(codes, **_chosen(view, choice))
    if isinstance(registers, Scale):
        return registers.pack(codes, raw=True, byte_id=choice.byte_id or 0, thread_id=choice.thread_id or 0)
    return registers.pack(codes, raw=True)


def _chosen(view: OperandView, choice: ElementChoice) -> dict[str, int]:
    """Return the coordinates that select a matrix or a part of this operand, 0 by default."""
    return {dim: index or 0 for dim, index in choice._asdict().items() if dim in view.choices}


@verb
def unpack(
    instruction: InstructionName,
    operand: OperandName,
    file: File = "-",
    *,
    raw: bool = False,
    strict: bool = False,
    warp: Natural | None = None,
    choice: ElementChoice = ElementChoice(),  # noqa: B008 (immutable)
    arch: Arch | None = None,
) -> Answer[UnpackedMatrix]:
    """Convert a register dump, as printf or a debugger prints it, to a matrix.

    Words are hex, with or without 0x. If one of the numbers has a decimal point or a sign, or is inf or nan, all are
    values. A line may name its warp and lane (lane 3:, T3, warp 1 lane 3:) and its registers (a3=..., %r12 = ...), in
    any order. Lines without names are the lanes in order, or one stream of words. FILE is text; default: stdin. Each
    warp yields one matrix.

    Values are printed with the fewest digits that identify them: `warpfrag pack --rounding rne` reads them back. JSON
    has every digit; values that are not finite are the strings nan, inf and -inf.

    Options:
        raw: Print codes in hex, not values.
        strict: Reject a dump whose copies of an element differ (wmma).
        warp: The warp to read from a dump of several warps; default: all.

    For example:
        warpfrag unpack mma.m16n8k16.f32.f16.f16.f32 d dump.txt
        cuda-gdb ... | warpfrag unpack mma.m16n8k16.f32.f16.f16.f32 d
        warpfrag unpack mma.m16n8k16.f32.f16.f16.f32 d dump.txt --raw      # codes in hex
    """
    view = operand_view(get(instruction, arch), operand)
    next(view.chosen(choice))  # raises an error if an option does not apply to this operand
    registers = view.matrix_registers
    words = read_registers(read_source(file).text(), registers, warp, batch=True)
    is_raw = raw or registers.format.kind == "bits" or isinstance(registers, Metadata)
    matrix = _unpack(view, words, choice, raw=is_raw, strict=strict)

    def show() -> None:
        write: Callable[[float], str] = short_text(matrix.dtype)
        if isinstance(registers, Metadata):
            write = "0b{:04b}".format
        elif is_raw:
            write = partial(code_text, number_format=registers.format)
        echo("\n".join(matrix_lines(matrix, write)))

    values = matrix if is_raw or not registers.format.is_float else matrix.astype(float)  # ml_dtypes become floats
    return Answer(UnpackedMatrix(view.instruction.name, view.name, is_raw, values.tolist()), show)


def _unpack(view: OperandView, words: Words, choice: ElementChoice, *, raw: bool, strict: bool) -> NDArray[Any]:
    """Return the matrix, as codes if `raw`; several warps give a batch."""
    from warpfrag.tensorcore.tensor_operand import TensorMetadata, TensorScale

    registers, chosen = view.matrix_registers, _chosen(view, choice)
    if isinstance(registers, TensorMetadata):
        return registers.unpack(words, **chosen)
    if isinstance(registers, TensorScale):
        return registers.unpack(words, raw=raw)
    if isinstance(registers, Metadata):
        return registers.unpack(words[..., 0], **chosen)
    if isinstance(registers, Scale):
        return registers.unpack(words[..., 0], raw=raw, **chosen)
    return registers.unpack(words, raw=raw, strict=strict)
