"""Write the plots of the how-to pages: the errors of a product, where layers change bits.

python docs/make_plots.py [FOLDER]     # FOLDER is docs/plots unless said
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import warpfrag as wf

MMA = "mma.m16n8k16.f32.f16.f16.f32"
MODELS = {  # n and k of the projections: queries with keys and values, output, gate with up, down
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "Llama 3 70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    "Qwen 2.5 7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
    "Gemma 2 9B": ((8192, 3584), (3584, 4096), (28672, 3584), (3584, 14336)),
    "Mistral Nemo": ((6144, 5120), (5120, 4096), (28672, 5120), (5120, 14336)),
}
LAYERS = ("qkv", "out", "gate and up", "down")


def plots() -> dict[str, str]:
    """Every plot, by the name of its file."""
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(shape).astype(np.float16) for shape in ((48, 1024), (1024, 48)))
    errors = wf.error_report(A, B, instruction=MMA, arch=["sm_80", "sm_90", "sm_100"])
    return {
        "errors.svg": errors.svg(),
        "invariance.svg": wf.batch_invariance(
            {
                f"{model}, {name}": pair
                for model, pairs in MODELS.items()
                for name, pair in zip(LAYERS, pairs, strict=True)
            }
        ).svg(),
    }


def main() -> None:
    """Write them into a folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in plots().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
