"""Suggest the change to a kernel that fixes a mistake, from the rows of `tables/fixes.toml`."""

import re
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.findings import Mistake, Suspect, Words
from warpfrag.isa.targets import gpu_names
from warpfrag.layout.index_expressions import element_formulas, evaluate, linear
from warpfrag.tables import read_table
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.operand import AnyOperand, Operand

MIN_BITS = 8  # elements must have at least this many bits to be numbered
FIXES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(row["pattern"]), row["text"]) for row in read_table("fixes")["fix"]
)


def fix(operands: Mapping[str, AnyOperand], suspect: Suspect) -> str:
    """Return the change to a kernel that fixes a mistake with one of an instruction's operands."""
    named = f"{suspect.kind}: {suspect.text}"
    match, text = next((match, text) for pattern, text in FIXES if (match := pattern.match(named)))
    return text.format(match[0], *match.groups(), **_facts(operands[suspect.operand], suspect))


def _facts(operand: AnyOperand, suspect: Suspect) -> dict[str, object]:
    """Return the values for the placeholders in the text of a fix."""
    rows, cols = operand.shape[-2:]
    has_pairs = operand.storage != "shared" and operand.slots == 2
    return {
        "name": suspect.operand.upper() if len(suspect.operand) == 1 else suspect.operand,
        "verb": "store" if suspect.operand == "d" else "load",
        "turned": "; or, if B is meant to be column-major, pass the kernel B.T" if suspect.operand == "b" else "",
        "rows": rows,
        "cols": cols,
        "format": operand.format,
        "instruction": operand.instruction,
        "gpu": gpu_names([getattr(suspect, "arch", "")]),
        "index": index_text(operand, suspect),
        "blocks": _blocks(operand),
        "halves": "put the lower index into the low half" if has_pairs else "exchange the 16-bit halves",
    }


def index_text(operand: AnyOperand, suspect: Suspect | None = None) -> str:
    """Return C expressions for the row and column of a lane's element i and, if known, those that the kernel uses."""
    formulas = {} if operand.storage == "shared" else element_formulas(operand.layout)
    if not {"row", "col"} <= formulas.keys():
        return ""
    right = f"{operand.role.upper()}[{formulas['row']}][{formulas['col']}]"
    wrong = _wrong_index(operand, suspect) if isinstance(operand, Operand) and isinstance(suspect, Mistake) else ""
    return f"element i of each lane must be {right}" + (f", not {wrong}" if wrong not in {"", right} else "")


def _wrong_index(operand: Operand, mistake: Mistake) -> str:
    """Return C expressions for the element that a kernel with a mistake uses instead, or "" if there are none."""
    layout, count = operand.layout, operand.regs * operand.slots
    is_sum = layout.dims == ("row", "col") and layout.is_bitwise and layout.copies == 1 and len(operand.threads) == 1
    found = moved_elements(operand, mistake.change) if is_sum and operand.format.bits >= MIN_BITS else None
    if found is None:
        return ""
    flat = (found[0] * operand.shape[1] + found[1]).ravel()
    if operand.role == "d":  # invert the map, from the stored element to its location
        if np.unique(flat).size < flat.size:
            return ""
        flat = np.argsort(flat)
    numbers, texts = flat[fragment.elements(layout).reshape(-1)], []
    for axis in np.divmod(numbers, operand.shape[1]):
        bits = {"lane": [count << bit for bit in range(5)], "i": [1 << bit for bit in range((count - 1).bit_length())]}
        formula = linear({name: [int(axis[at] ^ axis[0]) for at in some] for name, some in bits.items()}, int(axis[0]))
        if any(evaluate(formula, {"lane": at // count, "i": at % count}) != value for at, value in enumerate(axis)):
            return ""
        texts.append(f"[{formula}]")
    return f"{operand.role.upper()}{''.join(texts)}"


def moved_elements(
    operand: Operand, change: Callable[[Words], Words]
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Return the row and column from which every element comes after a change of registers; None if some are lost."""
    grids = (np.indices(operand.shape) + 1).astype(f"u{operand.format.bits // 8}")  # 0 marks a slot without an element
    row, col = (operand.unpack(change(operand.pack(grid, raw=True)), raw=True).astype(np.intp) - 1 for grid in grids)
    ends = zip((row, col), operand.shape, strict=True)
    return (row, col) if all((at >= 0).all() and (at < extent).all() for at, extent in ends) else None


def _blocks(operand: AnyOperand) -> str:
    if operand.storage == "shared":
        return ""
    zero = dict.fromkeys(operand.layout.ins, 0)
    corners = [tuple(operand.layout.at(**zero | {"reg": reg}))[-2:] for reg in range(operand.regs)]
    return ", ".join(f"({row}, {col})" for row, col in corners)
