"""Recipes for copies, mbarriers, stacks, hints and address spaces.

Each thread copies to its own part of shared memory and has its own mbarrier there, so it does not depend on other
threads.
"""

from tools.fuzz.writer import OWN_BARRIER, OWN_DATA, Generator, Recipe

BARRIER = f"[%own+{OWN_BARRIER}]"
GENERIC = ("%in", "%out", "%own_g", "%local_g", "%const_g", "%global_g", "%blob_g")


def copy(g: Generator) -> None:
    """Write cp.async copies of the thread's input to its shared memory, in groups, and loads of the result."""
    with g.group(whole=True):
        for at in g.random.sample(range(0, OWN_DATA, 16), g.random.randrange(1, 4)):  # copies are not ordered
            size = g.random.choice((4, 8, 16))
            cache = "cg" if size == 16 and g.random.random() < 0.5 else "ca"
            hint = g.choose("", "", ".L2::128B", ".L2::64B")
            operands = [f"[%own+{at}]", f"[%in+{g.random.randrange(0, 128, 16)}]", str(size)]
            kind = g.random.random()
            if kind < 0.3:
                operands.append(str(g.random.randrange(size + 1)))
            elif kind < 0.5:
                g.emit("and.b32", "%t0", g.register("r"), str(size - 1))
                operands.append("%t0")
            space = g.choose("shared", "shared::cta")
            g.emit(f"cp.async.{cache}.{space}.global{hint}", *operands)
            if g.random.random() < 0.5:
                g.emit("cp.async.commit_group")
        if g.random.random() < 0.5:
            g.emit("cp.async.wait_all")
        else:
            g.emit("cp.async.commit_group")
            g.emit("cp.async.wait_group", "0")
    result = g.register("d")
    g.emit("ld.shared.b64", result, f"[%own+{g.random.randrange(0, OWN_DATA, 8)}]", results=[result])


def own_mbarrier(g: Generator) -> None:
    """Write all phases of an mbarrier that only one thread uses, so that every result is known."""
    shared = g.choose(".shared", ".shared::cta") + ".b64"
    pending = g.random.randrange(2, 5)
    with g.group(whole=True):
        g.emit(f"mbarrier.init{shared}", BARRIER, str(pending))
        for number in range(pending):
            if number == 0 and g.random.random() < 0.5:
                g.emit(f"mbarrier.arrive.noComplete{shared}", "%state0", BARRIER, "1")
            elif number == pending - 1 and g.target != "sm_80" and g.random.random() < 0.4:
                _transaction(g)
            elif g.random.random() < 0.2:
                g.emit(f"mbarrier.arrive_drop{shared}", "%state0", BARRIER)
            else:
                g.emit(f"mbarrier.arrive{shared}", "%state0", BARRIER)
            if g.random.random() < 0.5:
                _asked(g, shared)
            if g.random.random() < 0.4:
                result = g.register("r")
                g.emit("mbarrier.pending_count.b64", result, "%state0", results=[result])
        _asked(g, shared)
        result = g.register("p")
        g.emit(f"mbarrier.test_wait.parity{shared}", result, BARRIER, g.choose("0", "1"), results=[result])
        if g.target != "sm_80":
            g.emit(f"mbarrier.try_wait.parity{shared}", "%q3", BARRIER, "0")
            result = g.register("r")
            g.emit("selp.b32", result, "1", "0", "%q3", results=[result])
        g.emit(f"mbarrier.inval{shared}", BARRIER)


def _asked(g: Generator, shared: str) -> None:
    result = g.register("p")
    g.emit(f"mbarrier.test_wait{shared}", result, BARRIER, "%state0", results=[result])


def _transaction(g: Generator) -> None:
    """Write a last arrival that expects bytes, and their completion."""
    size = str(16 * g.random.randrange(1, 8))
    if g.random.random() < 0.5:
        g.emit("mbarrier.arrive.expect_tx.shared.b64", "%state0", BARRIER, size)
    else:
        g.emit("mbarrier.expect_tx.relaxed.cta.shared.b64", BARRIER, size)
        g.emit("mbarrier.arrive.shared.b64", "%state0", BARRIER)
    _asked(g, ".shared.b64")
    g.emit("mbarrier.complete_tx.relaxed.cta.shared::cta.b64", BARRIER, size)
    again = g.label()
    g.add(f"{again}:")
    g.emit("mbarrier.try_wait.parity.shared.b64", "%q3", BARRIER, "0")
    g.emit("bra", again, guard="@!%q3")


def copy_to_mbarrier(g: Generator) -> None:
    """Write a copy whose completion arrives at an mbarrier."""
    again = g.label()
    noinc = g.random.random() < 0.5
    with g.group(whole=True):
        g.emit("mbarrier.init.shared.b64", BARRIER, "1" if noinc else "2")
        g.emit("cp.async.ca.shared.global", "[%own]", "[%in+16]", "8")
        g.emit(f"cp.async.mbarrier.arrive{'.noinc' * noinc}.shared.b64", BARRIER)
        if not noinc:
            g.emit("mbarrier.arrive.shared.b64", "%state0", BARRIER)
            g.emit("mbarrier.arrive.shared.b64", "%state1", BARRIER)
        g.add(f"{again}:")
        g.emit("mbarrier.test_wait.parity.shared.b64", "%q3", BARRIER, "0")
        g.emit("bra", again, guard="@!%q3")
        result = g.register("d")
        g.emit("ld.shared.b64", result, "[%own]", results=[result])
        g.emit("mbarrier.inval.shared.b64", BARRIER)


