"""Modules of machine code that ptxas makes from PTX text."""

import subprocess

import numpy as np

from oracle import toolkit
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.instruction_parser import parse_instruction
from warpfrag.sass.lowering import lower
from warpfrag.sass.sass_module import SassModule

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
ENGINES = ("reference", "compiled")
INDEX = """
    .reg .b32 %r<20>; .reg .b64 %d<12>; .reg .pred %p<4>; .reg .f32 %f<12>; .reg .b64 %at;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
"""


def assemble(text, folder, arch="sm_90a"):
    """Return the module of PTX text; its files are written to `folder`."""
    source, target = folder / "module.ptx", folder / "module.cubin"
    source.write_text(text)
    ptxas, _ = toolkit.find_ptxas(arch)
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")
    subprocess.run([ptxas, f"-arch={arch}", source, "-o", target], check=True)
    return SassModule(Cubin(target.read_bytes()))


class TextModule(SassModule):
    """The module of a kernel whose instructions are replaced by text, one for every 16 bytes."""

    def __init__(self, cubin, text):
        """Keep the text."""
        super().__init__(cubin)
        self.code = [parse_instruction(line.strip(), 16 * at, 0) for at, line in enumerate(text.strip().split("\n"))]

    def program(self, entry):
        """Lower the text."""
        return lower(self.cubin[entry], self.code, self.address_of, self.variables(), {})


def run_text(text, folder, engine):
    """Run machine instructions in a warp, and return R4 of each lane."""
    return launch_text(text, folder, engine)[0]


def launch_text(text, folder, engine):
    """Run machine instructions in a warp, and return R4 of each lane and the run."""
    stub = (
        f"{HEAD}.visible .entry k(.param .u64 out) {{ .reg .b64 %d; ld.param.u64 %d, [out]; st.global.u32 [%d], 1; }}"
    )
    store = """
        S2R R0, SR_LANEID
        ULDC.64 UR4, c[0x0][0x208]
        IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x210]
        IMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x214]
        IMAD.WIDE.U32 R2, R0, 0x4, R2
        STG.E desc[UR4][R2.64], R4
        EXIT"""
    out = np.zeros(32, np.uint32)
    module = TextModule(assemble(stub, folder).cubin, text.strip() + store)
    return out, module["k"].launch(1, 32, [out], engine=engine)
