"""Checks, profile and debugger on machine code, without its PTX: planted mistakes are found, and nothing is claimed."""

import re
import struct

import numpy as np
import pytest

import small_kernel
import warpfrag as wf
from oracle import toolkit
from ptx import planted_mistakes

pytestmark = pytest.mark.one_engine
NOP = struct.pack("<QQ", 0x7918, 0x000FC00000000000)
GRIDS = dict.fromkeys(("blocks", "counter", "neighbours", "sum of the last block"), 2)
ASYNCHRONOUS = [
    row[:3]
    for row in planted_mistakes.PLANTED
    if row[3] in {"async", "race", "fence"}
    and row[0] not in {"blocks", "sum of the last block"}
    and "wgmma" not in row[0]
]
"""Mistakes that ptxas keeps: it inserts the waits of wgmma."""


def module_of(name, *mistake):
    toolkit.find_ptxas("sm_90a")
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")
    return wf.ptx.load(planted_mistakes.text_of(name, *mistake)).assemble(arch="sm_90a")


def arguments_of(name):
    out, data = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
    return {"grid": GRIDS.get(name, 1), "block": 128 if name.startswith("wgmma") else 64, "args": [out, data]}


@pytest.mark.parametrize("name", planted_mistakes.KERNELS)
def test_a_correct_kernel_has_no_finding(name):
    run = module_of(name)["k"].launch(**arguments_of(name), checks="all")
    assert run.findings == []
    assert run.verdict in {"clean", "incomplete"}


@pytest.mark.parametrize(("name", "mark", "instead"), ASYNCHRONOUS)
def test_a_mistake_is_found_in_machine_code(name, mark, instead):
    run = module_of(name, mark, instead)["k"].launch(**arguments_of(name), checks="all")
    assert run.verdict == "findings"
    assert {finding.check for finding in run.findings} <= {"races", "async"}
    addresses = {f"{inst.line:#x}" for inst in module_of(name, mark, instead)["k"].program.instructions}
    for finding in run.findings:
        assert re.search(r"\bat (0x[0-9a-f]+)\b", str(finding))[1] in addresses
        assert not re.search(r"\bline \d+\b(?!x)", str(finding))


@pytest.mark.parametrize("mark", [(), ("warp", "")], ids=["correct", "mistake"])
def test_the_order_within_a_warp_is_not_judged(mark):
    run = module_of("lanes", *mark)["k"].launch(**arguments_of("lanes"), checks="races")
    assert (run.verdict, run.findings) == ("incomplete", [])
    assert "machine code has no __syncwarp" in run.unjudged[0]


@pytest.mark.parametrize("mark", [(), ("release", ""), ("acquire", "")], ids=["correct", "release", "acquire"])
def test_acquire_and_release_are_not_judged(mark):
    run = module_of("blocks", *mark)["k"].launch(**arguments_of("blocks"), checks="races")
    assert (run.verdict, run.findings) == ("incomplete", [])
    assert "acquire and release" in run.unjudged[0]


def test_a_wgmma_without_its_wait_is_found():
    """ptxas always inserts the wait, so it is overwritten in the cubin."""
    module = module_of("wgmma")
    code = module.cubin["k"].code.relocated(module.address_of)
    start, data = module.cubin.data.index(code), bytearray(module.cubin.data)
    waits = [inst.line for inst in module["k"].program.instructions if inst.text.startswith("WARPGROUP.DEPBAR")]
    assert waits
    for address in waits:
        data[start + address : start + address + len(NOP)] = NOP
    run = wf.sass.load(bytes(data))["k"].launch(**arguments_of("wgmma"), checks="all")
    assert [finding.kind for finding in run.findings] == ["async"]
    assert "has not been waited for" in run.findings[0].text


def test_machine_code_is_profiled_and_debugged():
    kernel = module_of("wgmma")["k"]
    profile = kernel.launch(**arguments_of("wgmma")).profile
    assert any("HGMMA" in line.text and line.tensor_operations for line in profile.lines)
    debugger = kernel.debug(**arguments_of("wgmma"))
    assert str(debugger.step()).startswith("step at 0x0, block (0, 0, 0), warp 0: ")


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_branches_synchronise_at_different_instructions(engine):
    toolkit.find_ptxas("sm_90a")
    wait, out = "bar.warp.sync -1;", np.zeros(32, np.uint32)
    text = small_kernel.kernel(planted_mistakes.BRANCHES.format(low=wait, high=wait))
    wf.ptx.load(text).assemble(arch="sm_90a")["k"].launch(1, 32, [out], engine=engine)

    assert out.tolist() == [*range(31, -1, -1)]


@pytest.mark.parametrize("opcode", ["LEA", "LDS", "STS", "st.shared"])
def test_the_debugger_stops_once_at_a_machine_instruction(opcode):
    debugger = module_of("exchange")["k"].debug(**arguments_of("exchange"))
    point = debugger.break_at(opcode=opcode)
    stops = []
    while (stop := debugger.run()) is not None:
        stops.append(stop.line)

    code = debugger.program.instructions
    named = {inst.line for inst in code if opcode in (inst.name[: len(opcode)], inst.text[: len(opcode)])}
    assert named
    assert set(stops) == named
    assert len(stops) <= 2 * len(named)  # a stop for each warp, or one for both
    assert len(point.stops) == len(named)


def test_opcodes_are_counted_as_the_disassembler_writes_them():
    run = module_of("exchange")["k"].launch(**arguments_of("exchange"))
    code = {inst.line: inst.mnemonic for inst in module_of("exchange")["k"].program.instructions}
    rows = {row.line: row.instructions for row in run.profile.lines}
    assert set(run.counts.opcodes) == {code[line] for line in rows}
    assert run.counts.instructions == sum(rows.values())
    assert rows[min(rows)] == 2  # two warps
    assert {"STS", "LDS", "BAR.SYNC.DEFER_BLOCKING", "EXIT"} <= set(run.counts.opcodes)
