"""The tables: every row is complete and has a source, and an invalid row is rejected when it is read."""

from dataclasses import fields
from pathlib import Path

import pytest

from warpfrag import tables
from warpfrag.formats.number_formats import Format
from warpfrag.isa import legality
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.instruction_table import Family, families, forms, forms_on
from warpfrag.isa.operands import OperandSpec, operands
from warpfrag.isa.operations import OPS
from warpfrag.isa.qualifiers import FIXED, QUALIFIERS, Form, Shape
from warpfrag.isa.sparsity_patterns import pattern
from warpfrag.isa.targets import targets
from warpfrag.layout.linear_layout import Layout
from warpfrag.tables import read_table

FOLDER = Path(tables.__file__).with_suffix("")


def sourced(entry: object) -> bool:
    """Return True if a table entry, or each of its parts, names its source."""
    if isinstance(entry, dict):
        parts = [part for part in entry.values() if isinstance(part, dict | list)]
        return "source" in entry or (bool(parts) and all(map(sourced, parts)))
    return isinstance(entry, list) and bool(entry) and all(map(sourced, entry))


@pytest.mark.parametrize(
    "name", sorted({path.stem for path in FOLDER.glob("*.toml")} - {"figures", "fixes", "references", "scope"})
)
def test_every_fact_has_a_source(name: str):
    assert sourced(read_table(name))


def test_a_missing_table_is_an_error():
    with pytest.raises(FileNotFoundError):
        read_table("no such table")


def test_an_empty_table_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "empty.toml").write_text("# nothing\n", encoding="utf-8")
    monkeypatch.setattr("warpfrag.tables.__file__", f"{tmp_path}.py")
    with pytest.raises(ValueError, match="table empty is empty"):
        read_table("empty")


def test_a_table_is_parsed_again_only_when_it_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("warpfrag.tables.__file__", f"{tmp_path}.py")
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.setattr("sys.pycache_prefix", None)
    (tmp_path / "some.toml").write_text("row = {bits = 4, kinds = ['s4']}\n", encoding="utf-8")
    assert read_table.__wrapped__("some") == {"row": {"bits": 4, "kinds": ["s4"]}}
    with monkeypatch.context() as parsing_fails:
        parsing_fails.delattr("tomllib.loads")
        assert read_table.__wrapped__("some") == {"row": {"bits": 4, "kinds": ["s4"]}}
    (tmp_path / "some.toml").write_text("row = 1\n", encoding="utf-8")
    assert read_table.__wrapped__("some") == {"row": 1}


def test_a_name_that_is_out_of_scope_has_no_second_star():
    assert max(name.count("*") for row in read_table("scope")["out"] for name in row["names"]) == 1


def test_the_forms_on_a_target_are_those_that_a_family_of_theirs_is_accepted_for():
    for name, target in targets().items():
        accepted = {
            id(row)
            for row in families()
            if (row.needs in target.features if row.needs else target.generation >= row.since)
        }
        expected = [form for form, rows in forms().items() if any(id(row) in accepted for row in rows)]
        assert [*forms_on(name)] == expected


def test_the_rows_that_are_expected_are_there():
    # 612 instructions behind the 688 spellings of the assembler's table, 31 movers, and those of a warpgroup
    assert len(forms()) == 643 + 1074
    assert len(targets()) == 31
    written = [family for family in families() if not family.ops[0].startswith(("wmma.load", "wmma.store"))]
    assert len(written) == 70 + 11


def test_every_family_gives_forms_and_names_its_source():
    for family in families():
        assert all(list(family.forms(op)) for op in family.ops), family
        assert family.source


def test_every_word_is_a_field_of_a_form_and_of_an_operation():
    varying = QUALIFIERS.keys() - FIXED
    assert varying - {"block_scale"} == {field.name for field in fields(Form)} - {"op"}
    assert {name for row in OPS.values() for name in row.qualifiers} == QUALIFIERS.keys()


def test_every_name_reads_back():
    for form in forms():
        assert legality.resolve(spell(form)) == form


def test_every_operand_of_every_form_has_a_row():
    for form in forms():
        assert operands(form, "sm_90"), form


def test_every_layout_row_is_used():
    """A row that no instruction reads would never be checked by rank."""
    used = {str(row.layout) + str(row.layout.shape) for form in forms() for row in operands(form, "sm_90").values()}
    table = read_table("layouts")
    rows = [row for role in "abc" for row in table["mma"][role]]
    rows += [row for role in "abc" for row in table["quad"][role].values()]
    for row in rows:
        dims = ("mma", "row", "col")[-len(row["extents"]) :]
        bases = {name: row[name] for name in ("lane", "reg", "slot")}
        layout = Layout.parse(dict(zip(dims, row["extents"], strict=True)), **bases)
        assert str(layout) + str(layout.shape) in used, row


def test_a_format_whose_fields_do_not_add_up_is_refused():
    with pytest.raises(ValueError, match="format odd: the fields take 8 bits, but the row specifies 9"):
        Format("odd", bits=9, kind="float", dtype="float16", source="here", exponent=4, fraction=3)


def test_slots_that_do_not_fill_a_register_are_refused():
    row = next(iter(operands(next(iter(forms())), "sm_90").values()))
    with pytest.raises(ValueError, match="do not fill a register"):
        OperandSpec("a", row.format, row.layout, row.container // 2, 0, "here")


def test_a_family_says_since_when_or_what_it_needs():
    with pytest.raises(ValueError, match="expected either since or needs"):
        Family("here", ("mma",), {"shape": (Shape(16, 8, 16),)})


@pytest.mark.parametrize("name", ["1:2", "2:4", "4:8"])
def test_the_columns_of_a_code_rise_or_do_not(name: str):
    rule = pattern(name)
    assert all(list(kept) == sorted(set(kept)) for kept in rule.rising.values())
    assert all(list(kept) != sorted(set(kept)) for kept in rule.descending.values())
    assert max(column for kept in rule.rising.values() for column in kept) == rule.chunk - 1
    assert not rule.rising.keys() & rule.descending.keys()


def test_a_pattern_that_does_not_keep_half_is_refused(monkeypatch):
    table = {"pattern": {"odd": {"chunk": 4, "unit": 1, "codes": "odd"}}}
    table["codes"] = {"odd": {"rising": {"0100": [0, 1], "1000": [0]}, "descending": {}}}
    monkeypatch.setattr("warpfrag.isa.sparsity_patterns.read_table", lambda _name: table)
    with pytest.raises(ValueError, match="sparsity pattern odd: a code does not keep half of the 4 columns"):
        pattern("odd")


def test_a_row_with_a_word_that_nobody_knows_is_refused(monkeypatch):
    rows = [{"shape": "m8n8k4", "colour": ["red"], "since": 70}]
    monkeypatch.setattr(
        "warpfrag.isa.instruction_table.read_table", lambda _name: {"mma": {"source": "here", "families": rows}}
    )
    with pytest.raises(TypeError, match="colour"):
        families.__wrapped__()


def test_the_versions_name_every_target():
    assert list(read_table("versions")["target"]) == list(targets())
