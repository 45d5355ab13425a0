"""Triton: a linear layout, the same concept as `Layout`.

    #ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [], block = []}>

Each list has the images of the bits of an input, low bit first: bit 0 of the lane moves 2 columns, bit 2 one row. The
moves are combined by xor. `register` counts the elements of a thread, not 32-bit registers: the two halves of a word
count as two. The written text adds the number of values per register, and coordinate names other than row and col, in a
comment after `//`; `slots` and `dims` override them.

Three forms can be read: this one, a printed LinearLayout (lines such as `lane=4 -> (1, 0)`), and Gluon's
`DistributedLinearLayout(reg_bases=[[0, 1], ...], ...)`. In the attribute every basis moves a single bit. A layout with
a basis that moves two coordinates, or with two equal bases, is written as printed lines. `#ttg.nvidia_mma` and
`#ttg.dot_op` name families and have no bases: convert them with Triton first.

Every size must be a power of two, every element must have a place, and element 0 must be at the start.

    >>> from warpfrag.layout.linear_layout import Layout
    >>> a = Layout.parse(dict(row=4, col=4), lane="c2 r1 r2", slot="c1")
    >>> print(a.to("triton"))
    #ttg.linear<{register = [[0, 1]], lane = [[0, 2], [1, 0], [2, 0]], warp = [], block = []}> // slots = 2
    >>> Layout.read("triton", a.to("triton")) == a
    True
"""

import re
from collections.abc import Sequence

from warpfrag.errors import InvalidOperand
from warpfrag.layout import tensor_memory_notation as tensor_memory
from warpfrag.layout import thread_layout
from warpfrag.layout.axes import MAX_SIZE
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.linear_layout import Layout
from warpfrag.layout.scanner import Scanner

Bases = list[list[int]]
INPUTS = ("register", "lane", "warp", "block")
KEYS = {
    **{name: name for name in INPUTS},
    "reg_bases": "register",
    **{f"{name}_bases": name for name in INPUTS[1:]},
    "shape": "shape",
}
ATTRIBUTES = ("#ttg.linear", "#triton_gpu.linear", "ttg.linear", "DistributedLinearLayout")
NAMELESS = re.compile(r"#?(?:ttg|triton_gpu)\.(?!linear\b)\w+")
COMMENT = re.compile(r"//(.*)")
OPTION = re.compile(r"\b(slots|dims) = (\w+(?:, \w+)*)", re.ASCII)
PRINTED = re.compile(r"\w+ ?= ?\d+ ?->|is a size \d+ dim", re.ASCII)


def write_triton(layout: Layout) -> str:
    """Return the bases as a Triton attribute; for tensor memory, as Gluon prints them."""
    if tensor_memory.is_tensor_memory(layout):
        return tensor_memory.write_triton(layout)
    threads, values = thread_layout.threads_and_values("triton", layout)
    sizes = [*layout.ins.values(), *layout.shape]
    faults = {
        "a size that is not a power of two": any(size & (size - 1) for size in sizes),
        "a start other than element 0": any(layout.start),
        "elements without a place": not layout.is_onto,
    }
    for fault, is_so in faults.items():
        if is_so:
            raise InvalidOperand(f"triton cannot express {layout}: it has {fault}")
    lanes = len(layout.steps("lane")) if "lane" in layout.ins else 0
    parts = {"register": values, "lane": threads[:lanes], "warp": threads[lanes:], "block": []}
    bases = {name: [[*step.moves] for step in steps] for name, steps in parts.items()}
    options = [f"slots = {layout.slots}"] if layout.slots > 1 else []
    options += [f"dims = {', '.join(layout.dims)}"] if layout.dims != thread_layout.MATRIX else []
    # Triton's verifier requires that each basis in the attribute moves a single bit; a LinearLayout has no such limit
    singles = all(sum(index.bit_count() for index in image) <= 1 for images in bases.values() for image in images)
    attribute = f"#ttg.linear<{{{', '.join(f'{name} = {images}' for name, images in bases.items())}}}>"
    text = attribute if singles and layout.is_additive else _as_printed(bases, layout.shape)
    return text + (f" // {'; '.join(options)}" if options else "")


def _as_printed(bases: dict[str, Bases], shape: Sequence[int]) -> str:
    """Return a line for each bit of each input, as Triton prints a LinearLayout."""
    lines = []
    for name, images in bases.items():
        rows = [f"{name}={1 << bit} -> ({', '.join(map(str, image))})" for bit, image in enumerate(images)]
        rows = rows or [f"{name} is a size 1 dimension"]
        lines += [f"{'   ' if at else ' - '}{row}" for at, row in enumerate(rows)]
    sizes = ", ".join(f"dim{at} (size {size})" for at, size in enumerate(shape))
    return "\n".join([*lines, f"where out dims are: [{sizes}]"])


