"""Run a program on a GPU and store its launches: `record.c` observes them with CUPTI, and this module packs them."""

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from warpfrag.device.recording import MemoryBlock, RecordedLaunch, RecordedSequence, RecordingWriter
from warpfrag.errors import CompilationFailed, FileError, InvalidOperand, NoGpu, quote
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.elf_file import SHT_NOBITS, ElfFile

SOURCE = Path(__file__).with_name("record.c")
COMPILERS = ("cc", "gcc", "clang")
DRIVER = "libcuda.so.1"
CONSTANTS = ".nv.constant0."  # the name prefix of a section that every kernel has


class RecordOptions(NamedTuple):
    """The launches to store: all launches of matching kernels, those with given numbers, or only the last one."""

    kernel: str = ""
    launches: tuple[int, ...] = ()
    last: bool = False
    limit: int = 50
    max_bytes: int = 1 << 30


class RecordedProgram(NamedTuple):
    """The outcome of recording a program: its exit status, the GPU, the stored records, and problems that occurred."""

    status: int
    gpu: str
    records: tuple[RecordedSequence, ...]
    notes: tuple[str, ...]


def record_program(program: Sequence[str], folder: str | PathLike[str], options: RecordOptions) -> RecordedProgram:
    """Run a program and store its launches in a folder; raise NoGpu if there is no driver or no CUPTI."""
    if not program or shutil.which(program[0]) is None:
        raise InvalidOperand(f"expected a program after --, got {quote(program[0] if program else '')}")
    if options.last and options.launches:
        raise InvalidOperand("expected --launch or --last, got both")
    try:
        ctypes.CDLL(DRIVER)
    except OSError as error:
        raise NoGpu(f"recording needs an NVIDIA GPU and its driver: {error}") from None
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".raw-", dir=folder) as raw:
            environment = os.environ | _settings(build_library(Path(raw)), raw, options)
            status = subprocess.run(list(program), env=environment, check=False).returncode  # noqa: S603 (the user's)
            return pack(Path(raw), folder, status if status >= 0 else 128 - status)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"cannot write {quote(str(folder))}: {error.strerror or error}") from None


def build_library(folder: Path) -> Path:
    """Compile `record.c`, which needs a C compiler but no CUDA headers."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise NoGpu(f"recording needs a C compiler: none of {', '.join(COMPILERS)} is on PATH")
    target = folder / "librecord.so"
    command = [compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(target), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)  # noqa: S603
    if done.returncode:
        raise CompilationFailed(str(SOURCE), done.stderr)
    return target


def _settings(library: Path, raw: str, options: RecordOptions) -> dict[str, str]:
    """Return the environment variables for `record.c`, including the variable that makes the driver load it."""
    return {
        "CUDA_INJECTION64_PATH": str(library),
        "WARPFRAG_RECORD": str(Path(raw).resolve()),
        "WARPFRAG_RECORD_KERNEL": options.kernel,
        "WARPFRAG_RECORD_LAUNCH": f",{','.join(map(str, options.launches))}," if options.launches else "",
        "WARPFRAG_RECORD_LAST": str(int(options.last)),
        "WARPFRAG_RECORD_LIMIT": str(options.limit),
        "WARPFRAG_RECORD_BYTES": str(options.max_bytes),
        "WARPFRAG_CUPTI": os.environ.get("WARPFRAG_CUPTI") or str(next(find_cupti(), "")),
    }


def find_cupti() -> Iterator[Path]:
    """Yield the CUPTI libraries of the toolkit and of PyPI packages."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    for home in filter(None, homes):
        for part in ("lib64", "extras/CUPTI/lib64", "lib", "targets/*/lib"):
            yield from sorted(Path(home).glob(f"{part}/libcupti.so.1[0-9]"), reverse=True)
    spec = find_spec("nvidia")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(package).glob("*/lib/libcupti.so.1[0-9]"), reverse=True)


# --- pack the files of record.c


class ProcessLog(NamedTuple):
    """The log of one process: its launches in order, and for each image its origin and cubins."""

    launches: list[dict[str, Any]]
    origins: dict[int, dict[str, Any]]
    cubins: dict[int, list[Path]]
    driver: int
    notes: list[str]


