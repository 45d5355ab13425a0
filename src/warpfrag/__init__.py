"""warpfrag: NVIDIA's matrix instructions for warps and warpgroups.

It answers, without a GPU: which lane, register and bit hold a matrix element, which GPUs accept an instruction, and
what the tensor core computes.

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

if TYPE_CHECKING:  # for type checkers; at run time `_EXPORTS` has the module of each name
    from warpfrag import errors as errors
    from warpfrag import ptx as ptx
    from warpfrag import sass as sass
    from warpfrag import sweep as sweep
    from warpfrag import torch as torch
    from warpfrag import triton as triton
    from warpfrag import wmma as wmma
    from warpfrag.blas.cublas.batch_invariance import batch_invariance as batch_invariance
    from warpfrag.blas.cublas.library_epilogue import LibraryEpilogue as LibraryEpilogue
    from warpfrag.blas.cublas.predict import predict as predict
    from warpfrag.blas.cublas.predict_order import predict_order as predict_order
    from warpfrag.blas.explain import explain as explain
    from warpfrag.blas.find_order import find_order as find_order
    from warpfrag.blas.gemm import gemm as gemm
    from warpfrag.blas.measure_errors import error_report as error_report
    from warpfrag.blas.order import Order as Order
    from warpfrag.blas.pruning import compress as compress
    from warpfrag.blas.pruning import prune as prune
    from warpfrag.codegen.emit import emit as emit
    from warpfrag.codegen.vectors import test_vectors as test_vectors
    from warpfrag.device.virtual_gpu import gpu as gpu
    from warpfrag.diagnosis.diagnose import diagnose as diagnose
    from warpfrag.errors import WarpfragError as WarpfragError
    from warpfrag.formats.epilogue import Epilogue as Epilogue
    from warpfrag.formats.number_formats import FORMATS as FORMATS
    from warpfrag.formats.quantize import quantize as quantize
    from warpfrag.hardware.verification import verify as verify
    from warpfrag.isa.immediates import Immediates as Immediates
    from warpfrag.layout.linear_layout import Layout as Layout
    from warpfrag.machine.launch.launch_arguments import GlobalMemory as GlobalMemory
    from warpfrag.plans.loads import loads as loads
    from warpfrag.plans.loads import stores as stores
    from warpfrag.plans.tensor_relayout import relayout as relayout
    from warpfrag.smem.descriptor import Descriptor as Descriptor
    from warpfrag.smem.instruction_descriptor import InstructionDescriptor as InstructionDescriptor
    from warpfrag.smem.shared_memory import Memory as Memory
    from warpfrag.tensorcore.arithmetic_table import arithmetic_table as arithmetic_table
    from warpfrag.tensorcore.array_types import Scaled as Scaled
    from warpfrag.tensorcore.execute import execute as execute
    from warpfrag.tensorcore.identify import identify as identify
    from warpfrag.tensorcore.instruction import Instruction as Instruction
    from warpfrag.tensorcore.registry import aliases as aliases
    from warpfrag.tensorcore.registry import find as find
    from warpfrag.tensorcore.registry import get as get
    from warpfrag.tensorcore.shared_operand import Shared as Shared
    from warpfrag.viz.draw import draw as draw

__version__ = "0.4.0.dev0"

# The public names of each module. They are imported on first use, so that a look-up does not import numpy.
_EXPORTS = {
    "blas.cublas.batch_invariance": ["batch_invariance"],
    "blas.cublas.predict": ["predict"],
    "blas.cublas.predict_order": ["predict_order"],
    "blas.explain": ["explain"],
    "blas.cublas.library_epilogue": ["LibraryEpilogue"],
    "blas.find_order": ["find_order"],
    "blas.gemm": ["gemm"],
    "blas.measure_errors": ["error_report"],
    "blas.order": ["Order"],
    "blas.pruning": ["compress", "prune"],
    "codegen.emit": ["emit"],
    "codegen.vectors": ["test_vectors"],
    "device.virtual_gpu": ["gpu"],
    "diagnosis.diagnose": ["diagnose"],
    "errors": ["WarpfragError"],
    "formats.epilogue": ["Epilogue"],
    "formats.number_formats": ["FORMATS"],
    "formats.quantize": ["quantize"],
    "hardware.verification": ["verify"],
    "isa.immediates": ["Immediates"],
    "layout.linear_layout": ["Layout"],
    "machine.launch.launch_arguments": ["GlobalMemory"],
    "plans.loads": ["loads", "stores"],
    "plans.tensor_relayout": ["relayout"],
    "smem.descriptor": ["Descriptor"],
    "smem.instruction_descriptor": ["InstructionDescriptor"],
    "smem.shared_memory": ["Memory"],
    "tensorcore.arithmetic_table": ["arithmetic_table"],
    "tensorcore.array_types": ["Scaled"],
    "tensorcore.execute": ["execute"],
    "tensorcore.identify": ["identify"],
    "tensorcore.instruction": ["Instruction"],
    "tensorcore.registry": ["aliases", "find", "get"],
    "tensorcore.shared_operand": ["Shared"],
    "viz.draw": ["draw"],
}
_SUBMODULES = ["errors", "ptx", "sass", "sweep", "torch", "triton", "wmma"]
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}

_EXTRAS = ["torch", "triton"]  # `from warpfrag import *` works without their dependencies
__all__ = sorted([*_MODULE_OF, *set(_SUBMODULES).difference(_EXTRAS)])  # noqa: PLE0605 (listed once, above)


providers.register("card", "warpfrag.viz.notebook", "card")
providers.register("figure_svg", "warpfrag.viz.draw", "figure_svg")
providers.register("emit_plan", "warpfrag.codegen.plan_code", "emit_plan")
providers.register("tensor_operand", "warpfrag.tensorcore.tensor_operand", "build")


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any public name)
    """Import a public name on first use."""
    if name in _SUBMODULES:
        return import_module(f"warpfrag.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'warpfrag' has no attribute {name!r}")
    value = getattr(import_module(f"warpfrag.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return list(__all__)
