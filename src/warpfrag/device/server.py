"""The server process of a virtual GPU, which loads modules and executes launches for one program.

The stand-in libcuda starts it with a socket and the file of device memory, and it ends when the program does. A request
is a 32-bit type, a 32-bit size and the payload; a reply is a CUDA error code, a size and the payload.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from warpfrag.device.gpu_attributes import read_profile
from warpfrag.device.launch_log import INTERRUPTED

if TYPE_CHECKING:
    from warpfrag.device.launches_served import LaunchServer

SOCKET, MEMORY = 3, 4  # file descriptors, which must match connection.c
HEADER = struct.Struct("<II")
INTERRUPT_MILLISECONDS = 200  # time between checks for Ctrl-C
LAST_SECONDS = 1.0  # time to handle the requests that a program sent before it ended


class Connection:
    """The socket to the program."""

    def __init__(self, channel: socket.socket) -> None:
        """Create a connection over a socket."""
        self.channel = channel
        self.is_answering = threading.Lock()

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes; raise EOFError if the program has ended."""
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            count = self.channel.recv_into(view[done:])
            if not count:
                raise EOFError
            done += count
        return bytes(data)

    def serve(self, server: LaunchServer) -> None:
        """Answer requests until the program ends."""
        while True:
            category, size = HEADER.unpack(self.read(HEADER.size))
            payload = self.read(size)
            with self.is_answering:
                code, reply = server.answer(category, payload)
            if reply is not None:
                self.channel.sendall(HEADER.pack(code, len(reply)) + reply)


def exit_with_program(connection: Connection) -> None:
    """Stop a running launch when the program closes its end of the socket, and end this process soon afterwards.

    In between, `serve` records that launch and handles requests that the program sent without waiting for a reply.

    Ctrl-C also stops a launch: `warpfrag gpu` then touches a file next to the log, which this function watches.
    """
    watch = select.poll()
    watch.register(connection.channel, select.POLLRDHUP | select.POLLHUP)
    file = Path(os.environ.get("WARPFRAG_GPU_LOG", "")).with_name(INTERRUPTED)
    seen = 0
    while not watch.poll(INTERRUPT_MILLISECONDS):
        with suppress(OSError):
            last = file.stat().st_mtime_ns
            if last != seen and connection.is_answering.locked():
                stop_launch()
            seen = last
    stop_launch()
    time.sleep(LAST_SECONDS)
    os._exit(0)


def stop_launch() -> None:
    """Stop the running launch; the next one starts normally."""
    if (state := sys.modules.get("warpfrag.machine.interpreter.warp_state")) is not None:
        state.INTERRUPT.set()


def main(place: str) -> None:
    """Serve one program; `place` is the "address:size" of device memory."""
    if os.fork():
        os._exit(0)  # the program waits only for this parent process, and the server is not the program's child
    os.setsid()
    channel = socket.socket(fileno=SOCKET)
    channel.sendall(read_profile(os.environ.get("WARPFRAG_GPU_PROFILE", "H200")).encode())
    connection = Connection(channel)
    threading.Thread(target=exit_with_program, args=(connection,), daemon=True).start()
    base, span = (int(number) for number in place.split(":"))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    from warpfrag.device.launches_served import DeviceMapping, LaunchServer

    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        connection.serve(LaunchServer(DeviceMapping(MEMORY, base, span)))
    os._exit(0)
