"""The build hook, which compiles the C files for the wheel and tags the wheel with their platform.

WARPFRAG_BUILD selects a target other than this machine:

    portable         no compiled library: a wheel for every platform, which computes gemms more slowly
    x86_64-linux     cross-compilation with zig; the name is MACHINE-SYSTEM, as in `levels.py`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "src" / "warpfrag" / "tensorcore" / "native"))
import build_library
import levels

WANTED = os.environ.get("WARPFRAG_BUILD", "")
ZIG = "ziglang==0.17.0"


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the compiled library to a wheel; for an editable installation, copies it into the source tree."""

    def dependencies(self) -> list[str]:
        """Return zig as a requirement, unless the library is already built or a different compiler is named."""
        is_built = build_library.is_current(*target()) and build_library.has_stand_ins(*target())
        if WANTED == "portable" or is_built or os.environ.get("WARPFRAG_CC"):
            return []
        return [ZIG] if target()[0] in levels.LEVELS else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the library, or use the one from an earlier build."""
        if WANTED == "portable":
            return
        try:
            folder = build_library.build(*target())
            stand_ins = build_library.build_stand_ins(*target())
        except (build_library.NoCompilerError, subprocess.CalledProcessError) as error:
            if WANTED:
                raise
            self.app.display_warning(f"the wheel has no compiled kernels, so gemms will be slower: {error}")
            return
        if version == "editable":
            build_library.copy_into_source(folder)
            if stand_ins:
                build_library.copy_into_source(stand_ins, "device")
            return
        for path in folder.iterdir():
            build_data["force_include"][str(path)] = f"warpfrag/tensorcore/native/{path.name}"
        for path in stand_ins.iterdir() if stand_ins else ():
            build_data["force_include"][str(path)] = f"warpfrag/device/{path.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{json.loads((folder / levels.MANIFEST).read_bytes())['platform']}"


def target() -> tuple[str, str]:
    """Return the target's machine and operating system."""
    machine, _, system = WANTED.partition("-")
    return machine or levels.host_machine(), system or sys.platform
