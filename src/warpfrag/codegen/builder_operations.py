"""Simple operations on registers, of which CUDA C++ and PTX write each in its own words.

A plan that only shifts, masks, permutes and exchanges words is lowered once to these operations, and any builder
writes it. Every operation is a row of `SPELLINGS`; one that is asked for twice with the same operands is computed once.

    >>> from warpfrag.codegen.cuda_builder import CudaBuilder
    >>> operations = RegisterOperations(CudaBuilder())
    >>> operations.do("and", operations.thread, 3), operations.do("and", operations.thread, 3)
    ('r0', 'r0')
    >>> operations.finish()
    >>> for line in operations.builder.body():
    ...     print(line)
    uint32_t lane; asm("mov.u32 %0, %laneid;" : "=r"(lane));
    uint32_t r0 = lane & 0x3;
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.codegen.spellings import LANE, SPELLINGS

if TYPE_CHECKING:
    from warpfrag.codegen.cuda_builder import CudaBuilder
    from warpfrag.codegen.ptx_builder import PtxBuilder
    from warpfrag.codegen.spellings import ThreadIndex


class RegisterOperations:
    """Operations in the order in which they are asked for, written by a builder; every result has its own register."""

    def __init__(self, builder: PtxBuilder | CudaBuilder, index: ThreadIndex = LANE) -> None:
        """`index` is the number of the thread that operations may depend on."""
        self.builder = builder
        self.index = index
        self.thread = builder.named(index.name)
        self._results: dict[tuple[str, tuple[str | int, ...]], str] = {}

    def do(self, name: str, *operands: str | int) -> str:
        """The register with the result of an operation, a row of `SPELLINGS`; written unless it was before."""
        key = name, operands
        if key not in self._results:
            self._results[key] = self.builder.temporary(len(self._results))
            self.builder.operation(SPELLINGS[name], self._results[key], operands)
        return self._results[key]

    def finish(self) -> None:
        """Declare the registers of all results, and read the number of the thread first if an operation uses it."""
        self.builder.declare_temporaries(len(self._results))
        if any(self.thread in operands for _, operands in self._results):
            self.builder.start_with_index(self.index)
