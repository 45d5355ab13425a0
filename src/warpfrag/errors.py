"""All errors and warnings that warpfrag raises, and common argument checks.

`except WarpfragError` catches every error. A class is also a ValueError, OSError, ImportError or MemoryError if Python
raises that error for the same reason. A message is one sentence: what is wrong, what was expected, what was given, and
what to try. Facts that a program can use are attributes of the error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from types import ModuleType

MAX_QUOTED = 200  # the maximum number of quoted characters; the longest PTX name has 125
MAX_REASON = 1000  # the maximum number of characters of a PtxError's reason


def quote(value: object) -> str:
    r"""Return the repr of a user's value for a message: one line, no control characters, bounded length.

    >>> print(quote("mma\x1b[31m"), quote(7), quote("x" * 1_000_000)[-28:])
    'mma\x1b[31m' 7 xxx'... (1000000 characters)
    """
    if isinstance(value, str | bytes) and len(value) > MAX_QUOTED:
        return f"{value[:MAX_QUOTED]!r}... ({len(value)} {'bytes' if isinstance(value, bytes) else 'characters'})"
    if isinstance(value, int) and value.bit_length() > MAX_QUOTED:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 (a foreign object's repr can raise anything)
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({len(text)} characters)"


class WarpfragError(Exception):
    """Base class of all errors that warpfrag raises on purpose."""


class NotModelled(WarpfragError):
    """The behaviour of the hardware is not specified, measured or published."""


class InvalidOperand(WarpfragError, ValueError):
    """An argument is not valid: a matrix, register array, coordinate, name or option."""


class InvalidSparsity(WarpfragError, ValueError):
    """A matrix or its metadata does not follow the sparsity pattern of the instruction."""


class ParseError(WarpfragError, ValueError):
    """A text is not an instruction name; the message names the first invalid qualifier."""


class IllegalInstruction(WarpfragError, ValueError):
    """The assembler rejects this spelling, always or for this architecture or selector.

    `reason` names the wrong qualifier. `nearest` lists the closest legal spellings. It is computed on first use,
    because comparing with every spelling takes longer than rejecting one.
    """

    def __init__(self, name: str, reason: str, nearest: Callable[[], tuple[str, ...]] = tuple) -> None:
        """Store the facts as attributes, so that callers do not have to parse the message."""
        super().__init__(name, reason)
        self.name = name
        self.reason = reason
        self._find_nearest = nearest
        self._nearest: tuple[str, ...] | None = None

    @property
    def nearest(self) -> tuple[str, ...]:
        """The closest legal spellings, best first."""
        if self._nearest is None:
            self._nearest = self._find_nearest()
        return self._nearest

    def __str__(self) -> str:
        """Return the quoted name, the reason and the nearest spellings."""
        hint = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        return f"{quote(self.name)}: {self.reason}{hint}"

    def __reduce__(self) -> tuple[type[IllegalInstruction], tuple[object, ...]]:
        """Pickle the nearest spellings instead of the function that finds them."""
        return IllegalInstruction, (self.name, self.reason, partial(tuple, self.nearest))


class FileError(WarpfragError, OSError):
    """A file cannot be read or written, or has unexpected content."""


class SchedulerError(WarpfragError, OSError):
    """A Dask scheduler cannot be reached, has disappeared, or has workers with a different version."""


class MissingExtra(WarpfragError, ImportError):
    """A package of an optional extra, such as `dask`, or a CUDA tool, such as ptxas, is not installed."""


class NoGpu(WarpfragError):
    """There is no usable GPU, or no library to access it."""


class OutOfMemory(WarpfragError, MemoryError):
    """The GPU does not have enough memory."""


class CodeAddress(int):
    """The byte address of a machine instruction, used instead of a PTX line and printed in hex."""

    def __str__(self) -> str:
        """Return the address in hex."""
        return f"{int(self):#x}"

    def __format__(self, spec: str) -> str:
        """Format the address in hex, or according to the format specification."""
        return format(int(self), spec or "#x")


def location_text(line: int, source: object = None) -> str:
    """Return a text that names a source line, and a PTX line or a code address."""
    is_address = isinstance(line, CodeAddress)
    own = f"at {line}" if is_address else f"line {line}"
    return f"{source} ({own}{'' if is_address else ' of the PTX'})" if source else own


class PtxError(WarpfragError):
    """A PTX module cannot be read or run; `line` is the PTX line (0 for the whole module), `reason` the cause.

    `source` is the Python or CUDA C++ line that the instruction was compiled from, if a .loc directive gives it.
    `kind` is the category under which a check reports it (`ptx.KernelFinding`).
    """

    def __init__(self, line: int, reason: str, source: str = "", kind: str = "") -> None:
        """Store the facts as attributes; a very long reason is shortened."""
        reason = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}... ({len(reason)} characters)"
        super().__init__(line, reason, source, kind)
        self.line = line
        self.reason = reason
        self.source = source
        self.kind = kind

    def __str__(self) -> str:
        """Return the line and the reason."""
        return f"{location_text(self.line, self.source)}: {self.reason}" if self.line else self.reason


class SassError(WarpfragError):
    """Machine code cannot be decoded or run.

    `address` is the byte offset in `function`, or -1 if it is unknown, and `reason` is the cause.
    """

    def __init__(self, address: int, reason: str, function: str = "") -> None:
        """Store the facts as attributes, so that callers do not have to parse the message."""
        super().__init__(address, reason, function)
        self.address = address
        self.reason = reason
        self.function = function

    def __str__(self) -> str:
        """Return the reason, preceded by the function and the address if they are known."""
        places = [self.function] * bool(self.function) + [f"address {self.address:#06x}"] * (self.address >= 0)
        return f"{', '.join(places)}: {self.reason}" if places else self.reason


class CudaError(WarpfragError):
    """An error that a CUDA call reports to its caller as the status `code`."""

    def __init__(self, code: int, reason: str) -> None:
        """Store the status code of the reply."""
        super().__init__(reason)
        self.code = code


class CompilationFailed(WarpfragError):
    """A compiler, nvcc or ptxas, rejects `file`; `message` is its output, line by line."""

    def __init__(self, file: str, message: str, compiler: str = "nvcc") -> None:
        """Store the compiler's lines unchanged, because they quote source lines."""
        super().__init__(file, message, compiler)
        self.file = file
        self.message = message
        self.compiler = compiler

    def __str__(self) -> str:
        """Return the file and the compiler's message."""
        return f"{self.compiler} cannot compile {self.file}: {self.message or 'it printed no message'}"


