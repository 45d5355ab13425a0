"""Errors that end a launch with tensor copies, mbarriers and clusters, and their messages."""

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.errors import InvalidOperand, PtxError

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
BARRIER = "  .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 8 .b64 bar;\n"


def kernel(body, parameters="", directives=""):
    return wf.ptx.load(f"{HEAD}.visible .entry k({parameters}) {directives}\n{{\n{BARRIER}{body}\n  ret;\n}}")["k"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mbarrier.arrive.shared::cta.b64 %rd1, [bar];", "no mbarrier is initialised at 0x400"),
        ("mbarrier.init.shared::cta.b64 [bar], 0;", "expected 1..1048575 arrivals for mbarrier.init, got 0"),
        (
            "mbarrier.init.shared::cta.b64 [bar], 2;\n  mbarrier.arrive.shared::cta.b64 %rd1, [bar], 3;",
            (
                "expected at most 2 more arrivals at the mbarrier, got 3 "
                "(mbarrier at 0x400 of block (0, 0, 0), initialised at line 7)"
            ),
        ),
        (
            (
                "mbarrier.init.shared::cta.b64 [bar], 1;\n"
                "  mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [bar], 64;\n"
                "  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];"
            ),
            "expected at most 0 more arrivals at the mbarrier, got 1",
        ),
        (
            (
                "mbarrier.init.shared::cta.b64 [bar], 2;\n  mbarrier.arrive.shared::cta.b64 %rd1, [bar];\n"
                "  mbarrier.init.shared::cta.b64 [bar], 1;"
            ),
            "initialised at line 7, is in use: its phase of parity 0 awaits 1 of 2 arrivals and 0 bytes",
        ),
        (
            (
                "mbarrier.init.shared::cta.b64 [bar], 1;\n"
                "  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048575;\n"
                "  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16;"
            ),
            "expected -1048575 to 1048575 pending bytes, got 1048591",
        ),
        (
            "mov.u32 %r1, bar; mapa.shared::cluster.u32 %r2, %r1, 5; ld.shared::cluster.u32 %r3, [%r2];",
            "is in block 5 of a cluster with 2 blocks",
        ),
        ("barrier.cluster.wait;", "waits without having arrived"),
        ("barrier.cluster.arrive; barrier.cluster.arrive;", "arrives twice without waiting in between"),
        ("multimem.ld_reduce.weak.global.add.u32 %r1, [%rd1];", "multimem needs a multicast object"),
    ],
)
def test_a_bad_barrier_or_address_is_named(body, message):
    with pytest.raises(PtxError) as error:
        kernel(body).launch(grid=2, block=1, options=wf.ptx.LaunchOptions(cluster=2))
    assert message in str(error.value)


def test_a_wait_that_cannot_end_says_who_waits_for_what():
    body = (
        "mov.u32 %r1, %tid.x; setp.ne.u32 %p0, %r1, 0;\n"
        "  @!%p0 mbarrier.init.shared::cta.b64 [bar], 1;\n  bar.sync 0;\n"
        "  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n  @!%p1 bra W;"
    )
    with pytest.raises(PtxError, match="deadlock") as error:
        kernel(body).launch(grid=1, block=64)
    text = str(error.value)
    assert "line 11" in text
    assert "of thread (0, 0, 0) of block (0, 0, 0) and 63 more waits for the mbarrier at 0x400" in text
    assert "initialised at line 8: its phase of parity 0 awaits 0 of 1 arrivals and 64 bytes" in text


def test_a_wait_with_a_time_limit_fails_when_nobody_else_can_run():
    body = (
        "mbarrier.init.shared::cta.b64 [bar], 1; mov.u32 %r1, 0; ld.param.u64 %rd1, [out];\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0, 1000; add.u32 %r1, %r1, 1;\n"
        "  setp.lt.u32 %p2, %r1, 5;\n  @%p2 bra W;\n  selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1], %r2;"
    )
    out = np.full(1, 7, np.uint32)
    kernel(body, ".param .u64 out").launch(grid=1, block=1, args=[out])
    assert out[0] == 0


def test_a_cluster_that_waits_for_a_block_that_does_not_come_is_a_deadlock():
    body = "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p0, %r1, 1;\n  @%p0 bra W;\n"
    body += "  barrier.cluster.arrive; barrier.cluster.wait;\n"
    body += "W: barrier.cluster.arrive;\n  mbarrier.init.shared::cta.b64 [bar], 1;\n"
    body += "V: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n  @!%p1 bra V;"
    with pytest.raises(PtxError, match="deadlock") as error:
        kernel(body).launch(grid=2, block=1, options=wf.ptx.LaunchOptions(cluster=2))
    assert "waits for the mbarrier at 0x400 of block (1, 0, 0)" in str(error.value)


