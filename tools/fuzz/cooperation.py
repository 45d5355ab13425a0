"""Recipes for several threads: atomics, exchanges through shared memory, barriers, collectives.

Threads update private memory, or shared locations with operations whose order does not affect the result. Values that
one thread passes to another are written and read between barriers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tools.fuzz.kernel import BITS
from tools.fuzz.spellings import Update, accepted_updates
from tools.fuzz.writer import EXCHANGE_BYTES, Generator, Recipe, letter

if TYPE_CHECKING:
    from collections.abc import Iterable

ORDERS = ("", "", "", ".relaxed.gpu", ".acq_rel.gpu", ".acquire.cta", ".release.sys", ".relaxed.cta")
COMMUTING = ("add", "min", "max", "and", "or", "xor")


def vector(registers: Iterable[str]) -> str:
    """Return registers as one vector operand."""
    names = list(registers)
    return f"{{{', '.join(names)}}}" if len(names) > 1 else names[0]


def ordered(g: Generator, name: str) -> str:
    """Return the name of an atomic with or without a memory order."""
    opcode, _, rest = name.partition(".")
    order = g.choose(*ORDERS)
    if opcode == "red" and "acq" in order:  # red returns nothing, so it cannot acquire
        order = ""
    return f"{opcode}{order}.{rest}"


# ---- atomics


def own_update(g: Generator) -> None:
    """Write an atomic on private memory, between a store and a load."""
    fitting = [update for update in accepted_updates(g.target) if update.kind.bits <= 64]
    update = g.random.choice(fitting)
    kind = letter(update.kind)
    bits = BITS[kind]
    base = (
        "%own"
        if update.space == "shared"
        else "%out"
        if update.space == "global" or update.vector > 1
        else g.choose("%out", "%own_g")
    )
    place = f"[{base}+{g.random.choice((0, 16))}]"
    space = {"%own": ".shared", "%out": ".global", "%own_g": ""}[base]
    single = update.vector == 1
    if single and g.random.random() < 0.8:
        g.emit(f"st{space}.b{bits}", place, g.register(kind), guard=True)
    operands = [vector(g.registers(kind, update.vector))]
    if update.operation == "cas":
        operands.append(g.register(kind))
    name = ordered(g, update.name)
    if update.opcode == "red":
        g.emit(name, place, *operands, guard=True)
    else:
        results = g.registers(kind, update.vector)
        g.emit(name, vector(results), place, *operands, results=results, guard=True)
    if single and g.random.random() < 0.8:
        result = g.register(kind)
        g.emit(f"ld{space}.b{bits}", result, place, results=[result], guard=True)


def common_update(g: Generator) -> None:
    """Write a commutative atomic of all threads on one address."""
    commuting = [update for update in accepted_updates(g.target) if commutes(update) and update.space != "shared"]
    update = g.random.choice(commuting)
    place = f"[%tail+{8 * tail_slots().index((update.operation, update.kind.name))}]"
    value = g.register(letter(update.kind))
    if update.opcode == "red":
        g.emit(ordered(g, update.name), place, value, guard=True)
    else:
        g.emit(ordered(g, update.name), "_", place, value, guard=True)


def commutes(update: Update) -> bool:
    """Return True if the order of several threads' atomics does not affect the result."""
    return update.operation in COMMUTING and not update.kind.is_float and update.vector == 1


@lru_cache(1)
def tail_slots() -> list[tuple[str, str]]:
    """Return a slot for each operation, because different operations do not commute."""
    return sorted({(update.operation, update.kind.name) for update in accepted_updates("sm_90a") if commutes(update)})


def block_update(g: Generator) -> None:
    """Write atomics of a block's threads on one shared address, and a load of the result."""
    update = g.random.choice([u for u in accepted_updates(g.target) if commutes(u) and u.space == "shared"])
    kind = letter(update.kind)
    bits = BITS[kind]
    result = g.register(kind)
    with g.group(whole=True):
        g.emit("setp.eq.u32", "%q3", "%thread", "0")
        g.emit(f"st.shared.b{bits}", "[common]", g.register(kind), guard="@%q3")
        barrier(g)
        value = g.register(kind)
        g.emit(update.name, *(["_"] if update.opcode == "atom" else []), "[common]", value, guard=True)
        barrier(g)
        g.emit(f"ld.shared.b{bits}", result, "[common]", results=[result])
        barrier(g)


# ---- barriers and exchanges


def barrier(g: Generator) -> None:
    """Write a block-wide barrier in one of its spellings."""
    names = ["bar.sync", "barrier.sync", "barrier.sync.aligned", "barrier.cta.sync", "bar.cta.sync"]
    operands = [str(g.random.randrange(4))]
    if g.has_whole_warps and g.random.random() < 0.3:
        operands.append(g.choose("%threads", str(g.block)))
    g.emit(g.choose(*names), *operands)


