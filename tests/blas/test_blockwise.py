"""Dask products have the same codes for any chunks; invalid arguments are rejected immediately."""

import os
import signal
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.tensorcore.array_types import Scaled

da = pytest.importorskip("dask.array", reason="needs the extra dask")
import dask  # noqa: E402 (only where it is there)

F16 = "mma.m16n8k16.f32.f16.f16.f32"
E5M2 = "mma.m16n8k32.f32.e5m2.e5m2.f32"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
ROWS, COLUMNS, DEPTH = 22, 13, 70


def operands(batch_a: tuple[int, ...] = (), batch_b: tuple[int, ...] = (), dtype: object = np.float16) -> dict:
    random = np.random.default_rng(1)
    shapes = {"A": (*batch_a, ROWS, DEPTH), "B": (*batch_b, DEPTH, COLUMNS), "C": (ROWS, COLUMNS)}
    found = {role: random.standard_normal(shape).astype(dtype) for role, shape in shapes.items()}
    return found | {"C": random.standard_normal((ROWS, COLUMNS)).astype(np.float32)}


def sparse() -> dict:
    found = operands()
    return found | {"A": wf.prune(found["A"])}


def scaled() -> dict:
    found = operands()
    (A, scale_a), (B, scale_b) = (
        wf.quantize(found[role], "e2m1", scale="ue4m3", block=16, axis=axis) for role, axis in (("A", -1), ("B", -2))
    )
    return {"A": Scaled(A, scale_a), "B": Scaled(B, scale_b), "arch": "sm_120"}


def integers(dtype: object, **more: object) -> dict:
    random = np.random.default_rng(2)
    shapes = {"A": (ROWS, DEPTH), "B": (DEPTH, COLUMNS)}
    return {role: random.integers(-128, 128, shape).astype(dtype) for role, shape in shapes.items()} | more


PRODUCTS = {
    "f16": (F16, operands()),
    "batch of A": (F16, operands(batch_a=(3, 2))),
    "batch of both": (F16, operands(batch_a=(2,), batch_b=(3, 1))),
    "an order": (F16, operands() | {"order": wf.Order(split_k=2, unit=32, promote=16)}),
    "residue": (F16, operands() | {"order": wf.Order(residue=32), "arch": "sm_80"}),
    "an epilogue": (
        F16,
        operands() | {"epilogue": wf.Epilogue(1.5, 0.5, np.linspace(-1, 1, COLUMNS).astype(np.float16), "bf16")},
    ),
    "e5m2": (E5M2, operands(dtype=ml_dtypes.float8_e5m2)),
    "by value": (F16, operands() | {"rounding": "rne", "A": np.linspace(-1, 1, ROWS * DEPTH).reshape(ROWS, DEPTH)}),
    "codes": (F16, {role: one.view(f"u{one.itemsize}") for role, one in operands().items()} | {"raw": True}),
    "s8": ("mma.m16n8k32.s32.s8.s8.s32", integers(np.int8)),
    "sparse": (SPARSE, sparse()),
    "scaled": (SCALED, scaled()),
}
CHUNKS = {"A": [(9, 32), (22, 70), (21, 69)], "B": [(33, 5), (70, 13), (9, 12)]}
CHUNKS |= {
    "C": [(22, 1), (7, 6), (22, 13)],
    "scale_a": [(4, 3), (22, 5), (22, 1)],
    "scale_b": [(2, 13), (5, 3), (5, 4)],
}


def in_chunks(given: dict, way: int) -> dict:
    """Return operands as Dask arrays, with one of three chunkings."""

    def cut(name: str, one: object) -> object:
        if isinstance(one, Scaled):
            return Scaled(cut(name, one.elements), cut(f"scale_{name.lower()}", one.scales))
        if name not in CHUNKS:
            return one
        return da.from_array(one, chunks=(*(1 + way for _ in one.shape[:-2]), *CHUNKS[name][way]))

    return {name: cut(name, one) for name, one in given.items()}


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


