"""Every operation has a family, and every family a writer in each language."""

from __future__ import annotations

from warpfrag import find
from warpfrag.codegen.emit import FAMILIES, OPERATIONS, WRITERS


def test_every_operation_is_of_one_family():
    operations = [operation for several in OPERATIONS.values() for operation in several]

    assert len(set(operations)) == len(operations)
    assert {instruction.op for instruction in find()} == set(operations)


def test_every_family_has_writers():
    assert [*WRITERS] == [*OPERATIONS] == [*FAMILIES]
