"""The source lines of instructions: .file and .loc, in errors and in counts."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.machine.ir.program import SourceLine
from warpfrag.ptx.source_lines import source_lines

SOFTMAX = Path(__file__).parents[1] / "data" / "ptx" / "t_softmax_sm80.ptx"
KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 out)
{
    .reg .b32 %r<3>; .reg .b64 %rd<4>;
    .loc 1 3 0
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    .loc 2 40 5, function_name $L__info_string0, inlined_at 1 4 9
    mul.wide.u32 %rd2, %r1, 4;
    .loc 1 5 5
    // begin inline asm
    .loc 1 6 5
    add.s64 %rd3, %rd1, %rd2;
    // end inline asm
    st.global.u32 [%rd3], %r1;
    .loc 1 0 0
    ret;
}
.file 1 "/src/copy.cu"
.file 2 "/usr/include" "index.h"
"""


@pytest.mark.one_engine
def test_lines_are_located():
    lines = {line: str(source) for line, source in source_lines(KERNEL).items()}

    call = "copy.cu:4 (in index.h:40)"
    assert lines == {8: "copy.cu:3", 9: "copy.cu:3", 11: call, 15: "copy.cu:5", 17: "copy.cu:5"}
    assert source_lines(KERNEL)[11].file == "/usr/include/index.h"
    assert source_lines(KERNEL)[11].outermost == ("/src/copy.cu", 4, None)
    assert source_lines(KERNEL.replace(".loc", "//")) == {}


@pytest.mark.one_engine
def test_calls_that_triton_inlined_are_in_comments():
    sources = source_lines(SOFTMAX.read_text(encoding="utf-8"))

    assert str(sources[66]) == "tri.py:9 (in standard.py:191, standard.py:170)"
    assert {source.outermost.file.rsplit("/", 1)[-1] for source in sources.values()} == {"tri.py"}


def test_counts_and_errors_name_the_source():
    kernel = wf.ptx.load(KERNEL)["copy"]
    out = np.zeros(4, np.uint32)
    run = kernel.launch(1, 4, [out])

    counts = {str(source): count for source, count in run.source_counts.items()}
    assert counts == {"copy.cu:3": 2, "copy.cu:4": 1, "copy.cu:5": 2}
    assert run.counts.instructions == 6  # the last is of no line
    with pytest.raises(
        wf.errors.PtxError, match=r"^copy.cu:5 \(line 17 of the PTX\): st.global.u32 by thread \(4, 0, 0\)"
    ) as info:
        kernel.launch(1, 8, [out])
    assert (info.value.source, info.value.line) == ("copy.cu:5", 17)
    assert str(pickle.loads(pickle.dumps(info.value))) == str(info.value)  # noqa: S301 (our own)


def test_linked_modules_keep_their_lines():
    other = ".version 8.0\n.target sm_90\n.address_size 64\n.global .u32 counter;\n"
    kernel = wf.ptx.link([other, KERNEL])["copy"]
    with pytest.raises(wf.errors.PtxError, match=r"copy.cu:5 \(line 22 of the PTX\)"):
        kernel.launch(1, 8, [np.zeros(4, np.uint32)])


def test_a_line_of_another_checkout_is_read_from_the_imported_file():
    """Triton's cache returns kernels that were compiled in another folder."""
    here = Path(__file__)
    moved = SourceLine(f"/elsewhere/{here.parent.name}/{here.name}", 1)
    assert moved.text == '"""The source lines of instructions: .file and .loc, in errors and in counts."""'
    assert SourceLine(f"/elsewhere/other/{here.name}", 1).text == ""
