"""tcgen05.mma with shape and types: the fields that an instruction descriptor adds to a spelling.

`TensorForm` is a `Form`, so arithmetic and matrices treat it like any other mma. Its name has the shape and types after
the PTX qualifiers:

    tcgen05.mma.cta_group::1.kind::f16.m128n256k16.f32.bf16.bf16

Shapes are rows of `tables/tcgen05.toml`: one block, a pair of blocks and .ws, each dense and sparse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

from warpfrag.errors import IllegalInstruction, ParseError, quote
from warpfrag.isa.operations import Op
from warpfrag.isa.qualifiers import SHAPE, Form, Shape
from warpfrag.isa.tcgen05_spelling import PREFIX, TensorSpelling, in_full, read_qualifiers, read_spelling
from warpfrag.tables import read_table

SCALE_TYPES = ("ue8m0", "ue4m3")
NO_SHAPE = Shape(0, 0, 0)
NO_SPELLING = TensorSpelling("", ())
MAX_LISTED = 8
SINGLE_BLOCK_M, PAIR_M, WS_M = (64, 128), (128, 256), (32, 64, 128)


class ShapeRow(NamedTuple):
    """Shapes of mma that differ only in m, n and the types of A and B; `block` is the k elements per scale, or 0."""

    kind: str
    is_ws: bool
    blocks: int
    is_sparse: bool
    d: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: int
    on: str
    scale_type: str = ""
    block: int = 0

    def fits(self, spelling: TensorSpelling) -> bool:
        """Return True if a tcgen05.mma with this spelling may have the shapes of this row."""
        return (self.kind, self.is_ws, self.blocks, self.is_sparse) == (
            spelling.kind,
            spelling.is_weight_stationary,
            spelling.blocks,
            spelling.is_sparse,
        ) and (not self.block or self.block == block_of(spelling, self.k))


def block_of(spelling: TensorSpelling, k: int) -> int:
    """Return the number of elements along k per scale factor, from the name or from the default of the kind."""
    size = spelling.qualifier("scale_size")
    if size.startswith("block"):
        return int(size.removeprefix("block"))
    return {"scale_vec::4X": 16}.get(size, 32) if spelling.qualifier("block_scale") else k


def _widths(text: str) -> tuple[int, ...]:
    """Return the numbers that a text such as 8..24/8,32..256/16 lists."""
    result: list[int] = []
    for part in text.split(","):
        first, _, rest = part.partition("..")
        last, _, step = rest.partition("/")
        result += range(int(first), int(last or first) + 1, int(step or 1))
    return tuple(result)


@cache
def shape_rows() -> tuple[ShapeRow, ...]:
    """Return every row of shapes, dense before sparse."""
    table = read_table("tcgen05")
    widths = {name: _widths(text) for name, text in table["widths"].items()}
    rows = []
    for entry in table["products"]:
        sizes = {
            (False, 1): (SINGLE_BLOCK_M, entry.get("one", "by8")),
            (False, 2): (PAIR_M, entry.get("pair", "by16")),
            (True, 1): (WS_M, "ws"),
        }
        for (d, names), is_sparse in product(entry["types"].items(), (False, True)):
            for name, ((is_ws, blocks), (m, width)) in product(names, sizes.items()):
                a, b = map(tuple, table["types"][name])
                n = widths["ws_sparse" if is_ws and is_sparse else width]
                k = entry["k"] * (1 + is_sparse)
                rows.append(ShapeRow(entry["kind"], is_ws, blocks, is_sparse, d, a, b, m, n, k, entry.get("on", "all")))
    for entry in table["scaled"]:
        ((d, (name,)),) = entry["types"].items()
        a, b = map(tuple, table["types"][name])
        for (scale, block), is_sparse in product(entry["scales"].items(), (False, True)):
            if is_sparse and entry.get("dense_only"):
                continue
            on = entry.get("sparse_on" if is_sparse else "on", entry.get("on", "all"))
            pair_m = tuple(entry.get("sparse_pair_m" if is_sparse else "pair_m", PAIR_M))
            k = entry["k"] * (1 + is_sparse)
            is_ws = False
            for blocks, m, width in ((1, (128,), "by8"), (2, pair_m, "by16")):
                made = (entry["kind"], is_ws, blocks, is_sparse, d, a, b, m, widths[width], k, on, scale, block)
                rows.append(ShapeRow(*made))
    return tuple(rows)


@cache
def _operation(op: str, *, is_sparse: bool) -> Op:
    """Return the properties of a tcgen05 operation, in the form of a row of `OPS`."""
    stem = op.partition(".")[0]
    if stem == "mma":
        storage: dict[str, Any] = {"d": "tensor", "a": "either", "b": "shared", "c": "tensor"}
        name = f"{PREFIX}.{op}" + (".sp" if is_sparse else "")
        storage |= {"metadata": "tensor"} if is_sparse else {}
        return Op(name, "multiply", ("d", "a", "b", "c"), (), storage, "block", sparsity="ordered" if is_sparse else "")
    does = {"ld": "load", "st": "store"}.get(stem, "manage")
    roles = {"ld": ("d",), "st": ("a",)}.get(stem, ())
    return Op(f"{PREFIX}.{op}", does, roles, (), dict.fromkeys(roles, "registers"), "block")  # type: ignore[arg-type]


@dataclass(frozen=True)
class TensorForm(Form):
    """A tcgen05 instruction: its spelling and, for a typed mma, its shape and types."""

    spelling: TensorSpelling = NO_SPELLING
    block: int = 0

    def __hash__(self) -> int:
        """Return the hash of qualifiers, shape and types, which is computed once."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.spelling.name, self.shape, self.d, self.a, self.b, self.scale_type, self.block))

    def __getstate__(self) -> dict[str, object]:
        """Return the fields without the hash."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def operation(self) -> Op:
        """The row of its operation."""
        return _operation(self.spelling.op, is_sparse=self.spelling.is_sparse)

    @property
    def listed(self) -> Form:
        """The form itself, because it names no state space."""
        return self

    @property
    def is_typed(self) -> bool:
        """True if the instruction is an mma with a shape and types; other instructions have none."""
        return self.shape != NO_SHAPE

    @property
    def scales(self) -> int:
        """The number of scale factors for each row of A and column of B in one mma."""
        return int(self.scale_vec.removesuffix("X") or 0)

    @property
    def blocks(self) -> int:
        """The number of thread blocks that work together."""
        return self.spelling.blocks

    @cached_property
    def name(self) -> str:
        """The PTX qualifiers; for a typed mma, followed by the shape and types."""
        if not self.is_typed:
            return self.spelling.name
        return ".".join(filter(None, (self.spelling.name, str(self.shape), self.d, self.a, self.b, self.scale_type)))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets for which the spelling and, for a typed mma, the shape are legal."""
        if not self.is_typed:
            return self.spelling.targets
        return tuple(name for name in self.spelling.targets if name in read_table("tcgen05")["targets"][self.row.on])

    @cached_property
    def row(self) -> ShapeRow:
        """The table row that contains the shape of a typed mma."""
        return next(row for row in rows_of(self.spelling) if _has(row, self))


