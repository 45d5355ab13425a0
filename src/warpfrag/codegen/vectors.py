"""Test vectors: operand registers and the expected result registers, chosen so that mistakes show.

    >>> from warpfrag.codegen.vectors import test_vectors
    >>> vector_set = test_vectors("mma.m16n8k16.f32.f16.f16.f32", arch="sm_90")
    >>> [group.name for group in vector_set.groups]
    ['positions', 'random', 'one hot a', 'one hot b', 'rounding', 'special', 'overflow']

Every group says which mistakes it catches. The raw kernels that `emit(..., kernels=True)` writes take these arrays.
"""

from __future__ import annotations

import io
import json
import operator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.vector_groups import VectorGroup
from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.targets import read_target
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get

ENDINGS = (".npz", ".json", ".h")
SCHEMA = 2
LINE = 8  # words in a line of a C++ array


def test_vectors(
    instruction: str | Instruction,
    *,
    arch: str = "sm_90",  # noqa: PT028 (not a test)
    seed: int = 1,  # noqa: PT028
) -> VectorSet:
    """Return test vectors of a matrix multiplication on an architecture; equal seeds give equal vectors.

    Raises InvalidOperand if the instruction does not multiply, IllegalInstruction if the architecture does not have
    it, NotModelled if its result is unknown.
    """
    from warpfrag.codegen.shared_vectors import vector_groups

    number = check_seed(seed)
    mma = get(instruction)
    arch = read_target(arch, mma.name, "arch").name
    check_multiplies(mma, "test vectors exist for")
    if mma.form.operation.fragments == "measured":  # wmma fragments differ by architecture
        mma = get(mma, target=arch)
    return VectorSet(mma, arch, tuple(vector_groups(mma, arch, number)))


def check_multiplies(instruction: Instruction, purpose: str) -> None:
    """Reject an instruction that does not multiply; `purpose` begins the list of instructions that do."""
    operation = instruction.form.operation
    if operation.does != "multiply":
        action = "" if operation.scope == "block" else "moves registers and "
        raise InvalidOperand(
            f"{instruction.name} {action}computes nothing: {purpose} mma, mma.sp, wmma.mma, wgmma and tcgen05.mma"
        )
    if not instruction.shape.m:
        example = "m=128, n=64, a='f16', d='f32'"
        raise InvalidOperand(
            f"{instruction.name} has no shape: {purpose} instructions with a shape and types; get it with {example}"
        )


def check_seed(seed: int) -> int:
    """Return the seed; reject seeds that numpy does not take."""
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidOperand(f"seed is an integer, at least 0, got {quote(seed)}")
    return number


