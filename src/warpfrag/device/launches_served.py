"""Serve a program's requests: allocations, modules, functions and launches, with the errors that a driver returns."""

from __future__ import annotations

import math
import os
import re
import struct
import sys
import time
import traceback
from contextlib import suppress
from mmap import mmap
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from warpfrag.device.error_codes import ErrorCode, error_name
from warpfrag.device.gpu_attributes import read_profile
from warpfrag.device.launch_log import LaunchLog, LaunchRecord
from warpfrag.device.loaded_modules import LoadedModule, link_images
from warpfrag.errors import CudaError, PtxError, WarpfragError
from warpfrag.machine.interpreter.warp_state import INTERRUPT
from warpfrag.machine.ir.program import excerpt
from warpfrag.machine.launch.launch_arguments import GlobalMemory
from warpfrag.machine.launch.options import LaunchOptions, checks_of
from warpfrag.machine.launch.symbol_names import readable
from warpfrag.machine.sanitizer.unwritten import MARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.machine.interpreter.kernel_findings import KernelFinding
    from warpfrag.machine.launch.run import Run

ALLOCATE, FREE, LOAD, PLACE, UNLOAD, FUNCTION, VARIABLE, KERNELS, LAUNCH, LINK, NOTE = range(1, 12)
TENSOR_MAP, GEMM, WRITTEN, REJECTED = range(12, 16)
SILENT = {ALLOCATE, FREE, UNLOAD, NOTE, WRITTEN, REJECTED}  # requests without a reply
LAUNCH_FIELDS = struct.Struct("<13I")  # `struct launch` in stand_in.h
CATEGORY_ERRORS = {
    **dict.fromkeys(("bounds", "readonly", "freed"), ErrorCode.ILLEGAL_ADDRESS),
    "misaligned": ErrorCode.MISALIGNED_ADDRESS,
    "deadlock": ErrorCode.LAUNCH_TIMEOUT,
}
NOT_MODELLED = "not modelled"  # occurs in the message for an instruction that cannot be executed
MAY_NEVER_END = "it may never end"  # occurs in the messages for launches that were stopped
TIME_LIMIT = "(--launch-seconds"
ADDRESS = re.compile(r"\b0x[0-9a-f]{9,16}\b")
MAX_SHOWN = 5  # the maximum number of findings that are printed per launch
PROGRESS_SECONDS = 5.0
TRACKED_BYTES = 1 << 28  # the largest allocation whose written bytes are tracked
DEVICE_MEMORY = 0  # the category of allocations to which only copies, fills and kernels write
FREED_KEPT = 4096  # the number of freed allocations that are remembered for messages