def _has(row: ShapeRow, form: TensorForm) -> bool:
    return (
        form.shape.m in row.m
        and form.shape.n in row.n
        and (form.shape.k, form.d, form.scale_type, form.block) == (row.k, row.d, row.scale_type, row.block)
        and form.a in row.a
        and form.b in row.b
    )


@cache
def rows_of(spelling: TensorSpelling) -> tuple[ShapeRow, ...]:
    """Return the table rows with shapes that a spelling may have."""
    return tuple(row for row in shape_rows() if row.fits(spelling))


@cache
def untyped(spelling: TensorSpelling) -> TensorForm:
    """Return the form of a spelling without shape and types."""
    op = f"{PREFIX}.{spelling.op}" + (".sp" if spelling.is_sparse else "")
    return TensorForm(op, NO_SHAPE, kind=spelling.kind, spelling=replace(spelling, facts=()))


@cache
def typed(spelling: TensorSpelling, row: ShapeRow, m: int, n: int, a: str, b: str) -> TensorForm:
    """Return the form of an mma with shape and types."""
    plain = untyped(spelling)
    stored = row.k // 2 if row.is_sparse else row.k  # blocks are counted in stored elements
    vector = f"{stored // row.block}X" if row.block else ""
    return replace(
        plain,
        shape=Shape(m, n, row.k),
        d=row.d,
        a=a,
        b=b,
        c=row.d,
        scale_vec=vector,
        scale_type=row.scale_type,
        block=row.block,
    )


