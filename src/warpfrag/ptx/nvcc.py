"""Compile CUDA C++ to a module with the installed nvcc; results are cached by content.

`cuda_tools` finds nvcc. The cache key consists of nvcc's version, the options and the source text; the digests of
included files are stored with the result, so that changing a header causes recompilation.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from warpfrag.cuda_tools import find_tool, package_folders
from warpfrag.disk_cache import DiskCache
from warpfrag.errors import CompilationFailed, InvalidOperand, MissingExtra, quote
from warpfrag.isa.targets import targets
from warpfrag.ptx.ptx_module import Module, module_of, read_text
from warpfrag.samples import PREFIX, sample_path

CACHE = DiskCache("ptx", ".json", max_bytes=1 << 26)
MAX_MESSAGE = 4000  # maximum number of characters quoted from nvcc's output
OPTIONS = ("-ptx", "-lineinfo")  # -lineinfo records the source line of each instruction
TEMPLATE = re.compile(r"[\w:]+(<[^;{}#\\\\\n]*>)?")
FORBIDDEN = re.compile(r"-(o|arch|ptx|cubin|c|E|M|MD|MMD|MF|run|-output-file|-gpu-architecture|-compile|-run)(=.*)?")


def compile_cuda(
    source: str | Path,
    *,
    arch: str = "sm_90a",
    options: Sequence[str] = (),
    instantiate: Sequence[str] = (),
    keep_state: bool = False,
) -> Module:
    """Compile CUDA C++, given as a path or as multi-line text, and return the module.

    `arch` is the target, and `options` are further nvcc options: ["-DN=4", "-Iinclude", "--use_fast_math"].
    `instantiate` names the kernel templates to compile, with their arguments: ["gemm<float, 16>"]. The headers of CCCL
    (cub, thrust, libcu++) are found under CUDA_HOME and in PyPI's nvidia-cuda-cccl. Results are cached by content.
    Raises CompilationFailed with nvcc's message, or MissingExtra if there is no nvcc.
    """
    if arch not in targets():
        raise InvalidOperand(f"arch: expected a target such as sm_90a, got {quote(arch)}")
    words = _options(options)
    instances = _instances(instantiate)
    if isinstance(source, str) and "\n" in source:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kernel.cu").write_text(source + instances, encoding="utf-8")
            text = _compiled(Path("kernel.cu"), source + instances, arch, words, Path(folder))
        return module_of(text, keep_state=keep_state)
    if not isinstance(source, str | Path):
        raise InvalidOperand(f"expected a path or the text of a CUDA C++ file, got {quote(source)}")
    path = Path(source)
    content = read_text(path, "CUDA C++")
    if str(path).startswith(PREFIX):  # nvcc reads the file itself
        path = sample_path(str(path).removeprefix(PREFIX))
    if not instances:
        return module_of(_compiled(path, content, arch, words), keep_state=keep_state, file_name=path.name)
    wrapper = f'#include "{path.resolve()}"{instances}'
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / path.name).write_text(wrapper, encoding="utf-8")
        here = (
            f"-I{Path.cwd()}",
            *(f"-I{Path(word[2:]).resolve()}" if word.startswith("-I") else word for word in words),
        )
        text = _compiled(Path(path.name), wrapper, arch, here, Path(folder))
    return module_of(text, keep_state=keep_state, file_name=path.name)


def _instances(names: Sequence[str]) -> str:
    """Return CUDA C++ that instantiates kernel templates by taking their addresses."""
    if isinstance(names, str) or not all(isinstance(name, str) and TEMPLATE.fullmatch(name) for name in names):
        raise InvalidOperand(
            f'instantiate: expected a list of templates such as ["gemm<float, 16>"], got {quote(names)}'
        )
    return "".join(
        f"\nstatic auto *const warpfrag_instance_{number} = &{name};" for number, name in enumerate(names)
    ) + ("\n" if names else "")


def cccl_folder(nvcc: Path) -> Path | None:
    """Return the folder that contains the CCCL headers, or None if it is not found."""
    folders = [nvcc.resolve().parent.parent / "include/cccl"]
    folders += [Path(os.environ[name]) / "include/cccl" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for folder in package_folders("nvidia"):
        folders += [*sorted(folder.glob("*/include/cccl"), reverse=True), folder / "cuda_cccl/include"]
    folders += [folder / "cccl/headers/include" for folder in package_folders("cuda")]
    return next((folder for folder in folders if (folder / "cub").is_dir()), None)


def _options(options: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(options, tuple | list) or not all(isinstance(word, str) for word in options):
        raise InvalidOperand(f'options: expected a list of words such as ["-DN=4"], got {quote(options)}')
    for word in options:
        if FORBIDDEN.fullmatch(word):
            raise InvalidOperand(f"options: {quote(word)} is not allowed: arch sets the target; the output is fixed")
    return tuple(options)


def _compiled(path: Path, content: str, arch: str, options: tuple[str, ...], folder: Path | None = None) -> str:
    """Return the PTX of a source file, compiling it unless it is cached; `folder` is nvcc's working directory."""
    nvcc = find_tool("nvcc")
    file = (folder or Path.cwd()) / path
    parts = json.dumps(["file", nvcc.version, arch, *OPTIONS, *options, content])
    name = f"nvcc-{hashlib.sha256(parts.encode()).hexdigest()[:32]}{CACHE.suffix}"
    if data := CACHE.find(name):
        kept = json.loads(data)
        with suppress(OSError):  # an included header no longer exists
            if all(_digest(Path(file)) == digest for file, digest in kept["included"].items()):
                # the cached PTX may name the source by another path
                return str(kept["ptx"]).replace(f'"{kept["file"]}"', f'"{file}"')
    with tempfile.TemporaryDirectory() as folder_name:
        out, dependencies = Path(folder_name) / "kernel.ptx", Path(folder_name) / "kernel.d"
        command = [str(nvcc.path), f"-arch={arch}", *OPTIONS, *options, "-MMD", "-MF", str(dependencies)]
        headers = cccl_folder(nvcc.path)
        command += [] if headers is None else [f"-I{headers}"]
        done = _run([*command, "-o", str(out), str(path)], folder)
        if done.returncode or not out.is_file():
            message = (done.stderr or done.stdout).strip()[:MAX_MESSAGE]
            if headers is None and re.search(r"fatal error: (cub|cuda|thrust|nv)/\S+: No such file", message):
                message += "\nthe CCCL headers are not found; try: pip install nvidia-cuda-cccl"
            raise CompilationFailed(path.name, message)
        text = out.read_text(encoding="utf-8")
        included = [each for each in _included(dependencies, folder or Path.cwd()) if each.resolve() != file.resolve()]
    entry = {"included": {str(each): _digest(each) for each in included}, "ptx": text, "file": str(file)}
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
    """Return the prerequisites of a make rule such as `kernel.ptx : kernel.cu header.h`."""
    with suppress(OSError):
        rule = dependencies.read_text(encoding="utf-8").replace("\\\n", " ")
        return [here / word for word in shlex.split(rule.partition(":")[2])]
    return []


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
