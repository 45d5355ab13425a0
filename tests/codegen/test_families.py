"""Every operation has exactly one family of writers."""

from warpfrag import find
from warpfrag.codegen.emit import FAMILIES


def test_every_operation_is_of_one_family():
    operations = [operation for family in FAMILIES for operation in family.operations]

    assert len(set(operations)) == len(operations)
    assert {instruction.op for instruction in find()} == set(operations)
