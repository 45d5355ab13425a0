"""Operands for `warpfrag run`: from files, or random and reproducible."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

import click
import numpy as np

from warpfrag.cli.matrices import NPY, parse_matrix, read_bytes
from warpfrag.errors import InvalidOperand
from warpfrag.operand import Scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from warpfrag.formats import Format, Rounding
    from warpfrag.instruction import Instruction

Source = Literal["file", "random", "zero"]

ZIP = b"PK"  # .npz is an archive of .npy


@dataclass(frozen=True)
class Operands:
    """Codes of every matrix the instruction takes, where each comes from, and the seed; None if nothing is random."""

    codes: dict[str, NDArray[Any]]
    sources: dict[str, Source]
    seed: int | None

    @property
    def described(self) -> str:
        """Where the operands come from, such as `a from files; b random, seed 7; c zero`."""
        words = {"file": "from files", "random": f"random, seed {self.seed}", "zero": "zero"}
        roles = {source: [role for role, found in self.sources.items() if found == source] for source in words}
        return "; ".join(f"{', '.join(roles[source])} {text}" for source, text in words.items() if roles[source])


def operands(
    instruction: Instruction, files: Mapping[str, str | None], seed: int | None, arch: str, *, rounding: Rounding = None
) -> Operands:
    """Operands from files. What no file gives is random, but a C beside files is zero, as in `execute`."""
    from warpfrag.codes import code_dtype
    from warpfrag.isa.legality import arithmetic_arch

    arithmetic_arch(instruction.form, arch)  # refuse what cannot run before operands are made
    roles = [role for role in ("a", "b", "c", "scale_a", "scale_b") if getattr(instruction, role) is not None]
    given = {role: path for role, path in files.items() if path is not None}
    for role in given:
        if role not in roles:
            msg = f"{instruction.name} takes no {role}"
            raise click.BadParameter(msg, param_hint=f"--{role.replace('_', '-')}")
    sources: dict[str, Source] = {
        role: "file" if role in given else "zero" if given and role == "c" else "random" for role in roles
    }
    if "random" not in sources.values():
        seed = None
    elif seed is None:
        seed = int(np.random.default_rng().integers(1 << 31))
    random = np.random.default_rng(seed)
    codes = {role: _random(instruction, role, random) for role in roles}  # all, so that a file changes no other operand
    codes |= {role: _read(instruction, role, path, rounding) for role, path in given.items()}
    if sources["c"] == "zero":
        codes["c"] = np.zeros(instruction.c.shape, code_dtype(instruction.c.format))
    return Operands(codes, sources, seed)


def _random(instruction: Instruction, role: str, random: np.random.Generator) -> NDArray[Any]:
    """Random codes: any integer, floats near 1; a sparse A is thinned."""
    operand = getattr(instruction, role)
    shape = operand.shape
    if role == "a" and instruction.pattern is not None:
        stored = _random_codes(operand.format, shape, random)
        codes = random.choice(list(instruction.pattern.rising), instruction.metadata.shape).astype(np.uint8)
        return instruction.expand(stored, codes, raw=True)
    return _random_codes(operand.format, shape, random)


def _random_codes(number_format: Format, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    from warpfrag.codes import to_codes

    if not number_format.is_float:
        low, high = (int(number_format.min), int(number_format.max)) if number_format.bits < 32 else (-1000, 1000)
        return to_codes(number_format, random.integers(low, high + 1, shape))
    values = random.standard_normal(shape)
    if not number_format.signed:
        values = np.exp2(random.integers(-2, 3, shape).astype(float))
    return to_codes(number_format, values, rounding="rne")


def _read(instruction: Instruction, role: str, path: str, rounding: Rounding) -> NDArray[Any]:
    """Codes of a matrix or of registers in a file."""
    operand = getattr(instruction, role)
    thinned = role == "a" and instruction.pattern is not None
    shape = (instruction.shape.m, instruction.shape.k) if thinned else operand.shape
    registers = (32, operand.words)
    array = _array(path, shape)
    if array.shape == registers != shape:
        if thinned:
            full = f"{instruction.shape.m} x {instruction.shape.k}"
            msg = f"{path!r}: registers of a sparse A mean nothing without their metadata: give the full A, {full}"
            raise InvalidOperand(msg)
        if array.dtype != np.uint32:
            msg = (
                f"{path!r}: registers, of shape {registers}, are uint32, got {array.dtype}; a matrix has shape {shape}"
            )
            raise InvalidOperand(msg)
        found: NDArray[Any] = operand.unpack(array[:, 0] if isinstance(operand, Scale) else array, raw=True)
        return found
    if array.shape != shape:
        accepted = f"a matrix of shape {shape}" + ("" if thinned else f" or registers, uint32 of shape {registers}")
        msg = f"{path!r}: expected {accepted}, got {array.dtype} of shape {array.shape}"
        raise InvalidOperand(msg)
    if thinned:
        stored, codes = instruction.compress(array, rounding=rounding)
        return instruction.expand(instruction.a.codes(stored), codes, raw=True)
    codes_of_matrix: NDArray[Any] = operand.codes(array, rounding=rounding)
    return codes_of_matrix


def _array(path: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """The array in a file: of any shape from .npy, of this one from text."""
    content = read_bytes(path)
    if content.startswith(NPY):
        try:
            found: NDArray[Any] = np.load(BytesIO(content), allow_pickle=False)
        except (ValueError, EOFError) as error:
            msg = f"{path!r} is not an array of numbers: {error}"
            raise InvalidOperand(msg) from None
        return found
    if content.startswith(ZIP):
        msg = f"{path!r} is an archive (.npz): save each matrix as .npy"
        raise InvalidOperand(msg)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        msg = f"{path!r} is neither text in UTF-8 nor .npy"
        raise InvalidOperand(msg) from None
    if not text.strip():
        msg = f"{path!r} is empty"
        raise InvalidOperand(msg)
    return parse_matrix(text, shape, what=repr(path))
