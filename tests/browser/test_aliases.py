"""Names from other tools: the search finds the instructions that Python finds, and the page shows names to copy."""

import re

import pytest

import warpfrag as wf
from instructions import of_a_warp
from warpfrag.isa.aliases import meaning
from warpfrag.isa.instruction_names import spell

START = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FOUND = "() => [...document.querySelectorAll('#results a')].map((link) => link.dataset.name)"
ASK = """async (queries) => {
  const query = document.querySelector('#query'), found = [];
  for (const text of queries) {
    query.value = text;
    query.dispatchEvent(new Event('input', { bubbles: true }));
    found.push([document.querySelector('#count').innerText, document.querySelector('#results a')?.dataset.name]);
  }
  return found;
}"""
PASTED = {
    "cute": "using Atom = MMA_Atom<SM80_16x8x16_F32F16F16F32_TN>;",
    "cute of types": "SM120_16x8x32_TN<float_e4m3_t,float_e5m2_t, half_t>",
    "sass": "HMMA.16816.F32 R4, R8, R10, R4 ;",
    "part of sass": "MOVM.U4TO8.M832",
    "nvvm": "call @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %p)",
}


def python_means(text):
    """Return the warp instructions that a text names, according to Python."""
    found = meaning(text)
    names = [spell(form) for form in (*found.forms, *found.among)]
    return [name for name in names if not name.startswith("wgmma")]


@pytest.mark.parametrize("case", PASTED)
def test_pasted_names_find_what_python_says_they_mean(explorer, case):
    tab = explorer.show()
    tab.fill("#query", PASTED[case])
    expected = python_means(PASTED[case])
    tab.wait_for_function("(count) => document.querySelectorAll('#results a').length === count", arg=len(expected))

    assert expected
    assert set(tab.evaluate(FOUND)) == set(expected)


def test_every_name_finds_its_instruction(explorer):
    tab = explorer.show()
    asked = [(name, instruction.name) for instruction in of_a_warp()[::14] for name in names_of(instruction)]
    found = tab.evaluate(ASK, [name for name, _ in asked])
    several = [(name, expected, first) for (name, expected), (_, first) in zip(asked, found, strict=True)]

    assert len(asked) > 100
    for (name, expected), (count, first) in zip(asked, found, strict=True):
        means = python_means(name)
        assert int(re.match(r"\d+", count)[0]) == len(means), name
        assert first in means, name
        assert expected in means, name
    assert sum(expected == first for _, expected, first in several) > len(several) / 2


def names_of(instruction):
    """Return one searchable name of an instruction per notation."""
    names = wf.aliases(instruction)
    single = [code for code in names["sass"].values() if " " not in code]
    return [name for name in (names["cute"], names["nvvm"], names["mlir"], *single[:1]) if name]


def test_names_are_shown_and_copied(explorer):
    tab = explorer.show(i=START)
    names = wf.aliases(START)
    shown = tab.locator("#called code").all_inner_texts()

    assert shown == [names["cute"], "HMMA.16816.F32", names["nvvm"], names["mlir"], *names["also"]]
    assert tab.locator("#called pre span").inner_text() == " ".join(names["sass"])
    for button, name in zip(tab.locator("#called button").all(), shown, strict=True):
        button.click()
        assert tab.evaluate("navigator.clipboard.readText()") == name


def test_what_means_nothing_finds_nothing(explorer):
    tab = explorer.show()
    for text in ["SM80_16x8x17_F32F16F16F32_TN", "FMMA.99", "nvvm.mma.sync {shape = #nvvm.shape<m = 1>}"]:
        tab.fill("#query", text)
        assert "No instruction matches" in tab.locator("#count").inner_text()
