"""`warpfrag cache`: where compiled code lies, how large it is, and how to remove it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from warpfrag.cli.support.options import json_option
from warpfrag.cli.support.output import print_json, print_notes, print_table
from warpfrag.cli.support.verbs import verb


class CodeFolder(NamedTuple):
    """A folder with compiled code of one kind."""

    holds: str
    """wheel: loops as installed; loops: those that numba has compiled here; ptx: kernels of PTX, and their loops."""
    folder: Path
    patterns: tuple[str, ...]
    max_bytes: int | None = None
    """Where it is kept below a size, that size."""

    def files(self) -> dict[Path, int]:
        """Its files with their sizes; another process may remove some meanwhile."""
        sizes = {}
        for pattern in self.patterns:
            for path in sorted(self.folder.glob(pattern)):
                try:
                    sizes[path] = path.stat().st_size
                except OSError:
                    continue
        return sizes


def code_folders() -> list[CodeFolder]:
    """Every folder that compiled code is read from, in the order in which it is looked for."""
    from warpfrag.tensorcore.backends import compiled_backend

    try:
        from warpfrag.ptx.compiler import batch_loops, object_cache
    except ImportError:  # without numba and llvmlite nothing is compiled
        return []
    pattern = f"{'[0-9a-f]' * object_cache.DIGITS}.o"
    of_kernels = [CodeFolder("ptx", path, (pattern,), object_cache.MAX_BYTES) for path in object_cache.folders()]
    if compiled_backend() is None:
        return of_kernels
    from warpfrag.tensorcore.kernels import fused, objects

    kept = {entry.compiled.stats.cache_path for entry in (fused.fused_tiles, batch_loops.take_tiles)} - {None}
    of_loops = [CodeFolder("loops", Path(folder), ("*.nbi", "*.nbc")) for folder in sorted(kept)]
    return [CodeFolder("wheel", objects.FOLDER, (f"*{objects.SUFFIX}",)), *of_loops, *of_kernels]


def clear(folders: list[CodeFolder]) -> tuple[int, list[str]]:
    """Remove what was compiled here; how many files, and why the others stay."""
    removed, reasons = 0, []
    for path in (path for folder in folders if folder.holds != "wheel" for path in folder.files()):
        try:
            path.unlink(missing_ok=True)
            removed += 1
        except OSError as error:
            reasons.append(f"{path.name}: {error.strerror}")
    return removed, reasons


@verb(
    "warpfrag cache           # where compiled code lies, and its size",
    "warpfrag cache --clear   # remove what was compiled here",
)
@click.option("--clear", "clears", is_flag=True, help="Remove what was compiled here; what a wheel brought stays.")
@json_option
def command(*, clears: bool, as_json: bool) -> int:
    """Where compiled code is stored: loops of products from the wheel, those compiled here, and kernels of PTX.

    Removed code is compiled again on its next heavy use; results do not depend on it. NUMBA_CACHE_DIR names a
    folder for what is compiled here. Exits with 1 where --clear could not remove every file.
    """
    folders = code_folders()
    removed, reasons = clear(folders) if clears else (0, [])
    rows = [(entry, entry.files()) for entry in folders]
    if as_json:
        listed = [
            {
                "holds": entry.holds,
                "folder": str(entry.folder),
                "files": len(files),
                "bytes": sum(files.values()),
                "max_bytes": entry.max_bytes,
            }
            for entry, files in rows
        ]
        print_json("cache", {"folders": listed, "removed": removed, "kept": reasons})
        return int(bool(reasons))
    print_table(
        ["holds", "files", "bytes", "folder"],
        [[entry.holds, len(files), sum(files.values()), str(entry.folder)] for entry, files in rows],
    )
    if clears:
        print_notes([f"{removed} files removed", *reasons])
    return int(bool(reasons))
