"""Files in a cache folder, named by a digest of everything that their contents depend on.

A file begins with a digest of its contents; a damaged file is never used. A folder stays below a size limit: the least
recently used files are removed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

DIGEST_BYTES = 32


def cache_folders(name: str) -> Iterator[Path]:
    """Return the folders for cached files, in numba's order: the configured one, the package's, the user's."""
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(configured) / name
    yield Path(__file__).parent / "__pycache__" / name
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "warpfrag" / name


class DiskCache(NamedTuple):
    """The files of one kind: `name` is their folder, `suffix` ends their names, `max_bytes` limits a folder."""

    name: str
    suffix: str
    max_bytes: int

    def find(self, key: str) -> bytes | None:
        """Return the contents that were stored under a key, or None; a damaged file is removed."""
        for folder in cache_folders(self.name):
            path = folder / (key + self.suffix)
            with suppress(OSError):
                data = path.read_bytes()
                if data[:DIGEST_BYTES] == hashlib.sha256(data[DIGEST_BYTES:]).digest():
                    with suppress(OSError):  # the file may belong to another user
                        os.utime(path)  # mark as recently used
                    return data[DIGEST_BYTES:]
                path.unlink()
        return None

    def keep(self, key: str, contents: bytes) -> None:
        """Store contents under a key in the first writable folder; without one they are not cached."""
        from tempfile import NamedTemporaryFile

        for folder in cache_folders(self.name):
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                with NamedTemporaryFile(dir=folder, delete=False) as file:
                    file.write(hashlib.sha256(contents).digest() + contents)
                Path(file.name).replace(folder / (key + self.suffix))
                self.trim(folder)
                return

    def trim(self, folder: Path) -> None:
        """Remove the least recently used files until the others are below the limit."""
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
