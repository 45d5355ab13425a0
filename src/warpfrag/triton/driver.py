"""The driver that Triton sees: a GPU of any target, whose kernels the PTX machine runs.

Triton asks its active driver which GPU there is, compiles for that, and hands the driver the binary and the arguments.
This one names a target, keeps the PTX instead of assembling it, and launches it on the memory of the host. Nothing is
installed into Triton for longer than a session lasts.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from warpfrag.errors import InvalidOperand, MissingExtra, PtxError, quote

try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase
except ImportError as error:  # pragma: no cover (tests of this package need triton)
    msg = "warpfrag.triton needs Triton: pip install 'warpfrag[triton]'"
    raise MissingExtra(msg) from error

from warpfrag.isa.targets import targets
from warpfrag.ptx.launch.kernel import Kernel, load
from warpfrag.ptx.launch.options import MULTIPROCESSORS
from warpfrag.triton.arguments import EntryArguments

if TYPE_CHECKING:
    from collections.abc import Callable

# Shared memory of a block in bytes, by the compute capabilities that Triton compiles for: CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability".
SHARED_BYTES = {
    75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 87: 163 << 10, 88: 99 << 10, 89: 99 << 10, 90: 227 << 10,
    100: 227 << 10, 103: 227 << 10, 107: 227 << 10, 110: 227 << 10, 120: 99 << 10, 121: 99 << 10,
}  # fmt: skip
REGISTERS = 32  # of a thread, for host code that computes an occupancy: only an assembler knows
PTX_KEY = "warpfrag: the PTX is not assembled"  # Triton keeps what it compiles by this, among others


def capability(target: object) -> int:
    """The number by which Triton knows a target: 90 for sm_90 and sm_90a, for which it compiles as sm_90a."""
    match = re.fullmatch(r"sm_(\d+)[af]?", target) if isinstance(target, str) else None
    if match is None or target not in targets() or int(match[1]) not in SHARED_BYTES:
        known = ", ".join(f"sm_{number}" for number in SHARED_BYTES)
        msg = f"expected a target that Triton compiles for ({known}), got {quote(target)}"
        raise InvalidOperand(msg)
    return int(match[1])


class LaunchSession(Protocol):
    """What the driver needs of a session: a target, and somebody who launches."""

    target: str
    is_launching: bool

    def launch(
        self, launcher: EntryLauncher, loaded: LoadedKernel, grid: tuple[int, int, int], arguments: EntryArguments
    ) -> None:
        """Run a kernel on its arguments and record it."""


class MachineDriver(DriverBase):
    """What Triton calls: which device there is, how to load a kernel and how to launch it."""

    def __init__(self, session: LaunchSession) -> None:
        """A device of the session's target; launches are recorded there."""
        super().__init__()
        self.session = session
        self.capability = capability(session.target)
        self.launcher_cls = EntryLauncher
        self.utils = SimpleNamespace(
            load_binary=self._load, unload_module=lambda _: None, get_device_properties=self._properties
        )

    @classmethod
    def is_active(cls) -> bool:
        """Never chosen by Triton itself."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Triton's base class asks for it; only a launcher in C would use it, and none is written."""
        msg = f"expected no launcher in C, got a question for the C type of {quote(ty)}"
        raise InvalidOperand(msg)

    def get_current_target(self) -> object:
        """What Triton compiles for."""
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> str:
        """A name that no real device has, so that kernels compiled for one are never mistaken for the other's."""
        return f"warpfrag:{self.capability}"

    def set_current_device(self, device: object) -> None:
        """There is only one."""

    def get_current_stream(self, _device: object = None) -> int:
        """Launches are done when they return."""
        return 0

    def get_device_capability(self, _device: object = None) -> tuple[int, int]:
        """As a GPU says it: (9, 0)."""
        return divmod(self.capability, 10)

    def get_active_torch_device(self) -> object:
        """Where tensors are: in the memory of the host."""
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> object:
        """What stands for torch.cuda."""
        import torch

        return torch.cpu

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Nothing is timed here: all configurations are equally fast, and the kernel is not run."""
        return lambda _call, quantiles=(0.5,), **_options: [0.0 for _ in quantiles]

    def get_empty_cache_for_benchmark(self) -> object:
        """A tensor to clear before a measurement."""
        import torch

        return torch.empty(0)

    def clear_cache(self, _cache: object) -> None:
        """There is no cache to clear."""

    def _properties(self, _device: object) -> dict[str, int]:
        """What kernels and their host code ask of a device: sizes are those of the target, the rest an H200's."""
        return {
            "max_shared_mem": SHARED_BYTES[self.capability],
            "max_num_regs": 65536,
            "multiprocessor_count": MULTIPROCESSORS,
            "warpSize": 32,
            "sm_clock_rate": 1980000,
            "mem_clock_rate": 3201000,
            "mem_bus_width": 6144,
        }

    @staticmethod
    def _load(name: str, binary: bytes, _shared: int, _device: object) -> tuple[None, LoadedKernel, int, int, int]:
        """The kernel of a binary, which is PTX here; without a handle that would have to be unloaded."""
        text = binary.decode()
        return None, LoadedKernel(load(text)[name], text), REGISTERS, 0, 1024


