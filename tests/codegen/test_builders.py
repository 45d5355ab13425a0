"""The builders: declarations, statements and braces are valid PTX and CUDA C++, and in order."""

import pytest

from warpfrag.codegen import ptx_builder as ptx
from warpfrag.codegen.cuda_builder import AsmOperand, CudaBuilder, InlineAssembly, RegisterArray, guarded
from warpfrag.codegen.operation_texts import (
    LANE,
    LANGUAGES,
    OPERATION_TEXTS,
    THREAD_INDICES,
    check_function_name,
    check_language,
)
from warpfrag.codegen.plan_code import RegisterOperations
from warpfrag.codegen.ptx_builder import PtxBuilder
from warpfrag.errors import InvalidOperand


def text_of(code):
    """The lines of a body without indentation and braces."""
    return [line.strip() for line in code.body() if line.strip() not in {"{", "}", ""}]


def test_registers_are_declared_by_type_and_never_twice():
    code = PtxBuilder()
    names = [code.declare("x") for _ in range(9)] + [code.declare("x", ".pred")]

    assert len(set(names)) == 10
    assert text_of(code) == [
        ".reg .b32 %x, %x_1, %x_2, %x_3, %x_4, %x_5, %x_6, %x_7;",
        ".reg .b32 %x_8;",
        ".reg .pred %x_9;",
        "ret;",
    ]


@pytest.mark.parametrize(
    ("operation", "kind"), [("mov.u32", ".b32"), ("mad.wide.u32", ".b64"), ("cvta.shared.u64", ".b64")]
)
def test_a_result_is_as_wide_as_its_instruction(operation, kind):
    code = PtxBuilder()
    result = code.compute("result", operation, "%source", 1)

    assert text_of(code) == [f".reg {kind} {result};", f"{operation} {result}, %source, 1;", "ret;"]


def test_ranges_registers_and_the_thread_index_come_before_instructions():
    code = PtxBuilder()
    code.emit("bar.sync 0;")
    code.declare_range("t", 3)
    code.start_with_index(LANE)

    assert text_of(code) == [
        ".reg .b32 %t<3>;",
        ".reg .b32 %lane;",
        "mov.u32 %lane, %laneid;",
        "bar.sync 0;",
        "ret;",
    ]


def test_a_ptx_kernel_loads_its_parameters():
    code = PtxBuilder()
    assert code.load_parameter("d", ".u64") == "%d"

    assert code.entry("empty", {"d": ".u64", "n": ".u32"})[:5] == [
        ".visible .entry empty(",
        "    .param .u64 d,\n    .param .u32 n",
        ")",
        "{",
        "    .reg .b64 %d;",
    ]


def test_a_module_declares_what_its_kernels_share():
    lines = ptx.module_header((8, 0), "sm_90a", [ptx.dynamic_shared("tile", 32)])

    assert lines == [
        ".version 8.0",
        ".target sm_90a",
        ".address_size 64",
        "",
        ".extern .shared .align 32 .b8 tile[];",
        "",
    ]


def test_braces_nest_and_the_preprocessor_stays_at_the_margin():
    code = CudaBuilder()
    with code.braces("struct Pair", "};"), code.braces("union"):
        code.line("int a;", "", "#ifdef WIDE", "long b;", "#endif")
    code.repeat(2, "a[i] = 0;")

    assert code.body() == [
        "struct Pair {",
        "    union {",
        "        int a;",
        "",
        "#ifdef WIDE",
        "        long b;",
        "#endif",
        "    }",
        "};",
        "#pragma unroll",
        "for (int i = 0; i < 2; ++i) {",
        "    a[i] = 0;",
        "}",
    ]


def test_operands_of_inline_assembly_are_numbered_outputs_first():
    d, a = RegisterArray("d", 2, ".f32"), RegisterArray("a", 1)
    assembly = InlineAssembly(memory=True)

    assert assembly.output(*d.operands("=")) == ["%0", "%1"]
    assert assembly.input(*a.operands()) == ["%2"]
    assert assembly.input(AsmOperand("l", "pointer"), AsmOperand("n", "selector")) == ["%3", "%4"]
    operands = '"=f"(d[0]), "=f"(d[1]) : "r"(a[0]), "l"(pointer), "n"(selector) : "memory"'
    assert assembly.statement("text;") == f'asm volatile("text;" : {operands});'
    assert assembly.lines("text;") == [
        "asm volatile(",
        '    "text;"',
        '    : "=f"(d[0]), "=f"(d[1])',
        '    : "r"(a[0]),',
        '      "l"(pointer), "n"(selector)',
        '    : "memory");',
    ]


def test_an_asm_statement_without_operands_keeps_its_colons():
    code = CudaBuilder()
    code.assembly("fence;", memory=True)

    assert code.body() == ['asm volatile("fence;" : : : "memory");']


@pytest.mark.parametrize(
    ("ptx_type", "c_type", "constraint"),
    [(".f16x2", "uint32_t", "r"), (".f32", "float", "f"), (".f64", "double", "d"), (".s32", "int32_t", "r")],
)
def test_a_register_array_has_the_type_of_its_registers(ptx_type, c_type, constraint):
    array = RegisterArray("a", 4, ptx_type)

    assert array.parameter() == f"const {c_type} (&a)[4]"
    assert array.declaration("fragment") == f"{c_type} fragment[4];"
    assert {operand.constraint for operand in array.operands("+")} == {f"+{constraint}"}


def test_a_guarded_block_may_be_included_twice():
    lines = guarded("WARPFRAG_X", "warpfrag::x", ["int y;"], before=["#include <cstdint>"]).splitlines()

    assert lines[:2] == ["#ifndef WARPFRAG_X", "#define WARPFRAG_X"]
    assert lines[-1] == "#endif"
    assert lines.index("#include <cstdint>") < lines.index("namespace warpfrag::x {") < lines.index("int y;")


@pytest.mark.parametrize("builder", [PtxBuilder, CudaBuilder])
def test_an_operation_is_computed_once(builder):
    operations = RegisterOperations(builder())
    first = operations.do("shr", operations.thread, 2)

    assert operations.do("shr", operations.thread, 2) == first
    assert operations.do("shl", operations.thread, 2) != first
    operations.finish()
    assert len([line for line in text_of(operations.builder) if "laneid" in line]) == 1


@pytest.mark.parametrize("threads", THREAD_INDICES)
@pytest.mark.parametrize("builder", [PtxBuilder, CudaBuilder])
def test_the_thread_is_read_only_where_it_is_used(builder, threads):
    operations = RegisterOperations(builder(), threads)
    operations.do("popc", "x")
    operations.finish()

    assert not [line for line in text_of(operations.builder) if THREAD_INDICES[threads].name in line]


def test_every_operation_has_as_many_operands_in_both_languages():
    for spelling in OPERATION_TEXTS.values():
        assert {text.count("{2") > 0 for text in spelling} in ({True}, {False})
        operands = ["r1", 2, 3, 4] if "#" in spelling.ptx else ["r1", "r2", "r3", "r4"]
        for text in spelling:
            assert "r0" in text.format("r0", *operands)


def test_languages_and_names_are_checked():
    assert [check_language(lang) for lang in LANGUAGES] == ["cuda", "ptx"]
    assert (check_function_name("f", "g"), check_function_name("", "g")) == ("f", "g")
    for lang in ("sass", None, ["cuda"]):
        with pytest.raises(InvalidOperand, match="lang: expected one of cuda, ptx"):
            check_language(lang)
    for name in ("2x", "a b", "naïve", 3):
        with pytest.raises(InvalidOperand, match="name: expected a function name"):
            check_function_name(name, "g")
