"""Module variables by name: set and read from the host, shared by kernels, kept between launches or not."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf

DATA = Path(__file__).parent.parent / "data" / "ptx" / "modules"
TYPES = """.version 8.0
.target sm_80
.address_size 64
.global .f16 half;
.global .bf16 brain;
.const .s16 few[2][3] = {{1, -2, 3}, {-4}};
.global .v4 .f32 quads[2];
.global .b128 wide;
.global .u64 pointer = half;
.extern .global .u32 elsewhere;
.visible .entry store(.param .u64 out) {
  .reg .u64 %a; .reg .s16 %s;
  ld.param.u64 %a, [out]; ld.const.s16 %s, [few+6]; st.global.s16 [%a], %s; ret; }
.visible .entry spoil() { .reg .u64 %a; mov.u64 %a, few; st.global.u16 [%a], 7; ret; }
.visible .entry missing() { .reg .u32 %r; ld.global.u32 %r, [elsewhere]; ret; }
.visible .entry inner_a(.param .u64 out) {
  .global .u32 count = 5; .reg .u64 %a; .reg .u32 %r;
  ld.param.u64 %a, [out]; ld.global.u32 %r, [count]; st.global.u32 [%a], %r;
  add.u32 %r, %r, 1; st.global.u32 [count], %r; ret; }
.visible .entry inner_b(.param .u64 out) {
  .global .u32 count = 9; .reg .u64 %a; .reg .u32 %r;
  ld.param.u64 %a, [out]; ld.global.u32 %r, [count]; st.global.u32 [%a], %r; ret; }
"""


def counts(module, times=2):
    """Return the values that the kernel reads from `counter` and `calls` each time."""
    out = np.zeros(2, np.uint32)
    seen = []
    for _ in range(times):
        module["count"].launch(1, 32, [out])
        seen.append(out.tolist())
    return seen


def test_each_launch_starts_from_the_initial_values():
    assert counts(wf.ptx.load(DATA / "symbols.ptx")) == [[3, 8], [3, 8]]


def test_a_symbol_that_is_asked_for_is_memory_of_the_host_and_the_kernels():
    module = wf.ptx.load(DATA / "symbols.ptx")
    counter = module.symbols["counter"]
    counter[...] = 100

    assert (counter.shape, counter.dtype) == ((), np.uint32)
    assert counts(module) == [[100, 8], [107, 8]]  # calls, which nobody asked for, starts anew
    assert counter == 114
    module.symbols["counter"] = 50
    assert counts(module, 1) == [[50, 8]]
    module.reset()
    assert counter == 3
    assert counts(module, 1) == [[3, 8]]
    assert counter == 10


def test_state_is_kept_where_it_is_asked_for():
    module = wf.ptx.load(DATA / "symbols.ptx", keep_state=True)

    assert module.keep_state
    assert counts(module, 3) == [[3, 8], [10, 9], [18, 10]]
    assert module.symbols["calls"] == 10
    module.reset()
    assert counts(module, 1) == [[3, 8]]


def test_constants_pointers_and_namespaces_are_set_by_name():
    module = wf.ptx.load(DATA / "symbols.ptx")
    values = wf.ptx.DeviceArray(np.arange(8, dtype=np.float32) + 10)
    written = np.zeros(8, np.float32)
    symbols, out = module.symbols, np.zeros(8, np.float32)
    table = np.arange(8, dtype=np.float32) * np.float32(0.3)
    symbols["table"].view(np.float32)[...] = table
    symbols["node"] = np.array([(values.address, 3)], np.dtype([("values", "u8"), ("scale", "i4")], align=True)).view(
        "u1"
    )
    symbols["buffer"] = wf.ptx.DeviceArray(written)  # which lives as long as the variable has its address
    symbols["matrix"].view(np.float32).reshape(3, 4)[2] = [1, 2, 3, 4]
    symbols["physics::scale"] = 0.5
    run = module["gather"].launch(1, 8, [out])

    nodes = values.array * np.float32(3)
    expected = table * np.float32(0.5) + nodes + np.tile(np.arange(1, 5, dtype=np.float32), 2)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert (written == out + 1).all()
    assert not run.uncertain
    assert list(symbols)[-1] == "_ZN7physics5scaleE"
    assert "scale" in symbols
    assert repr(symbols).endswith("calls: .u32 []; physics::scale: .f64 []>")


def test_views_have_the_declared_type_and_shape():
    module = wf.ptx.load(TYPES)
    symbols = module.symbols
    out = np.zeros(1, np.int16)

    assert {name: (view.dtype, view.shape) for name, view in symbols.items()} == {
        "half": (np.float16, ()),
        "brain": (ml_dtypes.bfloat16, ()),
        "few": (np.int16, (2, 3)),
        "quads": (np.float32, (2, 4)),
        "wide": (np.uint64, (2,)),
        "pointer": (np.uint64, ()),
    }
    symbols["half"] = 1.5
    assert (symbols["half"].view(np.uint16), symbols["few"].tolist()) == (0x3E00, [[1, -2, 3], [-4, 0, 0]])
    symbols["few"][1, 0] = -77
    module["store"].launch(1, 1, [out])
    assert out[0] == -77


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda module: module.symbols["nothing"], r"expected one of the variables \(half, brain.*got 'nothing'"),
        (lambda module: module.symbols["e"], "which matches few; wide; pointer"),
        (
            lambda module: module.symbols.__setitem__("few", [1, 2]),
            r"few, int16 of shape \(2, 3\): could not broadcast",
        ),
        (lambda module: module.symbols.__setitem__("few", 1 << 20), "few, int16"),
        (lambda module: module["spoil"].launch(1, 1), "a store to few at 0x.*, which is read-only"),
        (lambda module: module["missing"].launch(1, 1), r"\[elsewhere\], which is .extern and which no linked module"),
    ],
)
def test_what_cannot_be_set_or_read_is_refused(change, message):
    with pytest.raises(wf.WarpfragError, match=message):
        change(wf.ptx.load(TYPES))


def test_variables_of_a_body_are_their_functions_own():
    module = wf.ptx.load(TYPES, keep_state=True)
    out = np.zeros(1, np.uint32)
    seen = []
    for name in ("inner_a", "inner_b", "inner_a", "inner_b"):
        module[name].launch(1, 1, [out])
        seen.append(int(out[0]))

    assert seen == [5, 9, 6, 9]
    assert "count" not in module.symbols
