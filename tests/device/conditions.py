"""Skips for tests of the virtual GPU."""

import sys

import pytest

from warpfrag.cuda_tools import find_tool
from warpfrag.device.virtual_gpu import DRIVER, FOLDER, RUNTIMES
from warpfrag.errors import MissingExtra


def is_found(tool: str) -> bool:
    """Return True if a CUDA program is installed."""
    try:
        find_tool(tool)
    except MissingExtra:
        return False
    return True


needs_stand_ins = [
    pytest.mark.skipif(sys.platform != "linux", reason="the virtual GPU needs Linux"),
    pytest.mark.skipif(
        not all((FOLDER / name).exists() for name in (DRIVER, *RUNTIMES)), reason="the stand-ins were not compiled"
    ),
]
needs_nvcc = pytest.mark.skipif(not is_found("nvcc"), reason="needs nvcc, of the extra assembler")
needs_nvdisasm = pytest.mark.skipif(not is_found("nvdisasm"), reason="needs nvdisasm, of the extra assembler")
