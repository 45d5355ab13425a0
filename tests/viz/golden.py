"""The figures that are stored as files; `python tests/viz/golden.py` rewrites them after an intended change."""

from pathlib import Path

from viz.parsed import draw

FOLDER = Path(__file__).parents[1] / "data" / "figures"

GOLDEN = {
    "matrix": {"subject": "mma.m8n8k4.f64.f64.f64.f64", "operand": "c"},
    "warp": {"subject": "mma.m8n8k4.f64.f64.f64.f64", "operand": "a", "view": "warp", "theme": "dark"},
    "metadata": {"subject": "mma.sp.m16n8k16.f32.f16.f16.f32", "operand": "metadata", "selector": 3},
    "scale": {
        "subject": "mma.m16n8k64.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
        "operand": "scale_b",
        "thread_id": (0, 2),
    },
    "ldmatrix": {"subject": "ldmatrix.m8n8.x1.trans.shared.b16"},
    "part": {"subject": "mma.m16n8k128.s32.b1.b1.s32.xor.popc", "operand": "a", "rows": (0, 1), "theme": "light"},
}


def main() -> None:
    """Write every golden file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, options in GOLDEN.items():
        drawing = draw(**options)
        drawing.save(FOLDER / f"{name}.svg")
        drawing.save(FOLDER / f"{name}.txt")


if __name__ == "__main__":
    main()
