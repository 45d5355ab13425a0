"""The kernels of experiments: every thread reads its inputs, runs the instruction, and stores the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.textures.experiment import AXES

if TYPE_CHECKING:
    from tools.textures.experiment import Experiment

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 handle, .param .u64 words, .param .u64 out, .param .u32 count)
{
    .reg .pred %p; .reg .b32 %r<40>; .reg .f32 %f<24>; .reg .b64 %d<20>; .reg .b16 %h<4>;
    ld.param.u64 %d0, [handle]; ld.param.u64 %d1, [words]; ld.param.u64 %d2, [out]; ld.param.u32 %r30, [count];
    mov.u32 %r31, %ctaid.x; mov.u32 %r32, %ntid.x; mov.u32 %r33, %tid.x; mad.lo.u32 %r34, %r31, %r32, %r33;
    setp.ge.u32 %p, %r34, %r30;
    @%p ret;
    mul.wide.u32 %d3, %r34, 64; add.u64 %d1, %d1, %d3; mul.wide.u32 %d4, %r34, 32; add.u64 %d2, %d2, %d4;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d1];
    ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d1+16];
    ld.global.v4.b32 {%r8, %r9, %r10, %r11}, [%d1+32];
    ld.global.v2.b64 {%d10, %d11}, [%d1+32]; ld.global.v2.b64 {%d12, %d13}, [%d1+48];
"""


def coordinates(experiment: Experiment) -> str:
    """Return the instruction's coordinates, from register 0 on."""
    is_integer = experiment.is_surface or experiment.opcode.endswith(".s32")
    number = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4}[experiment.geometry]
    kinds = ["r" if is_integer or (experiment.is_layered and place == 0) else "f" for place in range(number)]
    return ", ".join(f"%{kind}{place}" for place, kind in enumerate(kinds))


def texture_kernel(experiment: Experiment) -> str:
    """Return a kernel for tex or tld4."""
    words = experiment.opcode.split(".")
    axes = AXES[experiment.geometry]
    kind = "r" if words[-1] == "s32" else "f"
    tail = {
        "level": f", %{kind}4",
        "grad": ", " + {
            1: "{%f4}, {%f8}", 2: "{%f4, %f5}, {%f8, %f9}", 3: "{%f4, %f5, %f6, %f6}, {%f8, %f9, %f10, %f10}",
        }[axes],
    }.get(words[1], "")  # fmt: skip
    moves = "".join(f" mov.b32 %f{place}, %r{place};" for place in range(12))
    result = "f" if words[-2] == "f32" else "r"
    results = ", ".join(f"%{result}{place}" for place in range(20, 24))
    back = "".join(f" mov.b32 %r{place}, %f{place};" for place in range(20, 24)) if result == "f" else ""
    return f"""{HEAD}   {moves}
    {experiment.opcode} {{{results}}}, [%d0, {{{coordinates(experiment)}}}]{tail};
   {back} st.global.v4.b32 [%d2], {{%r20, %r21, %r22, %r23}};
    ret;
}}
"""


def surface_kernel(experiment: Experiment) -> str:
    """Return a kernel for suld, sust or sured."""
    words = experiment.opcode.split(".")
    number = next((int(word[1]) for word in words if word in {"v2", "v4"}), 1)
    bits = int(words[-2][1:])
    place = f"[%d0, {{{coordinates(experiment)}}}]"
    registers = {8: "%h{}", 16: "%h{}", 32: "%r2{}", 64: "%d1{}"}[bits]
    names = [registers.format(item) for item in range(number)]
    lines = []
    if words[0] == "suld":
        lines.append(f"{experiment.opcode} {{{', '.join(names)}}}, {place};")
        for item, name in enumerate(names):
            if bits == 8:
                lines.append(f"and.b16 {name}, {name}, 255;")
            if bits < 64:
                lines.append(f"cvt.u64.u{max(16, bits)} %d1{item}, {name};")
            lines.append(f"st.global.b64 [%d2+{8 * item}], %d1{item};")
    else:
        if bits < 64:
            lines += [f"cvt.u{max(16, bits)}.u64 {name}, %d1{item};" for item, name in enumerate(names)]
        values = names[0] if words[0] == "sured" else f"{{{', '.join(names)}}}"
        lines.append(f"{experiment.opcode} {place}, {values};")
    return HEAD + "\n".join(f"    {line}" for line in lines) + "\n    ret;\n}\n"


def kernel(experiment: Experiment) -> str:
    """Return the kernel of an experiment, `k(handle, words, out, count)`."""
    return surface_kernel(experiment) if experiment.is_surface else texture_kernel(experiment)
