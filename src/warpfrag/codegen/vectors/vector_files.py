"""Test vectors in files: npz and json, which can be read back, a C++ header, and a CUDA program.

In an npz, `about` is the JSON object without registers, and each array is called `group/role`. In json, the object has
for each role one text per case: hex words, lanes apart by a comma, words of a lane by a blank. A group of wgmma has a
`call`: where A lies, what is transposed and negated, the descriptors, scale-d; lanes are those of all warps, and
`shared` is one text of words. That of tcgen05 has three descriptors; lanes are those of tensor memory, and `a` and `b`
are texts of words.
"""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from warpfrag.codegen.emit_tcgen05 import product
from warpfrag.codegen.vectors.tensor_vectors import image_shapes
from warpfrag.codegen.vectors.vector_group import VectorGroup
from warpfrag.codegen.wgmma_variants import check
from warpfrag.errors import InvalidOperand, UnusableFile, WarpfragError, quote
from warpfrag.files import check_writable, write_atomically
from warpfrag.isa.immediates import Immediates
from warpfrag.isa.legality import check_immediates
from warpfrag.isa.targets import targets
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.instruction_descriptor import InstructionDescriptor
from warpfrag.tensorcore.execute_tcgen05 import TensorProduct
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tensor_call import TensorCall
from warpfrag.tensorcore.wgmma_call import WgmmaCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from warpfrag.tensorcore.instruction import Instruction

AnyCall: TypeAlias = WgmmaCall | TensorCall
SCHEMA = 1
WARPGROUP = (4, 32)  # warps and lanes
ANY_NUMBER = -1  # of words, in a shape
ENDINGS = (".npz", ".json", ".h", ".hpp", ".cuh", ".cu")


def check_output(path: str | PathLike[str]) -> None:
    """Refuse, before vectors are made, a path that names no format or cannot be written."""
    place = _path(path)
    if place.suffix not in ENDINGS:
        msg = f"{quote(place.name)}: the ending names the format and is one of {', '.join(ENDINGS)}"
        raise InvalidOperand(msg)
    check_writable(place)


def save(instruction: Instruction, arch: str, groups: Sequence[VectorGroup], path: str | PathLike[str]) -> None:
    """Write test vectors, in the format that the path's ending names."""
    check_output(path)
    place = _path(path)
    write_atomically(place, _writer(place.suffix)(instruction, arch, groups))


def _writer(ending: str) -> Callable[[Instruction, str, Sequence[VectorGroup]], str | bytes]:
    if ending == ".npz":
        return _as_npz
    if ending == ".json":
        return as_json
    from warpfrag.codegen.vectors import vector_program as program

    return program.as_program if ending == ".cu" else program.as_header


def read(path: str | PathLike[str]) -> tuple[Instruction, str, tuple[VectorGroup, ...]]:
    """Instruction, architecture and groups from npz or json; UnusableFile where they do not fit together."""
    place = _path(path)
    if place.suffix not in {".npz", ".json"}:
        ending = quote(place.suffix) if place.suffix else "no ending"
        msg = f"{quote(place.name)}: npz and json can be read back, got {ending}"
        raise InvalidOperand(msg)
    try:
        content = place.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"cannot read {quote(str(place))}: {reason}"
        raise UnusableFile(msg) from None
    try:
        about, arrays = _from_npz(content) if place.suffix == ".npz" else _from_json(content)
        return _checked(about, arrays)
    except WarpfragError as error:
        msg = f"{quote(place.name)}: {error}"
        raise UnusableFile(msg) from None


