"""Modules of machine code that ptxas makes from PTX text."""

import subprocess

from oracle import toolkit
from warpfrag.sass.cubin import Cubin
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
