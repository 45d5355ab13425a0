"""Arguments of other libraries, byte orders, masks and empty structures; kernels in other processes and of 32 bits."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf

DATA = Path(__file__).parent.parent / "data" / "ptx" / "modules"
MODULE = wf.ptx.load(DATA / "symbols.ptx")
FILL = MODULE["fill<float, 4>"]
NARROW = """.version 8.0
.target sm_80
.address_size 32
.global .u32 counter = 5;
.visible .entry k(.param .u32 out, .param .align 4 .b8 s[8])
{
    .reg .b32 %r<8>;
    .shared .align 4 .b8 sm[128];
    ld.param.u32 %r1, [out];
    mov.u32 %r2, %tid.x;
    shl.b32 %r3, %r2, 2;
    add.u32 %r4, %r1, %r3;
    mov.u32 %r5, sm;
    add.u32 %r5, %r5, %r3;
    st.shared.u32 [%r5], %r2;
    ld.shared.u32 %r7, [%r5];
    ld.param.u32 %r6, [s];
    ld.u32 %r6, [%r6];
    add.u32 %r7, %r7, %r6;
    ld.param.u32 %r6, [s+4];
    add.u32 %r7, %r7, %r6;
    mov.u32 %r6, counter;
    cvta.global.u32 %r6, %r6;
    ld.u32 %r6, [%r6];
    add.u32 %r7, %r7, %r6;
    st.global.u32 [%r4], %r7;
    ret;
}
.visible .entry windows() { .reg .b32 %r; .shared .b32 sm; mov.u32 %r, sm; cvta.shared.u32 %r, %r; ret; }
"""


class FakeTensor:
    """The interface of a PyTorch tensor that is used; its memory is that of an array."""

    __module__ = "torch"
    layout = "torch.strided"

    def __init__(self, array, device="cpu", *, conjugated=False):
        self.array, self.device, self.conjugated = array, device, conjugated
        self.shape = array.shape

    def is_conj(self):
        return self.conjugated

    def is_neg(self):
        return False

    def is_contiguous(self):
        return self.array.flags.c_contiguous

    def stride(self):
        return [step // self.array.itemsize for step in self.array.strides]

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def data_ptr(self):
        return self.array.ctypes.data


class Exporter:
    """An array of a library that supports DLPack."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return (self.device, 0)