class LoadedKernel:
    """A kernel and its text."""

    def __init__(self, kernel: Kernel, ptx: str) -> None:
        """Both are kept as long as Triton keeps its compiled kernel."""
        self.kernel, self.ptx = kernel, ptx


class EntryLauncher:
    """A compiled kernel of Triton, ready for arguments: Triton makes one and calls it for every launch."""

    def __init__(self, src: Any, metadata: Any) -> None:  # noqa: ANN401 # Triton's own
        """Take what the arguments are (`src`) and how blocks are made (`metadata`)."""
        self.signature, self.metadata = dict(src.signature), metadata
        self.name = getattr(src, "name", "") or metadata.name

    def __call__(
        self, x: int, y: int, z: int, _stream: object, loaded: LoadedKernel, _packed: object, launch_metadata: Any,  # noqa: ANN401
        enter: Callable[[object], object] | None, leave: Callable[[object], object] | None, *args: object,
    ) -> None:  # fmt: skip
        """Launch; an empty grid launches nothing."""
        session: LaunchSession = triton.runtime.driver.active.session
        if not x * y * z:
            return
        if enter is not None:
            enter(launch_metadata)
        session.launch(self, loaded, (x, y, z), self._arguments(x * y * z, args))
        if leave is not None:
            leave(launch_metadata)

    def _arguments(self, blocks: int, args: tuple[object, ...]) -> EntryArguments:
        """The entry's arguments, and the scratch memory that Triton asks for."""
        taken = EntryArguments(getattr(self.metadata, "tensordesc_meta", None) or ())
        for (name, kind), value in zip(self.signature.items(), args, strict=True):
            taken.take(name, kind, value)
        clusters = blocks * self.metadata.num_ctas
        for name in ("global_scratch", "profile_scratch"):
            taken.scratch(name, clusters * getattr(self.metadata, f"{name}_size", 0))
        return taken


def keep_ptx(previous: Any) -> Callable[..., Any]:  # noqa: ANN401 # a hook of Triton
    """A hook of Triton's compiler that keeps the PTX as the binary, behind a hook that is there already."""

    def hook(*args: Any) -> Any:  # noqa: ANN401 # none, or (backend, stages, options, language, capability)
        if not args:
            key, digest = previous() if previous else ("", "")
            return f"{key}{PTX_KEY}", f"{digest}{PTX_KEY}"
        if previous:
            previous(*args)
        args[1]["cubin"] = lambda text, metadata: text.encode()  # noqa: ARG005 # of a stage of Triton
        return None

    return hook


def name_arguments(error: PtxError, names: list[str]) -> PtxError:
    """An error with the names of Python for arguments that PTX only numbers."""

    def rename(match: re.Match[str]) -> str:
        return names[int(match[1])] if int(match[1]) < len(names) else match[0]

    return PtxError(error.line, re.sub(r"argument (\d+) \([^)]*\)", rename, error.reason), error.source)
