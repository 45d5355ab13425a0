"""Linked modules: names in other modules, local names, and linker errors."""

from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf

DATA = Path(__file__).parent.parent / "data" / "ptx" / "modules"
FILES = [DATA / "link_a.ptx", DATA / "link_b.ptx"]
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
CALL = ".visible .entry k() { call.uni f, (); ret; }\n"


def reader(name, variable):
    """An entry that stores the value of a variable."""
    return f""".visible .entry {name}(.param .u64 out) {{
.reg .u64 %a; .reg .u32 %r; ld.param.u64 %a, [out]; ld.global.u32 %r, [{variable}]; st.global.u32 [%a], %r; ret; }}
"""


def read(module, name):
    out = np.zeros(1, np.uint32)
    module[name].launch(1, 1, [out])
    return int(out[0])


def linked(*texts, **options):
    return wf.ptx.link([HEAD + text for text in texts], **options)


@pytest.mark.parametrize("order", [1, -1])
def test_two_modules_of_nvcc_share_functions_variables_and_pointers(order):
    module = wf.ptx.link(FILES[::order], keep_state=True)
    values, out = np.arange(4, dtype=np.float32), np.zeros(2, np.int32)
    run = module["first"].launch(1, 4, [values], shared=64)
    module["second"].launch(1, 1, [out], shared=64)
    again = out.tolist()
    module["second"].launch(1, 1, [out], shared=64)

    # twice(x) = 2 x + 1000 + 3, helper(1) = 1 + 101, function(2) = twice(2)
    assert values.tolist() == [1005 + 102 + 1007, 1003 + 102 + 1007, 1009 + 102 + 1007, 1007 + 102 + 1007]
    assert run.printed == "counter 15\n"
    assert (again, out.tolist()) == ([15, 1015], [15, 1016])
    assert sorted(module.symbols) == ["$str", "calls", "calls$1", "counter", "function", "offset"]
    assert (module.version, module.target, len(module)) == ("9.0", "sm_90", 2)


def test_modules_that_are_loaded_are_linked_too_and_stay_as_they_are():
    modules = [wf.ptx.load(path) for path in FILES]
    modules[1].symbols["counter"] = 77
    module = wf.ptx.link(modules)
    out = np.zeros(2, np.int32)
    module["second"].launch(1, 1, [out], shared=64)

    assert out[0] == 10
    assert list(modules[0]) == ["_Z5firstPf"]


def test_weak_and_common_definitions_may_be_several():
    module = linked(
        ".weak .global .u32 w = 1;\n.common .global .u32 c[1];\n.weak .global .u32 v = 5;" + reader("a", "w"),
        ".weak .global .u32 w = 2;\n.common .global .u32 c[4];\n.visible .global .u32 v = 6;" + reader("b", "v"),
        ".extern .global .u32 w;\n.extern .global .u32 v;\n" + reader("d", "w"),
    )

    assert [read(module, name) for name in "abd"] == [1, 6, 1]
    assert module.symbols["c"].shape == (4,)


def test_a_declaration_may_be_of_bytes():
    module = linked(
        ".extern .global .align 4 .b8 x[12];\n.extern .func f(.param .align 4 .b8 a[4]);\n" + reader("a", "x+8"),
        ".visible .global .u32 x[3] = {1, 2, 3};\n.visible .func f(.param .f32 a) { ret; }",
    )

    assert read(module, "a") == 3


def test_names_of_a_module_are_its_own():
    module = linked(
        ".global .u32 x = 1;\n.global .u64 p = x;\n" + reader("a", "x"),
        ".global .u32 x = 2;\n.global .u64 p[2] = {x, 0xFF(x)};\n.global .u32 y = 7;\n"
        + reader("b", "x")
        + reader("hidden", "x").replace("{\n", "{ .global .u32 x = 3;\n"),
        ".visible .global .u32 y = 8;\n" + reader("c", "y"),
    )

    assert [read(module, name) for name in ("a", "b", "hidden", "c")] == [1, 2, 3, 8]
    symbols = module.symbols
    assert list(symbols) == ["x", "p", "x$1", "p$1", "y$1", "y"]
    assert symbols["p$1"][0] != symbols["p"]


def test_lines_are_counted_on_from_file_to_file():
    first = reader("a", "x") + ".extern .global .u32 x;\n"
    module = linked(first, ".visible .global .u32 x;\n" + reader("b", "x"))

    with pytest.raises(wf.ptx.PtxError, match="4 bytes at 0x0") as failure:
        module["b"].launch(1, 1, [None])
    assert failure.value.line == ((HEAD + first).count("\n") + 1) + 3 + 1 + 2


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([".extern .func f;\n" + CALL], "^cannot link: undefined reference to 'f' in module 0$"),
        ([".extern .func _Z1fi;\n" + CALL.replace(" f,", " _Z1fi,")], r"undefined reference to 'f\(int\)' in module 0"),
        (
            [f".extern .global .u32 {name};\n" + reader(f"read_{name}", name) for name in "xy"],
            "undefined reference to 'x' in module 0; undefined reference to 'y' in module 1",
        ),
        ([".visible .global .u32 x;"] * 2, "multiple definition of 'x' in module 1, first defined in module 0"),
        ([CALL.replace("call.uni f, ();", "")] * 2, "multiple definition of 'k' in module 1"),
        ([".visible .func f { ret; }\n"] * 2, "multiple definition of 'f' in module 1"),
        (
            [".visible .global .u32 x;", ".extern .global .u64 x;"],
            "the declaration of 'x' in module 1 differs from that in module 0",
        ),
        ([".visible .const .u32 x;", ".extern .global .u32 x;"], "the declaration of 'x' in module 1 differs"),
        (
            [".visible .func f(.param .u32 a) { ret; }", ".extern .func f(.param .u64 a);\n"],
            "the declaration of 'f' in module 1 differs from that in module 0",
        ),
        ([".visible .func f { ret; }", ".extern .global .u32 f;"], "the declaration of 'f' in module 1 differs"),
    ],
)
def test_what_cannot_be_linked_is_named(texts, message):
    with pytest.raises(wf.ptx.PtxError, match=message):
        linked(*texts)


@pytest.mark.one_engine
def test_modules_of_several_kinds_are_refused():
    files = [HEAD, HEAD.replace("sm_80", "sm_90")], [HEAD, HEAD.replace("64", "32")]
    for texts, what in zip(files, ("target", ".address_size"), strict=True):
        with pytest.raises(wf.ptx.PtxError, match=f"cannot link: expected the same {what} everywhere, got"):
            wf.ptx.link(texts)
    for wrong in ([], HEAD, 7, None):
        with pytest.raises(wf.errors.InvalidOperand, match="expected a list of modules"):
            wf.ptx.link(wrong)
    with pytest.raises(wf.ptx.PtxError, match=r"undefined reference to 'counter' in link_a.ptx; .*'twice\(float\)'"):
        wf.ptx.link(FILES[:1])


def test_what_is_declared_and_never_used_may_be_missing():
    module = linked(".extern .func f;\n.extern .global .u32 x;\n.visible .global .u32 y = 4;" + reader("a", "y"))

    assert read(module, "a") == 4


def test_a_function_of_no_module_is_refused_when_it_would_run():
    with pytest.raises(wf.ptx.PtxError, match="the function has no body in this module or in a linked one"):
        wf.ptx.load(f"{HEAD}.extern .func f;\n{CALL}")["k"].launch(1, 1)
