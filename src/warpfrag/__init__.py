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

from warpfrag.layout import providers

if TYPE_CHECKING:
    from warpfrag import ptx, wmma
    from warpfrag.blas.cublas.batch_invariance import Invariance, invariance
    from warpfrag.blas.cublas.predict import Prediction, predict
    from warpfrag.blas.cublas.predict_order import PredictedOrder, predict_order
    from warpfrag.blas.error_report import ErrorReport, Errors
    from warpfrag.blas.explain import Explanation, explain
    from warpfrag.blas.find_order import find_order
    from warpfrag.blas.gemm import gemm
    from warpfrag.blas.measure_errors import error_report
    from warpfrag.blas.order import Order
    from warpfrag.blas.prune import compress, prune
    from warpfrag.codegen.emit import emit
    from warpfrag.codegen.vectors import test_vectors
    from warpfrag.diagnosis.diagnose import Agreement, Diagnosis, Finding, diagnose
    from warpfrag.errors import (
        IllegalInstruction,
        InvalidOperand,
        InvalidSparsity,
        LossyProduct,
        MemoryFault,
        MissingExtra,
        NoGpu,
        NotModelled,
        OutOfMemory,
        ParseError,
        PtxError,
        SchedulerError,
        ServerError,
        SlowArithmetic,
        WarpfragError,
    )
    from warpfrag.formats.epilogue import Epilogue
    from warpfrag.formats.number_formats import FORMATS, Format
    from warpfrag.formats.quantize import quantize
    from warpfrag.hardware.verify import verify
    from warpfrag.layout.coordinates import Coordinate, Place
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.plans.access_plan import AccessPlan
    from warpfrag.plans.loads import loads, stores
    from warpfrag.plans.relayout import Relayout
    from warpfrag.plans.tensor_relayout import relayout
    from warpfrag.ptx.launch.run import Run
    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.smem.instruction_descriptor import InstructionDescriptor, ZeroColumnMask
    from warpfrag.smem.shared_memory import Memory
    from warpfrag.tensorcore.arithmetic_table import ArithmeticRow, ArithmeticTable, Reference, references, rules
    from warpfrag.tensorcore.evidence import Evidence
    from warpfrag.tensorcore.execute import execute
    from warpfrag.tensorcore.identify import identify
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand
    from warpfrag.tensorcore.registry import aliases, find, get
    from warpfrag.tensorcore.shared_operand import Shared
    from warpfrag.viz.draw import draw
    from warpfrag.viz.drawing import Drawing

__version__ = "0.3.0.dev0"

# Public names, and where each lives. They are imported when first used, so that a look-up imports no numpy.
_EXPORTS = {
    "AccessPlan": "plans.access_plan",
    "ArithmeticRow": "tensorcore.arithmetic_table",
    "ArithmeticTable": "tensorcore.arithmetic_table",
    "Agreement": "diagnosis.diagnose",
    "ServerError": "errors",
    "Coordinate": "layout.coordinates",
    "Descriptor": "smem.descriptor",
    "Diagnosis": "diagnosis.diagnose",
    "Drawing": "viz.drawing",
    "Epilogue": "formats.epilogue",
    "ErrorReport": "blas.error_report",
    "Errors": "blas.error_report",
    "Evidence": "tensorcore.evidence",
    "Explanation": "blas.explain",
    "FORMATS": "formats.number_formats",
    "MemoryFault": "errors",
    "Finding": "diagnosis.diagnose",
    "Format": "formats.number_formats",
    "IllegalInstruction": "errors",
    "Instruction": "tensorcore.instruction",
    "InstructionDescriptor": "smem.instruction_descriptor",
    "InvalidOperand": "errors",
    "InvalidSparsity": "errors",
    "Invariance": "blas.cublas.batch_invariance",
    "Layout": "layout.linear_layout",
    "LossyProduct": "errors",
    "Memory": "smem.shared_memory",
    "MissingExtra": "errors",
    "NoGpu": "errors",
    "NotModelled": "errors",
    "Operand": "tensorcore.operand",
    "Order": "blas.order",
    "OutOfMemory": "errors",
    "ParseError": "errors",
    "Place": "layout.coordinates",
    "PredictedOrder": "blas.cublas.predict_order",
    "Prediction": "blas.cublas.predict",
    "PtxError": "errors",
    "Reference": "tensorcore.arithmetic_table",
    "Relayout": "plans.relayout",
    "Run": "ptx.launch.run",
    "Shared": "tensorcore.shared_operand",
    "SlowArithmetic": "errors",
    "FileError": "errors",
    "SchedulerError": "errors",
    "WarpfragError": "errors",
    "ZeroColumnMask": "smem.instruction_descriptor",
    "aliases": "tensorcore.registry",
    "compress": "blas.prune",
    "diagnose": "diagnosis.diagnose",
    "draw": "viz.draw",
    "emit": "codegen.emit",
    "error_report": "blas.measure_errors",
    "execute": "tensorcore.execute",
    "explain": "blas.explain",
    "find": "tensorcore.registry",
    "find_order": "blas.find_order",
    "gemm": "blas.gemm",
    "get": "tensorcore.registry",
    "identify": "tensorcore.identify",
    "invariance": "blas.cublas.batch_invariance",
    "loads": "plans.loads",
    "predict": "blas.cublas.predict",
    "predict_order": "blas.cublas.predict_order",
    "prune": "blas.prune",
    "quantize": "formats.quantize",
    "references": "tensorcore.arithmetic_table",
    "relayout": "plans.tensor_relayout",
    "rules": "tensorcore.arithmetic_table",
    "stores": "plans.loads",
    "test_vectors": "codegen.vectors",
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
    "test_vectors",
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
    "ServerError",
    "MemoryFault",
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
    "FileError",
    "SchedulerError",
    "__version__",
]


def _card_renderer() -> object:
    from warpfrag.viz.notebook import card

    return card


def _converter_lookup() -> object:
    from warpfrag.layout.notations import converter

    return converter


def _tensor_operands() -> object:
    from warpfrag.tensorcore.tensor_operand import build

    return build


def _plan_emitter() -> object:
    from warpfrag.codegen.plan_code import emit_plan

    return emit_plan


providers.register("card", _card_renderer)
providers.register("converter", _converter_lookup)
providers.register("emit_plan", _plan_emitter)
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
