"""Tensor copies, transaction barriers and clusters: the memory that an H200 left, launch by launch.

`hopper_launches` has small launches and `hopper_kernels` their PTX; `h200.json` what an H200 with driver 580 made of
each: digests of its outputs, or the error. `cases.json` and `memory.npz` are launches of nvcc's and Triton's kernels
with all their memory, of the two products one tile.
"""

import gzip
import hashlib
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from ptx import hopper_kernels, hopper_launches
from warpfrag.errors import PtxError
from warpfrag.smem.tensor_map import ELEMENT_TYPES

DATA = Path(__file__).parent.parent / "data" / "ptx" / "hopper"
H200 = json.loads((DATA / "h200.json").read_text(encoding="utf-8"))
COMPILED = (
    "load1_u32", "load2_u64_sw128", "load5", "store2_sw128", "reduce_add_uint32", "im2col4_tap", "made2", "registers_4",
    "distributed_4", "st_async_2", "red_async_add", "arrivals_2", "bulk_remote_add", "multicast_8", "bulk_add_f32",
)  # fmt: skip
"""Launches that the compiled engine runs too: one of each kind."""


@pytest.fixture(scope="module")
def module():
    return wf.ptx.load(hopper_kernels.module())


def arguments(case):
    """Return the arguments of a launch, and its outputs by their index."""
    args, outputs = [], {}
    for place, item in enumerate(case["args"]):
        if "scalar" in item:
            args.append(np.dtype(item["type"]).type(item["scalar"]))
            continue
        data = hopper_launches.fill(item)
        if item.get("out"):
            outputs[str(place)] = data
        args.append(tensor_map(item["map"], data) if "map" in item else data)
    return args, outputs


def tensor_map(row, data):
    size = ELEMENT_TYPES[row["dtype"]].bytes
    options = {
        "swizzle": row["swizzle"],
        "element_strides": row["steps"][::-1],
        "fill": row["fill"],
        "dtype": row["dtype"],
    }
    if row["im2col"]:
        images = data.view(f"u{size}").reshape(row["dims"][::-1])
        corners = (row["im2col"][name][::-1] for name in ("lower", "upper"))
        box = wf.ptx.Im2col(*corners, row["im2col"]["channels"], row["im2col"]["pixels"])
        return wf.ptx.TensorMap(images, box, **options)
    strides = [*row["strides"][::-1], size]
    dims, box = row["dims"][::-1], row["box"][::-1]
    return wf.ptx.TensorMap(data, box, dims=dims, strides=strides, interleave=row["interleave"], **options)


def run(module, name, engine):
    case = hopper_launches.CASES[name]
    args, outputs = arguments(case)
    summary = module[case["entry"]].launch(
        case["grid"],
        case["block"],
        args,
        shared=case["shared"],
        options=wf.ptx.LaunchOptions(cluster=case["cluster"]),
        engine=engine,
    )
    return {place: hashlib.sha256(data.tobytes()).hexdigest() for place, data in outputs.items()}, summary


@pytest.mark.one_engine
@pytest.mark.parametrize("name", [name for name, row in H200.items() if row["status"] == "ok"])
def test_a_launch_leaves_what_the_gpu_left(module, name):
    left, summary = run(module, name, "reference")
    assert left == H200[name]["sha256"]
    assert not summary.uncertain


@pytest.mark.one_engine
@pytest.mark.parametrize("name", COMPILED)
def test_the_compiled_engine_leaves_the_same(module, name):
    left, summary = run(module, name, "compiled")
    assert left == H200[name]["sha256"]
    assert summary.engine == "compiled"


@pytest.mark.one_engine
@pytest.mark.parametrize("name", [name for name, row in H200.items() if row["status"] != "ok"])
def test_a_launch_that_the_gpu_ends_is_ended_here(module, name):
    with pytest.raises(PtxError, match="cp"):
        run(module, name, "reference")


@pytest.mark.one_engine
def test_the_launches_have_every_kind():
    done = {hopper_launches.CASES[name]["entry"] for name, row in H200.items() if row["status"] == "ok"}
    assert {f"load{rank}" for rank in range(1, 6)} | {f"store{rank}" for rank in range(1, 6)} <= done
    assert {f"reduce2_{name}" for name in hopper_kernels.REDUCTIONS} <= done
    assert {"im2col3", "im2col4", "im2col5", "multicast2", "made2"} <= done
    assert {(hopper_launches.CASES[name]["cluster"] or (0,))[0] for name in H200} >= {1, 2, 4, 8}
    assert sum(row["status"] == "ok" for row in H200.values()) >= 40


CAPTURED = json.loads((DATA / "cases.json").read_text(encoding="utf-8"))


def kernel_of(file, entry):
    with zipfile.ZipFile(DATA / "kernels.zip") as archive:
        return wf.ptx.load(archive.read(file).decode())[entry]


