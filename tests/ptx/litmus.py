"""Litmus tests: two or three threads, their operations, and whether they race under the PTX memory model.

A test is a row: its name, where the threads are, the program of each, and the verdict with its reason. The threads run
one after the other, so each load sees what the threads before it stored: that a run went well says nothing, and the
verdict rests on the orders of the model alone. Locations are x (data), y (a flag) and z (another).

Places: "lanes" of one warp, "warps" of one block, "blocks", "cluster" for blocks of one cluster. W, W2 and H store, R
loads, A and D are atom.add of 32 and 64 bits, F is fence, M membar, S bar.warp.sync, V vote.sync, B bar.sync. What
stands in brackets are the words of PTX: `W[relaxed.gpu] y`.
"""

RACE, NONE, LOCKSTEP = "race", "none", "lockstep"


def mp(write_flag, read_flag, *, before="", after=""):
    """Message passing: data, then a flag; the other reads the flag, then the data."""
    first = ["W x", *([before] if before else []), f"{write_flag} y"]
    second = [f"{read_flag} y", *([after] if after else []), "R x"]
    return first, second


ROWS = [
    # weak accesses of one location
    ("weak stores of one word, warps", "warps", (["W x"], ["W2 x"]), RACE, "conflict, unordered"),
    ("weak stores of one word, blocks", "blocks", (["W x"], ["W2 x"]), RACE, "conflict, unordered"),
    ("weak stores of one word, lanes", "lanes", (["W x"], ["W2 x"]), LOCKSTEP, "only lockstep orders lanes"),
    ("the same value stored twice, blocks", "blocks", (["W x"], ["W x"]), NONE, "no order changes the memory"),
    ("weak store and load, warps", "warps", (["W x"], ["R x"]), RACE, "conflict, unordered"),
    ("weak store and load, blocks", "blocks", (["W x"], ["R x"]), RACE, "conflict, unordered"),
    ("weak store and load, lanes", "lanes", (["W x"], ["R x"]), LOCKSTEP, "only lockstep orders lanes"),
    ("weak load and store, warps", "warps", (["R x"], ["W x"]), RACE, "conflict, unordered"),
    ("weak load and store, blocks", "blocks", (["R x"], ["W x"]), RACE, "conflict, unordered"),
    ("two weak loads", "blocks", (["R x"], ["R x"]), NONE, "loads do not conflict"),
    ("different words", "blocks", (["W x"], ["R z"]), NONE, "no overlap"),
    (
        "release stores and a weak load, blocks",
        "blocks",
        (["W[release.gpu] x"], ["W2[release.gpu] x", "R x"]),
        RACE,
        "the weak load races with the store that its own thread's store replaced",
    ),
    # strong accesses of one location
    ("relaxed stores, gpu", "blocks", (["W[relaxed.gpu] x"], ["W2[relaxed.gpu] x"]), "unordered", "strong"),
    ("relaxed stores, cta, blocks", "blocks", (["W[relaxed.cta] x"], ["W2[relaxed.cta] x"]), RACE, "scopes exclude"),
    ("relaxed stores, cta, warps", "warps", (["W[relaxed.cta] x"], ["W2[relaxed.cta] x"]), "unordered", "strong"),
    ("relaxed stores, one cta", "blocks", (["W[relaxed.gpu] x"], ["W2[relaxed.cta] x"]), RACE, "one scope excludes"),
    (
        "relaxed stores, cluster, in it",
        "cluster",
        (["W[relaxed.cluster] x"], ["W2[relaxed.cluster] x"]),
        "unordered",
        "inside",
    ),
    (
        "relaxed stores, cluster, outside",
        "blocks",
        (["W[relaxed.cluster] x"], ["W2[relaxed.cluster] x"]),
        RACE,
        "outside",
    ),
    ("relaxed and weak", "blocks", (["W[relaxed.gpu] x"], ["R x"]), RACE, "one is weak"),
    ("weak and relaxed", "blocks", (["W x"], ["R[relaxed.gpu] x"]), RACE, "one is weak"),
    ("volatile", "blocks", (["W[volatile] x"], ["R[volatile] x"]), NONE, "volatile is relaxed.sys"),
    ("volatile and weak", "blocks", (["W[volatile] x"], ["R x"]), RACE, "one is weak"),
    ("volatile and relaxed", "blocks", (["W[volatile] x"], ["R[relaxed.sys] x"]), NONE, "both strong"),
    ("atomics, gpu", "blocks", (["A x"], ["A x"]), NONE, "relaxed.gpu by default"),
    ("atomics, cta, blocks", "blocks", (["A[relaxed.cta] x"], ["A[relaxed.cta] x"]), RACE, "scopes exclude"),
    ("atomics, cta, warps", "warps", (["A[relaxed.cta] x"], ["A[relaxed.cta] x"]), NONE, "morally strong"),
    ("atomic and weak load", "blocks", (["A x"], ["R x"]), RACE, "one is weak"),
    ("weak store and atomic", "blocks", (["W x"], ["A x"]), RACE, "one is weak"),
    ("atomic and relaxed load", "blocks", (["A x"], ["R[relaxed.gpu] x"]), NONE, "both strong"),
    ("strong, other size", "blocks", (["W[relaxed.gpu] x"], ["H[relaxed.gpu] x"]), RACE, "no complete overlap"),
    ("atomics, other size", "blocks", (["A x"], ["D x"]), RACE, "no complete overlap"),
    # message passing
    ("MP weak", "blocks", mp("W", "R"), RACE, "no synchronisation"),
    ("MP relaxed", "blocks", mp("W[relaxed.gpu]", "R[relaxed.gpu]"), RACE, "no release, no acquire"),
    ("MP release acquire, gpu", "blocks", mp("W[release.gpu]", "R[acquire.gpu]"), NONE, "synchronizes"),
    ("MP release acquire, sys", "blocks", mp("W[release.sys]", "R[acquire.sys]"), NONE, "synchronizes"),
    ("MP release acquire, cta, blocks", "blocks", mp("W[release.cta]", "R[acquire.cta]"), RACE, "scopes exclude"),
    ("MP release acquire, cta, warps", "warps", mp("W[release.cta]", "R[acquire.cta]"), NONE, "synchronizes"),
    ("MP release gpu, acquire cta", "blocks", mp("W[release.gpu]", "R[acquire.cta]"), RACE, "one scope excludes"),
    ("MP release cta, acquire gpu", "blocks", mp("W[release.cta]", "R[acquire.gpu]"), RACE, "one scope excludes"),
    ("MP release acquire, cluster", "cluster", mp("W[release.cluster]", "R[acquire.cluster]"), NONE, "inside"),
    ("MP cluster scope, outside", "blocks", mp("W[release.cluster]", "R[acquire.cluster]"), RACE, "outside"),
    ("MP release, relaxed load", "blocks", mp("W[release.gpu]", "R[relaxed.gpu]"), RACE, "no acquire"),
    ("MP relaxed, acquire", "blocks", mp("W[relaxed.gpu]", "R[acquire.gpu]"), RACE, "no release"),
    ("MP release, weak load", "blocks", mp("W[release.gpu]", "R"), RACE, "a weak load does not observe"),
    ("MP weak flag, acquire", "blocks", mp("W", "R[acquire.gpu]"), RACE, "a weak store releases nothing"),
    (
        "MP fences",
        "blocks",
        mp("W[relaxed.gpu]", "R[relaxed.gpu]", before="F[acq_rel.gpu]", after="F[acq_rel.gpu]"),
        NONE,
        "patterns",
    ),
    (
        "MP fences sc",
        "blocks",
        mp("W[relaxed.gpu]", "R[relaxed.gpu]", before="F[sc.gpu]", after="F[sc.gpu]"),
        NONE,
        "patterns",
    ),
    ("MP membar.gl", "blocks", mp("W[volatile]", "R[volatile]", before="M gl", after="M gl"), NONE, "threadfence"),
    (
        "MP membar.gl, only the writer",
        "blocks",
        mp("W[volatile]", "R[volatile]", before="M gl"),
        RACE,
        "no acquire pattern",
    ),
    (
        "MP membar.gl, only the reader",
        "blocks",
        mp("W[volatile]", "R[volatile]", after="M gl"),
        RACE,
        "no release pattern",
    ),
    (
        "MP membar.cta, blocks",
        "blocks",
        mp("W[volatile]", "R[volatile]", before="M cta", after="M cta"),
        RACE,
        "fences exclude",
    ),
    (
        "MP membar.cta, warps",
        "warps",
        mp("W[volatile]", "R[volatile]", before="M cta", after="M cta"),
        NONE,
        "threadfence_block",
    ),
    (
        "MP membar.sys",
        "blocks",
        mp("W[volatile]", "R[volatile]", before="M sys", after="M sys"),
        NONE,
        "threadfence_system",
    ),
    ("MP membar.gl, weak flag", "blocks", mp("W", "R[volatile]", before="M gl", after="M gl"), RACE, "a weak flag"),
    (
        "MP fence gpu, flag cta",
        "blocks",
        mp("W[relaxed.cta]", "R[relaxed.cta]", before="F[acq_rel.gpu]", after="F[acq_rel.gpu]"),
        RACE,
        "the flag's scope excludes",
    ),
    (
        "MP fence cta, flag gpu",
        "blocks",
        mp("W[relaxed.gpu]", "R[relaxed.gpu]", before="F[acq_rel.cta]", after="F[acq_rel.cta]"),
        RACE,
        "the fence's scope excludes",
    ),
    (
        "MP fence, acquire",
        "blocks",
        mp("W[relaxed.gpu]", "R[acquire.gpu]", before="F[acq_rel.gpu]"),
        NONE,
        "pattern and operation",
    ),
    (
        "MP release, fence",
        "blocks",
        mp("W[release.gpu]", "R[relaxed.gpu]", after="F[acq_rel.gpu]"),
        NONE,
        "operation and pattern",
    ),
    (
        "MP fence behind the flag",
        "blocks",
        (["W x", "W[relaxed.gpu] y", "F[acq_rel.gpu]"], ["R[acquire.gpu] y", "R x"]),
        RACE,
        "the fence comes late",
    ),
    (
        "MP fence before the flag's load",
        "blocks",
        (["W x", "W[release.gpu] y"], ["F[acq_rel.gpu]", "R[relaxed.gpu] y", "R x"]),
        RACE,
        "the fence comes early",
    ),
    (
        "MP data behind the release",
        "blocks",
        (["W[release.gpu] y", "W x"], ["R[acquire.gpu] y", "R x"]),
        RACE,
        "data comes late",
    ),
    (
        "MP another flag",
        "blocks",
        (["W x", "W[release.gpu] y"], ["R[acquire.gpu] z", "R x"]),
        RACE,
        "it observes another location",
    ),
    (
        "MP atomics with fences",
        "blocks",
        mp("A", "A", before="F[acq_rel.gpu]", after="F[acq_rel.gpu]"),
        NONE,
        "patterns",
    ),
    ("MP atomics alone", "blocks", mp("A", "A"), RACE, "relaxed by default"),
    ("MP atomics acq_rel", "blocks", mp("A[acq_rel.gpu]", "A[acq_rel.gpu]"), NONE, "synchronizes"),
    ("MP atomics release, acquire", "blocks", mp("A[release.gpu]", "A[acquire.gpu]"), NONE, "synchronizes"),
    ("MP atomics acquire, release", "blocks", mp("A[acquire.gpu]", "A[release.gpu]"), RACE, "the wrong halves"),
    ("MP atomics acq_rel, cta", "blocks", mp("A[acq_rel.cta]", "A[acq_rel.cta]"), RACE, "scopes exclude"),
    # store to load and load to store
    (
        "LB with release and acquire",
        "blocks",
        (["R x", "W[release.gpu] y"], ["R[acquire.gpu] y", "W x"]),
        NONE,
        "the load comes before",
    ),
    ("LB weak", "blocks", (["R x", "W y"], ["R y", "W x"]), RACE, "no synchronisation"),
    ("SB weak", "blocks", (["W x", "R y"], ["W y", "R x"]), RACE, "no synchronisation"),
    (
        "SB relaxed",
        "blocks",
        (["W[relaxed.gpu] x", "R[relaxed.gpu] y"], ["W[relaxed.gpu] y", "R[relaxed.gpu] x"]),
        NONE,
        "all strong",
    ),
    (
        "SB with fences, weak",
        "blocks",
        (["W x", "F[sc.gpu]", "R y"], ["W y", "F[sc.gpu]", "R x"]),
        RACE,
        "fences make no weak access strong",
    ),
    ("2+2W weak", "blocks", (["W x", "W y"], ["W2 y", "W2 x"]), RACE, "no synchronisation"),
    ("CoRR strong", "blocks", (["W[relaxed.gpu] x"], ["R[relaxed.gpu] x", "R[relaxed.gpu] x"]), NONE, "all strong"),
    ("WAW over a release", "blocks", (["W x", "W[release.gpu] y"], ["R[acquire.gpu] y", "W2 x"]), NONE, "synchronizes"),
    # three threads
    (
        "ISA2: passed on",
        "blocks",
        (["W x", "W[release.gpu] y"], ["R[acquire.gpu] y", "W[release.gpu] z"], ["R[acquire.gpu] z", "R x"]),
        NONE,
        "causality is transitive",
    ),
    (
        "ISA2: passed on without acquire",
        "blocks",
        (["W x", "W[release.gpu] y"], ["R[relaxed.gpu] y", "W[release.gpu] z"], ["R[acquire.gpu] z", "R x"]),
        RACE,
        "the chain is broken",
    ),
    (
        "ISA2: passed on without release",
        "blocks",
        (["W x", "W[release.gpu] y"], ["R[acquire.gpu] y", "W[relaxed.gpu] z"], ["R[acquire.gpu] z", "R x"]),
        RACE,
        "the chain is broken",
    ),
    (
        "release sequence of atomics",
        "blocks",
        (["W x", "W[release.gpu] y"], ["A y"], ["R[acquire.gpu] y", "R x"]),
        NONE,
        "an atomic passes the release on",
    ),
    (
        "release sequence broken by a store",
        "blocks",
        (["W x", "W[release.gpu] y"], ["W2[relaxed.gpu] y"], ["R[acquire.gpu] y", "R x"]),
        RACE,
        "a store begins anew",
    ),
    (
        "WRC",
        "blocks",
        (["W[relaxed.gpu] x"], ["R[relaxed.gpu] x", "W[release.gpu] y"], ["R[acquire.gpu] y", "R[relaxed.gpu] x"]),
        NONE,
        "all strong on x",
    ),
    (
        "two writers, one released",
        "blocks",
        (["W x", "W[release.gpu] y"], ["W z"], ["R[acquire.gpu] y", "R x", "R z"]),
        RACE,
        "nobody released z",
    ),
    # warps and lanes
    ("bar.warp.sync between lanes", "lanes", (["W x", "S"], ["S", "R x"]), NONE, "the lanes wait for each other"),
    ("shuffle between lanes", "lanes", (["W x", "V"], ["V", "R x"]), LOCKSTEP, "votes and shuffles order no memory"),
    ("bar.sync between warps", "warps", (["W x", "B"], ["B", "R x"]), NONE, "a barrier of the block"),
    ("bar.sync and another word", "warps", (["W x", "B"], ["B", "R z"]), NONE, "no conflict"),
    ("bar.sync does not reach another block", "blocks", (["W x", "B"], ["B", "R x"]), RACE, "a barrier is of a block"),
    # the order of fence.sc, over a third thread that has no fence
    (
        "fence.sc over a third thread",
        "blocks",
        (
            ["W x", "F[sc.gpu]", "W[relaxed.gpu] y"],
            ["R[relaxed.gpu] y", "W[release.gpu] z"],
            ["R[acquire.gpu] z", "F[sc.gpu]", "R x"],
        ),
        NONE,
        "the load of y comes before the second fence, so the first fence does",
    ),
    (
        "membar over a third thread",
        "blocks",
        (
            ["W x", "M gl", "W[relaxed.gpu] y"],
            ["R[relaxed.gpu] y", "W[release.gpu] z"],
            ["R[acquire.gpu] z", "M gl", "R x"],
        ),
        NONE,
        "membar is fence.sc",
    ),
    (
        "fence.sc over a third thread, then acq_rel",
        "blocks",
        (
            ["W x", "F[sc.gpu]", "W[relaxed.gpu] y"],
            ["R[relaxed.gpu] y", "W[release.gpu] z"],
            ["R[acquire.gpu] z", "F[acq_rel.gpu]", "R x"],
        ),
        RACE,
        "only fence.sc have an order of their own",
    ),
    (
        "fence.acq_rel over a third thread, then sc",
        "blocks",
        (
            ["W x", "F[acq_rel.gpu]", "W[relaxed.gpu] y"],
            ["R[relaxed.gpu] y", "W[release.gpu] z"],
            ["R[acquire.gpu] z", "F[sc.gpu]", "R x"],
        ),
        RACE,
        "only fence.sc have an order of their own",
    ),
    (
        "fence.sc of a block over a third thread",
        "blocks",
        (
            ["W x", "F[sc.cta]", "W[relaxed.gpu] y"],
            ["R[relaxed.gpu] y", "W[release.gpu] z"],
            ["R[acquire.gpu] z", "F[sc.gpu]", "R x"],
        ),
        RACE,
        "scopes exclude",
    ),
]
