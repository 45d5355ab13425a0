"""The relayout of fp8 accumulators to A costs 24, and no plan of these instructions costs less."""

from itertools import product

import numpy as np

import warpfrag as wf

FP8 = "mma.m16n8k32.f32.e4m3.e4m3.f32"


def test_the_selector_of_a_prmt_absorbs_an_exchange():
    mma = wf.get(FP8)
    plan = wf.relayout(mma.d.tiled(col=4), mma.a)
    D = np.random.default_rng(0).integers(-8, 9, (16, 32)).astype(np.float32)

    assert plan.counts == {"shfl": 4, "movmatrix": 0, "select": 4, "prmt": 4, "cvt": 8}
    assert plan.cost == 24
    assert np.array_equal(mma.a.unpack(plan(mma.d.tiled(col=4).pack(D))).astype(np.float32), D)
    assert plan.emit("cuda").count("__byte_perm") == 4 + 4  # four of them join halves behind cvt
    assert plan.emit("ptx").count("shfl.sync") == 4


def test_no_plan_costs_less():
    """The elements that each lane needs from the others bound the cost from below.

    A lane holds 16 results: 8 conversions of pairs. Of a quad, each lane needs 16 bytes, 8 from each of two lanes. Two
    lanes need them from the same two lanes, and no byte is needed by both: so a shuffle is useful to both only if the
    two senders offer different words, which takes an instruction that depends on the lane; a shuffle without that is
    useful to one of them. m shuffles of the first kind and u of the second must bring 4 words to each: 2 m + u >= 8.
    Every word of A has bytes of two senders, so each takes a prmt.
    """
    mma = wf.get(FP8)
    source, target = mma.d.tiled(col=4).layout, mma.a.layout
    needs = {}
    for place in target.places():
        row, col = target.at(**place._asdict())
        (sender,) = source.where(row=row, col=col)
        needs.setdefault(place.lane, {}).setdefault(sender.lane, set()).add((sender.reg, place.reg))
    for lane, senders in needs.items():
        twin = next(other for other in needs if other != lane and set(needs[other]) == set(senders))
        assert [len(some) for some in senders.values()] == [8, 8]
        for sender in senders:
            mine, theirs = ({reg for reg, _ in needs[each][sender]} for each in (lane, twin))
            assert not mine & theirs
        for reg in range(4):
            assert sum(any(word == reg for _, word in some) for some in senders.values()) == 2
    conversions, joins = 8, 4
    costs = [2 * (m + u) + m for m, u in product(range(9), repeat=2) if 2 * m + u >= 8 and m + u >= 4]

    assert conversions + joins + min(costs) == 24