def choose(spelling: TensorSpelling, text: str, **wanted: Any) -> TensorForm:  # noqa: ANN401 (m, n, k, types)
    """Return the mma with this spelling, shape and types; raise IllegalInstruction if there is none.

    A field may be omitted if only one value remains. Otherwise, b defaults to a, and k to its smallest value.
    """
    asked = {name: entry for name, entry in wanted.items() if entry is not None}
    if not asked:
        return untyped(spelling)
    rows: Iterable[ShapeRow] = rows_of(spelling)
    if not rows:
        raise IllegalInstruction(text, f"only tcgen05.mma has shape and types, got {', '.join(asked)}")
    kept = list(rows)
    for name in ("d", "a", "b", "scale_type", "k", "m", "n"):
        if name not in asked:
            continue
        choices = dict.fromkeys(choice for row in kept for choice in _entries(row, name))
        kept = [row for row in kept if asked[name] in _entries(row, name)]
        if not kept:
            beside = ", ".join(f"{other}={quote(asked[other])}" for other in asked if other != name)
            with_these = beside or spelling.name
            reason = f"{name}={quote(asked[name])} is not legal with {with_these}; {name} must be {_ranges(choices)}"
            raise IllegalInstruction(text, reason, lambda: _nearest(spelling, asked))
    for name in ("m", "n", "d", "a", "b", "scale_type", "k"):
        choices = dict.fromkeys(choice for row in kept for choice in _entries(row, name))
        if name not in asked and len(choices) > 1:
            same = asked.get("a") if name == "b" else None
            pick = same if same in choices else min(choices) if name == "k" else None
            if pick is None:
                raise IllegalInstruction(text, f"{name} is missing; it must be {_ranges(choices)}")
            asked[name] = pick
        elif name not in asked:
            asked[name] = next(iter(choices))
        kept = [row for row in kept if asked[name] in _entries(row, name)]
        if not kept:
            beside = ", ".join(f"{key}={quote(entry)}" for key, entry in asked.items() if key != name)
            raise IllegalInstruction(text, f"{name}={quote(asked[name])} is not legal with {beside}")
    return typed(untyped(spelling).spelling, kept[0], asked["m"], asked["n"], asked["a"], asked["b"])


def _entries(row: ShapeRow, name: str) -> tuple[Any, ...]:
    entry = getattr(row, name)
    return entry if isinstance(entry, tuple) else (entry,)


def _ranges(choices: Iterable[Any]) -> str:
    """Return choices as text; a long arithmetic sequence is given by its first and last element and its step."""
    listed = list(choices)
    if len(listed) > MAX_LISTED and all(isinstance(entry, int) for entry in listed):
        listed.sort()
        step = listed[1] - listed[0]
        if listed == list(range(listed[0], listed[-1] + 1, step)):
            return f"{listed[0]}..{listed[-1]} in steps of {step}"
    return f"one of {', '.join(map(str, listed))}"


def _nearest(spelling: TensorSpelling, asked: dict[str, Any]) -> tuple[str, ...]:
    """Return the mma forms nearest to a request: those that match the most fields, then the nearest m and n."""

    def distance(row: ShapeRow) -> tuple[int, int, int]:
        wrong = sum(entry not in _entries(row, name) for name, entry in asked.items() if name not in "mn")
        gaps = [min(abs(entry - near) for near in _entries(row, name)) for name, entry in asked.items() if name in "mn"]
        return wrong, sum(gaps), row.k

    result = []
    for row in sorted(rows_of(spelling), key=distance)[:3]:
        m = min(row.m, key=lambda near: abs(near - asked.get("m", near)))
        n = min(row.n, key=lambda near: abs(near - asked.get("n", near)))
        a = asked.get("a") if asked.get("a") in row.a else row.a[0]
        b = asked.get("b") if asked.get("b") in row.b else a
        result.append(typed(untyped(spelling).spelling, row, m, n, a, b).name)
    return tuple(dict.fromkeys(result))


