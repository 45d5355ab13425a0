"""Run a few PTX lines as a kernel."""

import numpy as np

import warpfrag as wf

WIDTHS = {"d": 64, "r": 32, "h": 16}


def run_lines(code: str, values: dict[str, int], result: str) -> tuple[int, wf.ptx.Run]:
    """Return the register and the run of PTX lines, given values in other registers."""
    loads, data = [], np.zeros(len(values) + 1, np.uint64)
    for at, (name, value) in enumerate(values.items()):
        data[at] = value
        if name[1] == "p":
            loads.append(f"ld.global.u32 %r20, [%in+{8 * at}]; setp.ne.u32 {name}, %r20, 0;")
        else:
            loads.append(f"ld.global.b{WIDTHS[name[1]]} {name}, [%in+{8 * at}];")
    stores = f"selp.u32 %r21, 1, 0, {result}; st.global.u32 [%out], %r21;"
    if result[1] != "p":
        stores = f"st.global.b{WIDTHS[result[1]]} [%out], {result};"
    text = f""".version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {{
  .reg .b64 %d<8>, %in, %out; .reg .b32 %r<22>; .reg .b16 %h<8>; .reg .pred %p<4>;
  .shared .align 4 .b32 memory;
  ld.param.u64 %in, [a]; ld.param.u64 %out, [b];
  {" ".join(loads)}
  {code}
  {stores}
  ret;
}}"""
    out = np.zeros(1, np.uint64)
    run = wf.ptx.load(text)["k"].launch(1, 1, [data, out])
    return int(out[0]), run
