"""The SVG writer: elements, escapes, numbers."""

import pytest

from viz.parsed import SVG, parse
from warpfrag.viz import svg


@pytest.mark.parametrize(("value", "expected"), [(3, "3"), (3.0, "3"), (2.5, "2.5"), (1 / 3, "0.33"), (10.0, "10")])
def test_numbers_are_short(value, expected):
    assert svg.number(value) == expected


def test_words_are_escaped_wherever_they_stand():
    text = 'a < b & "c" > d'
    page = svg.document(
        [svg.text(text, x=1, y=2), svg.group([svg.rect(width=1, height=1, title=text)], aria_label=text)],
        width=10,
        height=20,
        title=text,
        style="",
    )
    root = parse(page)

    assert root.get("aria-label") == text
    assert [title.text for title in root.iter(f"{SVG}title")] == [text, text]
    assert root.find(f"{SVG}text").text == text
    assert root.find(f"{SVG}g").get("aria-label") == text


def test_stacked_lines_are_read_as_one_phrase():
    element = parse(svg.stacked_text(["T5:", "a3", "a11"], x=10, y=20, step=13))

    assert "".join(element.itertext()) == "T5: a3 a11"
    assert [span.get("dy") for span in element] == ["13", "13"]


def test_attributes_keep_their_order_and_empty_ones_are_left_out():
    assert (
        svg.rect(x=1, width=2, height=3, classes="", data_lane=5) == '<rect data-lane="5" x="1" width="2" height="3"/>'
    )


def test_alike_shapes_are_one_path():
    assert svg.outlines([(1, 2, 3, 4), (5, 6, 7, 8)], classes="b") == '<path class="b" d="M1 2h3v4h-3zM5 6h7v8h-7z"/>'
    assert svg.box(x=2, width=3, height=4, title="t") == '<path d="M2 0h3v4H2z"><title>t</title></path>'
