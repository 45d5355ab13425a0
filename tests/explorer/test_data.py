"""What the page knows is what the tables say."""

from __future__ import annotations

import json
from functools import cache

import pytest

import warpfrag as wf
from warpfrag.explorer.data import page_data
from warpfrag.isa.rows import targets


@cache
def data():
    return json.loads(json.dumps(page_data()))


def test_every_instruction_is_there_once():
    assert [row["name"] for row in data()["instructions"]] == [instruction.name for instruction in wf.find()]
    assert data()["schema"] == 1
    assert data()["version"] == wf.__version__
    assert list(data()["targets"]) == list(targets())


@pytest.mark.parametrize("listed", ["texts", "layouts", "operands", "target_sets", "evidence", "evidence_sets"])
def test_nothing_is_said_twice(listed):
    entries = [json.dumps(entry) for entry in data()[listed]]

    assert entries
    assert len(entries) == len(set(entries))


def test_every_operand_is_that_of_the_instruction():
    for row, instruction in zip(data()["instructions"], wf.find(), strict=True):
        assert list(row["operands"]) == list(instruction.operands)
        for role, place in row["operands"].items():
            written, operand = data()["operands"][place], instruction.operands[role]
            layout = data()["layouts"][written["layout"]]
            assert written["format"] == operand.format.name
            assert written["ptx_type"] == operand.ptx_type
            assert data()["formats"][written["format"]]["bits"] == operand.format.bits
            assert data()["texts"][written["source"]] == operand.source
            assert layout["text"] == str(operand.row.layout)
            assert layout["shape"] == list(operand.row.layout.shape)
            low = written["low"] + (operand.slots - 1) * written["container"]
            assert low == operand.bits(operand.slots - 1).low


def test_bases_evaluate_to_the_layout():
    """The page joins bases by xor; done here with its data, the result is the layout's own."""
    layouts = {str(operand.row.layout): operand.row.layout for i in wf.find() for operand in i.operands.values()}
    checked = 0
    for written in data()["layouts"]:
        layout = layouts.get(written["text"])
        if layout is None or list(layout.shape) != written["shape"]:
            continue  # the addresses of a mover
        for place in list(layout.places())[:: max(1, layout.regs * layout.slots // 8)]:
            coordinates = [0] * len(written["dims"])
            for name, index in place._asdict().items():
                for bit, (dim, step) in enumerate(written[name]):
                    coordinates[dim] ^= step if index >> bit & 1 else 0
            assert tuple(coordinates) == layout.at(**place._asdict())
            checked += 1
    assert checked > 1000


def test_legality_sparsity_and_evidence_are_those_of_the_instruction():
    for row, instruction in zip(data()["instructions"], wf.find(), strict=True):
        assert data()["target_sets"][row["targets"]] == list(instruction.targets)
        assert row.get("selectors", []) == list(instruction.selectors)
        assert row.get("pattern", "") == (instruction.pattern.name if instruction.pattern else "")
        assert ("evidence" in row) == instruction.form.is_product
        if "evidence" in row:
            arch, place = data()["evidence_sets"][row["evidence"]][0]
            found = instruction.evidence(arch)
            texts = [data()["texts"][text] for text in data()["evidence"][place]]
            assert texts == [found.level, found.detail, found.machine]


def test_codes_are_those_of_the_pattern():
    for name, written in data()["patterns"].items():
        pattern = next(i.pattern for i in wf.find(sparse=True) if i.pattern.name == name)
        assert {code: tuple(columns) for code, columns in written["rising"]} == pattern.rising
        assert {code: tuple(columns) for code, columns in written["descending"]} == pattern.descending
        assert (written["chunk"], written["kept"]) == (pattern.chunk, pattern.kept)
    assert sorted(data()["patterns"]) == ["1:2", "2:4", "4:8"]
