"""Compile CUDA C++ to a module with the installed nvcc; results are cached by content.

`cuda_tools` finds nvcc. The cache key is nvcc's version, the options and the text; the digests of included files are
stored with the result, so that a changed header is compiled again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from warpfrag.cuda_tools import find_tool
from warpfrag.disk_cache import DiskCache
from warpfrag.errors import CompilationFailed, FileError, InvalidOperand, MissingExtra, quote
from warpfrag.files import read_bytes
from warpfrag.isa.targets import targets
from warpfrag.ptx.ptx_module import MAX_TEXT, Module, module_of

CACHE = DiskCache("ptx", ".json", max_bytes=1 << 26)
MAX_MESSAGE = 4000  # characters of nvcc's output
OPTIONS = ("-ptx", "-lineinfo")  # adds the source line of each instruction
FORBIDDEN = re.compile(r"-(o|arch|ptx|cubin|c|E|M|MD|MMD|MF|run|-output-file|-gpu-architecture|-compile|-run)(=.*)?")


def compile_cuda(
    source: str | Path, *, arch: str = "sm_90a", options: Sequence[str] = (), keep_state: bool = False
) -> Module:
    """Compile a CUDA C++ file, or the text itself, which has several lines, and return the module.

    `arch` is the target, `options` are further nvcc options: ["-DN=4", "-Iinclude", "--use_fast_math"]. Results are
    cached by content. CompilationFailed has nvcc's message; MissingExtra is raised if there is no nvcc.
    """
    if arch not in targets():
        raise InvalidOperand(f"expected arch as a target such as sm_90a, got {quote(arch)}")
    words = _options(options)
    if isinstance(source, str) and "\n" in source:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kernel.cu").write_text(source, encoding="utf-8")
            text = _compiled(Path("kernel.cu"), source, arch, words, Path(folder))
        return module_of(text, keep_state=keep_state)
    if not isinstance(source, str | Path):
        raise InvalidOperand(f"expected a path or the text of a CUDA C++ file, got {quote(source)}")
    path = Path(source)
    try:
        content = read_bytes(path, MAX_TEXT).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{quote(str(source))} cannot be read as CUDA C++: {error}") from None
    return module_of(_compiled(path, content, arch, words), keep_state=keep_state, file_name=path.name)


def _options(options: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(options, tuple | list) or not all(isinstance(word, str) for word in options):
        raise InvalidOperand(f'expected options as a list of words such as ["-DN=4"], got {quote(options)}')
    for word in options:
        if FORBIDDEN.fullmatch(word):
            raise InvalidOperand(
                f"options: {quote(word)} says what nvcc makes, which is PTX here, or for which target: see arch"
            )
    return tuple(options)


def _compiled(path: Path, content: str, arch: str, options: tuple[str, ...], folder: Path | None = None) -> str:
    """Return the PTX of a file, cached or newly compiled; `folder` is nvcc's working directory, if not this one."""
    nvcc = find_tool("nvcc")
    parts = json.dumps([nvcc.version, arch, *OPTIONS, *options, content])
    name = f"nvcc-{hashlib.sha256(parts.encode()).hexdigest()[:32]}{CACHE.suffix}"
    if data := CACHE.find(name):
        kept = json.loads(data)
        with suppress(OSError):  # a header was removed
            if all(_digest(Path(file)) == digest for file, digest in kept["included"].items()):
                return str(kept["ptx"])
    with tempfile.TemporaryDirectory() as folder_name:
        out, dependencies = Path(folder_name) / "kernel.ptx", Path(folder_name) / "kernel.d"
        command = [str(nvcc.path), f"-arch={arch}", *OPTIONS, *options, "-MMD", "-MF", str(dependencies)]
        done = _run([*command, "-o", str(out), str(path)], folder)
        if done.returncode or not out.is_file():
            message = (done.stderr or done.stdout).strip()[:MAX_MESSAGE]
            raise CompilationFailed(path.name, message)
        text = out.read_text(encoding="utf-8")
        here = folder or Path.cwd()
        included = [file for file in _included(dependencies, here) if file.resolve() != (here / path).resolve()]
    entry = {"included": {str(file): _digest(file) for file in included}, "ptx": text}
    CACHE.keep(name, json.dumps(entry).encode())
    return text


def _run(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program without standard input and return its output."""
    try:
        return subprocess.run(  # noqa: S603 (nvcc, with words that are not given to a shell)
            command, capture_output=True, check=False, text=True, encoding="utf-8", errors="replace",
            stdin=subprocess.DEVNULL, cwd=folder,
        )  # fmt: skip
    except OSError as error:
        raise MissingExtra(f"{command[0]} cannot be run: {error.strerror or error}") from None


def _included(dependencies: Path, here: Path) -> list[Path]:
    """Return the files of a make rule: `kernel.ptx : kernel.cu header.h`."""
    with suppress(OSError):
        rule = dependencies.read_text(encoding="utf-8").replace("\\\n", " ")
        return [here / word for word in shlex.split(rule.partition(":")[2])]
    return []


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
