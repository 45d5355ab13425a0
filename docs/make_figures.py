"""Write the gallery: every figure of `tables/figures.toml` as SVG, and the page that shows them.

python docs/make_figures.py [FOLDER]     # default: docs/
"""

import sys
from itertools import groupby
from pathlib import Path

from warpfrag import Memory, get, loads, relayout
from warpfrag.viz.draw import Drawing, FigureRow, ViewOptions, draw, draw_figure, figure_rows

MMA = "mma.m16n8k16.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.m64n64k16.f32.f16.f16"
TCGEN05 = "tcgen05.mma.cta_group::1.kind::f16"
LOAD = "tcgen05.ld.sync.aligned.16x256b.x2.b32"

HEAD = """\
# Gallery

<!-- Written by docs/make_figures.py from src/warpfrag/tables/figures.toml. Change those, not this page. -->

The fragment figures of the PTX ISA, with its numbers, and some other views, drawn from warpfrag's tables. The cell
`T5: a3` is the element that lane 5 holds as its a3; dark outlines are registers. Open a file to see the tooltip of each
cell. Figures follow light and dark themes, and print in light colours.
"""


def name_of(row: FigureRow) -> str:
    """Return the file name of a figure."""
    return f"figure-{row.key}.svg" if row.key.isdigit() else f"{row.key}.svg"


def entry(row: FigureRow) -> str:
    """Return the entry for a figure: caption, picture, and two commands that draw it."""
    name = name_of(row)
    return f"""\
### {row.title}

![{row.caption}](figures/{name})

```console
$ warpfrag draw --figure {row.key} -o {name}
$ {row.command} -o {name}
```
"""


def motion() -> dict[str, tuple[str, str, Drawing]]:
    """Return the figures of relayouts, loads and stores by file: caption, command and picture."""
    mma = get(MMA)
    load = f"warpfrag loads {MMA} a --pitch 128"
    return {
        "relayout.svg": (
            "m16n8k16: from the accumulator to B, and the lane that each element comes from",
            f"warpfrag relayout {MMA}:d {MMA}:b",
            draw(relayout(mma.d, mma.b)),
        ),
        "conflicts.svg": (
            "ldmatrix of A without a swizzle: the eight lanes of a matrix access the same four banks",
            load,
            draw(loads(mma.a, Memory("row", 128))[0]),
        ),
        "swizzle.svg": (
            "ldmatrix of A with a 128-byte swizzle: the eight lanes of a matrix access all banks",
            f"{load} --swizzle 128",
            draw(loads(mma.a, Memory("row", 128, 128))[0]),
        ),
    }


def warpgroups() -> dict[str, tuple[str, str, Drawing]]:
    """wgmma: a warp of D, and B in shared memory with each swizzle; by file, as above."""
    wgmma = get(WGMMA)
    found = {
        "wgmma-d.svg": (
            "m64n64k16: the part of D that warp 1 holds",
            f"warpfrag draw {WGMMA} d --warp 1",
            draw(wgmma, "d", options=ViewOptions(warp=1)),
        )
    }
    for swizzle in (0, 32, 64, 128):
        k = max(swizzle, 32) // 2  # as much as fills its lines
        tile = wgmma.b.descriptors(k=k, swizzle=swizzle)
        words = " ".join(f"--descriptor 0x{one.word:x}" for one in tile)
        what = f"{swizzle}-byte swizzle" if swizzle else "no swizzle"
        found[f"wgmma-b-{swizzle}.svg"] = (
            f"B of m64n64k16 in shared memory, K-major, {what}, K = {k}",
            f"warpfrag draw {WGMMA} b {words}",
            draw(wgmma, "b", options=ViewOptions(descriptor=tile)),
        )
    (turned,) = wgmma.b.descriptors(swizzle=128, trans=True)
    found["wgmma-b-turned.svg"] = (
        "B of m64n64k16 in shared memory, MN-major, 128-byte swizzle",
        f"warpfrag draw {WGMMA} b --trans --descriptor 0x{turned.word:x}",
        draw(wgmma, "b", options=ViewOptions(descriptor=turned, trans=True)),
    )
    return found


def tensor_memory() -> dict[str, tuple[str, str, Drawing]]:
    """tcgen05: operands in tensor memory, and the registers of a load; by file, as above."""
    d = f"{TCGEN05}.m128n64k16.f32.f16.f16"
    half = f"{TCGEN05}.m64n64k16.f32.f16.f16"
    pair = "tcgen05.mma.cta_group::2.kind::f16.m128n64k16.f32.f16.f16"
    scaled = f"{TCGEN05.replace('f16', 'mxf8f6f4')}.block_scale.m128n64k32.f32.e4m3.e4m3.ue8m0"
    sparse = "tcgen05.mma.sp.cta_group::1.kind::f16.m128n64k32.f32.f16.f16"
    chosen = {
        "tensor-d.svg": ("D in tensor memory, m = 128", d, "d", {}),
        "tensor-half.svg": ("D with m = 64: 16 of every 32 lanes", half, "d", {}),
        "tensor-pair.svg": (
            "D of a pair of blocks, m = 128: lanes 64 and up hold the second half of the columns",
            pair,
            "d",
            {},
        ),
        "tensor-a.svg": ("A of a pair of blocks, m = 128: one copy for each half of D's columns", pair, "a", {}),
        "tensor-scale.svg": (
            "Scale factors of B: each column covers 32 columns of B, and every 32 lanes hold a copy",
            scaled,
            "scale_b",
            {},
        ),
        "tensor-metadata.svg": ("Metadata of a sparse f16 A", sparse, "metadata", {}),
        "tensor-load.svg": ("The elements that warp 0 loads with 16x256b.x2, by lane and column", LOAD, None, {}),
        "tensor-through.svg": (
            "D with m = 128 in the registers of warp 1 after that load",
            d,
            "d",
            {"through": LOAD, "warp": 1},
        ),
    }
    return {
        name: (
            caption,
            " ".join(
                ["warpfrag draw", what, *([role] if role else []), *(f"--{key} {to}" for key, to in options.items())]
            ),
            draw(what, role, options=ViewOptions(**options)),
        )
        for name, (caption, what, role, options) in chosen.items()
    }


def motion_entry(name: str, caption: str, command: str) -> str:
    """Return the entry for one of these figures."""
    return f"### {caption}\n\n![{caption}](figures/{name})\n\n```console\n$ {command} -o {name}\n```\n"


def main() -> None:
    """Write the page and the figures into a folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    page = [HEAD]
    for section, rows in groupby(figure_rows().values(), key=lambda row: row.section):
        page.append(f"## {section}\n")
        for row in rows:
            draw_figure(row.key).save(folder / "figures" / name_of(row))
            page.append(entry(row))
    for section, figures in (("Relayouts and loads", motion()), ("wgmma", warpgroups()), ("tcgen05", tensor_memory())):
        page.append(f"## {section}\n")
        for name, (caption, command, picture) in figures.items():
            picture.save(folder / "figures" / name)
            page.append(motion_entry(name, caption, command))
    (folder / "gallery.md").write_text("\n".join(page), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
