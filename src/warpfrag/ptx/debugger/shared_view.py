"""The shared memory of a block that stands still, as bytes and as matrices.

Addresses are those that the kernel uses: its shared memory begins at `start`, behind what the system keeps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.codes import code_dtype, from_codes
from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.ptx.program.state_spaces import SHARED_START
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import Memory
from warpfrag.tensorcore.shared_operand import Shared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.smem.tensor_map import TensorMapFields
    from warpfrag.tensorcore.operand import Operand


class BoxMap(Protocol):
    """A `TensorMap`, as far as it says how a box lies in shared memory."""

    fields: TensorMapFields

    def memory(self, start: int = 0) -> Memory:
        """How a box lies from an address on."""


class SharedView:
    """The shared memory of one block: a view that changes as the kernel goes on."""

    start = SHARED_START

    def __init__(self, memory: NDArray[np.uint8], end: int) -> None:
        """Take the part of a block, from address 0 on; the kernel's own ends at `end`."""
        self._memory, self.end = memory, end

    def __repr__(self) -> str:
        """How much there is, and where."""
        return f"<shared memory of {self.end - self.start} bytes, {self.start:#x} to {self.end:#x}>"

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The bytes of the kernel, from `start` on; not to be written."""
        own = self._memory[self.start : self.end]
        own.flags.writeable = False
        return own

    def as_matrix(
        self,
        memory: Memory | Descriptor | BoxMap,
        shape: tuple[int, int] | None = None,
        format: str | Format | None = None,  # noqa: A002 (the word for it)
        *,
        start: int | None = None,
        operand: Operand | None = None,
        trans: bool = False,
        raw: bool = False,
    ) -> NDArray[Any]:
        """A matrix that lies in shared memory, in its natural dtype, or as unsigned codes with `raw=True`.

        Through a `Memory`, with the shape and the number format of the matrix; its own `start` counts from address 0,
        unless `start` is given. Through a `Descriptor`, with the operand of a wgmma that it is for. Through a
        `TensorMap`, from the address `start` on: a box as a matrix of its rows.
        """
        if isinstance(memory, Descriptor):
            if operand is None:
                msg = "a descriptor needs operand=, such as wgmma.b: its shape and its number format"
                raise InvalidOperand(msg)
            moved = memory if start is None else memory.moved(start - memory.start)
            return operand.load(Shared(self._memory[: self.end], moved, trans), raw=raw)
        if isinstance(memory, Memory):
            place = memory if start is None else replace(memory, start=start)
            if shape is None or format is None:
                msg = f"a Memory needs shape=(rows, cols) and format=, such as 'f16'; got {quote(shape)}"
                raise InvalidOperand(msg)
            kind = format if isinstance(format, Format) else _format(format)
            codes = place.read(self._memory[: self.end], shape, kind.bits).astype(code_dtype(kind))
            return codes if raw else from_codes(kind, codes)
        fields = getattr(memory, "fields", None)
        if fields is None:
            msg = f"expected a Memory, a Descriptor or a TensorMap, got {quote(memory)}"
            raise InvalidOperand(msg)
        return self._box(memory, fields, self.start if start is None else start, raw=raw)

    def _box(self, box: BoxMap, fields: TensorMapFields, start: int, *, raw: bool) -> NDArray[Any]:
        """A box of a tensor map: its rows below each other."""
        cols, *outer = fields.box_shape
        rows, bits = int(np.prod(outer)), 8 * fields.element.bytes
        codes = box.memory(start).read(self._memory[: self.end], (rows, cols), bits).astype(f"u{bits // 8}")
        name = fields.element.format
        return from_codes(FORMATS[name], codes) if not raw and name in FORMATS else codes


def _format(name: object) -> Format:
    """A number format by its name."""
    if not isinstance(name, str) or name not in FORMATS:
        msg = f"expected a number format, one of {', '.join(FORMATS)}; got {quote(name)}"
        raise InvalidOperand(msg)
    return FORMATS[name]
