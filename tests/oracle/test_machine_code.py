"""Machine code compared with the disassembler: the table lists the instructions that it prints."""

import os

import pytest

from oracle.machine_code import TARGETS, disassembled, listed, pattern, rows
from warpfrag.isa.aliases import machine_code
from warpfrag.isa.legality import resolve

# All of them take as long as to write the table; a sample in between.
STEP = 1 if os.environ.get("WARPFRAG_ASSEMBLE_EVERYTHING") == "1" else 13


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_table_has_what_a_disassembler_prints(target, tmp_path, record_property):
    sample = listed(target)[TARGETS.index(target) :: STEP]
    found = disassembled(sample, target, tmp_path)

    assert {one.form: machine_code(one.form).get(target) for one in sample} == {
        one.form: found.get(one.form) for one in sample
    }
    assert len(found) >= min(len(sample), 15)
    record_property("assembler: instructions disassembled", len(found))


def test_a_pattern_has_places_for_the_words_of_an_instruction():
    form = resolve("mma.m16n8k32.satfinite.s32.s8.u8.s32")
    assert pattern(form, "IMMA.16832.S8.U8.SAT") == "IMMA.{mnk}.{A}.{B}{.SAT}"
    wrapped = resolve("mma.m16n8k32.s32.s8.u8.s32")
    codes = {form: {"sm_80": "IMMA.16832.S8.U8.SAT"}, wrapped: {"sm_80": "IMMA.16832.S8.U8"}}
    ((lists, patterns),) = rows(codes)

    assert (lists["a"], lists["b"], patterns) == (["s8"], ["u8"], {"sm_80": "IMMA.{mnk}.{A}.{B}{.SAT}"})
