"""Host code written for a GPU, on tensors in the memory of the host: `device="cuda"`, `.cuda()`, `torch.cuda`.

Only what tests of kernels need is answered: where tensors are made and moved to, the address of a tensor, which host
code puts into tables of pointers, and the questions that it asks before a launch (is there a GPU, which one, how many
multiprocessors). Streams, events and graphs of CUDA are PyTorch's own error.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from warpfrag.ptx.launch.device_array import DeviceArray
from warpfrag.triton.arguments import storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warpfrag.triton.driver import LaunchSession, MachineDriver


@contextmanager
def on_the_host(driver: MachineDriver) -> Iterator[None]:
    """Make tensors of device "cuda" in the memory of the host; nothing happens where PyTorch is not loaded."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    with ExitStack() as stack:
        for name, value in _answers(driver).items():
            stack.callback(setattr, torch.cuda, name, getattr(torch.cuda, name))
            setattr(torch.cuda, name, value)
        stack.enter_context(_mode(driver.session))
        yield


class TensorAddresses:
    """The addresses that tensors have on the device, for those whose address was asked for; they live as long."""

    def __init__(self) -> None:
        """No tensor has one yet."""
        self._owners: dict[int, tuple[DeviceArray, object]] = {}  # by the host's address: the array, and the storage

    def address(self, tensor: Any) -> int:  # noqa: ANN401 # a tensor of PyTorch, if it is installed
        """Where a tensor starts on the device."""
        memory, offset = storage(tensor)
        host = memory.ctypes.data
        if host not in self._owners:
            self._owners[host] = DeviceArray(memory), tensor.untyped_storage()
        return self._owners[host][0].address + offset


def _mode(session: LaunchSession) -> Any:  # noqa: ANN401 # a mode of PyTorch's, if it is installed
    import torch
    from torch.overrides import TorchFunctionMode

    def host(value: object) -> object:
        """The host where the GPU is named; a bare number names one too, but only as `device`."""
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "cuda" else value
        return "cpu" if isinstance(value, str) and value.split(":")[0] == "cuda" else value

    addresses = TensorAddresses()

    is_cuda = getattr(torch.Tensor, "is_cuda").__get__  # noqa: B009 (a property, which types take for a flag)

    class HostTensors(TorchFunctionMode):
        """Every call of PyTorch, with the host for the GPU."""

        def __torch_function__(
            self,
            func: Callable[..., object],
            _types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> object:
            """The call, on the host."""
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
    """What functions of torch.cuda say."""
    major, minor = driver.get_device_capability()
    properties = driver.utils.get_device_properties(None)
    device = SimpleNamespace(
        name=f"warpfrag's {driver.session.target}",
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
