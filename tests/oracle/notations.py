"""Evaluate the notations of other tools without the converters: CuTe, Triton, MLIR and C.

Nothing here reads warpfrag. CuTe is evaluated by its definition, one coordinate at a time: an index into a tuple of
sizes is cut into one index for each size, the lowest first, and each is multiplied by its stride. Triton's bases are
combined by xor. The operators of MLIR's affine maps and of our C expressions bind as Python's do.
"""

import ast
import re
from functools import cache
from math import prod


def tree(text):
    """The nested tuples of a CuTe text: numbers, with or without underscores."""
    plain = re.sub(r"\bInt<(\d+)>", r"\1", text)
    plain = re.sub(r"\b(Shape|Stride)<", "(", plain).replace(">", ",)").replace("_", "")
    return ast.literal_eval(plain)


@cache
def cute_parts(text):
    """Sizes and strides of `sizes:strides` or `Layout<Shape<...>,Stride<...>>`."""
    if text.startswith("Layout<"):
        inside = text.removeprefix("Layout<").removesuffix(">")
        cut = inside.index("Stride<")
        return tree(inside[:cut].rstrip(", ")), tree(inside[cut:])
    return tuple(map(tree, text.split(":")))


def size(sizes):
    """Return the number of indices of a tree of sizes."""
    return prod(map(size, sizes)) if isinstance(sizes, tuple) else sizes


def cute_number(index, sizes, strides):
    """The number of the element at an index, by the recursion that defines a CuTe layout."""
    if not isinstance(sizes, tuple):
        return index * strides
    number = 0
    for part, stride in zip(sizes, strides, strict=True):
        index, mine = divmod(index, size(part))
        number += cute_number(mine, part, stride)
    return number


def cute_element(text, thread, value, shape):
    """The coordinates, in the order of `shape`, at a thread and a value."""
    (threads, values), (thread_strides, value_strides) = cute_parts(text)
    number = cute_number(thread, threads, thread_strides) + cute_number(value, values, value_strides)
    found = []
    for extent in shape:
        number, index = divmod(number, extent)
        found.append(index)
    return tuple(found)


def triton_printed(text):
    """The bases of each input of a LinearLayout as it is printed."""
    bases = {"register": [], "lane": [], "warp": [], "block": []}
    for name, image in re.findall(r"(\w+)=\d+ -> (\(.*?\))", text):
        bases[name].append(ast.literal_eval(image))
    return bases


def triton_bases(text):
    """The bases of each input of a text: an attribute, or lines."""
    if "->" in text:
        return triton_printed(text)
    found = re.findall(r"(\w+) = (\[(?:\[.*?\](?:, )?)*\])", text)
    return {name: ast.literal_eval(images) for name, images in found}


def triton_element(bases, **indices):
    """The coordinates: the bases of the bits that are 1, combined by xor."""
    found = None
    for name, images in bases.items():
        for bit, image in enumerate(images):
            found = found or [0] * len(image)
            if indices.get(name, 0) >> bit & 1:
                found = [one ^ other for one, other in zip(found, image, strict=True)]
    return tuple(found)


def affine_map(text):
    """A function of the dimensions of an MLIR affine map, in their order."""
    dims, results = re.fullmatch(r"affine_map<\(([\w, ]+)\) -> \((.*)\)>", text).groups()
    python = results.replace("floordiv", "//").replace("mod", "%")
    return eval(f"lambda {dims}: ({python},)")  # noqa: S307 (an expression of names, numbers and operators)


def c_statements(text):
    """A function of named indices that runs `int name = expression;` lines."""
    lines = [re.fullmatch(r"int \w+ = (.*);", line)[1] for line in text.splitlines() if line[:2] != "//"]
    code = compile(f"({', '.join(lines)},)", "c", "eval")
    return lambda **indices: eval(code, {}, indices)  # noqa: S307 (as above)
