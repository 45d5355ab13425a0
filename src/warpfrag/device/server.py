"""The server process of a virtual GPU: it loads modules and executes launches for one program.

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
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from warpfrag.device.gpu_profile import read_profile

if TYPE_CHECKING:
    from warpfrag.device.launches_served import LaunchServer

SOCKET, MEMORY = 3, 4  # file descriptors; must match connection.c
HEADER = struct.Struct("<II")


class Connection:
    """The socket to the program."""

    def __init__(self, channel: socket.socket) -> None:
        """Keep the socket."""
        self.channel = channel

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
            code, reply = server.answer(category, self.read(size))
            if reply is not None:
                self.channel.sendall(HEADER.pack(code, len(reply)) + reply)


def exit_with_program(channel: socket.socket) -> None:
    """End this process when the program closes its end of the socket, even during a long launch."""
    watch = select.poll()
    watch.register(channel, select.POLLRDHUP | select.POLLHUP)
    watch.poll()
    os._exit(0)


def main(place: str) -> None:
    """Serve one program; `place` is "address:size" of device memory."""
    if os.fork():
        os._exit(0)  # the program waits only for this process, so the server is not its child
    os.setsid()
    channel = socket.socket(fileno=SOCKET)
    channel.sendall(read_profile(os.environ.get("WARPFRAG_GPU_PROFILE", "H200")).encode())
    threading.Thread(target=exit_with_program, args=(channel,), daemon=True).start()
    base, span = (int(number) for number in place.split(":"))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    from warpfrag.device.launches_served import DeviceMapping, LaunchServer

    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        Connection(channel).serve(LaunchServer(DeviceMapping(MEMORY, base, span)))
    os._exit(0)
