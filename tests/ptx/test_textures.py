"""Textures and surfaces: an H200's results, in both engines, and errors."""

from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from tools.textures.groups import experiments
from tools.textures.results import kept, machine_result, read_kept

MEASURED = Path(__file__).parents[1] / "data" / "ptx" / "textures_h200.npz"
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def run(body, *args, threads=32, **options):
    """Launch a kernel: %d1, %d2 ... are its parameters, %r0 is the thread."""
    parameters = ", ".join(f".param .u64 p{number}" for number in range(len(args)))
    loads = "".join(f"ld.param.u64 %d{number + 1}, [p{number}];\n" for number in range(len(args)))
    text = f"""{HEAD}.visible .entry k({parameters})
{{
.reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %d<16>; .reg .pred %p<4>;
{loads}mov.u32 %r0, %tid.x;
cvt.rn.f32.u32 %f0, %r0;
{body}
ret;
}}"""
    return wf.ptx.load(text)["k"].launch(grid=1, block=threads, args=args, **options)


STORE = """mul.wide.u32 %d9, %r0, 4;
add.u64 %d9, %d9, %d2;
st.global.f32 [%d9], %f4;"""
SAMPLE = f"tex.1d.v4.f32.f32 {{%f4, %f5, %f6, %f7}}, [%d1, {{%f0}}];\n{STORE}"
LOAD = f"shl.b32 %r1, %r0, 2;\nsuld.b.1d.b32.MODE {{%r2}}, [%d1, {{%r1}}];\nmov.b32 %f4, %r2;\n{STORE}"


@pytest.mark.slow
@pytest.mark.one_engine
def test_an_h200_gave():
    """A row for each of the first threads, or all bytes of a surface; `tools.textures` made the file."""
    measured = read_kept(MEASURED)
    different = [
        experiment.name
        for experiment in experiments()
        if experiment.name in measured
        and not np.array_equal(kept(machine_result(experiment)), measured[experiment.name])
    ]
    assert len(measured) > 200
    assert different == []


def test_a_texture_is_sampled_and_the_run_is_exact(engine):
    out = np.zeros(32, np.float32)
    found = run(SAMPLE, wf.ptx.Texture(np.arange(10, 26, dtype=np.float32)), out)
    assert np.array_equal(out, np.minimum(np.arange(32), 15) + 10)
    assert not found.uncertain
    assert found.evidence["tex.1d.v4.f32.f32"].level == "hardware"
    assert found.engine == engine
    assert found.counts.read["texture"] == 128


def test_another_architecture_is_not_proved_by_an_h200():
    found = run(SAMPLE, wf.ptx.Texture(np.arange(16, dtype=np.float32)), np.zeros(32, np.float32), arch="sm_80")
    assert found.uncertain
    assert "tex.1d.v4.f32.f32" in found.inexact_opcodes


@pytest.mark.parametrize(("depth", "is_uncertain"), [(2049, False), (2050, True), (3000, False)])
def test_coordinates_of_long_volumes(depth, is_uncertain):
    body = f"tex.3d.v4.f32.f32 {{%f4, %f5, %f6, %f7}}, [%d1, {{%f0, %f0, %f0, %f0}}];\n{STORE}"
    texture = wf.ptx.Texture(np.zeros((depth, 2, 2), np.float32), normalized=True)
    assert bool(run(body, texture, np.zeros(32, np.float32)).uncertain) == is_uncertain


def test_a_surface_changes_in_place():
    values = np.arange(16, dtype=np.uint32)
    body = "shl.b32 %r1, %r0, 2;\nsust.b.1d.b32.zero [%d1, {%r1}], {%r0};\nsured.b.add.1d.u32.clamp [%d1, {%r1}], 1;"
    assert not run(body, wf.ptx.Surface(values)).uncertain
    assert np.array_equal(values, [*range(1, 16), 15 + 17])


def test_two_threads_that_store_different_values_at_one_element_are_uncertain():
    values = np.zeros(4, np.uint32)
    body = "and.b32 %r1, %r0, 12;\nsust.b.1d.b32.trap [%d1, {%r1}], {%r0};"
    assert run(body, wf.ptx.Surface(values)).inexact_opcodes == ["sust.b.1d.b32.trap"]
    assert not run(body.replace("{%r0}", "{%r1}"), wf.ptx.Surface(values)).uncertain


def test_a_launch_does_not_see_what_it_stores_into_a_texture():
    values = np.arange(32, dtype=np.float32)
    body = f"mul.wide.u32 %d8, %r0, 4;\nadd.u64 %d8, %d8, %d3;\nst.global.f32 [%d8], 0f00000000;\n{SAMPLE}"
    out = np.zeros(32, np.float32)
    run(body, wf.ptx.Texture(values), out, values)
    assert np.array_equal(out, np.arange(32))
    assert not values.any()