@pytest.mark.parametrize("name", PRODUCTS)
def test_chunks_do_not_matter(name: str):
    instruction, given = PRODUCTS[name]
    expected = wf.gemm(**given, instruction=instruction)
    assert len(np.unique(bits(expected))) > 100
    for way in range(3):
        with dask.config.set(scheduler="threads"):
            D = wf.gemm(**in_chunks(given, way), instruction=instruction)
            tasks = [key for layer, keys in D.dask.layers.items() if layer.startswith("warpfrag") for key in keys]
            assert (D.dtype, D.shape) == (expected.dtype, expected.shape)
            assert [max(sizes) for sizes in D.chunks[-2:]] == [CHUNKS["A"][way][0], CHUNKS["B"][way][1]]
            assert len(tasks) == np.prod(D.numblocks)  # one for each block, none for parts of k
            assert np.array_equal(bits(D.compute()), bits(expected))


def test_arrays_of_numpy_may_stand_beside_and_extents_may_be_zero():
    given = operands()
    expected = wf.gemm(**given, instruction=F16)
    for role in "ABC":
        D = wf.gemm(**given | {role: in_chunks(given, 0)[role]}, instruction=F16)
        assert isinstance(D, da.Array)
        assert np.array_equal(D.compute(scheduler="sync"), expected)
    for rows, depth, columns in ((0, 5, 3), (2, 0, 3), (2, 5, 0)):
        A, B = np.ones((rows, depth)), np.ones((depth, columns))
        D = wf.gemm(da.from_array(A), B, instruction=F16).compute(scheduler="sync")
        assert np.array_equal(D, wf.gemm(A, B, instruction=F16))


class Tensor:
    """An array of another package."""

    __module__ = "torch"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"B": da.ones((64, COLUMNS))}, "A is 22 x 70 and B is 64 x 13: the inner extents differ"),
        ({"A": da.ones((2, ROWS, DEPTH)), "B": da.ones((3, DEPTH, COLUMNS))}, "their batch axes do not broadcast"),
        ({"C": da.ones((ROWS, 12))}, "C: expected shape 22 x 13, got 22 x 12"),
        ({"C": da.ones((2, ROWS, COLUMNS))}, "C: expected shape 22 x 13, got 2 x 22 x 13"),
        ({"A": da.ones(DEPTH)}, "A: expected a matrix, got an array of shape (70,)"),
        ({"A": None}, "A: expected a matrix"),
        ({"B": Tensor()}, "B: a Dask array can be combined only with Dask and NumPy arrays, got a torch.Tensor"),
        ({"B": dask.delayed(3)}, "B: expected an array, got dask.delayed.DelayedLeaf"),
        (
            {"A": da.ones((ROWS, DEPTH), dtype=complex)},
            "A: expected float16 or real numbers, got dtype complex128",
        ),
        ({"raw": True}, "expected f16 codes as unsigned integers, got dtype float64"),
        ({"arch": "sm_70"}, "does not have this instruction"),
        ({"instruction": "mma.m16n8k16.f32.f16.f16.f64"}, "nearest"),
        ({"order": 3}, "order: expected a wf.Order, such as wf.Order(split_k=2); got 3"),
        ({"order": wf.Order(promote=24)}, "promote: expected a multiple of the instruction's k, 16; got 24"),
        ({"epilogue": wf.Epilogue(bias=np.ones(5))}, "bias: expected 13 numbers, one for each column, got 5"),
        ({"epilogue": 3}, "epilogue: expected a wf.Epilogue, got 3"),
        ({"A": Scaled(da.ones((ROWS, DEPTH)), da.ones((ROWS, 5)))}, "takes no scale_a"),
        ({"instruction": SCALED, "arch": "sm_120"}, "needs scale_a"),
        (
            {
                "instruction": SCALED,
                "arch": "sm_120",
                "A": Scaled(da.ones((ROWS, DEPTH)), da.ones((ROWS, 4))),
                "B": Scaled(da.ones((DEPTH, COLUMNS)), da.ones((5, COLUMNS))),
            },
            "scale_a: expected shape (22, 5), got (22, 4)",
        ),
        (
            {
                "instruction": SCALED,
                "arch": "sm_120",
                "A": Scaled(da.ones((ROWS, DEPTH)), da.ones((ROWS, 5))),
                "B": Scaled(da.ones((DEPTH, COLUMNS)), da.ones((2, 5, COLUMNS))),
            },
            "scale_b: batch axes (2,) do not broadcast to ()",
        ),
    ],
)
def test_what_is_wrong_is_refused_before_anything_runs(change: dict, message: str):
    given = {"A": da.ones((ROWS, DEPTH)), "B": da.ones((DEPTH, COLUMNS)), "instruction": F16}

    with pytest.raises(wf.WarpfragError) as refused:
        wf.gemm(**given | change)
    assert message in str(refused.value)