def pack(raw: Path, folder: str | PathLike[str], status: int = 0) -> RecordedProgram:
    """Write a recording from the files that `record.c` left in the folder `raw`."""
    logs = {path.stem: read_log(path) for path in sorted(raw.glob("*.log"))}
    if not any(log.driver for log in logs.values()):
        nothing = "nothing was recorded, because the program did not call the CUDA driver"
        raise NoGpu(next((note for log in logs.values() for note in log.notes), nothing))
    gpu = next((launch["gpu"] for log in logs.values() for launch in log.launches), "")
    used = _used_kernels(logs.values())
    with RecordingWriter(folder, gpu, max(log.driver for log in logs.values())) as writer:
        codes = {path: writer.blob(strip(path.read_bytes(), kernels)) for path, kernels in used.items()}
        for process, log in logs.items():
            for launch in log.launches:
                writer.records.append(_record(launch, log, codes, raw, process, writer))
    notes = dict.fromkeys(note for log in logs.values() for note in log.notes)
    return RecordedProgram(status, gpu, tuple(writer.records), tuple(notes))


def read_log(path: Path) -> ProcessLog:
    """Read the log of a process; incomplete lines are ignored."""
    launches: dict[int, dict[str, Any]] = {}
    log = ProcessLog([], {}, defaultdict(list), 0, [])
    driver = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "launch" in row:
            launches[row["launch"]] = row
        elif "end" in row:
            launches[row["end"]]["end"] = row
        elif "cubin" in row:
            log.cubins[row["image"]].append(path.with_name(row["cubin"]))
        elif "image" in row:
            log.origins[row["image"]] = row
        elif "note" in row:
            log.notes.append(row["note"])
        driver = row.get("driver", driver)
    return log._replace(launches=[launches[number] for number in sorted(launches)], driver=driver)


def _used_kernels(logs: Iterable[ProcessLog]) -> dict[Path, set[str]]:
    """Return, for each cubin, the kernels that were launched."""
    used: dict[Path, set[str]] = defaultdict(set)
    for log in logs:
        names: dict[int, set[str]] = defaultdict(set)
        for launch in log.launches:
            names[launch["image"]].add(launch["name"])
        for image, paths in log.cubins.items():
            for path in paths if names[image] else ():
                if found := names[image] & set(Cubin(path.read_bytes()).kernels):
                    used[path] |= found
    return used


def strip(data: bytes, kernels: set[str]) -> bytes:
    """Return a copy of a cubin in which the sections of all other kernels are zeros, so that it compresses well."""
    sections = ElfFile(data, "the cubin").sections
    others = {section.name.removeprefix(CONSTANTS) for section in sections if section.name.startswith(CONSTANTS)}
    suffixes = tuple(f".{name}" for name in others - kernels)
    stripped = bytearray(data)
    for section in sections:
        if section.type != SHT_NOBITS and section.name.endswith(suffixes):
            stripped[section.offset : section.offset + section.size] = bytes(section.size)
    return bytes(stripped)


def _record(
    row: dict[str, Any], log: ProcessLog, codes: dict[Path, str], raw: Path, process: str, writer: RecordingWriter
) -> RecordedSequence:
    """Return the record for a launch, and store its memory."""
    origin = log.origins.get(row["image"], {"file": "", "is_open": 0})
    found = {codes[path] for path in log.cubins.get(row["image"], ()) if path in codes and _has(path, row["name"])}
    reason = ""
    if not origin["is_open"]:
        file = Path(origin["file"]).name
        reason = f"code of {file} (closed-source) is not stored" if file else "the origin of its code is unknown"
    elif len(found) != 1:
        reason = f"expected one module with the kernel's code, got {len(found)}"
    end = row.get("end", {"error": 0, "problem": "the program ended during the launch"})
    before, after = (raw / f"{process}-{row['launch']}.{name}" for name in ("before", "after"))
    memory = [] if row["problem"] or reason else list(_memory(row, before, None if end["problem"] else after, writer))
    launch = RecordedLaunch(
        row["name"], row["number"], tuple(row["grid"]), tuple(row["block"]), row["shared"],
        tuple(row["cluster"]) if "cluster" in row else None, bool(row["cooperative"]), bytes.fromhex(row["params"]),
        "" if reason else found.pop(), Path(origin["file"]).name, reason,
    )  # fmt: skip
    return RecordedSequence(row["name"], (launch,), tuple(memory), None, row["problem"])


def _has(path: Path, kernel: str) -> bool:
    return kernel in Cubin(path.read_bytes()).kernels


def _memory(row: dict[str, Any], before: Path, after: Path | None, writer: RecordingWriter) -> Iterator[MemoryBlock]:
    """Store a launch's memory, and yield its blocks."""
    names = {index: name for name, index in row.get("variables", ())}
    with before.open("rb") as first, (after or Path(os.devnull)).open("rb") as second:
        for index, (address, size) in enumerate(row["ranges"]):
            old, new = writer.chunks(first.read(size)), writer.chunks(second.read(size))
            yield MemoryBlock(address, size, old, new if after else (), names.get(index, ""))