class DeviceMapping:
    """The server's mapping of device memory."""

    def __init__(self, descriptor: int, base: int, span: int) -> None:
        """Map the file; a page is allocated when it is first written."""
        self.base, self.span = base, span
        self.bytes: NDArray[np.uint8] = np.frombuffer(mmap(descriptor, span), np.uint8)

    def view(self, address: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes at a device address."""
        return self.bytes[address - self.base : address - self.base + size]


class LaunchServer:
    """The state of one program: its allocations, modules and functions."""

    def __init__(self, mapping: DeviceMapping) -> None:
        """Create the server state, without allocations or modules."""
        self.mapping = mapping
        self.arch = read_profile(os.environ.get("WARPFRAG_GPU_PROFILE", "H200")).arch
        self.checks = checks_of([name for name in os.environ.get("WARPFRAG_GPU_CHECKS", "").split(",") if name])
        self.is_recording = os.environ.get("WARPFRAG_GPU_RECORD_ONLY") == "1"
        self.is_fast = os.environ.get("WARPFRAG_GPU_FAST") == "1"
        self.seconds = float(os.environ.get("WARPFRAG_GPU_SECONDS") or "inf")
        self.said: set[str] = set()  # messages that have been printed
        self.log = LaunchLog(os.environ.get("WARPFRAG_GPU_LOG", ""))
        self.allocations: dict[int, tuple[int, int]] = {}  # size and category by address
        self.unwritten: dict[int, NDArray[np.uint8]] = {}
        """Marks of the bytes of each allocation, by its address, that have not been written since it was allocated."""
        self.freed: dict[int, int] = {}
        self.memory: GlobalMemory | None = None  # the memory for the next launch, or None if allocations have changed
        self.modules: list[LoadedModule | None] = []
        self.functions: list[tuple[LoadedModule, str]] = []
        self.ids: dict[tuple[int, str], int] = {}
        self.handlers: dict[int, Callable[[bytes], bytes]] = {
            ALLOCATE: self.allocate, FREE: self.free, LOAD: self.load,
            PLACE: self.place, UNLOAD: self.unload, FUNCTION: self.function,
            VARIABLE: self.variable, KERNELS: self.kernels, LAUNCH: self.launch,
            LINK: self.link, NOTE: self.note, TENSOR_MAP: self.tensor_map,
            GEMM: self.gemm, WRITTEN: self.written, REJECTED: self.rejected,
        }  # fmt: skip

    def answer(self, category: int, payload: bytes) -> tuple[int, bytes | None]:
        """Return the error code and the reply for a request; the reply is None if the program does not wait for one."""
        reply: bytes | None = b""
        code = 0
        try:
            reply = self.handlers[category](payload)
        except CudaError as error:
            code = error.code
            self.say_once(str(error))
        except WarpfragError as error:
            code = ErrorCode.NOT_SUPPORTED
            self.say_once(str(error))
        except Exception as error:  # noqa: BLE001 (the program must get an answer, whatever happens here)
            code = ErrorCode.UNKNOWN
            say(f"internal error, please report it: {type(error).__name__}: {error}")
            traceback.print_exc()
        if category in SILENT:
            return code, None
        return code, b"" if code else reply

    def say_once(self, text: str) -> None:
        """Print a message, unless it is empty or has been printed before."""
        if text and text not in self.said:
            self.said.add(text)
            say(text)

    # Memory

    def allocate(self, payload: bytes) -> bytes:
        """Register an allocation."""
        address, size, category = struct.unpack("<QQQ", payload)
        self.allocations[address] = size, category
        if "uninitialised" in self.checks and category == DEVICE_MEMORY and size <= TRACKED_BYTES:
            self.unwritten[address] = np.full(size, MARK)
        self.freed.pop(address, None)
        self.memory = None
        return b""

    def free(self, payload: bytes) -> bytes:
        """Remove an allocation; later messages can still name it."""
        (address,) = struct.unpack("<Q", payload)
        self.freed[address] = self.allocations.pop(address)[0]
        self.unwritten.pop(address, None)
        while len(self.freed) > FREED_KEPT:
            self.freed.pop(next(iter(self.freed)))
        self.memory = None
        return b""

    def written(self, payload: bytes) -> bytes:
        """Record that a copy or a fill wrote a range."""
        address, size = struct.unpack("<QQ", payload)
        start = next((at for at in self.unwritten if at <= address < at + len(self.unwritten[at])), address)
        self.unwritten.get(start, np.zeros(0, np.uint8))[address - start : address - start + size] = 0
        return b""

    def global_memory(self) -> GlobalMemory:
        """Return all allocations as arrays at their device addresses."""
        if self.memory is None:
            view = self.mapping.view
            self.memory = GlobalMemory(
                {address: view(address, size) for address, (size, _) in self.allocations.items()}
            )
        self.unwritten = {address: marks for address, marks in self.unwritten.items() if marks.any()}
        for allocation in self.memory.allocations:
            allocation.unwritten = self.unwritten.get(allocation.start)
        return self.memory

    # Modules

    def load(self, payload: bytes) -> bytes:
        """Read an image; reply with the module's number and the size of its variables in bytes."""
        loader, _, image = payload.partition(b"\0")
        module = LoadedModule(image, os.fsdecode(loader), self.arch)
        self.modules.append(module)
        return struct.pack("<IIQ", len(self.modules) - 1, 512, module.bytes)

    def module(self, number: int) -> LoadedModule:
        """Return the loaded module with this number."""
        module = self.modules[number]
        if module is None:
            raise CudaError(ErrorCode.INVALID_HANDLE, "")
        return module

    def place(self, payload: bytes) -> bytes:
        """Assign an address to a module's variables."""
        number, address = struct.unpack("<QQ", payload)
        module = self.module(number)
        module.place(address, self.mapping.view(address, module.bytes))
        return b""

    def unload(self, payload: bytes) -> bytes:
        """Remove a module."""
        self.modules[struct.unpack("<I", payload)[0]] = None
        return b""

    def function(self, payload: bytes) -> bytes:
        """Reply with a function's number, attributes and parameters."""
        (number,), name = struct.unpack_from("<I", payload), payload[4:-1].decode()
        module = self.module(number)
        if module.module is not None and name not in module.names():
            raise CudaError(ErrorCode.NOT_FOUND, "")
        if (number, name) not in self.ids:
            self.ids[number, name] = len(self.functions)
            self.functions.append((module, name))
        attributes, parameters, size = module.attributes(name)
        numbers = [self.ids[number, name], size, len(parameters), *attributes]
        return struct.pack(f"<III{len(attributes)}i", *numbers) + b"".join(
            struct.pack("<II", *each) for each in parameters
        )

    def variable(self, payload: bytes) -> bytes:
        """Reply with the address and the size of a variable."""
        (number,), name = struct.unpack_from("<I", payload), payload[4:-1].decode()
        try:
            return struct.pack("<QQ", *self.module(number).variable(name))
        except KeyError:
            raise CudaError(ErrorCode.NOT_FOUND, "") from None

    def kernels(self, payload: bytes) -> bytes:
        """Reply with the names of a module's kernels."""
        names = self.module(struct.unpack("<I", payload)[0]).names()
        return struct.pack("<I", len(names)) + b"".join(name.encode() + b"\0" for name in names)

    def link(self, payload: bytes) -> bytes:
        """Link the inputs of cuLink*: a single image is used as is, and several are linked with nvlink."""
        inputs, at = [], 0
        while at < len(payload):
            category, size = struct.unpack_from("<QQ", payload, at)
            inputs.append((category, payload[at + 16 : at + 16 + size]))
            at += 16 + size
        return inputs[0][1] if len(inputs) == 1 else link_images(inputs, self.arch)

    def note(self, payload: bytes) -> bytes:
        """Record the name of an unsupported entry point."""
        self.log.note(payload.decode(errors="replace"))
        return b""

    def tensor_map(self, payload: bytes) -> bytes:
        """Reply with the 128 bytes of a tensor map; raise CudaError if a driver would reject the description."""
        from warpfrag.smem.tensor_map import (
            DRIVER_TYPES,
            ELEMENT_TYPES,
            FILLS,
            INTERLEAVES,
            L2_PROMOTIONS,
            SWIZZLE_NUMBERS,
            TensorMapFields,
        )

        numbers = struct.unpack("<Q5Q5Q5I5I6i", payload)
        address, dims, strides, box, steps = numbers[0], numbers[1:6], numbers[6:11], numbers[11:16], numbers[16:21]
        category, rank, interleave, swizzle, promotion, fill = numbers[21:]
        known = 0 <= category < len(DRIVER_TYPES) and interleave < len(INTERLEAVES) and swizzle < len(SWIZZLE_NUMBERS)
        if not known or fill >= len(FILLS) or promotion >= len(L2_PROMOTIONS):
            raise CudaError(
                ErrorCode.INVALID_VALUE, "cuTensorMapEncodeTiled: unknown data type, interleave, swizzle or fill"
            )
        fields = TensorMapFields(
            ELEMENT_TYPES[DRIVER_TYPES[category]], address, dims[:rank], strides[: rank - 1], box[:rank], steps[:rank],
            SWIZZLE_NUMBERS[swizzle], FILLS[fill], INTERLEAVES[interleave], None, L2_PROMOTIONS[promotion],
        )  # fmt: skip
        if problems := fields.problems():
            raise CudaError(ErrorCode.INVALID_VALUE, f"cuTensorMapEncodeTiled: {'; '.join(problems)}")
        return fields.encode()

    # Launches

    def gemm(self, payload: bytes) -> bytes:
        """Compute a cuBLAS GEMM; raise CudaError if this fails."""
        from warpfrag.device.gemms_served import ServedGemm, read_gemm_call

        call = read_gemm_call(payload)
        record = LaunchRecord(call.title, (), ())
        start = time.perf_counter()
        try:
            if self.is_recording:
                record.reasons = ["not executed: --record-only"]
            else:
                ServedGemm(call, self.memory_at).run(record)
        except WarpfragError as error:
            record.error = error.code if isinstance(error, CudaError) else ErrorCode.NOT_SUPPORTED
            record.message = str(error)
            raise CudaError(record.error, f"{call.title}: {error}") from None
        finally:
            record.seconds = time.perf_counter() - start
            self.log.launch(record)
        return b""

    def memory_at(self, address: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes at an address; raise CudaError if they are not all in one allocation."""
        for start, (length, _) in self.allocations.items():
            if start <= address and address + size <= start + length:
                self.written(struct.pack("<QQ", address, size))  # the GEMM may write to these bytes
                return self.mapping.view(address, size)
        raise CudaError(ErrorCode.ILLEGAL_ADDRESS, f"{size} bytes at {address:#x} are outside every allocation")

    def read_launch(self, payload: bytes) -> tuple[LaunchRecord, LoadedModule, str, int, int]:
        """Return the record of a launch, its module, the kernel's name, and the last two fields of `LAUNCH_FIELDS`."""
        number, *numbers = LAUNCH_FIELDS.unpack_from(payload)
        grid, block, cluster = tuple(numbers[:3]), tuple(numbers[3:6]), tuple(numbers[6:9])
        module, name = self.functions[number]
        record = LaunchRecord(readable(name), grid, block, cluster if any(cluster) else None, numbers[9])
        return record, module, name, numbers[10], numbers[11]

    def rejected(self, payload: bytes) -> bytes:
        """Record a launch that the driver rejected; its error is the last field."""
        record, _, _, _, error = self.read_launch(payload)
        record.error = error
        cluster = f" and cluster {record.cluster}" if record.cluster else ""
        given = f"{record.shared} bytes of dynamic shared memory{cluster}"
        record.message = f"the GPU or the kernel does not allow this grid and block with {given}"
        self.say_once(f"{record.title} failed, {error_name(record.error)}: {record.message}")
        self.log.launch(record)
        return b""

    def launch(self, payload: bytes) -> bytes:
        """Execute a launch; if it fails, raise CudaError with the code that a GPU would return."""
        record, module, name, is_cooperative, _ = self.read_launch(payload)
        grid, block, cluster, shared = record.grid, record.block, record.cluster, record.shared
        params = payload[LAUNCH_FIELDS.size :]
        start = time.perf_counter()
        try:
            if self.is_recording:
                record.reasons = ["not executed: --record-only"]
            else:
                options = LaunchOptions(
                    cluster=cluster,
                    cooperative=bool(is_cooperative),
                    judge=not self.is_fast,
                    progress=progress_of(record),
                    seconds=None if math.isinf(self.seconds) else self.seconds,
                )
                INTERRUPT.clear()
                memory = self.global_memory()
                tracked, self.unwritten = self.unwritten, {}  # a failed launch may have written everything
                run = module.kernel(name).launch(
                    grid, block, shared=shared, checks=self.checks, options=options, params=params,
                    memory=memory,
                )  # fmt: skip
                hosts = {address: self.mapping.view(address, 1).ctypes.data for address in tracked}
                self.unwritten = {at: run.unwritten[host] for at, host in hosts.items() if host in run.unwritten}
                self.judge(record, run, module, name)
        except CudaError as error:
            record.error = error.code
            record.message = str(error)
            raise
        except PtxError as error:
            record.error, record.message = self.failure(error, module, name)
            raise CudaError(
                record.error, f"{record.title} failed, {error_name(record.error)}: {record.message}"
            ) from None
        except WarpfragError as error:
            record.error, record.message = ErrorCode.NOT_SUPPORTED, str(error)
            raise CudaError(ErrorCode.NOT_SUPPORTED, f"{record.title} cannot be executed: {error}") from None
        finally:
            record.seconds = time.perf_counter() - start
            if self.checks and record.error == ErrorCode.NOT_SUPPORTED:
                record.verdict = "incomplete"
            self.log.launch(record)
        return b""

    def judge(self, record: LaunchRecord, run: Run, module: LoadedModule, name: str) -> None:
        """Store and print the findings of a launch; raise CudaError if a GPU would return an error for one of them."""
        if run.printed:
            sys.stdout.write(run.printed)
            sys.stdout.flush()
        record.exact, record.reasons, record.basis = run.exact, list(run.inexact), run.basis
        record.verdict, record.instructions = run.verdict, run.counts.instructions
        record.unjudged = list(run.unjudged)
        record.findings = [self.finding_text(finding, module, name) for finding in run.findings]
        for text in record.findings[:MAX_SHOWN]:
            self.say_once(f"{record.title}: {text}")
        if more := len(record.findings[MAX_SHOWN:]):
            self.say_once(f"{record.title}: {more} more findings; --report and --json list them")
        codes = [CATEGORY_ERRORS[finding.kind] for finding in run.findings if finding.kind in CATEGORY_ERRORS]
        if codes:
            raise CudaError(codes[0], f"{record.title} failed, {error_name(codes[0])}")

    def finding_text(self, finding: KernelFinding, module: LoadedModule, name: str) -> str:
        """Return the text of a finding, with the source lines of both accesses."""
        text = f"{place_of(module, name, finding.line)}{finding.text}"
        if finding.other is not None and finding.other.source is None:
            text += f" (the other access: {place_of(module, name, finding.other.line).rstrip(': ')})"
        fix = f"; fix: {finding.fix}" if finding.fix else ""
        return f"{finding.kind}: {text}{self.freed_text(finding.text)}{fix}{finding.excerpt}"

    def failure(self, error: PtxError, module: LoadedModule, name: str) -> tuple[int, str]:
        """Return the CUDA error code and the message for an error that ended a launch."""
        reason = error.reason
        code = CATEGORY_ERRORS.get(error.kind, ErrorCode.LAUNCH_FAILED)
        if NOT_MODELLED in reason:
            code = ErrorCode.NOT_SUPPORTED
        if "assertion" in reason:
            code = ErrorCode.ASSERT
        if MAY_NEVER_END in reason or TIME_LIMIT in reason:
            code = ErrorCode.LAUNCH_TIMEOUT
            after = "was interrupted" if INTERRUPT.is_set() else f"did not end in {self.seconds:g} s (--launch-seconds)"
            if TIME_LIMIT in reason:
                line = excerpt(module.source_of(name, error.line))
                reason = f"the launch {after}; it was running this instruction{line}"
        if code == ErrorCode.ILLEGAL_ADDRESS and "shared memory" in reason:
            code = ErrorCode.LAUNCH_FAILED
        return code, f"{place_of(module, name, error.line)}{reason}{self.freed_text(reason)}"

    def freed_text(self, reason: str) -> str:
        """Return a note if a message names an address in freed memory, or an empty string."""
        for address in (int(word, 16) for word in ADDRESS.findall(reason)):
            for start, size in self.freed.items():
                if start <= address < start + size:
                    return f"; this address is in freed memory, {size} bytes at {start:#x}"
        return ""


def place_of(module: LoadedModule, name: str, line: int) -> str:
    """Return the location of an instruction: its address, and its source line if known."""
    source = module.source_of(name, line)
    return f"{source} (address {line:#x}): " if source else f"address {line:#x}: "


def progress_of(record: LaunchRecord) -> Callable[[int, int], None]:
    """Return a function that prints the progress of a long launch every few seconds."""
    last = time.perf_counter()

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.perf_counter() - last > PROGRESS_SECONDS:
            last = time.perf_counter()
            say(f"{record.title}: {done} of {total} blocks")

    return show


def message_file() -> int:
    """Return the descriptor for messages: standard error of `warpfrag gpu` or, without it, of the program."""
    descriptor, *expected = (int(word) for word in os.environ.get("WARPFRAG_GPU_MESSAGES", "2").split(":"))
    try:
        file = os.fstat(descriptor)
    except OSError:
        return sys.stderr.fileno()
    return descriptor if expected == [file.st_dev, file.st_ino] else sys.stderr.fileno()


def say(text: str) -> None:
    """Print a message for the user who started the program."""
    with suppress(OSError):
        os.write(message_file(), f"warpfrag gpu: {text}\n".encode(errors="backslashreplace"))