def _path(path: str | PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError:
        msg = f"expected the path of a file, got {quote(path)}"
        raise InvalidOperand(msg) from None


def _about(instruction: Instruction, arch: str, groups: Sequence[VectorGroup]) -> dict[str, Any]:
    """Everything but the registers."""
    return {
        "schema": SCHEMA,
        "instruction": instruction.name,
        "arch": arch,
        "fragments": instruction.arch or None,
        "groups": [
            {
                "name": group.name,
                "catches": group.catches,
                "cases": group.cases,
                "selector": group.choice.selector,
                "byte_id": list(group.choice.byte_id),
                "thread_id": list(group.choice.thread_id),
                **({} if group.call is None else {"call": group.call.row}),
            }
            for group in groups
        ],
    }


def _as_npz(instruction: Instruction, arch: str, groups: Sequence[VectorGroup]) -> bytes:
    arrays: dict[str, Any] = {"about": np.array(json.dumps(_about(instruction, arch, groups)))}
    for group in groups:
        arrays |= {f"{group.name}/{role}": words for role, words in group.registers.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def as_json(instruction: Instruction, arch: str, groups: Sequence[VectorGroup]) -> str:
    """The JSON object, registers included."""
    about = _about(instruction, arch, groups)
    for row, group in zip(about["groups"], groups, strict=True):
        shapes = SCOPES[instruction.form.operation.scope].shapes(instruction, group.call)
        row |= {role: _to_hex(words, shapes[role]) for role, words in group.registers.items()}
    return json.dumps(about, indent=1) + "\n"


def _to_hex(words: NDArray[np.uint32], shape: CaseShape) -> list[str]:
    lanes = words.reshape(len(words), math.prod(shape.threads), -1)
    return [",".join(" ".join(f"{word:08x}" for word in lane) for lane in case) for case in lanes.tolist()]


def _from_npz(content: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # noqa: BLE001 (a damaged archive shows as any error of zipfile, zlib or numpy)
        msg = f"expected an npz archive, got one that cannot be read: {quote(str(error) or type(error).__name__)}"
        raise UnusableFile(msg) from None
    about = arrays.pop("about", None)
    return _about_itself("" if about is None else str(about)), arrays


def _from_json(content: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    about = _about_itself(content.decode("utf-8", errors="replace"))
    arrays = {
        f"{row['name']}/{role}": _from_hex(texts)
        for row in _rows(about)
        for role, texts in row.items()
        if isinstance(texts, list) and role not in {"byte_id", "thread_id"}
    }
    return about, arrays


def _from_hex(cases: list[Any]) -> NDArray[Any]:
    """Words [case, lane, word]; refused where they are no hex words, or lanes and cases differ in length."""
    try:
        lanes = [[[int(word, 16) for word in lane.split()] for lane in case.split(",")] for case in cases]
        return np.array(lanes, np.uint32)
    except (AttributeError, ValueError, OverflowError):
        wrong = next((case for case in cases if not isinstance(case, str)), cases[0] if cases else "no case")
        msg = f"expected cases of hex words, lanes apart by a comma and all alike, got {quote(wrong)}"
        raise UnusableFile(msg) from None


def _about_itself(text: str) -> dict[str, Any]:
    """What a file says about itself; refused where `save` does not write such a file."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        about = None
    schema = about.get("schema") if isinstance(about, dict) else None
    if not isinstance(about, dict) or schema != SCHEMA:
        msg = f"expected test vectors of schema {SCHEMA}, got {'none' if schema is None else quote(schema)}"
        raise UnusableFile(msg)
    if "fragments" not in about:  # answers of the command line have a schema 1 too, but never this key
        msg = "expected test vectors as `save` writes them, got another JSON object"
        raise UnusableFile(msg)
    return about


def _rows(about: dict[str, Any]) -> list[dict[str, Any]]:
    """The description of each group."""
    rows = about.get("groups")
    if not isinstance(rows, list) or not rows:
        msg = f"expected a list of groups, got {quote(rows)}"
        raise UnusableFile(msg)
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            msg = f"expected a name for each group, got {quote(row)}"
            raise UnusableFile(msg)
    return rows


def _checked(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> tuple[Instruction, str, tuple[VectorGroup, ...]]:
    """The groups, each with the registers that the instruction has."""
    name: Any = about.get("instruction")  # whatever the file has; `get` refuses what is no name
    instruction = get(name, about["fragments"])
    if instruction.form.operation.does != "multiply":
        msg = f"expected a product, got {instruction.name}"
        raise UnusableFile(msg)
    arch = about.get("arch")
    if not isinstance(arch, str) or arch not in targets():
        msg = f"expected one of {', '.join(targets())} as arch, got {quote(arch)}"
        raise UnusableFile(msg)
    rows = _rows(about)
    names = [row["name"] for row in rows]
    if len(set(names)) < len(names):
        msg = f"expected groups of different names, got {quote(names)}"
        raise UnusableFile(msg)
    return instruction, arch, tuple(_group(instruction, row, arrays) for row in rows)


class CaseShape(NamedTuple):
    """The registers of one case: the axes of threads, and that of the words of a thread, if there may be several."""

    threads: tuple[int, ...]
    words: tuple[int, ...]

    @property
    def in_npz(self) -> tuple[int, ...]:
        """The axes of an array behind that of cases."""
        return (*self.threads, *self.words)

    @property
    def in_json(self) -> tuple[int, ...]:
        """The same in json, where threads are one axis, and words always another."""
        return (math.prod(self.threads), *(self.words or (1,)))


def _warp_shapes(instruction: Instruction, _call: AnyCall | None) -> dict[str, CaseShape]:
    """Every operand, in registers; metadata and scales are a word each."""
    return {
        role: CaseShape((operand.row.layout.lanes,), (operand.words,) if role in "abcd" else ())
        for role, operand in instruction.operands.items()
    }


def _warpgroup_shapes(instruction: Instruction, call: AnyCall | None) -> dict[str, CaseShape]:
    """The operands in registers, and the bytes of shared memory, of any number."""
    shapes = {role: CaseShape(WARPGROUP, (instruction.operands[role].words,)) for role in "cd"}
    shapes["shared"] = CaseShape((), (ANY_NUMBER,))
    if "metadata" in instruction.operands:
        shapes["metadata"] = CaseShape(WARPGROUP, ())
    if isinstance(call, WgmmaCall) and not call.variant.staged:
        shapes["a"] = CaseShape(WARPGROUP, (instruction.operands["a"].words,))
    return shapes


def _image_shapes(instruction: Instruction, _call: AnyCall | None) -> dict[str, CaseShape]:
    """The images of shared memory, of any size, and those of tensor memory."""
    shapes = image_shapes(product(instruction))
    return {role: CaseShape(axes, (ANY_NUMBER if words is None else words,)) for role, (axes, words) in shapes.items()}


def _no_call(_instruction: Instruction, _row: dict[str, Any], _choice: Immediates) -> None:
    return None


def _read_call(instruction: Instruction, row: dict[str, Any], choice: Immediates) -> WgmmaCall:
    """How a group of wgmma is called; refused where the instruction cannot be called like that."""
    try:
        call = WgmmaCall.read(row["call"], choice.selector)
        check(instruction, call.variant)
        for word in call.descriptors:
            Descriptor.decode(word)
    except (KeyError, TypeError, ValueError) as error:
        call_text = quote(row.get("call"))
        msg = f"group {quote(row['name'])}: expected a call as `save` writes it, got {call_text} ({error})"
        raise UnusableFile(msg) from None
    return call


def _read_tensor_call(instruction: Instruction, row: dict[str, Any], _choice: Immediates) -> TensorCall:
    """How a group of tcgen05 is called; refused where its descriptors are none of the instruction."""
    try:
        call = TensorCall.read(row["call"])
        for word in call.descriptors:
            Descriptor.decode(word, kind="tcgen05")
        TensorProduct(product(instruction).form, "", idesc=_idesc(instruction, call))
    except (KeyError, TypeError, ValueError) as error:
        call_text = quote(row.get("call"))
        msg = f"group {quote(row['name'])}: expected a call as `save` writes it, got {call_text} ({error})"
        raise UnusableFile(msg) from None
    return call


def _idesc(instruction: Instruction, call: TensorCall) -> InstructionDescriptor:
    return InstructionDescriptor.decode(call.idesc, kind=product(instruction).form.kind)


class FileScope(NamedTuple):
    """What differs in a file between products of a warp, a warpgroup and a block: the call, the shapes of arrays."""

    call: Callable[[Instruction, dict[str, Any], Immediates], AnyCall | None]
    shapes: Callable[[Instruction, AnyCall | None], dict[str, CaseShape]]


SCOPES = {
    "warp": FileScope(_no_call, _warp_shapes),
    "warpgroup": FileScope(_read_call, _warpgroup_shapes),
    "block": FileScope(_read_tensor_call, _image_shapes),
}


def _group(instruction: Instruction, row: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> VectorGroup:
    name, catches = row["name"], row.get("catches")
    if not isinstance(catches, str):
        msg = f"group {quote(name)}: expected a text for what it catches, got {quote(catches)}"
        raise UnusableFile(msg)
    choice = _choice(instruction, row)
    scope = SCOPES[instruction.form.operation.scope]
    call = scope.call(instruction, row, choice)
    words = {
        role: _words(row, role, arrays.get(f"{name}/{role}"), shape, may_be_empty=call is None)
        for role, shape in scope.shapes(instruction, call).items()
    }
    return VectorGroup(name, catches, words, words.pop("d"), choice, call)


def _words(
    row: dict[str, Any], role: str, words: NDArray[Any] | None, shape: CaseShape, *, may_be_empty: bool
) -> NDArray[np.uint32]:
    """The registers of one role; refused where the file has an array of another shape or type."""
    if shape.words == (ANY_NUMBER,):
        shape = shape._replace(words=(0 if words is None else words.shape[-1],))
    expected = (row.get("cases"), *shape.in_npz)
    if words is not None and words.shape == (row.get("cases"), *shape.in_json):
        words = words.reshape(len(words), *shape.in_npz)
    is_whole = words is not None and words.shape == expected and (may_be_empty or words.size > 0)
    if words is None or not is_whole or words.dtype != np.uint32:
        got = "nothing" if words is None else f"{words.dtype}{list(words.shape)}"
        msg = f"group {quote(row['name'])}: expected uint32{list(expected)} as {role}, got {got}"
        raise UnusableFile(msg)
    return words


def _choice(instruction: Instruction, row: dict[str, Any]) -> Immediates:
    """The immediates of a group; refused where the instruction does not have them."""
    ids = [row.get(key) for key in ("byte_id", "thread_id")]
    numbers = [row.get("selector"), *(number for pair in ids for number in (pair if isinstance(pair, list) else ()))]
    if [len(pair) for pair in ids if isinstance(pair, list)] != [2, 2] or any(
        type(item) is not int for item in numbers
    ):
        got = {key: row.get(key) for key in ("selector", "byte_id", "thread_id")}
        msg = f"group {quote(row['name'])}: expected a selector, two byte ids and two thread ids, got {quote(got)}"
        raise UnusableFile(msg)
    choice = Immediates(row["selector"], tuple(row["byte_id"]), tuple(row["thread_id"]))
    if instruction.form.operation.scope != "block":  # of tcgen05 they are in the instruction descriptor
        check_immediates(instruction.form, choice, instruction.operands.selected_layouts)
    return choice