def test_outside_of_a_surface():
    values, out = np.arange(1, 9, dtype=np.float32), np.full(32, -1, np.float32)
    run(LOAD.replace("MODE", "zero"), wf.ptx.Surface(values), out)
    assert np.array_equal(out, [*range(1, 9), *[0] * 24])
    run(LOAD.replace("MODE", "clamp"), wf.ptx.Surface(values), out)
    assert np.array_equal(out, np.minimum(np.arange(1, 33), 8))
    with pytest.raises(wf.ptx.PtxError, match=r"thread \(8, 0, 0\).*coordinates \(32\) are outside <Surface 1d"):
        run(LOAD.replace("MODE", "trap"), wf.ptx.Surface(values), out)
    found = run(LOAD.replace("MODE", "trap"), wf.ptx.Surface(values), out, checks=("memory",))
    assert [item.check for item in found.findings] == ["memory"]
    assert found.findings[0].count == 24
    assert np.array_equal(out, [*range(1, 9), *[0] * 24])


def test_handles_may_be_fields_of_a_struct():
    text = f"""{HEAD}.visible .entry k(.param .align 8 .b8 both[16])
{{
.reg .b32 %r<4>; .reg .f32 %f<8>; .reg .b64 %d<4>;
ld.param.u64 %d1, [both]; ld.param.u64 %d2, [both+8];
tex.1d.v4.f32.s32 {{%f1, %f2, %f3, %f4}}, [%d1, {{2}}];
st.global.f32 [%d2], %f1;
ret;
}}"""
    out = np.zeros(1, np.float32)
    texture = wf.ptx.Texture(np.array([[1, 2], [3, 4], [5, 6]], np.float32), channels=2)
    wf.ptx.load(text)["k"].launch(grid=1, block=1, args=[[texture, out]])
    assert out[0] == 5


VALUES = np.zeros((4, 4), np.float32)
REFUSED = {
    "a geometry": ("tex.1d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%d1, {%f0}];", "a resource of geometry 1d, got <T"),
    "no handle": ("tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%d2, {%f0, %f0}];", "handle of a Texture.*got 0x0"),
    "a texture as a surface": ("suld.b.2d.b32.zero {%r1}, [%d1, {%r0, %r0}];", "a Surface.*got the handle of <T"),
    "coordinates": ("tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%d1, {%f0}];", "expected 2 coordinates"),
    "registers": ("tex.2d.v4.f32.f32 {%f4, %f5}, [%d1, {%f0, %f0}];", "expected 4 registers"),
    "a cube": ("tex.cube.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%d1, {%f0, %f0, %f0, %f0}];", "does not take .cube"),
    "an offset": ("tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%d1, {%f0, %f0}], {%r1, %r1};", "an offset or a depth"),
    "a query": ("txq.width.b32 %r1, [%d1];", "txq is not a known opcode; nearest: tex"),
    "a reference": ("tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [name, {%f0, %f0}];", "of name: only handles"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    body, message = REFUSED[what]
    with pytest.raises(wf.ptx.PtxError, match=message):
        run(body, wf.ptx.Texture(VALUES))


def test_integer_and_float_coordinates_of_one_texture_are_refused():
    body = f"tex.1d.v4.f32.s32 {{%f4, %f5, %f6, %f7}}, [%d1, {{%r0}}];\n{SAMPLE}"
    with pytest.raises(wf.ptx.PtxError, match="either integer or float coordinates"):
        run(body, wf.ptx.Texture(VALUES.reshape(-1)), np.zeros(32, np.float32))


def test_a_texture_and_a_surface_of_one_array_are_refused():
    with pytest.raises(wf.WarpfragError, match="to use different memory"):
        run("", wf.ptx.Texture(VALUES), wf.ptx.Surface(VALUES))


WRONG = {
    "dtype": ({"array": VALUES.astype(np.float64)}, "float64"),
    "byte order": ({"array": VALUES.astype(">f4")}, ">f4"),
    "masked": ({"array": np.ma.masked_all((4, 4), np.float32)}, "a NumPy array of texels"),
    "strides": ({"array": VALUES[:, ::2]}, "contiguous"),
    "axes": ({"array": np.zeros((2, 2, 2, 2), np.float32)}, r"as \[z, y, x\]"),
    "channels": ({"array": VALUES, "channels": 2}, "2 channels"),
    "filter": ({"array": VALUES, "filter": "cubic"}, "point, linear"),
    "address": ({"array": VALUES, "address": ["clamp"]}, "each of the 2 axes"),
    "linear integers": ({"array": VALUES.astype(np.int8), "filter": "linear"}, "read='normalized'"),
    "normalized floats": ({"array": VALUES, "read": "normalized"}, "uint8, int8, uint16, int16"),
    "border": ({"array": VALUES.astype(np.float16), "border": (1, 0, 0, 0)}, "not modelled for texels of float16"),
}


@pytest.mark.one_engine
@pytest.mark.parametrize("what", WRONG)
def test_no_such_texture(what):
    options, message = WRONG[what]
    with pytest.raises(wf.WarpfragError, match=message):
        wf.ptx.Texture(**options)


@pytest.mark.one_engine
def test_a_surface_is_written():
    values = VALUES.copy()
    values.flags.writeable = False
    with pytest.raises(wf.WarpfragError, match="a writable array"):
        wf.ptx.Surface(values)