class Interface:
    """An array with NumPy's older array interface."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class OnGpu:
    """A CuPy array, as numba and others see it."""

    __cuda_array_interface__ = {"data": (16, False)}  # noqa: RUF012


@pytest.mark.parametrize("wrap", [FakeTensor, Exporter, Interface, lambda array: wf.ptx.DeviceArray(FakeTensor(array))])
def test_memory_of_other_libraries_changes_in_place(wrap):
    array = np.zeros(4, np.float32)
    FILL.launch(1, 1, [wrap(array), 2.5])

    assert array.tolist() == [2.5] * 4


def test_tensors_are_fields_of_structures_and_may_be_empty():
    values, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    nodes = wf.ptx.DeviceArray(FakeTensor(values))
    module = wf.ptx.load(DATA / "symbols.ptx")
    module.symbols["node"].view(np.uint64)[...] = [nodes.address, 1]
    module.symbols["buffer"] = wf.ptx.DeviceArray(out).address
    with pytest.raises(wf.ptx.PtxError, match="outside every allocation"):
        module["gather"].launch(1, 8, [FakeTensor(np.zeros(0, np.float32))])


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            np.zeros(4, ">f4"),
            r"argument 0 \(param 0\): expected little-endian numbers, got big-endian ones \(>f4\)",
        ),
        (np.zeros(4, [("a", ">i4")]), "big-endian"),
        (np.ma.zeros(4), r"argument 0 \(param 0\): expected a plain array, got a masked one"),
        (np.ma.masked_array(np.zeros(4), mask=True), "masked"),
        (FakeTensor(np.zeros(4), "cuda:1"), "expected a tensor in host memory, got one on cuda:1"),
        (FakeTensor(np.zeros(4), "meta"), "got one on meta"),
        (FakeTensor(np.zeros((4, 2))[:, 1]), r"expected a contiguous tensor, got strides \(2,\) for shape \(4,\)"),
        (FakeTensor(np.zeros(4), conjugated=True), "sparse or conjugated"),
        (Exporter(np.zeros(4), 2), "got one on DLPack device 2"),
        (Exporter(np.zeros(4, "M8[s]")), "NumPy cannot share the memory of this Exporter"),
        (OnGpu(), "got one in GPU memory"),
    ],
)
def test_what_a_gpu_would_not_read_so_is_refused(argument, message):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        FILL.launch(1, 1, [argument, 1.0])


@pytest.mark.one_engine
def test_byte_order_and_masks_are_refused_inside_of_structures_too():
    text = (DATA / "symbols.ptx").read_text().replace(".param .u64 _Z5countPj_param_0", ".param .align 8 .b8 s[16]")
    kernel = wf.ptx.load(text.replace("[_Z5countPj_param_0]", "[s]"))["count"]
    record = np.zeros(1, [("a", ">i8"), ("b", "<i8")])[0]
    for value in ([np.zeros(4, ">i4"), np.int32(1)], np.zeros(4, ">i4"), np.ma.zeros(4, np.int32), record, [record]):
        with pytest.raises(wf.errors.InvalidOperand, match="argument 0 .s.*(big-endian|masked)"):
            kernel.launch(1, 1, [value])


def test_real_tensors():
    torch = pytest.importorskip("torch")
    plain, brain = torch.zeros(4), torch.zeros(8, dtype=torch.bfloat16)
    FILL.launch(1, 1, [plain, 2.5])
    FILL.launch(1, 1, [brain, float(np.uint32(0x3FC03FC0).view(np.float32))])

    assert plain.tolist() == [2.5] * 4
    assert brain.tolist() == [1.5] * 8
    FILL.launch(1, 1, [torch.nn.Parameter(plain), 1.0])
    assert plain.tolist() == [1.0] * 4
    for tensor in (
        torch.zeros(4, 2)[:, 1],
        torch.zeros(4, device="meta"),
        torch.zeros(4, dtype=torch.complex64).conj(),
    ):
        with pytest.raises(wf.errors.InvalidOperand, match="expected a .*tensor"):
            FILL.launch(1, 1, [tensor, 1.0])


@pytest.mark.parametrize("nothing", [(), [], b"\0", np.zeros(1, np.uint8), np.uint8(0)])
def test_an_empty_structure_is_a_byte(nothing):
    out = np.zeros(1, np.int32)
    MODULE["empty"].launch(1, 1, [nothing, 77, nothing, out])

    assert out[0] == 77


@pytest.mark.parametrize("nothing", [(), b"", np.zeros(0, np.uint8)])
def test_a_structure_without_bytes_is_nothing(nothing):
    text = (
        (DATA / "symbols.ptx").read_text().replace("_Z5empty5EmptyiS_Pi_param_0[1]", "_Z5empty5EmptyiS_Pi_param_0[0]")
    )
    out = np.zeros(1, np.int32)
    wf.ptx.load(text)["empty"].launch(1, 1, [nothing, 77, b"\0", out])

    assert out[0] == 77


def test_addresses_of_32_bits():
    module = wf.ptx.load(NARROW)
    out, more = np.zeros(4, np.uint32), np.array([1000], np.uint32)
    run = module["k"].launch(1, 4, [out, [more, np.uint32(100)]])

    assert out.tolist() == [1105, 1106, 1107, 1108]
    assert run.engine in {"reference", "compiled"}
    module.symbols["counter"] = 0
    module["k"].launch(1, 4, [out, [more, np.uint32(200)]])
    assert out.tolist() == [1200, 1201, 1202, 1203]
    with pytest.raises(wf.ptx.PtxError, match="4 bytes at 0x10000010 are outside every allocation"):
        module["k"].launch(1, 5, [out, [more, np.uint32(0)]])
    with pytest.raises(wf.ptx.PtxError, match="4 bytes at 0x0 are outside every allocation"):
        module["k"].launch(1, 4, [out, [None, np.uint32(0)]])
    with pytest.raises(
        wf.errors.InvalidOperand, match="a DeviceArray has a 64-bit address, but this module has 32-bit addresses"
    ):
        module["k"].launch(1, 4, [wf.ptx.DeviceArray(out), bytes(8)])
    with pytest.raises(wf.ptx.PtxError, match="32-bit generic addresses are modelled for .global and .const only"):
        module["windows"].launch(1, 1)


def counted(kernel):
    """Return the value that a counting kernel reads and leaves in a module variable, in another process."""
    out = np.zeros(2, np.uint32)
    run = kernel.launch(1, 32, [out])
    return out.tolist(), int(kernel.module.symbols["counter"]), run.uncertain


@pytest.mark.one_engine
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))])  # noqa: S301
def test_a_kernel_is_copied_with_the_state_of_its_module(duplicate):
    module = wf.ptx.load(DATA / "symbols.ptx")
    module.symbols["counter"] = 40
    kernel = module["count"]
    kernel.launch(1, 32, [np.zeros(2, np.uint32)], engine="compiled")
    again = duplicate(kernel)

    assert (again.name, again.module.symbols["counter"]) == (kernel.name, 47)
    assert counted(again) == ([47, 8], 54, ())
    assert module.symbols["counter"] == (54 if duplicate is copy.copy else 47)
    assert list(duplicate(module)) == list(module)


@pytest.mark.one_engine
def test_kernels_run_in_a_pool_of_processes():
    module = wf.ptx.load(DATA / "symbols.ptx")
    module.symbols["counter"] = 40
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert list(pool.map(counted, [module["count"]] * 2)) == [([40, 8], 47, ())] * 2
    assert module.symbols["counter"] == 40


SHIFT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4]; add.u32 %r2, %r2, 1; st.global.u32 [%rd5], %r2;
    ret;
}"""


def test_a_view_of_an_earlier_argument_shares_its_memory():
    both = np.arange(96, dtype=np.uint32)
    run = wf.ptx.load(SHIFT)["k"].launch(1, 64, [both, both[16:80]], checks="races")
    apart = wf.ptx.load(SHIFT)["k"].launch(1, 32, [both[:32], both[32:]], checks="races")
    wf.ptx.load(SHIFT)["k"].launch(1, 64, [both[8:72], both])  # the larger array may come later

    # thread 16 reads what thread 0 writes, and thread 32, in another warp, what thread 16 writes
    assert [finding.kind for finding in run.findings] == ["lockstep", "race"]
    assert apart.verdict == "clean"


def test_overlapping_arguments_of_which_none_contains_the_other_are_refused():
    both = np.zeros(96, np.uint32)
    with pytest.raises(wf.errors.InvalidOperand, match="an argument and argument 0 .* overlap in memory: pass views"):
        wf.ptx.load(SHIFT)["k"].launch(1, 32, [both[:64], both[32:]])
