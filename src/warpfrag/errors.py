"""Every error and warning that warpfrag raises to its callers: one root, and one class for each kind of reason.

`except WarpfragError` catches all errors. A message is one sentence: what is wrong, what was expected, what came, and
what is near. Where a program can use the facts of the sentence, the error carries them as attributes.
(Exceptions that only end a loop inside one module stay in that module.)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_QUOTED = 200  # characters; the longest PTX names have 125
MAX_REASON = 1000  # characters of why a PTX module cannot be read or run


def quote(value: object) -> str:
    r"""The repr of what a user passed, as a message quotes it: one line, no control characters, a bounded length.

    >>> print(quote("mma\x1b[31m"), quote(7), quote("x" * 1_000_000)[-28:])
    'mma\x1b[31m' 7 xxx'... (1000000 characters)
    """
    if isinstance(value, str | bytes) and len(value) > MAX_QUOTED:
        return f"{value[:MAX_QUOTED]!r}... ({len(value)} {'bytes' if isinstance(value, bytes) else 'characters'})"
    if isinstance(value, int) and value.bit_length() > MAX_QUOTED:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 (whatever fails in the repr of a foreign object)
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({len(text)} characters)"


class WarpfragError(ValueError):
    """Root of all errors raised on purpose by warpfrag."""


class NotModelled(WarpfragError):
    """The answer exists on hardware, but nobody has specified, measured or published it."""


class InvalidOperand(WarpfragError):
    """A matrix, register array or coordinate does not fit the operand it is meant for."""


class InvalidSparsity(WarpfragError):
    """A matrix or its metadata does not follow the sparsity rule of the instruction."""


class UnusableFile(WarpfragError, OSError):
    """A file cannot be read or written, or does not hold what it should; an OSError too."""


class NoGpu(WarpfragError):
    """There is no GPU that can be used, or nothing to reach it with."""


class OutOfMemory(WarpfragError):
    """The GPU's memory does not suffice."""


class CannotServe(WarpfragError):
    """The explorer's page cannot be served: the port is taken or not allowed."""


class MissingExtra(WarpfragError, ImportError):
    """A package of an extra, such as `warpfrag[dask]`, is not installed; an ImportError too."""


class UnusableScheduler(WarpfragError, OSError):
    """A Dask scheduler cannot be reached, has gone, or has workers of another version; an OSError too."""


class ParseError(WarpfragError):
    """A text is no name of an instruction; the message names the word where reading failed."""


class PtxError(WarpfragError):
    """A PTX module cannot be read or run; `line` is where (0: the module as a whole), `reason` why.

    `source` is the line of Python or CUDA C++ that the instruction was compiled from, where a .loc says so. `kind` is
    what a check calls it (`ptx.KernelFinding`), where one searches for it.
    """

    def __init__(self, line: int, reason: str, source: str = "", kind: str = "") -> None:
        """Keep the line apart, so that callers need not parse the sentence; what repeats pages of PTX is cut."""
        reason = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}... ({len(reason)} characters)"
        super().__init__(line, reason, source, kind)
        self.line = line
        self.reason = reason
        self.source = source
        self.kind = kind

    def __str__(self) -> str:
        """The line, then the reason."""
        if not self.line:
            return self.reason
        where = f"{self.source} (line {self.line} of the PTX)" if self.source else f"line {self.line}"
        return f"{where}: {self.reason}"


class CompilationFailed(WarpfragError):
    """nvcc refuses a CUDA C++ file: `file` is its name, `message` what nvcc says, line by line."""

    def __init__(self, file: str, message: str) -> None:
        """Keep the message as it is: its lines name places in the source."""
        super().__init__(file, message)
        self.file = file
        self.message = message

    def __str__(self) -> str:
        """The file, then nvcc's own words."""
        return f"nvcc cannot compile {self.file}: {self.message or 'it says nothing'}"


class Fault(WarpfragError):
    """A memory access of a kernel that fails: `index` is the lane's number among those that took part, `reason` why.

    The machine that runs the kernel adds the line and the thread, and raises a `PtxError`. An access outside every
    allocation ends the launch (`ends_launch`), unless accesses are checked; `kind` is what the check calls it.
    """

    def __init__(self, index: int, reason: str, *, ends_launch: bool = False, kind: str = "bounds") -> None:
        """Keep the facts apart: only the caller knows which thread the lane is."""
        super().__init__(index, reason)
        self.index = index
        self.reason = reason
        self.ends_launch = ends_launch
        self.kind = kind

    def of(self, index: int) -> Fault:
        """The same fault, of a lane that has another number outside."""
        return Fault(int(index), self.reason, ends_launch=self.ends_launch, kind=self.kind)


class SlowArithmetic(UserWarning):
    """The codes are right, but take longer than they could: compiled kernels cannot be had, or not be kept."""


class StoreWarning(UserWarning):
    """Of the store of a study: what is damaged in it, or that it has no checksums to tell by."""


class NotEmulated(UserWarning):
    """Inside `warpfrag.torch.emulate`, a sum of products that stays PyTorch's own."""


class LossyProduct(UserWarning):
    """A library leaves the last products of K out of a product of this shape; `wf.predict` gives what comes out."""


class IllegalInstruction(WarpfragError):
    """No assembler accepts this spelling, or not for this target or selector.

    `reason` names the word that is wrong. `nearest` lists the closest legal spellings; it is computed when it
    is first read, because comparing with every spelling costs more than refusing.
    """

    def __init__(self, name: str, reason: str, nearest: Callable[[], tuple[str, ...]] = tuple) -> None:
        """Keep the facts apart, so that callers need not parse the sentence."""
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
        """Say the reason, then what is near."""
        hint = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        return f"{quote(self.name)}: {self.reason}{hint}"

    def __reduce__(self) -> tuple[type[IllegalInstruction], tuple[object, ...]]:
        """Find what is near before the error goes to another process: the function that finds it cannot go."""
        return IllegalInstruction, (self.name, self.reason, partial(tuple, self.nearest))
