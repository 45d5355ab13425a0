"""Find the lines of a module that ptxas rejects."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

LINE = re.compile(r"line (\d+);?(?: error)?\s*:?(.*)")
FALLBACK = "/usr/local/cuda/bin/ptxas"


def find_assembler() -> str:
    """Return the ptxas in $PTXAS, on the path, or in a standard toolkit folder."""
    found = os.environ.get("PTXAS") or shutil.which("ptxas") or FALLBACK
    if not Path(found).exists():
        msg = "expected ptxas in $PTXAS or on the path; pip install nvidia-cuda-nvcc installs it"
        raise FileNotFoundError(msg)
    return found


def assemble(text: str, target: str, output: str | Path = os.devnull) -> dict[int, str]:
    """Assemble a module; return the rejected lines with reasons. Line 0 is the module as a whole."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "module.ptx"
        source.write_text(text, encoding="utf-8")
        command = [find_assembler(), f"-arch={target}", "-o", str(output), str(source)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)  # noqa: S603 (the assembler)
    if ended.returncode == 0:
        return {}
    said = ended.stdout + ended.stderr
    refused = {int(line): reason.strip() for line, reason in LINE.findall(said)}
    return refused or {0: said.strip()[:500]}
