"""Sessions: while one lasts, every launch of a Triton kernel runs on the PTX machine and is recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, Self, TypedDict, Unpack

from triton import knobs
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction, KernelInterface

from warpfrag.errors import InvalidOperand, PtxError, quote
from warpfrag.machine.interpreter.kernel_findings import Check
from warpfrag.machine.launch.device_array import DeviceArray
from warpfrag.machine.launch.options import Engine, LaunchOptions
from warpfrag.machine.launch.run import Run
from warpfrag.triton.triton_driver import (
    EntryArguments,
    EntryLauncher,
    LaunchSession,
    LoadedKernel,
    MachineDriver,
    as_tensor,
    keep_ptx,
    name_arguments,
    storage,
)

DEFAULT_ARCH = "sm_90a"


@dataclass(frozen=True)
class Launch:
    """A finished launch: the kernel's name, its grid and block, its PTX, and its `Run`."""

    kernel: str
    grid: tuple[int, int, int]
    block: int
    ptx: str
    run: Run


class Session:
    """A context in which every launch of a Triton kernel runs here, compiled for `arch`, and is kept in `launches`.

    For an autotuned kernel, the first configuration that its pruning leaves is used; `config` chooses another: its
    index in the decorator, a `triton.Config`, or some of its values ({"BLOCK_M": 64, "num_warps": 8}), which select the
    first configuration that has them all. `checks`, `engine` and `seed` are those of `ptx.Kernel.launch`. If PyTorch is
    loaded, tensors that ask for device "cuda" are made in host memory, so that tests written for a GPU need no change;
    `redirect=False` turns that off. Sessions may be nested; the innermost one runs the kernels.
    """

    def __init__(
        self,
        arch: str = DEFAULT_ARCH,
        *,
        config: object = None,
        checks: Sequence[Check] | Check | Literal["all"] = (),
        engine: Engine = "auto",
        seed: int | None = None,
        redirect: bool = True,
    ) -> None:
        """Check the architecture; nothing changes before the context is entered."""
        self.arch, self.config, self.checks, self.engine, self.seed = arch, config, checks, engine, seed
        self.launches: list[Launch] = []
        self.is_launching = False  # while Triton inspects arguments
        self._redirect = redirect
        self._driver = MachineDriver(self)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Replace Triton's driver."""
        with ExitStack() as stack:
            _set_for(stack, driver, "_active", self._driver)
            hook = keep_ptx(knobs.runtime.add_stages_inspection_hook)
            _set_for(stack, knobs.runtime, "add_stages_inspection_hook", hook)
            _set_for(stack, JITFunction, "run", self._with_arrays(JITFunction.run))
            _set_for(stack, Autotuner, "run", self._with_single_config(Autotuner.run))
            if self._redirect:
                stack.enter_context(on_the_host(self._driver))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore Triton's driver."""
        self._stack.close()

    def __repr__(self) -> str:
        """Return the architecture and the number of launches."""
        return f"<Triton on {self.arch}: {len(self.launches)} launches>"

    def launch(
        self, launcher: EntryLauncher, loaded: LoadedKernel, grid: tuple[int, int, int], arguments: EntryArguments
    ) -> None:
        """Run a kernel on its arguments and record it."""
        metadata = launcher.metadata
        block = metadata.num_warps * metadata.warp_size
        reserved = loaded.kernel.program.directives.get("reqntid")
        if reserved:  # warps that Triton adds for itself
            block = reserved[0]
        try:
            run = loaded.kernel.launch(
                (grid[0] * metadata.num_ctas, *grid[1:]),
                block,
                arguments.values,
                shared=metadata.shared,
                arch=self.arch,
                checks=self.checks,
                engine=self.engine,
                seed=self.seed,
                options=LaunchOptions(cooperative=getattr(metadata, "launch_cooperative_grid", False)),
            )
        except PtxError as error:
            raise name_arguments(error, arguments.names) from None
        self.launches.append(Launch(loaded.kernel.name, grid, block, loaded.ptx, run))

    def _with_arrays(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `JITFunction.run`, extended to NumPy arrays."""

        def run(function: object, *args: object, **kwargs: object) -> object:
            taken = {name: as_tensor(value) for name, value in kwargs.items()}
            self.is_launching = True
            try:
                return original(function, *map(as_tensor, args), **taken)
            finally:
                self.is_launching = False

        return run

    def _with_single_config(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `Autotuner.run` with one configuration, which Triton does not time; choices for real GPUs stay."""

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # Triton's own signature
            before = tuner.configs, tuner.cache
            tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
            chosen = _choose(tuner.prune_configs(kwargs), tuner.configs, self.config)
            tuner.configs, tuner.cache = [chosen], {}
            try:
                return original(tuner, *args, **kwargs)
            finally:
                tuner.configs, tuner.cache = before

        return run


emulate = Session


class Launcher:
    """A kernel to launch: `launcher[grid](*args, **constexprs)` runs it and returns the Run."""

    def __init__(self, kernel: Any, session: Callable[[], Session]) -> None:  # noqa: ANN401 # a kernel of Triton
        """Keep the decorated kernel."""
        self.kernel, self._session = kernel, session

    def __getitem__(self, grid: object) -> Callable[..., Run | None]:
        """Return the launch on a grid: a tuple of one to three numbers, or a function of the constexprs."""

        def launch(*args: object, **kwargs: object) -> Run | None:
            with self._session() as session:
                self.kernel[grid](*args, **kwargs)
            return session.launches[-1].run if session.launches else None

        return launch

    def __repr__(self) -> str:
        """Return the kernel's name."""
        return f"<Launcher of {self.kernel!r}>"


class SessionOptions(TypedDict, total=False):
    """The options of a session that `run` takes too."""

    arch: str
    config: object
    checks: Sequence[Check] | Check | Literal["all"]
    engine: Engine
    seed: int | None


def run(kernel: object, **options: Unpack[SessionOptions]) -> Launcher:
    """Launch a kernel with Triton's syntax: `run(kernel)[grid](x, y, n, BLOCK=128)` returns the `ptx.Run`.

    The kernel is decorated with `@triton.jit`, and perhaps `@triton.heuristics` and `@triton.autotune`. Arrays are
    NumPy arrays or tensors in host memory. Options are those of `emulate`. An empty grid returns None.
    """
    if not isinstance(kernel, KernelInterface) or type(kernel).__name__ == "InterpretedFunction":
        hint = "; unset TRITON_INTERPRET" if type(kernel).__name__ == "InterpretedFunction" else ""
        raise InvalidOperand(f"expected a kernel that @triton.jit made, got {quote(kernel)}{hint}")
    Session(**options, redirect=False)  # rejects a wrong architecture before a grid is given
    return Launcher(kernel, lambda: Session(**options, redirect=False))


def _set_for(stack: ExitStack, owner: object, name: str, value: object) -> None:
    """Set an attribute until the stack is closed."""
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _choose(pruned: Sequence[Any], configs: Sequence[Any], wanted: object) -> object:
    """Return the wanted configuration, or the first that pruning leaves."""
    if wanted is None:
        return pruned[0]
    if isinstance(wanted, dict):
        fitting = [config for config in configs if wanted.items() <= config.all_kwargs().items()]
        if fitting:
            return fitting[0]
    elif isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted < len(configs):
        return configs[wanted]
    elif hasattr(wanted, "all_kwargs"):
        return wanted
    listed = "; ".join(f"{number}: {config}" for number, config in enumerate(configs))
    raise InvalidOperand(f"config: expected one of the kernel's ({listed}), got {quote(wanted)}")


@contextmanager
def on_the_host(driver: MachineDriver) -> Iterator[None]:
    """Make tensors of device "cuda" in host memory; do nothing if PyTorch is not loaded."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    with ExitStack() as stack:
        for name, value in _answers(driver).items():
            _set_for(stack, torch.cuda, name, value)
        stack.enter_context(_mode(driver.session))
        yield


class TensorAddresses:
    """Device addresses of the tensors whose `data_ptr` was called; the tensors stay alive."""

    def __init__(self) -> None:
        """Start without addresses."""
        self._owners: dict[int, tuple[DeviceArray, object]] = {}  # by the host's address: the array, and the storage

    def address(self, tensor: Any) -> int:  # noqa: ANN401 # a tensor of PyTorch, if it is installed
        """Return the device address of a tensor."""
        memory, offset = storage(tensor)
        host = memory.ctypes.data
        if host not in self._owners:
            self._owners[host] = DeviceArray(memory), tensor.untyped_storage()
        return self._owners[host][0].address + offset


def _mode(session: LaunchSession) -> Any:  # noqa: ANN401 # a mode of PyTorch's, if it is installed
    import torch
    from torch.overrides import TorchFunctionMode

    def host(value: object) -> object:
        """Replace a CUDA device by the host; a bare number names a device only as `device=`."""
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "cuda" else value
        return "cpu" if isinstance(value, str) and value.split(":")[0] == "cuda" else value

    addresses = TensorAddresses()

    is_cuda = getattr(torch.Tensor, "is_cuda").__get__  # noqa: B009 (a property, which types take for a flag)

    class HostTensors(TorchFunctionMode):
        """PyTorch calls with the host instead of the GPU."""

        def __torch_function__(
            self,
            func: Callable[..., object],
            _types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> object:
            """Run a call on the host."""
            kwargs = dict(kwargs or {})
            if func is torch.Tensor.cuda:
                return args[0]
            if func is torch.Tensor.data_ptr and not session.is_launching and args[0].numel():
                return addresses.address(args[0])
            if func == is_cuda:
                return True
            if "device" in kwargs:
                device = kwargs["device"]
                kwargs["device"] = "cpu" if isinstance(device, int) else host(device)
            return func(*map(host, args), **kwargs)

    return HostTensors()


def _answers(driver: MachineDriver) -> dict[str, object]:
    """Return replacements for functions of torch.cuda."""
    major, minor = driver.get_device_capability()
    properties = driver.utils.get_device_properties(None)
    device = SimpleNamespace(
        name=f"warpfrag's {driver.session.arch}",
        major=major,
        minor=minor,
        multi_processor_count=properties["multiprocessor_count"],
        shared_memory_per_block_optin=properties["max_shared_mem"],
        warp_size=32,
        regs_per_multiprocessor=properties["max_num_regs"],
        total_memory=1 << 37,
    )
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _device: None,
        "synchronize": lambda _device=None: None,
        "empty_cache": lambda: None,
        "get_device_capability": lambda _device=None: (major, minor),
        "get_device_name": lambda _device=None: device.name,
        "get_device_properties": lambda _device=None: device,
        "device": lambda _device=None: nullcontext(),
    }