def test_chunks_of_unknown_sizes_are_refused():
    A = da.ones((ROWS, DEPTH), chunks=5)
    some = A[A[:, 0] > 0]
    with pytest.raises(
        wf.errors.InvalidOperand, match=r"A: expected chunks of known sizes.* A.compute_chunk_sizes\(\) first"
    ):
        wf.gemm(some, np.ones((DEPTH, 3)), instruction=F16)


BLOCKS_THAT_LIE = {
    "other bits": (
        np.float16,
        lambda block: block.view(np.int16),
        "A: expected blocks of the Dask array's dtype float16, got int16",
    ),
    "bytes turned": (
        np.float16,
        lambda block: block.astype(">f2"),
        "expected blocks of the Dask array's dtype float16, got >f2",
    ),
    "integers": (ml_dtypes.bfloat16, lambda block: block.view(np.uint16), "dtype bfloat16, got uint16"),
    "fewer rows": (
        np.float16,
        lambda block: block[:1],
        r"expected a block of shape \(4, 5\) .*, got \(1, 5",
    ),
}


@pytest.mark.parametrize("lie", BLOCKS_THAT_LIE)
def test_blocks_that_are_not_what_their_array_says_are_refused(lie: str):
    """Their bits would be read as other numbers."""
    dtype, change, message = BLOCKS_THAT_LIE[lie]
    A, B = (da.ones(shape, dtype=dtype, chunks=(4, 5)) for shape in ((8, 10), (10, 10)))
    name = F16 if dtype is np.float16 else "mma.m16n8k16.f32.bf16.bf16.f32"
    lying = A.map_blocks(change, dtype=A.dtype, meta=A._meta)
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.gemm(lying, B, instruction=name).compute(scheduler="synchronous")


def test_a_value_that_is_refused_is_found_again():
    A = np.ones((ROWS, DEPTH))
    A[7, 3] = 0.1
    D = wf.gemm(da.from_array(A, chunks=(5, 16)), np.ones((DEPTH, 4)), instruction=F16)
    with pytest.raises(
        wf.errors.InvalidOperand, match=r"A: element \(2, 3\) is 0.1.*block of D that starts at D\[5, 0\]"
    ):
        D.compute(scheduler="sync")


def test_dask_is_imported_only_for_its_arrays():
    program = (
        "import sys, numpy as np, warpfrag as wf; "
        f"wf.gemm(np.ones((2, 3)), np.ones((3, 2)), instruction={F16!r}); "
        "print([name for name in ('dask', 'distributed', 'zarr') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.slow
def test_a_cluster_gives_the_same_codes_though_a_worker_is_killed():
    """Two worker processes; one is killed while some blocks are done, some running and some waiting."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    release = "warpfrag may go on"

    def held(block: np.ndarray, block_info: dict | None = None) -> np.ndarray:
        """The last chunk keeps its worker busy, so that the other worker does the rest."""
        if block_info and block_info[0]["chunk-location"] == (2, 0):
            distributed.Event(release).wait(60)
        return block

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for name, way in (("f16", 0), ("f16", 1), ("f16", 2), ("e5m2", 0), ("scaled", 2)):
            instruction, given = PRODUCTS[name]
            D = wf.gemm(**in_chunks(given, way), instruction=instruction)
            assert np.array_equal(bits(D.compute()), bits(wf.gemm(**given, instruction=instruction)))

        instruction, given = PRODUCTS["f16"]
        cut = in_chunks(given, 0)
        A = cut["A"].rechunk((9, DEPTH)).map_blocks(held, dtype=np.float16)
        D = client.persist(wf.gemm(A, cut["B"], cut["C"], instruction=instruction))
        futures = distributed.futures_of(D)
        distributed.wait(futures, return_when="FIRST_COMPLETED", timeout=60)
        assert {future.status for future in futures} == {"finished", "pending"}
        finished = [future for future in futures if future.status == "finished"]
        holder = next(iter(client.who_has(finished).values()))[0]
        os.kill(client.run(os.getpid, workers=[holder])[holder], signal.SIGKILL)
        while holder in client.scheduler_info(n_workers=-1)["workers"]:  # else a client may look for it for 30 seconds
            time.sleep(0.05)
        distributed.Event(release).set()
        assert np.array_equal(D.compute(), wf.gemm(**given, instruction=instruction))
