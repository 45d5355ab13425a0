"""Results of the PTX machine, and the file with a GPU's results for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tools.textures.experiment import words_of
from tools.textures.kernels import kernel
from warpfrag.machine.semantics.textures import Surface
from warpfrag.ptx.ptx_module import load

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tools.textures.experiment import Experiment

KEPT_ROWS, KEPT_EVERY = 24, 7  # the file for the tests has 24 threads of every seventh experiment


def machine_result(experiment: Experiment) -> NDArray[Any]:
    """Return the machine's result: four values per thread, or the bytes of a surface."""
    words = words_of(experiment)
    out = np.zeros((experiment.threads, 8), np.uint32)
    argument = experiment.resource
    if experiment.is_surface:
        argument = Surface(experiment.array.copy(), channels=experiment.channels, layered=experiment.is_layered)
    blocks = -(-experiment.threads // 128)
    args = [argument, words, out, np.uint32(experiment.threads)]
    load(kernel(experiment))["k"].launch(grid=blocks, block=128, args=args, engine="reference")
    if experiment.opcode.startswith(("sust", "sured")):
        return argument.array.reshape(-1).view(np.uint8)
    return out if experiment.is_surface else out[:, :4]


def kept(result: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the part of a result that the tests' file keeps: the first threads, or all bytes of a surface."""
    return np.ascontiguousarray(result if result.ndim == 1 else result[:KEPT_ROWS]).reshape(-1).view(np.uint8)


def write_kept(path: Path, results: dict[str, NDArray[Any]]) -> None:
    """Write the file for the tests: the names, and the concatenated bytes of all results."""
    chosen = {name: kept(results[name]) for name in list(results)[::KEPT_EVERY]}
    names = np.frombuffer("\n".join(chosen).encode(), np.uint8)
    sizes = np.array([len(data) for data in chosen.values()], np.int64)
    np.savez_compressed(path, names=names, sizes=sizes, data=np.concatenate(list(chosen.values())))


def read_kept(path: Path) -> dict[str, NDArray[np.uint8]]:
    """Read a file that `write_kept` wrote, by experiment name."""
    with np.load(path) as file:
        names = file["names"].tobytes().decode().splitlines()
        parts = np.split(file["data"], np.cumsum(file["sizes"])[:-1])
    return dict(zip(names, parts, strict=True))
