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
    from warpfrag.catalog.arithmetic_table import ArithmeticRow, ArithmeticTable, Reference, references, rules
    from warpfrag.catalog.evidence import Evidence
    from warpfrag.catalog.execute import execute
    from warpfrag.catalog.identify import identify
    from warpfrag.catalog.instruction import Instruction
    from warpfrag.catalog.registry import aliases, find, get
    from warpfrag.core.coordinates import Coordinate, Place
    from warpfrag.core.layout import Layout
    from warpfrag.debug.diagnose import Agreement, Diagnosis, Finding, diagnose
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
        LossyProduct,
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
    from warpfrag.memory.instruction_descriptor import InstructionDescriptor, ZeroColumnMask
    from warpfrag.memory.shared_memory import Memory
    from warpfrag.motion.access_plan import AccessPlan
    from warpfrag.motion.loads import loads, stores
    from warpfrag.motion.relayout import Relayout
    from warpfrag.motion.tensor_relayout import relayout
    from warpfrag.numerics.epilogue import Epilogue
    from warpfrag.numerics.formats import FORMATS, Format
    from warpfrag.numerics.quantize import quantize
    from warpfrag.prediction.error_report import ErrorReport, Errors
    from warpfrag.prediction.explain import Explanation, explain
    from warpfrag.prediction.find_order import find_order
    from warpfrag.prediction.invariance import Invariance, invariance
    from warpfrag.prediction.measure_errors import error_report
    from warpfrag.prediction.predict import Prediction, predict
    from warpfrag.prediction.predict_order import PredictedOrder, predict_order
    from warpfrag.products.gemm import gemm
    from warpfrag.products.order import Order
    from warpfrag.products.prune import compress, prune
    from warpfrag.ptx.launch.run import Run

__version__ = "0.3.0.dev0"

# Public names, and where each lives. They are imported when first used, so that a look-up imports no numpy.
_EXPORTS = {
    "AccessPlan": "motion.access_plan",
    "ArithmeticRow": "catalog.arithmetic_table",
    "ArithmeticTable": "catalog.arithmetic_table",
    "Agreement": "debug.diagnose",
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
    "Explanation": "prediction.explain",
    "FORMATS": "numerics.formats",
    "Fault": "errors",
    "Finding": "debug.diagnose",
    "Format": "numerics.formats",
    "IllegalInstruction": "errors",
    "Instruction": "catalog.instruction",
    "InstructionDescriptor": "memory.instruction_descriptor",
    "InvalidOperand": "errors",
    "InvalidSparsity": "errors",
    "Invariance": "prediction.invariance",
    "Layout": "core.layout",
    "LossyProduct": "errors",
    "Memory": "memory.shared_memory",
    "MissingExtra": "errors",
    "NoGpu": "errors",
    "NotModelled": "errors",
    "Operand": "execution.operand",
    "Order": "products.order",
    "OutOfMemory": "errors",
    "ParseError": "errors",
    "Place": "core.coordinates",
    "PredictedOrder": "prediction.predict_order",
    "Prediction": "prediction.predict",
    "PtxError": "errors",
    "Reference": "catalog.arithmetic_table",
    "Relayout": "motion.relayout",
    "Run": "ptx.launch.run",
    "Shared": "execution.shared_operand",
    "SlowArithmetic": "errors",
    "UnusableFile": "errors",
    "UnusableScheduler": "errors",
    "WarpfragError": "errors",
    "ZeroColumnMask": "memory.instruction_descriptor",
    "aliases": "catalog.registry",
    "compress": "products.prune",
    "diagnose": "debug.diagnose",
    "draw": "drawing",
    "emit": "emission",
    "error_report": "prediction.measure_errors",
    "execute": "catalog.execute",
    "explain": "prediction.explain",
    "find": "catalog.registry",
    "find_order": "prediction.find_order",
    "gemm": "products.gemm",
    "get": "catalog.registry",
    "identify": "catalog.identify",
    "invariance": "prediction.invariance",
    "loads": "motion.loads",
    "predict": "prediction.predict",
    "predict_order": "prediction.predict_order",
    "prune": "products.prune",
    "quantize": "numerics.quantize",
    "references": "catalog.arithmetic_table",
    "relayout": "motion.tensor_relayout",
    "rules": "catalog.arithmetic_table",
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
    "predict_order",
    "invariance",
    "explain",
    "error_report",
    "rules",
    "references",
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
    "ArithmeticTable",
    "ArithmeticRow",
    "Reference",
    "ErrorReport",
    "Errors",
    "Diagnosis",
    "Agreement",
    "Finding",
    "Drawing",
    "Operand",
    "Order",
    "Prediction",
    "PredictedOrder",
    "Invariance",
    "Explanation",
    "Epilogue",
    "Layout",
    "Memory",
    "Relayout",
    "AccessPlan",
    "Run",
    "Descriptor",
    "InstructionDescriptor",
    "ZeroColumnMask",
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
    "LossyProduct",
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


def _tensor_operands() -> object:
    from warpfrag.execution.tensor_operand import build

    return build


providers.register("card", _card_renderer)
providers.register("converter", _converter_lookup)
providers.register("tensor_operand", _tensor_operands)


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
