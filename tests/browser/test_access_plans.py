"""The page's modules, run in the browser, agree with Python about memory and tiles."""

import json
import random
import re

import pytest

import warpfrag as wf
from warpfrag.plans.relayout import fragments, tiled_alike
from warpfrag.viz.explorer.page_builder import PAGE, join_modules

MODULES = ["layout.js", "memory.js", "access_plans.js"]
PITCHES = [None, None, 16, 24, 32, 48, 64, 80, 128, 128, 130, 144, 256, 272, 4096]
MOVER = "ldmatrix.sync.aligned.m8n8.x1{}.shared.b16"
BYTE_MOVERS = re.compile(r"m16n16|m16n8|m8n16")  # of few targets: the page leaves them to the command
CASES = 120


@pytest.fixture(scope="module")
def modules(browser):
    """The modules that need no page, as functions in an empty tab."""
    script = join_modules({name: (PAGE / name).read_text(encoding="utf-8") for name in MODULES})
    tab = browser.new_page()
    tab.evaluate(f"() => {{ {script}; Object.assign(globalThis, {{ accessPlansOf, tiled, elementAt, extentOf }}); }}")
    yield tab
    tab.close()


def run(modules, function, given):
    """Return the result of a function, as text: thousands of single values are slow to transfer."""
    script = f"(text) => JSON.stringify(({function})(JSON.parse(text)))"
    return json.loads(modules.evaluate(script, json.dumps(given)))


def as_page_has(data, operand):
    """An operand, as the page knows it before it is tiled."""
    name, role = operand.instruction, operand.role
    row = next(row for row in data["instructions"] if row["name"] == name)
    written = data["operands"][row["operands"][role]]
    layout = data["layouts"][written["layout"]]
    sizes = {axis: 1 << len(layout[axis[:-1]]) for axis in ("regs", "slots")}
    return {**written, **sizes, "layout": layout}


def test_plans_addresses_and_conflicts(modules, data):
    movers = {
        word: {**as_page_has(data, wf.get(MOVER.format(trans)).d), "addresses": None}
        for word, trans in (("plain", ""), ("trans", ".trans"))
    }
    rows = {row["name"]: row for row in data["instructions"]}
    for word, trans in (("plain", ""), ("trans", ".trans")):
        movers[word]["addresses"] = data["layouts"][rows[MOVER.format(trans)]["addresses"]]
    chance = random.Random(13)
    matrices = [one for one in fragments() if one.layout.dims == ("row", "col")]
    cases, expected = [], []
    for number in range(CASES):
        operand = matrices[number % len(matrices)]
        counts = chance.choice([(1, 1), (1, 1), (1, 2), (2, 1), (2, 2)])
        order, pitch = chance.choice(["row", "col"]), chance.choice(PITCHES)
        swizzle, verb = chance.choice([0, 32, 64, 128]), chance.choice(["load", "store"])
        memory = wf.Memory(order, pitch, swizzle)
        plans = (wf.loads if verb == "load" else wf.stores)(operand.tiled(row=counts[0], col=counts[1]), memory)
        cases.append([as_page_has(data, operand), counts, {"order": order, "pitch": pitch, "swizzle": swizzle}, verb])
        expected.append([[plan.name, plan.instructions, plan.passes, plan.conflicts, plan.cost,
                          [[one.instruction, list(one.words), list(one.addresses), one.width, one.slot,
                            one.passes, one.conflicts] for one in plan.accesses]]
                         for plan in plans if not BYTE_MOVERS.search(plan.name)])  # fmt: skip
    found = run(
        modules,
        """([cases, movers]) => cases.map(([operand, counts, memory, verb]) => {
          const layout = tiled(operand.layout, counts);
          const whole = { ...operand, layout, regs: extentOf(layout, "reg") };
          return accessPlansOf(whole, memory, verb, movers).map((plan) => [
            plan.name, plan.instructions, plan.passes, plan.conflicts, plan.cost, plan.accesses.map((one) =>
              [one.instruction, one.words, one.addresses, one.width, one.slot ?? null, one.passes, one.conflicts]),
          ]);
        })""",
        [cases, movers],
    )

    names = {plan[0] for plans in expected for plan in plans}
    assert any("movmatrix" in name for name in names)
    assert any("v4" in name for name in names)
    assert any(".trans" in name for name in names)
    for case, mine, its in zip(cases, expected, found, strict=True):
        assert its == mine, case[1:]


def test_tiles_are_those_of_python(modules, data):
    pairs = [tiled_alike(one, other) for one in fragments() for other in fragments()]
    tiled = {}
    for pair in filter(None, pairs):
        for operand, single in zip(pair, (one.instruction for one in pair), strict=True):
            tiled[operand.layout] = wf.get(single).operands[operand.role], operand
    cases, expected = [], []
    for single, whole in list(tiled.values())[::3]:
        counts = [whole.layout.outs[dim] // extent for dim, extent in single.layout.outs.items()]
        cases.append([as_page_has(data, single)["layout"], counts])
        expected.append([list(whole.layout.at(**place._asdict())) for place in whole.layout.places()])
    found = run(
        modules,
        """(cases) => cases.map(([layout, counts]) => {
          const whole = tiled(layout, counts), all = [];
          for (let lane = 0; lane < extentOf(whole, "lane"); lane++)
            for (let reg = 0; reg < extentOf(whole, "reg"); reg++)
              for (let slot = 0; slot < extentOf(whole, "slot"); slot++) all.push(elementAt(whole, lane, reg, slot));
          return all;
        })""",
        cases,
    )

    assert len(cases) > 30
    assert {count for _, counts in cases for count in counts} == {1, 2, 4}
    assert found == expected
