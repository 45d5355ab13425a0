"""C++ names: demangling, and kernels by a part of their name."""

import sys

import pytest

import warpfrag as wf
from warpfrag.machine.launch.symbol_names import bare_name, matching, qualified_name, readable

pytestmark = pytest.mark.one_engine

ENTRY = ".visible .entry {name}(.param .u64 {name}_param_0, .param .u32 {name}_param_1) {{ ret; }}\n"
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
NAMES = ("_ZN2ns4gemmIfEEvPT_i", "_ZN2ns4gemmIdEEvPT_i", "_Z9gemm_tailPfi", "_Z5scalePfi", "plain_scale")
GEMM = "cutlass::gemm::kernel::Gemm<cutlass::gemm::GemmShape<128, 64>, float>"
FUNCTOR = "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>"
MODULE = wf.ptx.load(HEAD + "".join(ENTRY.format(name=name) for name in NAMES))


@pytest.mark.parametrize(
    ("mangled", "text"),
    [
        ("_Z5saxpyifPKfPf", "saxpy(int, float, float const*, float*)"),
        (
            "_ZN2ns4gemmIfLi16ELb1EEEvPKT_S3_PS1_i",
            "void ns::gemm<float, 16, true>(float const*, float const*, float*, int)",
        ),
        ("_Z6reduceIfLj256ELln3EEvPT_S1_m", "void reduce<float, 256u, -3l>(float*, float*, unsigned long)"),
        ("_Z1kILi3EJfiEEvDpT0_", "void k<3, float, int>(float, int)"),
        ("_Z1kIJEEvDpT_", "void k<>()"),
        ("_Z1kIJfiEEvDpOSt6vectorIT_E", "void k<float, int>(std::vector<float>&&, std::vector<int>&&)"),
        ("_Z1kI6__halfEvPT_i", "void k<__half>(__half*, int)"),
        ("_Z3fooIZ4mainEUlfE_EvT_", "void foo<main::{lambda(float)#1}>(main::{lambda(float)#1})"),
        ("_Z3fooIZ4mainEUlvE0_EvT_", "void foo<main::{lambda()#2}>(main::{lambda()#2})"),
        (
            "_ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_9GemmShapeILi128ELi64EEEfEEEEvNT_6ParamsE",
            f"void cutlass::Kernel<{GEMM}>({GEMM}::Params)",
        ),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
            f"void at::native::vectorized_elementwise_kernel<4, {FUNCTOR}>(int, {FUNCTOR})",
        ),
        ("_Z1fM3fooKFivE", "f(int (foo::*)() const)"),
        ("_Z1fM3fooi", "f(int foo::*)"),
        ("_Z1gRA10_KiOd", "g(int const (&) [10], double&&)"),
        ("_Z1gPA3_A4_f", "g(float (*) [3][4])"),
        ("_Z1hPFviEPFPFvvEiE", "h(void (*)(int), void (*(*)(int))())"),
        ("_ZN12_GLOBAL__N_15tableE", "(anonymous namespace)::table"),
        ("_ZL5table", "table"),
        (
            "_Z3addILf3f800000ELd3ff8000000000000EEvPf",
            "void add<(float)[3f800000], (double)[3ff8000000000000]>(float*)",
        ),
        ("_ZNK3FooplERKS_", "Foo::operator+(Foo const&) const"),
        ("_ZN3FooC1Ev", "Foo::Foo()"),
        ("_ZN3FooD2Ev", "Foo::~Foo()"),
        ("_ZTVN2ns3FooIiEE", "vtable for ns::Foo<int>"),
        ("_ZGVZ6kernelvE5count", "guard variable for kernel()::count"),
        ("_ZZ6kernelvE5count", "kernel()::count"),
        ("_Z1kS_", "_Z1kS_"),
        ("_Z1kT_", "_Z1kT_"),
        ("_Z99short", "_Z99short"),
        ("_Z", "_Z"),
        ("_ZN", "_ZN"),
        ("main", "main"),
        ("_Z1f" + "P" * 5000 + "i", "_Z1f" + "P" * 5000 + "i"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the text is that of libstdc++")
def test_mangled_names_are_readable(mangled, text):
    assert readable(mangled) == text


@pytest.mark.parametrize(
    ("text", "qualified", "bare"),
    [
        ("void ns::gemm<float, (int)3>(float const*, int)", "ns::gemm<float, (int)3>", "ns::gemm"),
        ("(anonymous namespace)::table", "(anonymous namespace)::table", "table"),
        ("void foo<main::{lambda(float)#1}>(main::{lambda(float)#1})", "foo<main::{lambda(float)#1}>", "foo"),
        ("plain_scale", "plain_scale", "plain_scale"),
    ],
)
def test_names_lose_parameters_and_template_arguments(text, qualified, bare):
    assert (qualified_name(text), bare_name(qualified)) == (qualified, bare)


@pytest.mark.parametrize(
    ("wanted", "entry"),
    [
        ("_Z5scalePfi", 3),  # as PTX has it
        ("scale(float*, int)", 3),
        ("scale", 3),  # the whole name of one, a part of another's
        ("void ns::gemm<float>( float *, int )", 0),
        ("ns::gemm<double>", 1),
        ("gemm<double>", 1),
        ("tail", 2),
        ("plain", 4),
    ],
)
def test_an_entry_is_meant_by_a_name_that_only_it_has(wanted, entry):
    assert MODULE[wanted].name == NAMES[entry]
    assert MODULE[wanted] is MODULE[NAMES[entry]]
    assert wanted in MODULE


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            "gemm",
            r"got 'gemm', which matches void ns::gemm<float>\(float\*, int\); void ns::gemm<double>\(double\*, int\)",
        ),
        ("ns::", "which matches"),
        ("nothing", r"expected one of the entries \(void ns::gemm<float>.*plain_scale\), got 'nothing'"),
        ("", "expected one of the entries"),
        (7, "expected one of the entries"),
    ],
)
def test_a_name_of_several_or_none_is_refused_with_candidates(wanted, message):
    with pytest.raises(wf.ptx.PtxError, match=message):
        MODULE[wanted]
    assert wanted not in MODULE


def test_what_is_near_is_named_where_there_are_many():
    many = wf.ptx.load(HEAD + "".join(ENTRY.format(name=f"kernel_{i}x{i + 1}") for i in range(20)))

    with pytest.raises(wf.ptx.PtxError, match="8 more.*nearest are kernel_3x4"):
        many["kernel-3x4"]
    assert matching("x1", list(many)) == ["kernel_0x1", *(f"kernel_{i}x{i + 1}" for i in range(9, 19))]


def test_messages_have_short_names():
    kernel = MODULE["gemm<float>"]

    assert repr(kernel) == "<kernel void ns::gemm<float>(float*, int)>"
    assert (kernel.readable_name, MODULE["plain"].readable_name) == (repr(kernel)[8:-1], "plain_scale")
    assert repr(MODULE).endswith("scale(float*, int), plain_scale>")
    with pytest.raises(
        wf.errors.InvalidOperand, match=r"argument 1 \(param 1, .u32\): expected an integer of 32 bits, got"
    ):
        kernel.launch(1, 1, [None, 1 << 40])
    with pytest.raises(
        wf.errors.InvalidOperand, match=r"^void ns::gemm<float>\(float\*, int\) takes 2 arguments \(param 0 .u64"
    ):
        kernel.launch(1, 1, [])