@dataclass(frozen=True, eq=False)
class VectorSet:
    """The test vectors of one instruction, with the arithmetic of one architecture."""

    instruction: Instruction
    arch: str
    groups: tuple[VectorGroup, ...]

    def __repr__(self) -> str:
        """Summarize the set."""
        return f"<VectorSet of {self.instruction.name} on {self.arch}: {self.cases} cases in {len(self.groups)} groups>"

    @property
    def cases(self) -> int:
        """The number of cases in all groups."""
        return sum(group.cases for group in self.groups)

    def __getitem__(self, name: str) -> VectorGroup:
        """Return the group with a name."""
        by_name = {group.name: group for group in self.groups}
        if not isinstance(name, str) or name not in by_name:
            raise InvalidOperand(f"group is one of {', '.join(by_name)}; got {quote(name)}")
        return by_name[name]

    def save(self, path: str | PathLike[str]) -> None:
        """Write an npz archive, JSON, or a C++ header (.h), chosen by the ending of the path.

        The archive holds each array as `group/role`, and `about`, the JSON text without arrays.
        """
        from warpfrag.files import write_atomically

        output = check_output(path)
        if output.suffix == ".npz":
            write_atomically(output, self.to_npz())
        else:
            write_atomically(output, self.to_json() if output.suffix == ".json" else self.to_header())

    def to_dict(self) -> dict[str, Any]:
        """Describe the set without its arrays."""
        groups = [
            {
                "name": group.name,
                "catches": group.catches,
                "cases": group.cases,
                "selector": group.choice.selector,
                "byte_id": list(group.choice.byte_id),
                "thread_id": list(group.choice.thread_id),
                **(group.call.row if group.call else {}),
            }
            for group in self.groups
        ]
        return {"schema": SCHEMA, "instruction": self.instruction.name, "arch": self.arch, "groups": groups}

    def to_npz(self) -> bytes:
        """Return the bytes of an npz archive."""
        arrays = {f"{group.name}/{role}": words for group in self.groups for role, words in group.registers.items()}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, about=np.array(json.dumps(self.to_dict())), **arrays)
        return buffer.getvalue()

    def to_json(self) -> str:
        """Return JSON text; arrays are nested lists of integers."""
        about = self.to_dict()
        for row, group in zip(about["groups"], self.groups, strict=True):
            row["registers"] = {role: words.tolist() for role, words in group.registers.items()}
        return json.dumps(about) + "\n"

    def to_header(self) -> str:
        """Return a C++17 header: one array per operand of each group, and a table of the groups."""
        from warpfrag.codegen.cuda_builder import CudaBuilder
        from warpfrag.codegen.statement import identifier

        rows = self.to_dict()["groups"]
        roles = list(dict.fromkeys(role for group in self.groups for role in group.registers))
        code = CudaBuilder()
        code.line(
            f"// Test vectors of {self.instruction.name}, arithmetic of {self.arch}.",
            "// Arrays are uint32[cases][lanes][words]; an operand that a group does not have is null.",
            "#pragma once",
            "",
            "#include <cstdint>",
            "",
            f"namespace warpfrag_vectors::{identifier(self.instruction)} {{",
            "",
        )
        with code.braces("struct Group", "};"):
            code.line(*(_member(key, value) for key, value in rows[0].items()))
            code.line(*(f"const uint32_t* {role};" for role in roles))
        code.line("")
        table = []
        for number, (row, group) in enumerate(zip(rows, self.groups, strict=True)):
            for role, words in group.registers.items():
                with code.braces(f"inline constexpr uint32_t group{number}_{role}[] =", "};"):
                    code.line(*_hex_lines(words))
            arrays = [f"group{number}_{role}" if role in group.registers else "nullptr" for role in roles]
            table.append(f"{{{', '.join([*map(_initializer, row.values()), *arrays])}}},")
        code.line("")
        with code.braces("inline constexpr Group groups[] =", "};"):
            code.line(*table)
        code.line("", "}  // namespace", "")
        return "\n".join(code.body())


def check_output(path: str | PathLike[str]) -> Path:
    """Return the path; reject one that names no format or cannot be written."""
    from warpfrag.files import check_writable

    try:
        output = Path(path)
    except TypeError:
        raise InvalidOperand(f"expected the path of a file, got {quote(path)}") from None
    if output.suffix not in ENDINGS:
        raise InvalidOperand(f"{quote(output.name)}: the ending names the format and is one of {', '.join(ENDINGS)}")
    check_writable(output)
    return output


def _is_hex(value: object) -> bool:
    return isinstance(value, str) and value.startswith("0x")


def _member(name: str, value: Any) -> str:  # noqa: ANN401 (JSON)
    """Declare the C++ member for a value: text, flag, number or 64-bit word, or an array of these."""
    first = value[0] if isinstance(value, list) else value
    c_type = "bool" if isinstance(first, bool) else "int" if isinstance(first, int) else "const char*"
    c_type = "uint64_t" if _is_hex(first) else c_type
    return f"{c_type} {name}{f'[{len(value)}]' if isinstance(value, list) else ''};"


def _initializer(value: Any) -> str:  # noqa: ANN401 (JSON)
    if isinstance(value, list):
        return f"{{{', '.join(map(_initializer, value))}}}"
    return f"{value}ull" if _is_hex(value) else json.dumps(value)


def _hex_lines(words: NDArray[np.uint32]) -> list[str]:
    flat = words.reshape(-1).tolist()
    return [", ".join(f"0x{word:08x}" for word in flat[i : i + LINE]) + "," for i in range(0, len(flat), LINE)]
