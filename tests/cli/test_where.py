"""`warpfrag where`."""

import pytest

import warpfrag as wf

NAME = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k32.f32.f16.f16.f32"
ORDERED = "mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
QUAD = "mma.m8n8k4.row.col.f32.f16.f16.f32"


def holders(answer):
    assert answer.code == 0
    return answer.json["holders"]


def test_where_says_lane_register_and_bits(run):
    answer = run("where", NAME, "a", 9, 3)

    assert answer.code == 0
    assert answer.lines[1:] == [
        "lane  reg  slot  bits   element  row  col",
        "   5    1     1  31:16  a3         9    3",
    ]


@pytest.mark.parametrize("element", ["A[9, 3]", "a[9,3]", "A[9][3]"])
def test_an_element_may_be_written_in_brackets(run, refused, element):
    assert run("where", NAME, element).out == run("where", NAME, "a", 9, 3).out
    assert refused("where", NAME, element.split("[")[0]) == "Missing argument 'ROW' (see warpfrag where --help)"


def test_where_lists_every_holder_the_first_first(run):
    found = holders(run("where", "wmma.load.a.row.m16n16k16.f16", "a", 3, 3, "--json"))

    assert [(entry["lane"], entry["reg"]) for entry in found] == [(13, 0), (13, 4)]


@pytest.mark.parametrize(("row", "col"), [(16, 0), (0, 16), (-1, 0)])
def test_an_element_out_of_range_is_refused(refused, row, col):
    name, index = ("col", col) if 0 <= row < 16 else ("row", row)

    assert refused("where", NAME, "a", row, col) == f"{name} must be in 0..15, got {index}"


def test_the_number_of_coordinates_is_checked(refused):
    assert refused("where", NAME, "a", 9).startswith("expected row and col for a of mma.sync")
    assert refused("where", "ldmatrix.m8n8.x4.b16", "addresses", 1, 2).startswith(
        "expected row for addresses of ldmatrix"
    )


@pytest.mark.parametrize(("option", "name", "operand"), [("mma", QUAD, "a"), ("matrix", "ldmatrix.m8n8.x4.b16", "d")])
def test_where_shows_all_matrices_unless_one_is_chosen(run, option, name, operand):
    everything = holders(run("where", name, operand, 3, 3, "--json"))
    chosen = holders(run("where", name, operand, 3, 3, f"--{option}", 2, "--json"))

    assert [entry[option] for entry in everything] == [0, 1, 2, 3]
    assert chosen == [everything[2]]


def test_where_the_addresses_of_ldmatrix_are(run):
    found = holders(run("where", "ldmatrix.m8n8.x4.b16", "addresses", 3, "--json"))

    assert found == [{"lane": 8 * matrix + 3, "matrix": matrix, "row": 3} for matrix in range(4)]


def test_where_metadata_is_for_a_selector(run):
    metadata = wf.get(SPARSE).metadata
    (found,) = holders(run("where", SPARSE, "metadata", 9, 3, "--selector", 1, "--json"))

    assert (found["lane"], found["bit_low"]) == metadata.where(row=9, chunk=3, selector=1)
    assert [entry["selector"] for entry in holders(run("where", SPARSE, "metadata", 9, 3, "--json"))] == [0, 1]


@pytest.mark.parametrize(
    ("operand", "position"), [("scale_a", {"row": 9, "scale": 1}), ("scale_b", {"scale": 1, "col": 5})]
)
@pytest.mark.parametrize("byte_id", [0, 2])
def test_where_a_scale_factor_is(run, operand, position, byte_id):
    words = ["where", SCALED, operand, *position.values(), "--byte-id", byte_id, "--thread-id", 1, "--json"]
    (found,) = holders(run(*words))

    place = wf.get(SCALED).operands[operand].where(byte_id=byte_id, thread_id=1, **position)
    assert (found["lane"], found["bit_low"]) == (place.lane, 8 * place.byte)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([SCALED, "scale_a", 3, 1, "--byte-id", 1], "byte_id: expected one of 0, 2, got 1"),
        ([SCALED, "scale_a", 3, 1, "--thread-id", 2], "thread_id: expected one of 0, 1, got 2"),
        ([SPARSE, "metadata", 3, 1, "--selector", 2], "selector: expected one of 0, 1, got 2"),
        ([QUAD, "a", 3, 1, "--mma", 4], "mma: expected one of 0, 1, 2, 3, got 4"),
    ],
)
def test_a_choice_out_of_range_is_refused(refused, words, message):
    assert refused("where", *words) == message


def test_an_option_that_is_not_for_the_operand_is_refused(refused):
    assert refused("where", NAME, "a", 9, 3, "--mma", 0).endswith("which takes no options")
    assert refused("where", SPARSE, "metadata", 9, 3, "--mma", 0).endswith("which takes --selector")
    assert "does not apply to a of" in refused("where", SPARSE, "a", 9, 3, "--logical", "--selector", 0)


def test_a_logical_column_is_shown_with_every_place_that_can_hold_it(run):
    found = holders(run("where", SPARSE, "a", 9, 13, "--logical", "--json"))

    assert [(entry["lane"], entry["reg"], entry["slot"], entry["codes"]) for entry in found] == [
        (7, 1, 0, ["0001", "1001", "1101"]),
        (7, 1, 1, ["0100", "0110", "0111"]),
    ]
    assert [tuple(entry["span"]) for entry in found] == [wf.get(SPARSE).a.span(lane=7, reg=1)[1:]] * 2


def test_ordered_metadata_leaves_fewer_places(run):
    # the first column of a chunk can only be stored first, because positions rise
    found = holders(run("where", ORDERED, "a", 9, 12, "--logical", "--json"))

    assert [(entry["slot"], entry["codes"]) for entry in found] == [(0, ["0100", "1000", "1100"])]


def test_logical_columns_are_checked(refused):
    assert refused("where", SPARSE, "a", 9, 32, "--logical") == "col must be in 0..31, got 32"
    assert refused("where", SPARSE, "a", 9, "--logical").startswith("expected row and col")
    assert "applies to a sparse A" in refused("where", NAME, "a", 9, 3, "--logical")
