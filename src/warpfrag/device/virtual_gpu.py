"""Run a program, or this process, on a virtual GPU: load the stand-in libraries instead of NVIDIA's."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfrag.device.gpu_attributes import read_profile
from warpfrag.device.launch_log import COMPLETE, INTERRUPTED, findings_of, read_log, summary_of
from warpfrag.errors import FileError, InvalidOperand, MissingExtra, check_flag, quote

FOLDER = Path(__file__).parent
DRIVER = "libcuda.so.1"
RUNTIMES = tuple(f"lib{name}.so.{major}" for name in ("cudart", "cublasLt", "cublas") for major in (13, 12))
PREFIX = "WARPFRAG_GPU_"
MAX_MEMORY = 1 << 42
MIN_MEMORY = 1 << 20
STDERR = 2
MESSAGES = 64  # the lowest descriptor for messages; servers and shells use the low numbers
CHECK_NAMES = ("memory", "races", "uninitialised", "barriers", "async", "all")
SERVER_SECONDS = 2.0  # time for servers to record the launch that was running when the program ended


@dataclass(frozen=True)
class GpuOptions:
    """The options of a virtual GPU.

    With `record_only`, launches are recorded but not executed; with `fast`, their exactness is not judged. A launch
    that takes longer than `launch_seconds` fails with an error that names the line it had reached.
    """

    profile: str = "H200"
    memory: int | None = None
    checks: tuple[str, ...] = ()
    record_only: bool = False
    fast: bool = False
    launch_seconds: float | None = None

    def __post_init__(self) -> None:
        """Raise InvalidOperand for unknown names and sizes out of range."""
        if not isinstance(self.profile, str):
            raise InvalidOperand(f"profile: expected a name such as 'H200', got {quote(self.profile)}")
        read_profile(self.profile)
        check_flag("record_only", self.record_only)
        check_flag("fast", self.fast)
        unknown = [name for name in self.checks if name not in CHECK_NAMES]
        if unknown:
            raise InvalidOperand(f"checks: expected names from {', '.join(CHECK_NAMES)}, got {quote(unknown[0])}")
        seconds = self.launch_seconds
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise InvalidOperand(f"launch_seconds: expected a positive number of seconds, got {quote(seconds)}")
        is_size = isinstance(self.memory, int) and MIN_MEMORY <= self.memory <= MAX_MEMORY
        if self.memory is not None and not is_size:
            raise InvalidOperand(
                f"expected device memory of 1 MiB to 4 TiB, got {quote(self.memory)} bytes; try --memory 16G"
            )

    def environment(self, log: Path) -> dict[str, str]:
        """Return the environment variables for the stand-in libraries and their server."""
        values = {
            "SERVER": sys.executable,
            "SOURCE": str(FOLDER.parents[1]),
            "PROFILE": self.profile,
            "CHECKS": ",".join(CHECK_NAMES[:-1] if "all" in self.checks else self.checks),
            "LOG": str(log),
            "MEMORY": str(self.memory or read_profile(self.profile).total_memory),
            "RECORD_ONLY": str(int(self.record_only)),
            "FAST": str(int(self.fast)),
            "SECONDS": str(self.launch_seconds or ""),
        }
        return {PREFIX + name: value for name, value in values.items()}


def libraries() -> list[Path]:
    """Return the stand-in libraries in loading order; raise MissingExtra if they were not compiled."""
    if sys.platform != "linux":
        raise MissingExtra("the virtual GPU needs Linux, where the dynamic linker can replace CUDA's libraries")
    paths = [FOLDER / name for name in (DRIVER, *RUNTIMES)]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise MissingExtra(
            f"this installation has no compiled {missing[0]}: install the wheel for Linux on x86-64 or aarch64, "
            "or a C compiler and then the source distribution"
        )
    return paths


def run_program(
    command: Sequence[str], options: GpuOptions, *, output: int | None = None
) -> tuple[int, dict[str, Any]]:
    """Run a program on a virtual GPU; return its exit status and the log of its launches."""
    libraries()  # raises an error on systems other than Linux
    import fcntl

    log = new_log()
    messages = fcntl.fcntl(
        STDERR, fcntl.F_DUPFD_CLOEXEC, MESSAGES
    )  # so that findings are shown even if the program captures its own standard error
    try:
        environment = {**os.environ, **options.environment(log), **preloading(), **message_variable(messages)}
        try:
            program = subprocess.Popen(command, env=environment, stdout=output, pass_fds=[messages])  # noqa: S603 (the user's)
        except OSError as error:
            raise InvalidOperand(f"cannot start {quote(command[0])}: {error.strerror}") from None
        with program:
            status = _wait(program, log)
        wait_for_servers(log)
        return status if status >= 0 else 128 - status, read_log(log)
    finally:
        os.close(messages)
        shutil.rmtree(log.parent, ignore_errors=True)


def message_variable(descriptor: int) -> dict[str, str]:
    """Return the environment variable that identifies the file for messages: its descriptor and its ids."""
    file = os.fstat(descriptor)
    return {PREFIX + "MESSAGES": f"{descriptor}:{file.st_dev}:{file.st_ino}"}


def wait_for_servers(log: Path) -> None:
    """Wait briefly until the servers of an ended program have written their last launch.

    Each server holds a lock on the log until it ends.
    """
    import fcntl  # missing on Windows

    deadline = time.monotonic() + SERVER_SECONDS
    with log.open("rb") as file:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.01)
            else:
                return


def preloading() -> dict[str, str]:
    """Return the environment variables that make programs load the stand-in libraries instead of NVIDIA's."""
    firsts = {"LD_PRELOAD": ":".join(map(str, libraries())), "LD_LIBRARY_PATH": str(FOLDER)}
    return {name: ":".join(filter(None, (first, os.environ.get(name)))) for name, first in firsts.items()}