def stack(g: Generator) -> None:
    """Write an allocation on the stack, its use and its release."""
    size = 16 * g.random.randrange(1, 4)
    with g.group(whole=True):
        g.emit("stacksave.u64", "%u3")
        g.emit("alloca.u64", "%u2", str(size), *([g.choose("8", "16", "32")] if g.random.random() < 0.5 else []))
        g.emit("st.local.b64", "[%u2]", g.register("d"))
        g.emit("st.local.b32", f"[%u2+{size - 4}]", g.register("r"))
        for kind, bits, at in (("d", 64, 0), ("r", 32, size - 4)):
            result = g.register(kind)
            g.emit(f"ld.local.b{bits}", result, f"[%u2+{at}]", results=[result])
        g.emit("stackrestore.u64", "%u3")


def hint(g: Generator) -> None:
    """Write instructions that change no value: prefetches, fences, pauses."""
    hints = [*HINTS, *(NEW_HINTS if g.target != "sm_80" else ())]
    if g.block == 128 and g.place.together and g.target != "sm_80":
        hints.append(("setmaxnreg.dec.sync.aligned.u32", "128"))
    name, *operands = g.random.choice(hints)
    g.emit(name, *operands, guard=not name.startswith("setmaxnreg"))


HINTS = (
    ("prefetch.global.L1", "[%in]"), ("prefetch.global.L2", "[%in+64]"), ("prefetch.L1", "[%in]"),
    ("prefetchu.L1", "[%in]"),
    ("prefetch.global.L2::evict_last", "[%in]"), ("applypriority.global.L2::evict_normal", "[unused]", "128"),
    ("prefetch.global.L2::evict_normal", "[%in]"), ("nanosleep.u32", "20"), ("pmevent", "1"), ("pmevent.mask", "3"),
    ("membar.cta",), ("membar.gl",), ("membar.sys",), ("fence.acq_rel.gpu",), ("fence.sc.cta",), ("fence.acq_rel.sys",),
)  # fmt: skip
NEW_HINTS = (
    ("griddepcontrol.wait",), ("griddepcontrol.launch_dependents",), ("fence.proxy.async",), ("fence.proxy.alias",),
    ("fence.mbarrier_init.release.cluster",),
)  # fmt: skip


def never(g: Generator) -> None:
    """Write an instruction that would end the kernel, under a false condition."""
    with g.group(whole=True):
        g.emit("setp.gt.u32", "%q3", "%threads", "2000")
        g.emit(g.choose("trap", "brkpt"), guard="@%q3")


def policy(g: Generator) -> None:
    """Write a load with a cache policy."""
    result = g.register("r")
    with g.group(whole=True):
        if g.random.random() < 0.5:
            g.emit(f"createpolicy.fractional.L2::{g.choose('evict_last', 'evict_first')}.b64", "%u2", "1.0")
        else:
            g.emit("createpolicy.range.L2::evict_last.L2::evict_first.b64", "%u2", "[%in]", "128", "256")
        g.emit(
            "ld.global.L2::cache_hint.b32", result, f"[%in+{g.random.randrange(0, 128, 4)}]", "%u2", results=[result]
        )


def address_space(g: Generator) -> None:
    """Write isspacep for a generic address, and its conversion to a state space."""
    if g.random.random() < 0.6:
        space = g.choose("global", "shared", "local", "const", "shared::cta")
        result = g.register("p")
        g.emit(f"isspacep.{space}", result, g.choose(*GENERIC), results=[result], guard=True)
        return
    space, generic, size = g.random.choice((
        ("global", "%in", 128), ("shared", "%own_g", 48), ("local", "%local_g", 64), ("const", "%const_g", 128),
        ("param", "%blob_g", 64),
    ))  # fmt: skip
    result = g.register("d")
    with g.group(whole=True):
        g.emit(f"cvta.to.{space}.u64", "%u2", generic)
        g.emit(f"ld.{space}.b64", result, f"[%u2+{g.random.randrange(0, size, 8)}]", results=[result])
        if g.random.random() < 0.5:
            g.emit(f"cvta.{space}.u64", "%u3", "%u2")
            g.emit("ld.b64", result, f"[%u3+{g.random.randrange(0, size, 8)}]", results=[result])


def wide(g: Generator) -> None:
    """Write 128-bit moves and memory accesses."""
    pair = f"{{{g.register('d')}, {g.register('d')}}}"
    results = g.registers("d", 2)
    base, space = g.random.choice((("%own", ".shared"), ("%out", ".global"), ("%out", "")))
    with g.group(whole=True):
        g.emit("mov.b128", "%w0", pair)
        if g.random.random() < 0.5:
            g.emit(f"st{space}.b128", f"[{base}]", "%w0")
            g.emit(f"ld{space}.b128", "%w1", f"[{base}+{g.choose('0', '16')}]")
        elif g.target != "sm_80":
            if g.random.random() < 0.5:
                g.emit(f"atom{space}.exch.b128", "%w1", f"[{base}]", "%w0")
            else:
                g.emit(f"ld{space}.b128", "%w1", f"[{base}]")
                g.emit(f"atom{space}.cas.b128", "%w1", f"[{base}]", g.choose("%w0", "%w1"), "%w0")
        else:
            g.emit("mov.b128", "%w1", "%w0")
        g.emit("mov.b128", f"{{{results[0]}, {results[1]}}}", "%w1", results=results)


RECIPES = [
    Recipe(copy, 0.8, in_function=False),
    Recipe(own_mbarrier, 0.6, in_function=False),
    Recipe(copy_to_mbarrier, 0.4, in_function=False),
    Recipe(stack, 0.4, in_function=False),
    Recipe(hint, 1.2, in_function=False),
    Recipe(never, 0.2, in_function=False),
    Recipe(policy, 0.3, in_function=False),
    Recipe(address_space, 0.8, in_function=False),
    Recipe(wide, 0.5, in_function=False),
]
