"""The generated parts of pages are up to date: run the command again and compare."""

import json
from pathlib import Path

import facts
import generate
import generated_tables
import pytest

import warpfrag as wf
from instructions import of_a_warp
from warpfrag.cli import VERBS
from warpfrag.isa.targets import architectures, targets

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_no_page_is_out_of_date():
    assert [path.relative_to(ROOT).as_posix() for path in generate.outdated()] == []


def test_pages_hold_regions():
    used = {
        found[2]
        for path in generate.pages()
        for found in generated_tables.REGION.finditer(path.read_text(encoding="utf-8"))
    }

    assert used == set(generated_tables.REGIONS)


def test_a_wrong_number_is_out_of_date_and_written_anew():
    page = "before\n<!-- generated: facts -->\n| instructions | 1 |\n<!-- end of facts -->\nafter\n"
    filled = generated_tables.fill(page)

    assert filled.startswith("before\n<!-- generated: facts -->\n|  | count |\n")
    assert f"| instructions | {len(wf.find())} |" in filled
    assert filled.endswith("<!-- end of facts -->\nafter\n")
    assert generated_tables.fill(filled) == filled


def test_an_unknown_region_is_refused():
    with pytest.raises(KeyError, match="no region is called 'weather': there are facts, "):
        generated_tables.fill("<!-- generated: weather -->\n<!-- end of weather -->")


def test_facts_are_those_of_the_package():
    counted = facts.facts()

    assert counted["instructions"] == len(wf.find())
    assert counted["targets"] == len(targets())
    assert counted["captured cases"] == sum(gpu.cases for gpu in facts.captured_gpus()) > 0
    assert all(isinstance(number, int) and number > 0 for number in counted.values())


def test_the_facts_can_be_printed(capsys):
    assert generate.main(["--facts"]) == 0
    assert json.loads(capsys.readouterr().out) == facts.facts()


def test_a_wrong_argument_is_refused(capsys):
    assert generate.main(["--fact"]) == 2
    assert "python docs/generate.py --facts" in capsys.readouterr().err


def test_evidence_covers_every_product_on_every_architecture():
    found = facts.evidence_by_architecture()
    products = [instruction for instruction in wf.find() if instruction.form.is_product]

    assert tuple(found) == architectures()
    for arch, known in found.items():
        names = {name for name, target in targets().items() if target.arch == arch}
        assert set(known.authorities) <= set(generated_tables.AUTHORITIES)
        assert known.authorities.total() == sum(bool(names & set(product.targets)) for product in products)


def test_being_compared_with_hardware_takes_nothing_from_who_defines_it():
    known = facts.evidence_by_architecture()["sm_90"]
    integers = [one for one in wf.find(arch="sm_90a", d="s32") if one.form.is_product]
    of_warps = [one for one in of_a_warp() if one.form.is_product and "sm_90a" in one.targets]

    assert known.authorities["specified"] == len(integers) == 478
    assert known.compared >= len(of_warps) == 328
    assert all(one.evidence("sm_90").cases for one in of_warps)
    assert (known.gpus, known.cases) == (("NVIDIA H200",), sum(gpu.cases for gpu in facts.captured_gpus()))
    assert facts.evidence_by_architecture()["sm_80"].compared == 0


def test_the_verbs_are_those_of_the_command():
    table = generated_tables.verbs_table()

    assert [line.split("`")[1] for line in table.splitlines()[2:]] == [f"warpfrag {verb}" for verb in VERBS]