def new_log() -> Path:
    """Return the path of an empty log in a new temporary folder."""
    try:
        log = Path(tempfile.mkdtemp(prefix="warpfrag-gpu-")) / "launches.jsonl"
        log.write_bytes(COMPLETE)
    except OSError as error:
        raise FileError(f"cannot write the launch log in {tempfile.gettempdir()}: {error.strerror}") from None
    return log


def _wait(program: subprocess.Popen[bytes], log: Path) -> int:
    """Wait for a program; Ctrl-C also reaches it and stops its launch, but the program decides when to end."""
    handlers: dict[int, Callable[..., object]] = {
        signal.SIGINT: lambda *_: log.with_name(INTERRUPTED).touch(),
        signal.SIGTERM: lambda *_: program.terminate(),
        signal.SIGHUP: lambda *_: program.send_signal(signal.SIGHUP),
    }
    if threading.current_thread() is not threading.main_thread():
        return program.wait()
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        return program.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class GpuSession:
    """The virtual GPU of this process."""

    def __init__(self, options: GpuOptions, log: Path) -> None:
        """Create a session with these options and the path of the server's log."""
        self.options, self._log = options, log

    @property
    def launches(self) -> list[dict[str, Any]]:
        """The launches so far, with grid, time, findings and errors."""
        found: list[dict[str, Any]] = read_log(self._log)["launches"]
        return found

    @property
    def findings(self) -> list[str]:
        """The findings and the errors of all launches so far."""
        return findings_of(read_log(self._log))

    def __str__(self) -> str:
        """Return a one-line summary of all launches."""
        return f"warpfrag gpu: {summary_of(read_log(self._log))}"


_session: list[GpuSession] = []  # at most one per process, because libraries cannot be unloaded


def gpu(
    profile: str = "H200",
    *,
    memory: int | None = None,
    checks: Sequence[str] | str = (),
    record_only: bool = False,
    fast: bool = False,
    launch_seconds: float | None = None,
) -> AbstractContextManager[GpuSession]:
    """Give this process a virtual GPU for code that calls CUDA's driver or runtime API.

    Enter the block before the imports that load CUDA's libraries, such as `import torch`. `warpfrag gpu` runs a
    whole program instead. The libraries stay loaded after the block. With `fast`, the exactness of launches is not
    judged. A launch that takes longer than `launch_seconds` fails with an error that names the line it had reached.
    """
    if not isinstance(checks, str | list | tuple) or not all(isinstance(name, str) for name in checks):
        raise InvalidOperand(f"checks: expected names of checks, got {quote(checks)}")
    names = (checks,) if isinstance(checks, str) else tuple(checks)
    return _entered(GpuOptions(profile, memory, names, record_only, fast, launch_seconds))


@contextmanager
def _entered(options: GpuOptions) -> Iterator[GpuSession]:
    """Load the stand-in libraries, once per process."""
    if not _session:
        paths = libraries()
        loaded = foreign_libraries()
        if loaded:
            raise InvalidOperand(
                f"{loaded[0]} is already loaded: enter wf.gpu() before the imports that load CUDA, "
                "or run the program with `warpfrag gpu -- python program.py`"
            )
        log = new_log()
        os.environ.update(options.environment(log))
        for path in paths:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        _session.append(GpuSession(options, log))
    if _session[0].options != options:
        raise InvalidOperand(f"this process already has a virtual GPU, and can have only one: {_session[0].options}")
    yield _session[0]


def foreign_libraries() -> list[str]:
    """Return the CUDA libraries in this process that are not stand-ins."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/")}
    known = ("libcuda.so", "libcudart.so", "libcublas.so", "libcublasLt.so")
    return sorted(str(path) for path in paths if path.name.startswith(known) and path.parent != FOLDER)