def captured_argument(item, arrays):
    if "scalar" in item:
        return np.dtype(item["dtype"]).type(item["scalar"])
    if "tensormap" not in item:
        return arrays[item["array"]]
    row = item["tensormap"]
    strides = [*row["strides"][::-1], np.dtype(row["dtype"]).itemsize]
    options = {"dims": row["dims"][::-1], "strides": strides, "fill": row["fill"], "dtype": row["dtype"]}
    return wf.ptx.TensorMap(arrays[item["array"]], row["box"][::-1], row["swizzle"], **options)


@pytest.mark.parametrize("name", CAPTURED)
def test_kernels_of_nvcc_and_triton_leave_what_the_gpu_left(name):
    case = CAPTURED[name]
    with np.load(DATA / "memory.npz") as memory:
        left = {key.removeprefix(f"{name}/"): memory[key] for key in memory if key.startswith(f"{name}/")}
    arrays = {key: array.copy() for key, array in left.items() if key.startswith("in")}
    args = [captured_argument(item, arrays) for item in case["args"]]
    summary = kernel_of(case["file"], case["entry"]).launch(case["grid"], case["block"], args, shared=case["shared"])
    assert not summary.uncertain
    for key, array in arrays.items():
        expected = left.get(f"out{key.removeprefix('in')}", left[key])
        assert array.tobytes() == expected.tobytes(), key


@pytest.mark.parametrize("size", [4, 16])
def test_a_bit_of_an_address_is_a_bit_of_the_rank(size):
    """Triton reaches the neighbour by xor with bit 24, instead of mapa."""
    text = """.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<12>; .reg .b64 %rd<4>;
.shared .align 4 .b32 word;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %cluster_ctarank;
add.u32 %r2, %r1, 70;
st.shared.u32 [word], %r2;
barrier.cluster.arrive;
barrier.cluster.wait;
mov.u32 %r3, word;
xor.b32 %r4, %r3, 16777216;
ld.shared::cluster.u32 %r5, [%r4];
xor.b32 %r6, %r1, 2;
mapa.shared::cluster.u32 %r7, %r3, %r6;
ld.shared::cluster.u32 %r8, [%r7];
mad.lo.u32 %r9, %r8, 256, %r5;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r9;
barrier.cluster.arrive;
barrier.cluster.wait;
ret;
}
"""
    out = np.zeros(size, np.uint32)
    run = wf.ptx.load(text)["k"].launch(size, 1, [out], options=wf.ptx.LaunchOptions(cluster=size), checks="all")

    assert run.verdict == "clean"
    assert out.tolist() == [256 * (70 + (rank ^ 2)) + 70 + (rank ^ 1) for rank in range(size)]


@pytest.mark.parametrize(("mask", "kept"), [("-16777217", 14), ("0xfcfffff8", 12), ("-251658241", 0)])
def test_a_cleared_bit_of_an_address_is_one_of_the_rank(mask, kept):
    """Triton and CUTLASS reach the first block of a pair in this way; a mask of the lower bits leaves a number."""
    text = """.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<12>; .reg .b64 %rd<4>;
.shared .align 16 .b32 word[8];
ld.param.u64 %rd1, [out];
mov.u32 %r1, %cluster_ctarank;
add.u32 %r2, %r1, 70;
st.shared.u32 [word+16], %r2;
barrier.cluster.arrive;
barrier.cluster.wait;
mov.u32 %r3, word;
add.u32 %r3, %r3, 16;
and.b32 %r4, %r3, {mask};
ld.shared::cluster.u32 %r5, [%r4];
and.b32 %r6, %r3, 0x3ffff;
mad.lo.u32 %r9, %r6, 256, %r5;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r9;
barrier.cluster.arrive;
barrier.cluster.wait;
ret;
}
""".replace("{mask}", mask)
    out = np.zeros(4, np.uint32)
    run = wf.ptx.load(text)["k"].launch(4, 1, [out], options=wf.ptx.LaunchOptions(cluster=4), checks="all")

    assert run.verdict == "clean"
    assert out.tolist() == [256 * (1024 + 16) + 70 + (rank & kept) for rank in range(4)]
    alone = np.zeros(4, np.uint32)
    wf.ptx.load(text)["k"].launch(1, 1, [alone])
    assert alone.tolist() == [256 * (1024 + 16) + 70, 0, 0, 0]


def test_a_launch_takes_the_bytes_of_a_map_that_a_driver_made(module):
    calls = json.loads(gzip.decompress((DATA.parent.parent / "tensor_maps_h200.json.gz").read_bytes()))
    (address, data), *_ = [
        (call[2], bytes.fromhex(call[12])) for call in calls if call[3:9] == [[64, 100], [256], [8, 64], [1, 1], 0, 0]
    ]
    tensor, place, out = np.arange(6400, dtype=np.int32), np.array([16, 30], np.int32), np.zeros((64, 8), np.int32)
    params = struct.pack("<128sQQIIIxxxxQ", data, 1 << 20, 1 << 21, out.nbytes, out.nbytes, 0, 0)
    memory = wf.GlobalMemory({address: tensor, 1 << 20: place, 1 << 21: out})
    module["load2"].launch(1, 128, params=params, memory=memory, shared=out.nbytes)
    assert (out == tensor.reshape(100, 64)[30:94, 16:24]).all()
