"""PyTorch's settings that change which kernels cuBLAS may run, and the values that predictions assume.

Choices and orders were measured with these values; PyTorch's defaults are the opposite ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

ASSUMED = {
    "f16": ("allow_fp16_reduced_precision_reduction", False),
    "bf16": ("allow_bf16_reduced_precision_reduction", False),
    "tf32": ("allow_tf32", True),
}
"""For each operand format, the attribute of torch.backends.cuda.matmul that matters, and its assumed value."""


def own_value(setting: str) -> bool | None:
    """Return the value of a setting in this process, or None if PyTorch is not imported."""
    torch = sys.modules.get("torch")
    matmul = None if torch is None else torch.backends.cuda.matmul
    if setting == "allow_tf32":  # it cannot be read if fp32_precision (PyTorch 2.9) has been set to tf32
        precision = getattr(matmul, "fp32_precision", None)
        if precision is not None:
            return bool(precision == "tf32")
    value = getattr(matmul, setting, None)
    return None if value is None else bool(value)


def assumptions(types: Iterable[str]) -> dict[str, dict[str, bool | None]]:
    """Return the settings that predictions for these operand formats assume: the assumed, default and own values."""
    settings = (ASSUMED[name] for name in dict.fromkeys(types) if name in ASSUMED)
    return {
        f"torch.backends.cuda.matmul.{setting}": {"assumed": value, "default": not value, "here": own_value(setting)}
        for setting, value in settings
    }


def assumption_lines(types: Iterable[str]) -> list[str]:
    """Return a sentence for each setting that predictions for these operand formats assume.

    >>> assumption_lines(["bf16"])[0].partition(";")[0]  # then the value in this process, if PyTorch is imported
    "assumes torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False (PyTorch's default: True)"
    """
    lines = []
    for setting, values in assumptions(types).items():
        line = f"assumes {setting} = {values['assumed']} (PyTorch's default: {values['default']})"
        line += ", because float32 without TF32 is not modelled" * setting.endswith("tf32")
        if values["here"] is not None:
            differs = values["here"] != values["assumed"]
            line += f"; here it is {values['here']}{', so a GPU may run other kernels with other bits' * differs}"
        lines.append(line)
    return lines
