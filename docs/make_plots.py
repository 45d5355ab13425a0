"""Write the plots for the pages: errors, batch invariance, an order of additions, a race and a profile.

python docs/make_plots.py [FOLDER]     # FOLDER is docs/plots by default
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import examples
import warpfrag as wf
from warpfrag.samples import sample_path
from warpfrag.viz import svg
from warpfrag.viz.plots import MARGIN, framed_plot

if TYPE_CHECKING:
    from warpfrag.blas.gemm_trace import ProductStep
    from warpfrag.viz.drawing import Plot

DOCS = Path(__file__).parent
MMA = "mma.m16n8k16.f32.f16.f16.f32"
MODELS = {  # n and k of the projections: queries with keys and values, output, gate with up, down
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "Llama 3 70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    "Qwen 2.5 7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
    "Gemma 2 9B": ((8192, 3584), (3584, 4096), (28672, 3584), (3584, 14336)),
    "Mistral Nemo": ((6144, 5120), (5120, 4096), (28672, 5120), (5120, 14336)),
}
LAYERS = ("qkv", "out", "gate and up", "down")
TOP = MARGIN + 34


def line(points: list[tuple[float, float]], classes: str) -> str:
    """Return a line through points."""
    return svg.element("path", {"class": classes, "d": "M" + "L".join(f"{x:g} {y:g}" for x, y in points)})


def node(words: str, x: float, y: float, width: float, classes: str) -> list[str]:
    """Return a box with one line of text."""
    return [
        svg.rect(x=x, y=y, width=width, height=24, classes=classes),
        svg.text(words, x=x + width / 2, y=y + 16, classes="middle ink"),
    ]


def sum_of(step: ProductStep) -> str:
    """The partial sum after a step."""
    return f"{np.uint32(step.code).view(np.float32):.9g}"


def order_plot() -> Plot:
    """Plot the first output that differs between two orders of additions, as two trees of partial sums."""
    random = np.random.default_rng(1)
    A, B = (random.standard_normal(shape).astype(np.float16) for shape in ((4, 128), (128, 8)))
    results = [wf.gemm(A, B, instruction=MMA, order=order) for order in (wf.Order(), wf.Order(split_k=2, unit=64))]
    found = wf.explain(*results, A, B, arch="sm_90")
    width, across, body, y = 76, 90, [], TOP + 16
    for order, steps in zip(("k ascending", "split-K in 2 parts"), found.steps, strict=True):
        body.append(svg.text(order, x=MARGIN, y=y, classes="strong"))
        chains: dict[int, list[ProductStep]] = {}
        for step in steps:
            if step.operation == "multiply":
                chains.setdefault(step.part, []).append(step)
        middle = y + 20 + 27 * (len(chains) - 1)
        for row, chain in enumerate(chains.values()):
            top = y + 8 + 54 * row
            for column, step in enumerate(chain):
                x = MARGIN + column * across
                body += node(f"k {step.first}..{step.last - 1}", x, top, width, f"run c{row}")
                body.append(svg.text(sum_of(step), x=x + width / 2, y=top + 38, classes="middle tick"))
                end = (MARGIN + 8 * across, middle) if step is chain[-1] else (x + across, top + 12)
                body.append(line([(x + width, top + 12), end], "axis"))
        body += node(sum_of(steps[-1]), MARGIN + 8 * across, middle - 12, width + 14, "run c3")
        y += 54 * len(chains) + 42
    output = ", ".join(map(str, found.output))
    title = f"One sum, two orders of additions: D[{output}] of a product with k = 128"
    return framed_plot(title, body, MARGIN * 2 + 8 * across + width + 14, y - 16, found.text)


def shared_accesses(text: str) -> tuple[list[tuple[str, list[int]]], tuple[object, ...]]:
    """The first shared-memory accesses and barriers of the sample `rowsum`, with their warps; and the races."""
    kernel = wf.ptx.load(text)["rowsum"]
    arguments = [np.ones((1, 128), np.float32), np.zeros(1, np.float32)]
    events = []
    with kernel.debug(grid=1, block=128, args=arguments) as debugger:
        for opcode in ("st.shared", "ld.shared", *(["bar"] if "bar.sync" in text else [])):
            debugger.break_at(opcode=opcode)
        while not events or not events[-1][0].startswith("ld"):
            stop = debugger.run()
            events.append((stop.text.split()[0].partition(".f32")[0], [warp for _, warp in stop.warps]))
    return events, tuple(kernel.launch(grid=1, block=128, args=arguments, checks=["races"]).findings)


def race_plot() -> Plot:
    """Plot the sample `rowsum` on a time line of warps, without and with the missing barrier."""
    text = sample_path("rowsum.ptx").read_text(encoding="utf-8")
    compare = "\tsetp.gt.s32"
    repaired = text.replace(compare, f"\tbar.sync 0;\n{compare}")
    body, y = [], TOP + 16
    for title, module in (("as written", text), ("with __syncthreads()", repaired)):
        events, findings = shared_accesses(module)
        body.append(svg.text(title, x=MARGIN, y=y, classes="strong"))
        for warp in range(4):
            top = y + 10 + 34 * warp
            body.append(svg.text(f"warp {warp}", x=MARGIN, y=top + 16, classes="tick"))
            body.append(line([(MARGIN + 60, top + 12), (MARGIN + 60 + 130 * len(events), top + 12)], "grid"))
        places = {}
        for column, (name, warps) in enumerate(events):
            x = MARGIN + 60 + 130 * column
            if name.startswith("bar"):
                body += node(name, x, y + 10 + 34 * 1.5, 110, "run c2")
                body.append(line([(x + 55, y + 4), (x + 55, y + 10 + 34 * 1.5)], "axis"))
                body.append(line([(x + 55, y + 34 + 34 * 1.5), (x + 55, y + 10 + 34 * 4)], "axis"))
                continue
            for warp in warps:
                places[name, warp] = (x, y + 10 + 34 * warp)
                body += node(name, *places[name, warp], 110, "run c0")
        if findings:
            first = findings[0]
            ends = [
                places[opcode, access.thread[0] // 32]
                for opcode, access in (("st.shared", first.other), ("ld.shared", first))
            ]
            for x, top in ends:
                body += node("", x, top, 110, "bar s1")
            (x1, y1), (x2, y2) = ends
            body.append(line([(x1 + 110, y1 + 12), (x2, y2 + 12)], "curve s1"))
            sources = f"race: {first.other.source} and {first.source}"
            body.append(svg.text(sources, x=MARGIN + 330, y=y2 + 84, classes="strong"))
            body.append(svg.text("nothing orders them: right only by luck", x=MARGIN + 330, y=y2 + 102, classes="note"))
        else:
            body.append(svg.text("clean: no finding", x=MARGIN + 450, y=y + 10 + 34 * 3 + 16, classes="strong"))
        y += 34 * 4 + 40
    return framed_plot("A race on a time line of warps: the sample rowsum.cu", body, 620, y - 10, "")


def profile_plot() -> Plot:
    """Plot the wavefronts of each line of the kernel in docs/how-to/look-inside.md."""
    page = (DOCS / "how-to" / "look-inside.md").read_text(encoding="utf-8")
    A, B = np.arange(1024, dtype=np.int32).reshape(32, 32), np.zeros((32, 32), np.int32)
    run = wf.ptx.load(dict(examples.files(page))["tile.ptx"])["transpose"].launch(grid=1, block=1024, args=[A, B])
    rows = [row for row in run.profile.lines if row.wavefronts]
    most = max(row.wavefronts for row in rows)
    left, width, body, y = 280, 380, [], TOP + 4
    for row in rows:
        body.append(svg.text(f"{row.line}  {row.text}", x=left - 10, y=y + 16, classes="end"))
        useful = (row.wavefronts - row.conflicts) / most * width
        body.append(svg.rect(x=left, y=y + 4, width=useful, height=16, classes="run c0"))
        if row.conflicts:
            wide = row.conflicts / most * width
            body.append(svg.rect(x=left + useful, y=y + 4, width=wide, height=16, classes="run c1"))
            body.append(svg.text(f"{row.conflicts} bank conflicts", x=left + 60, y=y + 16, classes="ink tick"))
        body.append(svg.text(str(row.wavefronts), x=left + row.wavefronts / most * width + 6, y=y + 16, classes="tick"))
        y += 28
    title = "Wavefronts by line: a transpose through shared memory"
    return framed_plot(title, body, left + width + 60, y + 10, "")


def plots() -> dict[str, str]:
    """Return every plot, by its file name."""
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(shape).astype(np.float16) for shape in ((48, 1024), (1024, 48)))
    errors = wf.error_report(A, B, instruction=MMA, arch=["sm_80", "sm_90", "sm_100"])
    layers = {
        f"{model}, {name}": pair for model, pairs in MODELS.items() for name, pair in zip(LAYERS, pairs, strict=True)
    }
    return {
        "errors.svg": errors.svg(),
        "invariance.svg": wf.batch_invariance(layers).svg(),
        "order.svg": order_plot().svg,
        "race.svg": race_plot().svg,
        "profile.svg": profile_plot().svg,
    }


def main() -> None:
    """Write the plots into a folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in plots().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
