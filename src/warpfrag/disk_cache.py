"""Files in a cache folder, named by a digest of everything on which their contents depend.

A file begins with a digest of its name and contents, so a damaged, truncated or renamed file is never returned. If a
folder exceeds its size limit, the least recently used files are removed.
"""

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from warpfrag.errors import SlowArithmetic

CACHE_VARIABLE = "WARPFRAG_CACHE_DIR"
"""The environment variable that names a folder for cached files."""
DIGITS = 32
"""The number of hexadecimal digits of the digest in a compiled kernel's file name."""
DIGEST_BYTES = 32
"""The size of the digest at the start of a file."""


def cache_folders(name: str) -> Iterator[Path]:
    """Yield the folders for cached files: the configured folder, the package's, and the user's."""
    if configured := os.environ.get(CACHE_VARIABLE):
        yield Path(configured) / name
    yield Path(__file__).parent / "__pycache__" / name
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "warpfrag" / name


def digest_of(file: str, contents: bytes) -> bytes:
    """Return the digest at the start of a cache file with this name and these contents."""
    return hashlib.sha256(file.encode() + b"\0" + contents).digest()


class DiskCache(NamedTuple):
    """A disk cache of files that end with `suffix`, in folders called `name` with at most `max_bytes` each."""

    name: str
    suffix: str
    max_bytes: int

    def find(self, file: str) -> bytes | None:
        """Return the contents stored under a file name, or None if they are missing or damaged."""
        for folder in cache_folders(self.name):
            try:
                stored = (folder / file).read_bytes()
            except OSError:
                continue
            contents = stored[DIGEST_BYTES:]
            if stored[:DIGEST_BYTES] != digest_of(file, contents):
                continue
            with suppress(OSError):  # the file may belong to another user
                os.utime(folder / file)  # marks the file as recently used
            return contents
        return None

    def keep(self, file: str, contents: bytes) -> None:
        """Store contents under a file name in the first writable folder; warn once if no folder is writable."""
        import tempfile  # imported here because reading the cache does not need it

        for folder in cache_folders(self.name):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                new = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115 (replaced or removed below)
            except OSError:
                continue
            temporary = Path(new.name)
            try:
                with new:
                    new.write(digest_of(file, contents) + contents)
                temporary.replace(folder / file)
            except OSError:  # the disk may be full
                with suppress(OSError):
                    temporary.unlink()
                continue
            self.trim(folder)
            return
        warn_uncached()

    def trim(self, folder: Path) -> None:
        """Remove the least recently used files until the folder is within its limit."""
        files = []
        for path in folder.glob(f"*{self.suffix}"):
            with suppress(OSError):  # another process removed it
                files.append((path.stat(), path))
        excess = sum(status.st_size for status, _ in files) - self.max_bytes
        for status, path in sorted(files, key=lambda file: file[0].st_mtime):
            if excess <= 0:
                return
            with suppress(OSError):
                path.unlink()
            excess -= status.st_size


@cache
def warn_uncached() -> None:
    """Warn once that every process has to compile its kernels again."""
    warnings.warn(
        "no cache folder is writable, so every process compiles its kernels again; "
        f"set {CACHE_VARIABLE} to a writable folder",
        SlowArithmetic,
        stacklevel=2,
    )