class MemoryFault(WarpfragError):
    """A kernel's memory access fails; `index` is the lane's index among the active lanes, and `reason` is the cause.

    The engine adds the line and the thread, and raises a `PtxError`. An access outside every allocation ends the
    launch (`ends_launch`) unless accesses are checked. `kind` is the category under which a check reports it.
    """

    def __init__(self, index: int, reason: str, *, ends_launch: bool = False, kind: str = "bounds") -> None:
        """Store the lane's index; only the caller knows its thread."""
        super().__init__(index, reason)
        self.index = index
        self.reason = reason
        self.ends_launch = ends_launch
        self.kind = kind

    def of(self, index: int) -> MemoryFault:
        """Return the same fault with the lane's index in the caller's numbering."""
        return MemoryFault(int(index), self.reason, ends_launch=self.ends_launch, kind=self.kind)


class SlowArithmetic(UserWarning):
    """Results are correct, but computed slowly: compiled kernels are unavailable or cannot be cached."""


class StoreWarning(UserWarning):
    """A sweep's store is damaged: chunks are missing, truncated, or do not match their checksums."""


class NotEmulated(UserWarning):
    """PyTorch computes an operation with its own arithmetic inside `warpfrag.torch.emulate`."""


class AmbiguousOrder(UserWarning):
    """`wf.find_order` returns the simplest of several orders of additions that reproduce a result."""


class LossyProduct(UserWarning):
    """A library omits the last terms of K (`wf.predict`), or float32 is truncated to tf32 (`wf.gemm`)."""


def check_flag(name: str, flag: object) -> bool:
    """Return the flag as a bool; raise InvalidOperand if it is not True or False."""
    if type(flag).__name__ not in {"bool", "bool_"}:
        raise InvalidOperand(f"{name} must be True or False, got {quote(flag)}")
    return bool(flag)


def check_name(label: str, name: object, known: Collection[str]) -> str:
    """Return the name; raise InvalidOperand if it is not a known one."""
    if not isinstance(name, str) or name not in known:
        raise InvalidOperand(f"{label}: expected one of {', '.join(known)}; got {quote(name)}")
    return name


def check_index(name: str, index: int, extent: int) -> int:
    """Return the index as an int; raise InvalidOperand unless it is an integer in 0..extent-1."""
    if type(index) is int and 0 <= index < extent:  # the fast path, because a search calls this millions of times
        return index
    try:
        number = operator.index(index)
    except TypeError:
        number = None
    if number is None or isinstance(index, bool):
        raise InvalidOperand(f"{name} must be an integer in 0..{extent - 1}, got {quote(index)}")
    if not 0 <= number < extent:
        raise InvalidOperand(f"{name} must be in 0..{extent - 1}, got {quote(number)}")
    return number


def check_integer(value: object, expected: str) -> int:
    """Return a value as an int; raise InvalidOperand with the text `expected` if it is not an integer."""
    try:
        return operator.index(value)  # type: ignore[arg-type]  # anything but an integer is rejected here
    except TypeError:
        raise InvalidOperand(f"{expected}, got {quote(value)}") from None


def install_command(extra: str) -> str:
    """Return the command that installs an extra from a checkout; there is no release yet.

    >>> install_command("jit")
    "pip install '.[jit]' in a checkout of warpfrag"
    """
    return f"pip install '.[{extra}]' in a checkout of warpfrag"


def import_extra(module: str, extra: str) -> ModuleType:
    """Import a module of an optional extra; raise MissingExtra if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{error.name or module} is not installed: {install_command(extra)}") from None
