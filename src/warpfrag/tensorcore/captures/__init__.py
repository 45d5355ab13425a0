"""Results of real GPUs, and an index of them.

Each `.npz` here holds operand registers and the D registers that one GPU gave for them; `index.json` counts them, so
that a look-up can say how well an answer is known without opening the data. `capture.py` has the format,
`tools/write_capture_index.py` writes the index, and `addresses.py` has what wgmma read from shared memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warpfrag.tensorcore.captures.capture import Capture, CapturedCase, TensorCase, WgmmaCase, captures, load_cases
    from warpfrag.tensorcore.captures.capture_index import evidence_rows

__all__ = ["Capture", "CapturedCase", "TensorCase", "WgmmaCase", "captures", "evidence_rows", "load_cases"]


def __getattr__(name: str) -> object:
    """Import on first use: the index must not cost numpy."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module = "index" if name == "evidence_rows" else "capture"
    member: object = getattr(import_module(f"{__name__}.{module}"), name)
    return member
