"""warpfrag: NVIDIA's matrix instructions of warps and warpgroups.

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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from warpfrag.core import providers

if TYPE_CHECKING:
    from warpfrag import ptx, wmma
    from warpfrag.catalog.evidence import Evidence
    from warpfrag.catalog.execute import execute
    from warpfrag.catalog.identify import identify
    from warpfrag.catalog.instruction import Instruction
    from warpfrag.catalog.registry import aliases, find, get
    from warpfrag.core.coordinates import Coordinate, Place
    from warpfrag.core.layout import Layout
    from warpfrag.debug.diagnose import Diagnosis, Finding, diagnose
    from warpfrag.drawing import draw
    from warpfrag.drawing.drawing import Drawing
    from warpfrag.emission import emit
    from warpfrag.emission.vectors import vectors
    from warpfrag.errors import (
        CannotServe,
        CompilerDeparture,
        Fault,
        IllegalInstruction,
        InvalidOperand,
        InvalidSparsity,
        MissingExtra,
        NoGpu,
        NotModelled,
        OutOfMemory,
        ParseError,
        PtxError,
        SlowArithmetic,
        UnusableFile,
        UnusableScheduler,
        WarpfragError,
    )
    from warpfrag.execution.operand import Operand
    from warpfrag.execution.shared_operand import Shared
    from warpfrag.hardware.verify import verify
    from warpfrag.memory.descriptor import Descriptor
    from warpfrag.memory.shared_memory import Memory
    from warpfrag.motion.access_plan import AccessPlan
    from warpfrag.motion.loads import loads, stores
    from warpfrag.motion.relayout import Relayout, relayout
    from warpfrag.numerics.epilogue import Epilogue
    from warpfrag.numerics.formats import FORMATS, Format
    from warpfrag.numerics.quantize import quantize
    from warpfrag.prediction.error_report import ErrorReport, Errors, error_report
    from warpfrag.prediction.find_order import find_order
    from warpfrag.prediction.predict import Prediction, predict
    from warpfrag.products.gemm import gemm
    from warpfrag.products.order import Order
    from warpfrag.products.prune import compress, prune
    from warpfrag.ptx.launch.run import Run

__version__ = "0.3.0.dev0"

# Public names, and where each lives. They are imported when first used, so that a look-up imports no numpy.
_EXPORTS = {
    "AccessPlan": "motion.access_plan",
    "CannotServe": "errors",
    "CompilerDeparture": "errors",
    "Coordinate": "core.coordinates",
    "Descriptor": "memory.descriptor",
    "Diagnosis": "debug.diagnose",
    "Drawing": "drawing.drawing",
    "Epilogue": "numerics.epilogue",
    "ErrorReport": "prediction.error_report",
    "Errors": "prediction.error_report",
    "Evidence": "catalog.evidence",
    "FORMATS": "numerics.formats",
    "Fault": "errors",
    "Finding": "debug.diagnose",
    "Format": "numerics.formats",
    "IllegalInstruction": "errors",
    "Instruction": "catalog.instruction",
    "InvalidOperand": "errors",
    "InvalidSparsity": "errors",
    "Layout": "core.layout",
    "Memory": "memory.shared_memory",
    "MissingExtra": "errors",
    "NoGpu": "errors",
    "NotModelled": "errors",
    "Operand": "execution.operand",
    "Order": "products.order",
    "OutOfMemory": "errors",
    "ParseError": "errors",
    "Place": "core.coordinates",
    "Prediction": "prediction.predict",
    "PtxError": "errors",
    "Relayout": "motion.relayout",
    "Run": "ptx.launch.run",
    "Shared": "execution.shared_operand",
    "SlowArithmetic": "errors",
    "UnusableFile": "errors",
    "UnusableScheduler": "errors",
    "WarpfragError": "errors",
    "aliases": "catalog.registry",
    "compress": "products.prune",
    "diagnose": "debug.diagnose",
    "draw": "drawing",
    "emit": "emission",
    "error_report": "prediction.error_report",
    "execute": "catalog.execute",
    "find": "catalog.registry",
    "find_order": "prediction.find_order",
    "gemm": "products.gemm",
    "get": "catalog.registry",
    "identify": "catalog.identify",
    "loads": "motion.loads",
    "predict": "prediction.predict",
    "prune": "products.prune",
    "quantize": "numerics.quantize",
    "relayout": "motion.relayout",
    "stores": "motion.loads",
    "vectors": "emission.vectors",
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
    "Coordinate",
    "Place",
    "Evidence",
    "ErrorReport",
    "Errors",
    "Diagnosis",
    "Finding",
    "Drawing",
    "Operand",
    "Order",
    "Prediction",
    "Epilogue",
    "Layout",
    "Memory",
    "Relayout",
    "AccessPlan",
    "Run",
    "Descriptor",
    "Shared",
    "Format",
    "FORMATS",
    "WarpfragError",
    "CannotServe",
    "CompilerDeparture",
    "Fault",
    "IllegalInstruction",
    "InvalidOperand",
    "InvalidSparsity",
    "MissingExtra",
    "NoGpu",
    "NotModelled",
    "OutOfMemory",
    "ParseError",
    "PtxError",
    "SlowArithmetic",
    "UnusableFile",
    "UnusableScheduler",
    "__version__",
]


def _card_renderer() -> object:
    from warpfrag.drawing.notebook import card

    return card


def _converter_lookup() -> object:
    from warpfrag.notations import converter

    return converter


providers.register("card", _card_renderer)
providers.register("converter", _converter_lookup)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any public name)
    """Import a public name on first use."""
    if name in _MODULES:
        return import_module(f"warpfrag.{name}")
    if name not in _EXPORTS:
        msg = f"module 'warpfrag' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"warpfrag.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted(__all__)
