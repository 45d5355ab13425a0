"""Read figures back: helpers shared by the figure tests."""

import re
from dataclasses import fields
from xml.etree import ElementTree as ET

from warpfrag.isa.immediates import Immediates
from warpfrag.viz import draw as drawing

SVG = "{http://www.w3.org/2000/svg}"
LANE = re.compile(r"\b(T\d+):(?= )")
FACTS = ("data-operand", "data-row", "data-col", "data-lane", "data-reg", "data-slot")


def draw(subject, operand=None, view=None, **options):
    """A figure; immediates and options of views are given one by one."""
    own = {field.name for field in fields(drawing.ViewOptions)} & options.keys()
    chosen = {field.name for field in fields(Immediates)} & options.keys() - own
    return drawing.draw(
        subject,
        operand,
        view,
        immediates=Immediates(**{name: options.pop(name) for name in chosen}),
        options=drawing.ViewOptions(**{name: options.pop(name) for name in own}),
        **options,
    )


def parse(svg):
    """Return the root of a figure; text that is not XML raises an error."""
    return ET.fromstring(svg)  # noqa: S314 (our own text)


def cells(root):
    """Every cell of a figure."""
    return [element for element in root.iter() if "data-operand" in element.attrib]


def fact(cell, name):
    """A number that a cell carries."""
    return int(cell.attrib[f"data-{name}"])


def tip(cell):
    """The tooltip of a cell."""
    return cell.findtext(f"{SVG}title")


def texts(element):
    """The text elements inside an element."""
    return list(element.iter(f"{SVG}text"))


def words(element):
    """Return the text elements inside an element as they are read; `T5: a3` and `T5` above `a3` are equal."""
    return [read(text) for text in texts(element)]


def block_words(root):
    """Return the text on blocks of small cells."""
    return [read(text) for text in texts(root) if text.get("class") == "name"]


def read(text):
    """Return the text of an element."""
    return LANE.sub(r"\1", "".join(text.itertext()))
