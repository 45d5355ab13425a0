"""Read files up to a size limit, and write them completely or not at all.

warpfrag writes every file with `write_atomically`: it writes a new file in the same folder, which then replaces the old
one. A full disk, an interrupt or a crash leaves the old file unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from stat import S_IMODE
from typing import TYPE_CHECKING, Any

from warpfrag.errors import FileError, quote
from warpfrag.samples import PREFIX, sample_path

if TYPE_CHECKING:
    from pathlib import Path

PART = ".warpfrag-"
"""The prefix of temporary files; a killed process may leave one."""
STREAMS = ("/dev/fd/", "/dev/std", "/proc/")  # paths that name open streams


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of a TOML file."""
    import tomllib

    try:
        return tomllib.loads(read_bytes(path, 1 << 20).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"{quote(str(path))} is not TOML: {error}") from None


def write_atomically(path: str | PathLike[str], data: bytes | str) -> None:
    """Write a file atomically, text as UTF-8 with its line endings unchanged.

    If the path is a link, its target is replaced. The file keeps the permissions of the old one. Terminals, pipes and
    `/dev/stdout` are written directly.
    """
    from pathlib import Path

    with _refusals("write", path):
        _write(Path(path), data.encode("utf-8") if isinstance(data, str) else data)


def read_bytes(path: str | PathLike[str], max_bytes: int) -> bytes:
    """Return the contents of a file, a pipe or `sample:NAME`; raise FileError if it has more than `max_bytes`."""
    with _refusals("read", path):
        if str(path).startswith(PREFIX):
            return sample_path(str(path).removeprefix(PREFIX)).read_bytes()
        with open(path, "rb") as file:  # noqa: PTH123 (a look-up does not import pathlib)
            content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise FileError(f"cannot read {quote(str(path))}: it has more than {max_bytes} bytes")
    return content


def check_writable(path: str | PathLike[str]) -> None:
    """Raise FileError if a file cannot be written; callers check this before long computations."""
    from pathlib import Path

    with _refusals("write", path):
        target = Path(path).resolve()
        if target.exists():
            _check_access(target)
        else:
            _create_beside(target).unlink()


@contextmanager
def _refusals(verb: str, path: str | PathLike[str]) -> Iterator[None]:
    """Convert errors of the operating system to FileError."""
    if not isinstance(path, str | os.PathLike):
        raise FileError(f"expected the name of a file to {verb}, got {quote(path)}")
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # a path with a NUL, invalid Unicode or a link loop
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FileError(f"cannot {verb} {quote(str(path))}: {reason}") from None


def _write(path: Path, content: bytes) -> None:
    is_stream = str(path.absolute()).startswith(STREAMS)  # after `> file`, even /dev/stdout is a regular file
    exists = path.exists()
    if is_stream or (exists and not path.is_file()):
        path.write_bytes(content)
        return
    target = path.resolve()
    if exists:
        _check_access(target)
    try:
        new = _create_beside(target)
    except PermissionError:
        if not exists:
            raise
        target.write_bytes(content)  # the file is writable, but its folder is not
        return
    try:
        new.write_bytes(content)
        if exists:
            new.chmod(S_IMODE(target.stat().st_mode))
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def _create_beside(target: Path) -> Path:
    """Create an empty file with an unused name in the same folder as another file."""
    new = target.with_name(f"{PART}{os.urandom(8).hex()}")
    new.touch(exist_ok=False)
    return new


def _check_access(target: Path) -> None:
    """Raise an error for a read-only file, which could be replaced but must not change."""
    if target.is_file() or target.is_dir():  # opening a pipe would wait for its reader
        target.open("ab").close()
