"""Files in a cache folder, named by a digest of everything that their contents depend on.

A file begins with a digest of its contents; a damaged file is never used. A folder stays below a size limit: the least
recently used files are removed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
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
    """The cached files whose names end with `suffix`, in folders of this `name` of at most `max_bytes` each."""

    name: str
    suffix: str
    max_bytes: int

    def find(self, file: str, on_damage: Callable[[str], object] | None = None) -> bytes | None:
        """Return the contents stored under a file name, or None; `on_damage` is told why a file is not used."""
        for folder in cache_folders(self.name):
            try:
                data = (folder / file).read_bytes()
            except OSError:
                continue
            with suppress(OSError):  # the file may belong to another user
                os.utime(folder / file)  # mark as recently used
            if data[:DIGEST_BYTES] == hashlib.sha256(data[DIGEST_BYTES:]).digest():
                return data[DIGEST_BYTES:]
            if on_damage:
                on_damage("its digest is not that of its code")
        return None

    def keep(self, file: str, contents: bytes) -> bool:
        """Store contents under a file name in the first writable folder; return False if there is none."""
        from tempfile import NamedTemporaryFile  # finding a file stores nothing

        for folder in cache_folders(self.name):
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                with NamedTemporaryFile(dir=folder, delete=False) as new:
                    new.write(hashlib.sha256(contents).digest() + contents)
                Path(new.name).replace(folder / file)
                self.trim(folder)
                return True
        return False

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
