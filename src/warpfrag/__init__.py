"""warpfrag: run, debug and test NVIDIA tensor-core code without a GPU.

It finds the lane, register and bits that hold a matrix element, lists the GPUs that accept an instruction, computes
the results of tensor cores bit for bit, and runs PTX and machine code.

    >>> import warpfrag as wf
    >>> mma = wf.get("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> mma.a.layout.at(lane=5, reg=2, slot=1)
    Coordinate(row=1, col=11)
    >>> mma.a.layout.where(row=9, col=3)
    [Place(lane=5, reg=1, slot=1)]
"""

import re
from importlib import import_module
from typing import Any

from warpfrag.layout import providers

__version__ = "0.4.0.dev0"

# `__init__.pyi` lists the public names and their modules; each is imported on first use.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:  # noqa: PTH123 (pathlib would be slower)
    _IMPORTS = re.findall(r"^from (warpfrag\S*) import (\w+) as", _stub.read(), re.MULTILINE)
_MODULE_OF = {name: module for module, name in _IMPORTS}

_EXTRAS = {"torch", "triton"}  # `from warpfrag import *` works without their dependencies
__all__ = sorted(_MODULE_OF.keys() - _EXTRAS)  # noqa: PLE0605 (listed once, in the stub)


providers.register("card", "warpfrag.viz.notebook", "card")
providers.register("figure_svg", "warpfrag.viz.draw", "figure_svg")
providers.register("emit_plan", "warpfrag.codegen.plan_code", "emit_plan")
providers.register("tensor_operand", "warpfrag.tensorcore.tensor_operand", "build")


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any public name)
    """Import a public name on first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'warpfrag' has no attribute {name!r}")
    module = _MODULE_OF[name]
    value = import_module(f"warpfrag.{name}") if module == "warpfrag" else getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return list(__all__)