def read_triton(
    text: object, *, shape: Sequence[int] | None = None, slots: int | None = None, dims: Sequence[str] | None = None
) -> Layout:
    """Parse a Triton layout."""
    whole = Scanner("triton", text).text
    options = dict(option for comment in COMMENT.findall(whole) for option in OPTION.findall(comment))
    dims = dims or (options["dims"].split(", ") if "dims" in options else None)
    # blanks instead, so that error positions refer to the user's text
    bare = COMMENT.sub(lambda match: " " * len(match[0]), whole)
    nameless = NAMELESS.search(bare)
    if nameless:
        raise InvalidOperand(
            f"triton: {nameless[0]} names a family of layouts and has no bases; convert it to a linear layout in Triton"
            " (toLinearLayout, or to_linear_layout in Gluon) and paste that"
        )
    if tensor_memory.GLUON in bare:
        stated = options.get("slots", "1")
        count = int(stated) if slots is None and stated.isdigit() else slots
        names = thread_layout.dims_of("triton", len(thread_layout.MATRIX), dims)
        text_itself = bare[bare.index(tensor_memory.GLUON) :]
        return tensor_memory.read_triton(
            text_itself, thread_layout.check_slots("triton", 1 if count is None else count), names
        )
    bases, sizes = _printed(bare) if PRINTED.search(bare) else _attribute(bare)
    ranks = {len(image) for images in bases.values() for image in images} | ({len(sizes)} if sizes else set())
    if len(ranks) != 1 or 0 in ranks:
        counts = f"bases of {', '.join(map(str, sorted(ranks)))} numbers" if ranks else "no bases"
        raise InvalidOperand(f"triton: every basis must have one number per coordinate; got {counts}")
    if slots is None:
        slots = int(options["slots"]) if options.get("slots", "").isdigit() and len(options["slots"]) < 4 else 1
    thread_layout.check_slots("triton", slots)
    names = thread_layout.dims_of("triton", ranks.pop(), dims)
    if shape is not None:
        sizes = [*thread_layout.shape_of("triton", shape, len(names))]
    extents = _extents(names, bases, sizes)
    if bases["block"]:
        raise InvalidOperand(
            "triton: block has bases, so the layout spans several thread blocks; warpfrag's layouts span one"
        )
    if 1 << len(bases["lane"]) > LANES:
        raise InvalidOperand(f"triton: expected at most {LANES} lanes in a warp, got {1 << len(bases['lane'])}")
    missing = LANES.bit_length() - 1 - len(bases["lane"])
    if missing and bases["warp"]:
        raise InvalidOperand(
            f"triton: {len(bases['lane'])} bases for the lane, but {LANES} lanes need 5 if the warp has bases"
        )
    threads = [(2, image) for image in bases["lane"] + bases["warp"]]
    values = [(2, image) for image in bases["register"]]
    return thread_layout.check_onto("triton", thread_layout.assemble("triton", extents, threads, values, slots))


def _extents(names: Sequence[str], bases: dict[str, Bases], sizes: Sequence[int]) -> dict[str, int]:
    """Return the extent of each coordinate, from the text or else from the largest bases."""
    images = [image for part in bases.values() for image in part]
    reach = [1 << max((image[at].bit_length() for image in images), default=0) for at in range(len(names))]
    sizes = sizes or reach
    if len(sizes) != len(names) or any(last > size for last, size in zip(reach, sizes, strict=True)):
        raise InvalidOperand(
            f"triton: the bases reach {'x'.join(map(str, reach))}, but the shape is {'x'.join(map(str, sizes))}"
        )
    places = 1 << min(sum(map(len, bases.values())), MAX_SIZE.bit_length())
    if places > MAX_SIZE or any(not 0 < size <= MAX_SIZE for size in sizes):
        raise InvalidOperand(f"triton: expected at most {MAX_SIZE} places and coordinates up to {MAX_SIZE}")
    return dict(zip(names, sizes, strict=True))


def _attribute(text: str) -> tuple[dict[str, Bases], list[int]]:
    """Parse `#ttg.linear<{...}>` or `DistributedLinearLayout(...)`; return the bases, and the sizes if present."""
    scanner = Scanner("triton", text)
    if scanner.word.startswith("#") and scanner.word not in ATTRIBUTES:
        scanner.take()  # an attribute alias
        scanner.expect("=")
    name = scanner.word.rpartition(".")[2] if scanner.word.endswith(".DistributedLinearLayout") else scanner.word
    if name not in ATTRIBUTES:
        scanner.refuse("expected #ttg.linear<{...}>, DistributedLinearLayout(...), or lines such as lane=4 -> (1, 0)")
    scanner.take()
    opening, closing = (["("], [")"]) if name.endswith("Layout") else (["<", "{"], ["}", ">"])
    scanner.expect(*opening)
    bases: dict[str, Bases] = {name: [] for name in INPUTS}
    sizes: list[int] = []
    seen: set[str] = set()
    while not scanner.skip(*closing):
        if seen:
            scanner.expect(",")
        if KEYS.get(scanner.word) in seen:
            scanner.refuse("expected each input only once")
        key = KEYS[scanner.choice(KEYS)]
        seen.add(key)
        scanner.expect("=")
        if key == "shape":
            sizes = scanner.sequence(scanner.number)
        else:
            bases[key] = scanner.bases()
    scanner.end()
    return bases, sizes


def _printed(text: str) -> tuple[dict[str, Bases], list[int]]:
    """Parse a printed LinearLayout, which has a line for each bit of each input; return its bases and sizes."""
    scanner = Scanner("triton", text)
    bases: dict[str, Bases] = {name: [] for name in INPUTS}
    sizes: list[int] = []
    while scanner.word and not scanner.skip("where", "out", "dims", "are", ":"):
        scanner.skip("-")
        name = scanner.choice(INPUTS)
        if scanner.skip("is", "a", "size", "1", "dimension"):
            continue
        scanner.expect("=")
        wanted = 1 << len(bases[name])
        if scanner.word != str(wanted):
            scanner.refuse(f"expected the bits of {name} in order, {name}={wanted}")
        scanner.take()
        scanner.expect("->")
        bases[name].append(scanner.sequence(scanner.number, "(", ")"))
    if scanner.skip("["):
        while not scanner.skip("]"):
            if sizes:
                scanner.expect(",")
            scanner.take()  # the name of a coordinate, such as dim0
            scanner.expect("(", "size")
            sizes.append(scanner.number())
            scanner.expect(")")
    scanner.end()
    return bases, sizes
