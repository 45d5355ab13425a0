"""The data of the page agrees with the tables."""

import json
import re
from functools import cache

import pytest

import warpfrag as wf
from instructions import everything, of_a_warp
from warpfrag.isa.targets import targets
from warpfrag.viz.explorer.explorer_data import of_warp
from warpfrag.viz.explorer.page_builder import PAGE, build_page, join_modules


@cache
def data():
    """Return the data in the page; tests/viz/test_build.py checks that it is complete."""
    page = build_page()
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])


def test_every_instruction_is_there_once():
    assert [row["name"] for row in data()["instructions"]] == [instruction.name for instruction in of_a_warp()]
    assert data()["version"] == wf.__version__
    assert data()["targets"] == list(targets())


def test_the_page_reads_everything_that_is_written():
    script = join_modules({path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")})
    things = [
        data(),
        *(thing for listed in ("instructions", "warpgroups", "operands", "layouts") for thing in data()[listed]),
        data()["tensor"],
        *(row for listed in ("moves", "products") for row in data()["tensor"][listed]),
        *(shape for row in data()["tensor"]["products"] for shape in row["shapes"]),
    ]
    fields = {field for thing in [*things, *data()["patterns"].values()] for field in thing}

    assert len(fields) > 30
    assert [field for field in sorted(fields) if not re.search(rf"\b{field}\b", script)] == []


@pytest.mark.parametrize("listed", ["texts", "layouts", "operands", "target_sets", "evidence", "evidence_sets"])
def test_nothing_is_said_twice(listed):
    entries = [json.dumps(entry) for entry in data()[listed]]

    assert entries
    assert len(entries) == len(set(entries))


def test_every_operand_is_that_of_the_instruction():
    for row, instruction in zip(data()["instructions"], of_a_warp(), strict=True):
        assert list(row["operands"]) == sorted(instruction.operands)
        for role, place in row["operands"].items():
            written, operand = data()["operands"][place], instruction.operands[role]
            layout = data()["layouts"][written["layout"]]
            assert written["format"] == operand.format.name
            assert written["ptx_type"] == operand.ptx_type
            assert data()["format_bits"][written["format"]] == operand.format.bits
            assert layout["dims"] == list(operand.spec.layout.dims)
            assert layout["shape"] == list(operand.spec.layout.shape)
            low = written["low"] + (operand.slots - 1) * written["container"]
            assert low == operand.bits(operand.slots - 1).low


def written_layouts():
    """Every layout as the page has it, with the layout that it was written from."""
    found = {}
    for row, instruction in zip(data()["instructions"], of_a_warp(), strict=True):
        for role, place in row["operands"].items():
            found[data()["operands"][place]["layout"]] = instruction.operands[role].spec.layout
        if "addresses" in row:
            found[row["addresses"]] = instruction.addresses
    for row in data()["warpgroups"]:
        widest = wf.get(row["name"].replace("{n}", "256"))
        for role, place in row["operands"].items():
            found[data()["operands"][place]["layout"]] = widest.operands[role].spec.layout
        width, place = row["moved"]  # D of the width whose relayouts are known
        found[data()["operands"][place]["layout"]] = wf.get(row["name"].replace("{n}", str(width))).d.layout
    for row in data()["tensor"]["moves"]:
        longest = wf.get(row["name"].replace("{x}", str(row["repeats"][-1])))
        for role, place in row["operands"].items():
            found[data()["operands"][place]["layout"]] = of_warp(longest.operands[role].layout)
    return found


def test_bases_evaluate_to_the_layout():
    """The page joins bases by xor; done here with its data, the result is the layout's own."""
    layouts = written_layouts()
    assert sorted(layouts) == list(range(len(data()["layouts"])))
    for number, layout in layouts.items():
        written = data()["layouts"][number]
        for place in list(layout.places())[:: max(1, layout.regs * layout.slots // 8)]:
            coordinates = [0] * len(written["dims"])
            for name, index in place._asdict().items():
                for bit, steps in enumerate(written[name]):
                    if index >> bit & 1:
                        coordinates = [one ^ step for one, step in zip(coordinates, steps, strict=True)]
            assert tuple(coordinates) == layout.at(**place._asdict())


def test_every_width_of_a_warpgroup_is_there_once():
    named = [row["name"].replace("{n}", str(width)) for row in data()["warpgroups"] for width in row["widths"]]

    assert sorted(named) == sorted(one.name for one in everything() if one.form.is_warpgroup)
    assert len(named) == 1074


@pytest.mark.slow
def test_a_warpgroup_is_written_as_the_widest_and_true_of_all_widths():
    """The page puts n into the texts, cuts D to n columns, and takes the formulas as they are."""
    for row in data()["warpgroups"]:
        for width in (8, 24, row["widths"][-2]):
            instruction = wf.get(row["name"].replace("{n}", str(width)))
            texts = [text.replace("{n}", str(width)) for text in data()["texts"]]
            cute, sass, _, _, also = row["names"]
            names = wf.aliases(instruction)
            assert [texts[place] for place in cute] == [name for name in [names["cute"]] if name]
            assert [texts[place] for place in also] == [name for name in (names["mlir"], *names["also"]) if name]
            assert [texts[code] for code, _ in sass] == list(dict.fromkeys(names["sass"].values()))
            ((_, place),) = data()["evidence_sets"][row["evidence"]]
            known = instruction.evidence("sm_90")
            level, detail, machine = (texts[text] for text in data()["evidence"][place])
            assert (level, machine) == (known.level, known.machine)
            assert detail or not known.detail
            assert row["staged"] == {"format": instruction.b.format.name, "rows": instruction.b.shape[0]}
            widest, mine = wf.get(row["name"].replace("{n}", "256")).d, instruction.d
            for place in list(mine.layout.places())[::97]:
                assert widest.layout.at(**place._asdict()) == mine.layout.at(**place._asdict())
            assert mine.regs * 256 == widest.regs * width
            assert instruction.a.spec.layout == wf.get(row["name"].replace("{n}", "256")).a.spec.layout


def test_legality_sparsity_and_evidence_are_those_of_the_instruction():
    for row, instruction in zip(data()["instructions"], of_a_warp(), strict=True):
        assert data()["target_sets"][row["targets"]] == list(instruction.targets)
        assert row.get("selectors", []) == list(instruction.selectors)
        assert row.get("pattern", "") == (instruction.pattern.name if instruction.pattern else "")
        assert ("evidence" in row) == instruction.form.is_product
        if "evidence" in row:
            arch, place = data()["evidence_sets"][row["evidence"]][-1]
            found = instruction.evidence(arch)
            level, detail, machine = (data()["texts"][text] for text in data()["evidence"][place])
            assert (level, machine) == (found.level, found.machine)
            assert found.detail.endswith(detail)
            assert found.detail == detail or f"is not modelled on {arch}: {detail}" in found.detail


def test_names_from_elsewhere_are_those_of_the_instruction():
    texts, found = data()["texts"], 0
    for row, instruction in zip(data()["instructions"], of_a_warp(), strict=True):
        names = wf.aliases(instruction)
        cute, sass, nvvm, mlir, also = row["names"]
        before, behind, *attributes = (texts[place] for place in mlir or (0, 0))
        assert [texts[place] for place in cute] == [name for name in [names["cute"]] if name]
        assert [texts[place] for place in nvvm] == [name for name in [names["nvvm"]] if name]
        assert {t: texts[code] for code, some in sass for t in data()["target_sets"][some]} == names["sass"]
        assert [texts[place] for place in also] == list(names["also"])
        assert names["mlir"] is None or f"{before} {{{', '.join(attributes)}}}{behind}" == names["mlir"]
        found += bool(mlir)
    assert found > 400


def test_codes_are_those_of_the_pattern():
    for name, written in data()["patterns"].items():
        pattern = next(i.pattern for i in wf.find(sparse=True) if i.pattern.name == name)
        assert {code: tuple(columns) for code, columns in written["rising"]} == pattern.rising
        assert {code: tuple(columns) for code, columns in written["descending"]} == pattern.descending
        assert (written["chunk"], written["kept"]) == (pattern.chunk, pattern.kept)
    assert sorted(data()["patterns"]) == ["1:2", "2:4", "4:8"]


def test_every_product_of_tcgen05_is_there_once():
    """Forty spellings, with lists of shapes and types, represent all products."""
    tensor = data()["tensor"]
    named = [
        f"{row['name']}.m{shape['m']}n{n}k{shape['k']}.{types}"
        for row in tensor["products"]
        for shape in row["shapes"]
        for n in tensor["width_lists"][shape["widths"]]
        for types in tensor["type_lists"][row["types"]]
    ]
    every = [each.name for each in wf.find(op="tcgen05") if each.form.is_typed]

    assert len(every) > 15_000
    assert sorted(named) == sorted(every)
    assert len(tensor["products"]) == 40


def test_every_load_and_store_of_tensor_memory_is_there_once():
    named = [row["name"].replace("{x}", str(repeat)) for row in data()["tensor"]["moves"] for repeat in row["repeats"]]

    assert sorted(named) == sorted(one.name for op in ("tcgen05.ld", "tcgen05.st") for one in wf.find(op=op))
    for row in data()["tensor"]["moves"]:
        for repeat in row["repeats"]:
            texts = [text.replace("{x}", str(repeat)) for text in data()["texts"]]
            names = wf.aliases(row["name"].replace("{x}", str(repeat)))
            cute, _, nvvm, _, also = row["names"]
            assert [texts[place] for place in cute] == [name for name in [names["cute"]] if name]
            assert [texts[place] for place in nvvm] == [name for name in [names["nvvm"]] if name]
            assert [texts[place] for place in also] == [name for name in [names["mlir"], *names["also"]] if name]
