"""SVG elements as reproducible text.

Numbers are written without trailing zeros, and attributes in the given order, so that figures can be compared with
files.

    >>> print(rect(x=1, y=2.50, width=3, height=4, data_lane=5, title="lane 5"))
    <rect data-lane="5" x="1" y="2.5" width="3" height="4"><title>lane 5</title></rect>
    >>> print(text("T5 < T6", x=0, y=0))
    <text x="0" y="0">T5 &lt; T6</text>
"""

from collections.abc import Iterable, Mapping

from warpfrag.html import escape

Number = int | float
NAMESPACE = "http://www.w3.org/2000/svg"
HALF_SPACE = 2  # half the width of a space in pixels


def number(value: Number) -> str:
    """Return a length with at most two decimals and no trailing zeros."""
    return str(value) if isinstance(value, int) else f"{value:.2f}".rstrip("0").rstrip(".")


def _attributes(pairs: Mapping[str, Number | str]) -> str:
    """Return the attributes that are not empty as text, in the given order."""
    return "".join(
        f' {name}="{escape(value) if isinstance(value, str) else number(value)}"'
        for name, value in pairs.items()
        if value != ""
    )


def _names(attributes: Mapping[str, Number | str]) -> dict[str, Number | str]:
    """Return attributes with SVG names instead of Python names: `data_row` is `data-row`, and `classes` is `class`."""
    return {("class" if name == "classes" else name.replace("_", "-")): value for name, value in attributes.items()}


def element(tag: str, attributes: Mapping[str, Number | str], content: str = "") -> str:
    """Return one element with this content, which is already SVG."""
    opening = f"<{tag}{_attributes(attributes)}"
    return f"{opening}>{content}</{tag}>" if content else f"{opening}/>"


def tooltip(words: str) -> str:
    """Return a tooltip for the element that contains it."""
    return f"<title>{escape(words)}</title>" if words else ""


def rect(
    *, width: Number, height: Number, x: Number = 0, y: Number = 0, title: str = "", **attributes: Number | str
) -> str:
    """Return a rectangle; coordinates of 0 are omitted."""
    box = {"x": x or "", "y": y or "", "width": width, "height": height}
    return element("rect", _names(attributes) | box, tooltip(title))


def text(words: str, *, x: Number, y: Number, classes: str = "") -> str:
    """Return one line of text; y is its baseline."""
    return element("text", {"class": classes, "x": x, "y": y}, escape(words))


def stacked_text(lines: Iterable[str], *, x: Number, y: Number, step: Number, classes: str = "") -> str:
    """Return stacked lines as one text element, so that they are read, searched and copied as one phrase."""
    first, *middle, last = lines
    # all lines but the last are centred with their trailing space; moving them right by half a space corrects that
    shifted = x + HALF_SPACE
    words = [escape(first), *(element("tspan", {"x": shifted, "dy": step}, escape(part)) for part in middle)]
    words.append(element("tspan", {"x": x, "dy": step}, escape(last)))
    return element("text", {"class": classes, "x": shifted, "y": y}, " ".join(words))


def box(*, x: Number, width: Number, height: Number, title: str = "", **attributes: Number | str) -> str:
    """Return a rectangle at y = 0 as a path, which is the shortest form; figures have thousands of cells."""
    corner, across, down = number(x), number(width), number(height)
    return element("path", _names(attributes) | {"d": f"M{corner} 0h{across}v{down}H{corner}z"}, tooltip(title))


def outlines(boxes: Iterable[tuple[Number, Number, Number, Number]], *, classes: str) -> str:
    """Return rectangles (x, y, width, height) as one path."""
    steps = ("M{} {}h{}v{}h-{}z".format(*map(number, (x, y, width, height, width))) for x, y, width, height in boxes)
    return element("path", {"class": classes, "d": "".join(steps)})


def group(content: Iterable[str], *, title: str = "", **attributes: Number | str) -> str:
    """Return a group of elements."""
    return element("g", _names(attributes), tooltip(title) + "".join(content))


def document(body: Iterable[str], *, width: Number, height: Number, title: str, style: str) -> str:
    """Return a whole file; `title` is for screen readers, and `style` is a style sheet for elements below `.wf`."""
    head = {
        "xmlns": NAMESPACE,
        "class": "wf",
        "width": width,
        "height": height,
        "viewBox": f"0 0 {number(width)} {number(height)}",
        "role": "img",
        "aria-label": title,
    }
    parts = [f"<svg{_attributes(head)}>", tooltip(title), f"<style>{style}</style>", *body, "</svg>"]
    return "\n".join(parts) + "\n"
