"""warpfrag: NVIDIA's matrix instructions of warps and warpgroups, completely.

Which lane, register and bit holds which matrix element; what is legal on which GPU; what the tensor core computes.
No GPU needed.

    >>> import warpfrag as wf
    >>> mma = wf.get("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> mma.a.layout.at(lane=5, reg=2, slot=1)
    Coordinate(row=1, col=11)
    >>> mma.a.layout.where(row=9, col=3)
    [Place(lane=5, reg=1, slot=1)]
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpfrag import ptx, wmma
    from warpfrag.descriptor import Descriptor
    from warpfrag.diagnose import Diagnosis, Finding, diagnose
    from warpfrag.draw import draw
    from warpfrag.draw.drawing import Drawing
    from warpfrag.emit import emit
    from warpfrag.epilogue import Epilogue
    from warpfrag.error_report import ErrorReport, Errors, error_report
    from warpfrag.errors import (
        IllegalInstruction,
        InvalidOperand,
        InvalidSparsity,
        NoGpu,
        NotModelled,
        OutOfMemory,
        SlowArithmetic,
        UnusableFile,
        WarpfragError,
    )
    from warpfrag.evidence import Evidence
    from warpfrag.execute import execute
    from warpfrag.find_order import find_order
    from warpfrag.formats import FORMATS, Format
    from warpfrag.gemm import gemm
    from warpfrag.hardware.verify import verify
    from warpfrag.identify import identify
    from warpfrag.instruction import Instruction
    from warpfrag.layout import Layout
    from warpfrag.memory import Memory
    from warpfrag.motion.loads import loads, stores
    from warpfrag.motion.relayout import relayout
    from warpfrag.operand import Operand
    from warpfrag.order import Order
    from warpfrag.predict import Prediction, predict
    from warpfrag.prune import compress, prune
    from warpfrag.quantize import quantize
    from warpfrag.registry import aliases, find, get
    from warpfrag.shared import Shared
    from warpfrag.vectors import vectors

__version__ = "0.2.0"

# Public names, and where each lives. They are imported when first used, so that a look-up imports no numpy.
_EXPORTS = {
    "Descriptor": "descriptor",
    "Diagnosis": "diagnose",
    "Drawing": "draw.drawing",
    "Epilogue": "epilogue",
    "ErrorReport": "error_report",
    "Errors": "error_report",
    "Evidence": "evidence",
    "FORMATS": "formats",
    "Finding": "diagnose",
    "Format": "formats",
    "IllegalInstruction": "errors",
    "Instruction": "instruction",
    "InvalidOperand": "errors",
    "InvalidSparsity": "errors",
    "Layout": "layout",
    "Memory": "memory",
    "NoGpu": "errors",
    "NotModelled": "errors",
    "Shared": "shared",
    "SlowArithmetic": "errors",
    "UnusableFile": "errors",
    "Operand": "operand",
    "Order": "order",
    "OutOfMemory": "errors",
    "WarpfragError": "errors",
    "aliases": "registry",
    "compress": "prune",
    "diagnose": "diagnose",
    "draw": "draw",
    "emit": "emit",
    "error_report": "error_report",
    "execute": "execute",
    "find": "registry",
    "find_order": "find_order",
    "gemm": "gemm",
    "get": "registry",
    "identify": "identify",
    "loads": "motion.loads",
    "Prediction": "predict",
    "predict": "predict",
    "prune": "prune",
    "quantize": "quantize",
    "relayout": "motion.relayout",
    "stores": "motion.loads",
    "vectors": "vectors",
    "verify": "hardware.verify",
}

_MODULES = ("ptx", "torch", "wmma")  # public modules

__all__ = [  # noqa: RUF022 (grouped)
    "get",
    "find",
    "identify",
    "aliases",
    "execute",
    "gemm",
    "find_order",
    "predict",
    "error_report",
    "quantize",
    "prune",
    "compress",
    "relayout",
    "loads",
    "stores",
    "diagnose",
    "draw",
    "emit",
    "vectors",
    "verify",
    "ptx",
    "wmma",
    "Instruction",
    "Evidence",
    "ErrorReport",
    "Errors",
    "Diagnosis",
    "Finding",
    "Drawing",
    "Operand",
    "Order",
    "OutOfMemory",
    "Prediction",
    "Epilogue",
    "Layout",
    "Memory",
    "Descriptor",
    "Shared",
    "Format",
    "FORMATS",
    "WarpfragError",
    "IllegalInstruction",
    "InvalidOperand",
    "InvalidSparsity",
    "NoGpu",
    "NotModelled",
    "UnusableFile",
    "SlowArithmetic",
    "__version__",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any public name)
    """Import a public name on first use."""
    if name in _MODULES:
        return import_module(f"warpfrag.{name}")
    if name not in _EXPORTS:
        msg = f"module 'warpfrag' has no attribute {name!r}"
        raise AttributeError(msg)
    found = getattr(import_module(f"warpfrag.{_EXPORTS[name]}"), name)
    globals()[name] = found
    return found


class _Package(ModuleType):
    """The package, in which `wf.execute` is the function of that name and never the module it lives in."""

    def __setattr__(self, name: str, value: object) -> None:
        """Python sets a submodule as an attribute when it is first imported: leave public names alone."""
        if not (name in _EXPORTS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted(__all__)