@pytest.mark.parametrize(
    ("cluster", "grid", "directives", "message"),
    [
        (17, 17, "", "expected at most 16 blocks in a cluster, got 17 in (17, 1, 1)"),
        (2, 3, "", "expected a grid that is a multiple of the cluster (2, 1, 1) along every axis, got (3, 1, 1)"),
        (
            2,
            4,
            ".reqnctapercluster 4",
            "must be launched with clusters of (4, 1, 1) (.reqnctapercluster), got (2, 1, 1)",
        ),
        (
            None,
            4,
            ".explicitcluster",
            "must be launched with clusters (.explicitcluster): pass options=LaunchOptions(cluster=(x, y, z))",
        ),
        (4, 4, ".maxclusterrank 2", "expected at most 2 blocks in a cluster, got 4 in (4, 1, 1)"),
        ("2", 4, "", "expected cluster to be one to three positive integers, got '2'"),
        ((2, 0), 4, "", "expected cluster to be one to three positive integers, got (2, 0)"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(cluster, grid, directives, message):
    with pytest.raises(InvalidOperand) as error:
        kernel("", directives=directives).launch(grid=grid, block=1, options=wf.ptx.LaunchOptions(cluster=cluster))
    assert message in str(error.value)


@pytest.mark.one_engine
def test_clusters_are_refused_before_hopper():
    old = wf.ptx.load(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n  ret;\n}")["k"]
    with pytest.raises(InvalidOperand, match="clusters need sm_90 or later, got a module for sm_80"):
        old.launch(grid=2, block=1, options=wf.ptx.LaunchOptions(cluster=2))
    assert (old.cluster, old.tensor_maps) == (None, [])


A = np.zeros((32, 64), np.float16)


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": (8, 63)}, "expected an innermost box extent that is a multiple of 16 bytes, got 126"),
        ({"box": (8, 64), "swizzle": 64}, "with swizzle 64, expected at most 64 bytes, got 128"),
        ({"box": (300, 64)}, "expected 1 to 256 elements in a box, got 300 along axis 0"),
        (
            {"box": (8, 64), "strides": (120, 2)},
            "expected strides below 2**40, multiples of 16 bytes, got 120 along axis 0",
        ),
        ({"box": (8, 64), "element_strides": (9, 1)}, "expected element strides from 1 to 8, got 9 along axis 0"),
        (
            {"box": (8, 32), "dtype": "uint16", "fill": "nan"},
            "expected floating-point elements for a NaN fill, got uint16",
        ),
        (
            {"box": (8, 8), "interleave": 16, "dims": (8, 8), "strides": (128, 16)},
            "expected 3 to 5 axes, got 2",
        ),
        (
            {"box": (1, 1, 2, 4), "interleave": 32, "dims": (1, 1, 2, 4), "strides": (256, 256, 112, 32)},
            "expected strides below 2**40, multiples of 32 bytes, got 112 along axis 2",
        ),
    ],
)
def test_problems_of_a_map_are_those_of_the_driver(options, message):
    bad = wf.ptx.TensorMap(A, **options)
    assert message in bad.problems()
    with pytest.raises(InvalidOperand, match="the driver would reject"):
        bad.encode(0)


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": (8,)}, "expected box to be 2 integers, one for each axis, got (8,)"),
        ({"box": (8, 64), "dtype": "int4"}, "expected dtype uint8"),
        ({"box": (8, 64), "dtype": "float32"}, "expected elements of 2 bytes, as in the array, got float32"),
        ({"box": (8, 64), "swizzle": 96}, "expected swizzle to be one of 0, 32, 64, 128, got 96"),
        ({"box": (8, 64), "dims": (64, 64)}, "got one of 8192 bytes"),
        (
            {"box": (8, 64), "strides": (128, 4)},
            "expected an innermost stride of 2 bytes, the size of an element; got 4",
        ),
        ({"box": (8,), "interleave": 32}, "expected a last axis of 32 bytes (the channels of a slice), got 128"),
        ({"box": (8, 64), "interleave": 8}, "expected interleave to be one of 0, 16, 32, got 8"),
        (
            {"box": (1, 1, 4), "interleave": 16, "dims": (1, 1, 4), "strides": (64, 64, 2)},
            "expected an innermost stride of 16 bytes, the size of a slice; got 2",
        ),
    ],
)
def test_what_is_no_map_is_refused(options, message):
    with pytest.raises(InvalidOperand) as error:
        wf.ptx.TensorMap(A, **options)
    assert message in str(error.value)


@pytest.mark.one_engine
def test_a_map_gives_the_layout_that_it_leaves_and_the_descriptor_that_reads_it():
    tiles = wf.ptx.TensorMap(A, box=(32, 64), swizzle=128)
    assert tiles.memory(start=1024) == wf.Memory(order="row", pitch=128, swizzle=128, start=1024)
    instruction = wf.get("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16")
    reads = instruction.b.addresses(tiles.descriptor(start=1024))
    leaves = tiles.memory(start=1024).addresses((32, 16), 16)
    assert np.array_equal(reads, leaves.T)
    assert "swizzle" in tiles._repr_html_()
    with pytest.raises(InvalidOperand, match="expected a box with rows of 128 bytes, the width of its swizzle; got 64"):
        wf.ptx.TensorMap(A, box=(32, 32), swizzle=128).descriptor()
    with pytest.raises(InvalidOperand, match="create it over a DeviceArray"):
        bytes(tiles)
    assert len(bytes(wf.ptx.TensorMap(wf.ptx.DeviceArray(A), box=(32, 64)))) == 128
