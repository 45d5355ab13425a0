"""Which fragments and which products exist: read off the forms of wmma.load and wmma.mma, per architecture."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.qualifiers import Form, Shape
from warpfrag.isa.rows import forms, legal_targets
from warpfrag.isa.targets import read_target
from warpfrag.tensorcore.registry import get
from warpfrag.wmma.types import BY_FORMAT, ElementType, MatrixLayout, Use

if TYPE_CHECKING:
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand

PRODUCT = "wmma.mma"
LOAD = "wmma.load"


def base_arch(name: str) -> str:
    """The architecture a target belongs to, sm_90 for sm_90a; an unknown one is refused."""
    return read_target(name, "wmma", "arch").arch


@cache
def fragments(use: Use, arch: str) -> dict[tuple[str, Shape], tuple[str, ...]]:
    """Every fragment of a use on an architecture: format and shape, and the words of its memory layouts."""
    layouts: dict[tuple[str, Shape], tuple[str, ...]] = {}
    for form in forms():
        if form.op == f"{LOAD}.{use.value}" and arch in legal_targets(form):
            key = (str(getattr(form, use.value)), form.shape)
            layouts[key] = (*layouts.get(key, ()), *form.layouts)
    return layouts


def sizes(shape: Shape) -> str:
    """A shape as the CUDA guide writes it."""
    return f"{shape.m}x{shape.n}x{shape.k}"


def describe_allowed(use: Use, arch: str) -> str:
    """Every fragment of a use, as an error lists them."""
    rows = fragments(use, arch)
    both = tuple(layout.value for layout in MatrixLayout)

    def entry(name: str) -> str:
        shapes = {shape: words for (format_name, shape), words in rows.items() if format_name == name}
        only = {MatrixLayout(word).name for words in shapes.values() for word in words if words != both}
        rule = f" ({' or '.join(sorted(only))} only)" if only else ""
        return f"{BY_FORMAT[name].name} {' '.join(sizes(shape) for shape in shapes)}{rule}"

    return "; ".join(entry(name) for name in dict.fromkeys(format_name for format_name, _ in rows))


@cache
def find_operand(use: Use, shape: Shape, element: ElementType, layout: MatrixLayout | None, arch: str) -> Operand:
    """The registers of a fragment; refused, with a list of what there is, where the combination does not exist."""
    words = fragments(use, arch).get((element.format_name, shape), ())
    if not words or (layout and layout.value not in words):
        wanted = f"{element.name} {sizes(shape)}" + (f" {layout}" if layout else "")
        msg = f"fragment {use} of {wanted} does not exist on {arch}; there are: {describe_allowed(use, arch)}"
        raise InvalidOperand(msg)
    name = f"{LOAD}.{use.value}.sync.aligned.{words[0]}.{shape}.{element.format_name}"
    operand: Operand = getattr(get(name, arch), use.value)
    return operand


@cache
def accumulators(shape: Shape, multiplicand: ElementType) -> tuple[ElementType, ...]:
    """The types that C and D of a product may have, wherever it exists; either may have any of them."""
    names = [form.d for form in forms() if (form.op, form.shape, form.a) == (PRODUCT, shape, multiplicand.format_name)]
    return tuple(BY_FORMAT[name] for name in dict.fromkeys(names))


@cache
def find_product(
    shape: Shape,
    layouts: tuple[MatrixLayout, MatrixLayout],
    types: tuple[ElementType, ElementType, ElementType],
    arch: str,
    *,
    saturate: bool = False,
    bit_operation: str = "",
) -> Instruction:
    """The wmma.mma of two multiplicands of one type: `types` are those of D, of A and B, and of C."""
    d, multiplicand, c = (entry.format_name for entry in types)
    form = Form(
        op=PRODUCT,
        shape=shape,
        layouts=(layouts[0].value, layouts[1].value),
        d=d,
        a=multiplicand,
        b=multiplicand,
        c=c,
        satfinite=saturate,
        bitop=bit_operation,
    )
    return get(spell(form), arch)