TYPES = ("f16", "f32", "s32", "bf16", "tf32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "u8", "s8")


def read_form(text: str, **wanted: Any) -> TensorForm:  # noqa: ANN401 (m, n, k, types)
    """Parse a form: PTX, with or without operands, or a name with a shape and types.

    Raises ParseError if a qualifier is wrong, and IllegalInstruction if qualifiers, shape and types cannot be combined.
    """
    name, _, operands = text.strip().rstrip(";").strip().partition(" ")
    rest, types = [], []
    qualifiers = name.split(".")
    for qualifier in qualifiers[1:]:
        lowered = qualifier.lower()
        shape = SHAPE.fullmatch(lowered)
        is_product = qualifiers[1].lower() == "mma"
        if shape:
            parsed = Shape.parse(lowered)
            wanted |= {"m": parsed.m, "n": parsed.n} | ({"k": parsed.k} if parsed.k else {})
        elif is_product and lowered in SCALE_TYPES:
            wanted["scale_type"] = lowered
        elif is_product and lowered in TYPES:
            types.append(lowered)
        else:
            rest.append(qualifier)
    if len(types) not in (0, 3):
        raise ParseError(f"expected the types of D, A and B, got {'.'.join(types)!r}")
    wanted |= dict(zip("dab", types, strict=False))
    spelling = (
        read_spelling(f"{PREFIX}.{'.'.join(rest)} {operands}") if operands.strip() else read_qualifiers(in_full(rest))
    )
    if spelling.problem:
        raise IllegalInstruction(text.strip()[:160], spelling.problem)
    return choose(spelling, text.strip()[:160], **wanted)


PUBLISHED_ARCH = "sm_100"


def unpublished(form: TensorForm, arch: str) -> str:
    """Return the reason why a tcgen05.mma is not modelled, which names the unpublished property."""
    if not form.is_typed:
        return "the name has no shape and types: pass m, n, a, b and d"
    if form.is_sparse:
        return "the order in which a sparse mma adds its terms is not published"
    if form.spelling.is_weight_stationary:
        return "the summation of mma.ws is not published"
    if form.blocks > 1:
        return "the summation of a pair of blocks is not published, though it is probably that of one block"
    if form.kind in ("mxf4", "mxf4nvf4") and form.shape.k != 64:
        return f"the grouping of the {form.shape.k} terms along k is not published"
    return f"its arithmetic on {arch} is neither published nor measured; published: {PUBLISHED_ARCH}"


def published_form(form: TensorForm) -> TensorForm:
    """Return the nearest mma with published arithmetic: dense, one block, and k 64 for fp4."""
    qualifiers = tuple(
        (group, "cta_group::1" if group == "cta_group" else qualifier)
        for group, qualifier in form.spelling.qualifiers
        if group != "sp"
    )
    k = 64 if form.kind in ("mxf4", "mxf4nvf4") else form.shape.k
    spelling = TensorSpelling("mma", qualifiers)
    return replace(form, op=f"{PREFIX}.mma", shape=form.shape._replace(k=k), spelling=spelling)


# ---- lists


def _listed_words(op: str) -> Iterator[TensorSpelling]:
    """Yield the spellings of an operation, with required qualifiers and those that change its result."""
    table = read_table("tcgen05")
    groups = table["operations"][op]["qualifiers"].split()
    words = "sp block_scale scale_size pack unpack copies byte narrow exclusive abs nan"
    optional = set(words.split())
    choices = []
    for entry in groups:
        group = entry.rstrip("*")
        qualifiers = [*table["groups"][group]]
        if group == "scale_size":
            qualifiers = ["block16", "block32"]
        if not entry.endswith("*"):
            qualifiers = ["", *qualifiers] if group in optional else [""]
        choices.append([(group, qualifier) for qualifier in qualifiers])
    for chosen in product(*choices):
        spelling = TensorSpelling(op, tuple((group, qualifier) for group, qualifier in chosen if qualifier))
        if not spelling.problem:
            yield spelling


@cache
def listed_spellings() -> tuple[TensorSpelling, ...]:
    """Return every spelling, without qualifiers that do not change values: collectors, state spaces."""
    return tuple(spelling for op in read_table("tcgen05")["operations"] for spelling in _listed_words(op))


@cache
def listed_forms() -> dict[TensorForm, None]:
    """Return the listed forms: each typed mma in its shortest spelling, and all other instructions."""
    result: dict[TensorForm, None] = {}
    seen = set()
    for spelling in listed_spellings():
        if not spelling.kind:
            result[untyped(spelling)] = None
            continue
        for row in rows_of(spelling):
            if row.block and (spelling.kind != "mxf4nvf4") and spelling.qualifier("scale_size"):
                continue  # this is the default size of the kind, which need not be written
            if (row in seen) or not set(spelling.targets) & set(read_table("tcgen05")["targets"][row.on]):
                continue
            seen.add(row)
            plain = untyped(spelling).spelling
            for m, n, a, b in product(row.m, row.n, row.a, row.b):
                result[typed(plain, row, m, n, a, b)] = None
    return result
