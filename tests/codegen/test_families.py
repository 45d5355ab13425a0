"""Every operation has a family, and every family a writer in each language."""

from __future__ import annotations

from warpfrag import find
from warpfrag.codegen import cuda_wrappers as cuda
from warpfrag.codegen import ptx_wrappers as ptx
from warpfrag.codegen.emit_families import FAMILIES, OPERATIONS, family


def test_every_operation_is_of_one_family():
    operations = [operation for several in OPERATIONS.values() for operation in several]

    assert len(set(operations)) == len(operations)
    assert {instruction.op for instruction in find()} == set(operations)
    assert {family(instruction) for instruction in find()} == set(FAMILIES)


def test_every_family_has_writers():
    assert [*cuda.WRITERS] == [*ptx.WRITERS] == [*OPERATIONS] == [*FAMILIES]
