"""Run ptxas, and cache its cubins on disk."""

import hashlib
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from warpfrag.cuda_tools import CudaTool
from warpfrag.disk_cache import DiskCache
from warpfrag.errors import CompilationFailed
from warpfrag.sass.cubin import Cubin

CUBINS = DiskCache("cubin", ".cubin", 1 << 27)
SECONDS = 600
MAX_MESSAGE = 4000  # maximum number of characters quoted from ptxas's output


def assemble(text: str, target: str, ptxas: CudaTool) -> Cubin:
    """Return the cubin for PTX text, cached or assembled; raise CompilationFailed with ptxas's message."""
    key = hashlib.sha256(f"{ptxas.version} {target} {text}".encode()).hexdigest() + CUBINS.suffix
    data = CUBINS.find(key)
    if data is None:
        data = run_ptxas(text, target, ptxas)
        CUBINS.keep(key, data)
    return Cubin(data)


def run_ptxas(text: str, target: str, ptxas: CudaTool) -> bytes:
    """Assemble PTX text with ptxas and return the cubin's bytes."""
    with TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "module.ptx", Path(folder) / "module.cubin"
        source.write_text(text, encoding="utf-8")
        command = [str(ptxas.path), f"-arch={target}", str(source), "-o", str(cubin)]
        try:
            done = subprocess.run(  # noqa: S603 (ptxas)
                command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            said = f"ptxas did not finish within {SECONDS} s"
            raise CompilationFailed(f"the module for {target}", said, f"ptxas {ptxas.version}") from None
        if done.returncode or not cubin.is_file():
            said = done.stderr.strip() or f"ptxas exited with status {done.returncode} and no message"
            raise CompilationFailed(f"the module for {target}", said[:MAX_MESSAGE], f"ptxas {ptxas.version}")
        return cubin.read_bytes()
