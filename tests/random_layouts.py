"""Random layouts, for hypothesis."""

from hypothesis import strategies as st

from warpfrag.layout.axes import Axis
from warpfrag.layout.linear_layout import Layout


@st.composite
def random_layouts(draw: st.DrawFn, outs: dict[str, tuple[int, ...]] | None = None, copies: int = 2) -> Layout:
    """A layout whose every element has a place: bits mixed at random, larger digits passed through, some copies."""
    if outs is None:
        outs = {name: (2,) * draw(st.integers(0, 3)) for name in ("row", "col")}
        outs["col"] += draw(st.sampled_from([(), (), (3,), (5,), (3, 2)]))
    radices = [radix for axis in outs.values() for radix in axis]
    bits = [digit for digit, radix in enumerate(radices) if radix == 2]
    columns = [1 << digit for digit in range(len(radices))]
    if len(bits) > 1:
        for into, other in draw(st.lists(st.permutations(bits).map(lambda order: order[:2]), max_size=6)):
            columns[into] ^= columns[other]
    digits = list(zip(radices, columns, strict=True)) + [(2, 0)] * draw(st.integers(0, copies))
    digits = draw(st.permutations(digits))
    first, second = sorted(draw(st.tuples(*[st.integers(0, len(digits))] * 2)))
    cut = {"lane": digits[:first], "reg": digits[first:second], "slot": digits[second:]}
    return Layout(
        tuple(Axis(name, tuple(radix for radix, _ in part)) for name, part in cut.items()),
        tuple(Axis(name, axis) for name, axis in outs.items()),
        tuple(column for part in cut.values() for _, column in part),
        draw(st.sampled_from([0, *(1 << bit for bit in bits)])),
    )