def barrier_reduction(g: Generator) -> None:
    """Write bar.red: a vote or a count over the block."""
    opcode, aligned = g.random.choice(
        (("bar", ""), ("barrier", ""), ("barrier", ".aligned"), ("bar.cta", ""), ("barrier.cta", ""))
    )
    source = f"{g.choose('', '!')}{g.register('p')}"
    operands = ["0"] if not g.has_whole_warps or g.random.random() < 0.5 else ["1", str(g.block)]
    if g.random.random() < 0.5:
        result = g.register("r")
        g.emit(f"{opcode}.red.popc{aligned}.u32", result, *operands, source, results=[result])
    else:
        result = g.register("p")
        g.emit(f"{opcode}.red.{g.choose('and', 'or')}{aligned}.pred", result, *operands, source, results=[result])


def half_arrives(g: Generator) -> None:
    """Write a barrier at which the first warp arrives and the others wait."""
    name = g.choose("bar", "barrier", "bar.cta")
    with g.group(whole=True):
        g.emit("setp.lt.u32", "%q3", "%thread", "32")
        g.emit(f"{name}.arrive", "5", str(g.block), guard="@%q3")
        g.emit(f"{name}.sync", "5", str(g.block), guard="@!%q3")
        g.emit("bar.sync", "0")


def exchange(g: Generator) -> None:
    """Write an exchange of values between threads through shared memory."""
    kind, count = g.random.choice((("h", 1), ("r", 1), ("r", 2), ("r", 4), ("d", 1), ("d", 2)))
    name = f"{f'.v{count}' if count > 1 else ''}.b{BITS[kind]}"
    results = g.registers(kind, count)
    with g.group(whole=True):
        barrier(g)
        g.emit(f"st.shared{name}", "[%mine]", vector(g.register(kind) for _ in range(count)))
        barrier(g)
        g.emit("add.u32", "%t2", "%thread", str(g.random.randrange(1, 40)))
        g.emit("rem.u32", "%t2", "%t2", "%threads")
        g.emit("mov.u32", "%t1", "exchange")
        g.emit("mad.lo.u32", "%t1", "%t2", str(EXCHANGE_BYTES), "%t1")
        g.emit(f"ld.shared{name}", vector(results), "[%t1]", results=results)
        barrier(g)


# ---- collectives of a warp


def collective(g: Generator) -> None:
    """Write a shuffle, vote, match, reduction or election of all lanes."""
    spelling = g.random.choice(g.random.choice(g.collective_rows))
    sources = g.operands(spelling)
    if spelling.row.opcode == "match":
        few = "%t0" if spelling.sources[0] is not None and spelling.sources[0].bits == 32 else "%u0"
        g.emit(
            f"and.b{32 if few == '%t0' else 64}", few, g.register("r" if few == "%t0" else "d"), g.choose("0", "1", "3")
        )
        sources[0] = few
    if spelling.row.opcode == "shfl":
        sources[2] = g.choose("0", "31", "0x1f", "0x181f", "0x100f", "0x1c1f", "0x1e01", g.register("r"))
        sources[1] = g.choose(str(g.random.randrange(32)), g.register("r"))
    if spelling.row.opcode == "vote":
        sources[0] = f"{g.choose('', '!')}{sources[0]}"
    sources[-1] = g.place.members
    if spelling.row.opcode == "shfl" and g.place.members != "-1":  # read the own lane, as others may be inactive
        sources[1:3] = ["0", "31"]
        sources = [*sources[:3], g.place.members]
        if spelling.name.split(".")[2] not in {"bfly", "up", "down"}:
            return
    g.instruction(spelling, sources, guard=False)


def active_lanes(g: Generator) -> None:
    """Write activemask, whose result is specified only if no lane has diverged."""
    result = g.register("r")
    g.emit("activemask.b32", result, results=[result])


def divided_collective(g: Generator) -> None:
    """Write a branch, and a collective of the lanes that do not take it."""
    end = g.label()
    condition = g.register("p")
    with g.group(whole=True):
        g.emit("vote.sync.ballot.b32", "%members", condition, "-1")
        g.emit("bra", end, guard=f"@!{condition}")
        with g.at(together=False, depth=3, members="%members"):
            with g.group():
                g.fill(g.random.randrange(1, 4))
            with g.group():
                collective(g)
            with g.group():
                g.fill(2)
        g.add(f"{end}:")
        g.emit("bar.warp.sync", "-1")


RECIPES = [
    Recipe(own_update, 4, in_function=False),
    Recipe(common_update, 1.5, in_function=False),
    Recipe(block_update, 0.7, together=True),
    Recipe(barrier, 0.5, together=True),
    Recipe(barrier_reduction, 0.8, together=True),
    Recipe(half_arrives, 0.4, together=True, needs=lambda g: g.block in {64, 96, 128}),
    Recipe(exchange, 2, together=True),
    Recipe(collective, 3, together=True, whole_warps=True),
    Recipe(active_lanes, 1, together=True, whole_warps=True, needs=lambda g: not g.has_divided),
    Recipe(divided_collective, 0.7, together=True, whole_warps=True, nests=True),
]
