"""Operands for `warpfrag run`: from files, or random and reproducible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from warpfrag.formats import Format
    from warpfrag.instruction import Instruction

Codes = dict[str, Any]


def operands(
    instruction: Instruction, files: Mapping[str, str | None], seed: int | None, arch: str
) -> tuple[int | None, Codes]:
    """Codes of every matrix the instruction takes, and the seed of those that no file gives; None if files give all."""
    from warpfrag.execute import arithmetic_arch

    arithmetic_arch(instruction.form, arch)  # refuse what cannot run before operands are made
    roles = [role for role in ("a", "b", "c", "scale_a", "scale_b") if getattr(instruction, role) is not None]
    for role, path in files.items():
        if path is not None and role not in roles:
            msg = f"{instruction.name} takes no {role}"
            raise click.BadParameter(msg, param_hint=f"--{role.replace('_', '-')}")
    missing = [role for role in roles if files.get(role) is None]
    if seed is None and missing:
        seed = int(np.random.default_rng().integers(1 << 31))
    random = np.random.default_rng(seed)
    codes = {role: _random(instruction, role, random) for role in roles}  # all, so that a file changes no other operand
    codes |= {role: _read(instruction, role, files[role]) for role in roles if files.get(role)}  # type: ignore[arg-type]
    return (seed if missing else None), codes


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


def _read(instruction: Instruction, role: str, path: str) -> NDArray[Any]:
    """Codes of a matrix or of registers in a .npy file."""
    operand = getattr(instruction, role)
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        msg = f"cannot read {path!r} as .npy: {error}"
        raise click.BadParameter(msg, param_hint=f"--{role.replace('_', '-')}") from None
    if array.dtype == np.uint32 and array.shape == (32, operand.words) and array.shape != operand.shape:
        if role == "a" and instruction.pattern is not None:
            full = f"{instruction.shape.m} x {instruction.shape.k}"
            msg = f"registers of a sparse A mean nothing without their metadata: give the full A, {full}"
            raise click.BadParameter(msg, param_hint="--a")
        found: NDArray[Any] = operand.unpack(array, raw=True)
        return found
    if role == "a" and instruction.pattern is not None:
        stored, codes = instruction.compress(array, rounding=None)
        return instruction.expand(instruction.a.codes(stored), codes, raw=True)
    codes_of_matrix: NDArray[Any] = operand.codes(array)
    return codes_of_matrix
