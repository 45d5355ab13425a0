"""Compute gemms of Dask arrays: one task for each block of D, which reads the strips of A and B that the block needs.

Chunks determine only how D is split: its rows like A's, its columns like B's. Each task adds along the whole K in the
requested order, so the chunks do not affect the codes.

Shapes, dtypes, the instruction and the order are checked when the graph is built; values (exactness, pruned rows) are
checked when a task runs. Dask is imported only for Dask arrays.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.blas.gemm_backend import Cpu
from warpfrag.blas.instruction_choice import choose_instruction
from warpfrag.blas.prepared_gemm import ProductShape
from warpfrag.errors import InvalidOperand, InvalidSparsity
from warpfrag.formats.arrays import as_array
from warpfrag.formats.epilogue import Epilogue, float32_of
from warpfrag.tensorcore.array_types import Scaled
from warpfrag.tensorcore.resolved_instruction import resolve_instruction

if TYPE_CHECKING:
    import dask.array as da

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

ROLES = ("A", "B", "C", "scale_a", "scale_b")
OF_WORKERS = ("cuda", "native", "auto")
"""The backends that a worker may have even if the process that builds the graph lacks them."""


def blockwise(gemm: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a gemm function accept Dask arrays, for which it returns a Dask array."""

    @wraps(gemm)
    def product(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        arguments = [part for argument in (*args, *kwargs.values()) for part in _parts(argument)]
        if not any(_package(argument) == "dask" for argument in arguments):
            return gemm(*args, **kwargs)
        result: Result = _graph(product, inspect.signature(gemm).bind(*args, **kwargs).arguments)
        return result

    return product


def _parts(argument: object) -> tuple[object, ...]:
    return tuple(argument) if isinstance(argument, Scaled) else (argument,)


def _joined(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the matrices of a gemm by name; a matrix and its scale factors become a `Scaled`."""
    joined = {role: array for role, array in arrays.items() if role in "ABC"}
    for role in "AB":
        scales = arrays.get(f"scale_{role.lower()}")
        if scales is not None:
            joined[role] = Scaled(joined[role], scales)
    return joined


def _package(argument: object) -> str:
    return str(type(argument).__module__).partition(".")[0]


def _graph(gemm: Callable[..., Any], arguments: dict[str, Any]) -> da.Array:
    """Return D as a Dask array, without computing it."""
    import dask.array as da

    options = {name: value for name, value in arguments.items() if name not in ROLES}
    if options.get("instruction") is None and not isinstance(arguments["A"], Scaled):
        a, b = (np.dtype(arguments[role].dtype) for role in "AB")
        options["instruction"] = choose_instruction(a, b, options.get("arch", "sm_90"))
    arrays = {}
    for role in "ABC":
        if role in "AB" or arguments.get(role) is not None:
            array, *scales = _parts(arguments.get(role))
            arrays[role] = _taken(role, array)
            if scales:
                arrays[f"scale_{role.lower()}"] = _taken(f"scale_{role.lower()}", scales[0])
    extents = _check_extents(arrays, options)
    empty = _probe(gemm, arrays, options)
    bias = _bias(options)
    if bias is not None:
        options["epilogue"] = replace(options["epilogue"], bias=None)

    operands = {role: array if isinstance(array, da.Array) else da.from_array(array) for role, array in arrays.items()}
    chunks = _chunks(operands, extents)
    axes = tuple(range(len(chunks)))
    parts: list[Any] = []
    for axis, sizes in enumerate(chunks):
        parts += [da.arange(sum(sizes), chunks=(sizes,)), (axis,)]
    parts += [None, None] if bias is None else [da.from_array(bias, chunks=chunks[-1:]), axes[-1:]]
    for place, role in enumerate(ROLES):
        array = operands.get(role)
        if array is None:
            parts += [None, None]
            continue
        labels = list(axes[-array.ndim :])
        if role != "C":  # every task reads the whole k axis, so that axis has no label in D
            labels[-1 if role in {"A", "scale_a"} else -2] = len(axes) + place
        cut = {
            axis: chunks[label]
            for axis, label in enumerate(labels)
            if label in axes and array.shape[axis] == sum(chunks[label])  # a broadcast axis consists of a single chunk
        }
        parts += [_as_codes(role, array.rechunk(cut)), tuple(labels)]
    return da.blockwise(
        _Block(gemm, {role: array.dtype for role, array in operands.items()}, options),
        axes,
        *parts,
        token="warpfrag-gemm",  # noqa: S106 (the first word of the tasks' names)
        concatenate=True,
        align_arrays=False,
        meta=_meta(operands["A"], empty.dtype, len(axes)),
    )


def _chunks(operands: dict[str, Any], extents: ProductShape) -> list[tuple[int, ...]]:
    """Return the chunks of D: rows as in A, columns as in B, batch axes as in the first operand that has them."""
    A, B = operands["A"], operands["B"]
    sizes = []
    for place, size in enumerate(extents.batch):
        axis = place - len(extents.batch) - 2
        sizes.append(next(array.chunks[axis] for array in (A, B) if array.ndim >= -axis and array.shape[axis] == size))
    return [*sizes, A.chunks[-2], B.chunks[-1]]


class _Block:
    """The computation of one task: the gemm of a strip of A and a strip of B."""

    def __init__(self, gemm: Callable[..., Any], dtypes: dict[str, np.dtype[Any]], options: dict[str, Any]) -> None:
        """Store the data that all tasks share; a task uses one thread by default, because workers run several tasks."""
        self.gemm, self.dtypes = gemm, dtypes
        self.options = options | {"backend": Cpu(1) if options.get("backend", "cpu") == "cpu" else options["backend"]}

    def __call__(self, *parts: NDArray[Any]) -> NDArray[Any]:
        """Return a block of D, given its indices, its slice of the bias, and the operands' strips."""
        *indices, bias = parts[: -len(ROLES)]
        strips = dict(zip(ROLES, parts[-len(ROLES) :], strict=True))
        options = self.options
        if bias is not None:
            options = options | {"epilogue": replace(options["epilogue"], bias=bias)}
        try:
            strips = {role: strip if strip is None else self._declared(role, strip) for role, strip in strips.items()}
            product: NDArray[Any] = self.gemm(**_joined(strips), **options)
            extents = tuple(index.size for index in indices)
            if product.shape != extents:
                raise InvalidOperand(f"expected a block of shape {extents} from these strips, got {product.shape}")  # noqa: TRY301 (reported like the errors of gemm)
        except (InvalidOperand, InvalidSparsity) as error:
            first = ", ".join(str(int(index[0])) if index.size else "0" for index in indices)
            raise type(error)(f"{error} (indices are relative to the block of D that starts at D[{first}])") from None
        return product

    def _declared(self, role: str, strip: NDArray[Any]) -> NDArray[Any]:
        """Return a strip in the dtype of its Dask array; raise InvalidOperand for blocks with a different dtype."""
        declared = self.dtypes[role]
        _check_block(role, strip, _travelling(declared))
        return strip if strip.dtype == declared else strip.view(declared)


def _travelling(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which blocks are sent: integers for ml_dtypes, some of which distributed cannot send."""
    return np.dtype(f"uint{8 * dtype.itemsize}") if hasattr(ml_dtypes, dtype.name) else dtype


def _check_block(role: str, block: NDArray[Any], declared: np.dtype[Any]) -> None:
    """Raise an error if a block's dtype differs from its Dask array's, because its bits would be misread."""
    if block.dtype != declared:
        raise InvalidOperand(f"{role}: expected blocks of the Dask array's dtype {declared}, got {block.dtype}")


def _taken(role: str, argument: object) -> da.Array | NDArray[Any]:
    """Return an operand as a Dask or NumPy array; raise an error for anything else."""
    package, kind = _package(argument), f"{type(argument).__module__}.{type(argument).__name__}"
    if package == "dask":
        import dask.array as da

        if not isinstance(argument, da.Array):
            raise InvalidOperand(f"{role}: expected an array, got {kind}")
        if any(math.isnan(size) for size in argument.shape):
            msg = f"{role}: expected chunks of known sizes, got shape {argument.shape}: "
            msg += f"call {role}.compute_chunk_sizes() first"
            raise InvalidOperand(msg)
        array = argument
    elif package in {"numpy", "builtins", "ml_dtypes"}:
        array = as_array(cast("ArrayLike", argument), role)
    else:
        raise InvalidOperand(f"{role}: a Dask array can be combined only with Dask and NumPy arrays, got a {kind}")
    if array.ndim < 2:
        raise InvalidOperand(f"{role}: expected a matrix, got an array of shape {array.shape}")
    return array


def _check_extents(arrays: dict[str, Any], options: dict[str, Any]) -> ProductShape:
    """Return the shape of the gemm, or raise an error with the full shapes: a Dask task sees only its chunk."""
    extents = ProductShape.of(arrays["A"].shape, arrays["B"].shape)
    if "C" in arrays:
        extents.check_c(arrays["C"].shape)
    bias = _bias(options)
    if bias is not None:
        extents.check_bias(len(bias))
    rule = resolve_instruction(options.get("instruction", ""), options.get("arch", "sm_90")).rule
    if rule.scales and "scale_a" in arrays and "scale_b" in arrays:
        for role in ("scale_a", "scale_b"):
            extents.check_scales(rule, role, arrays[role].shape)
    return extents


def _bias(options: dict[str, Any]) -> NDArray[np.float32] | None:
    epilogue = options.get("epilogue")
    if not isinstance(epilogue, Epilogue) or epilogue.bias is None:
        return None
    return float32_of(epilogue.bias, "bias")


def _probe(gemm: Callable[..., Any], arrays: dict[str, Any], options: dict[str, Any]) -> NDArray[Any]:
    """Return an empty gemm result with the dtype of D; raise an error for arguments that every task would reject."""
    kept = {"A": (0, None), "B": (None, 0), "C": (0, 0), "scale_a": (0, None), "scale_b": (None, 0)}
    empty: dict[str, Any] = {}
    for role, array in arrays.items():
        shape = tuple(size if cut is None else cut for size, cut in zip(array.shape[-2:], kept[role], strict=True))
        # empty arrays of the library to which the chunks belong
        empty[role] = np.empty_like(getattr(array, "_meta", array), shape=shape)
    if _bias(options) is not None:
        options = options | {"epilogue": replace(options["epilogue"], bias=np.empty(0, np.float32))}
    if options.get("backend") in OF_WORKERS and all(isinstance(array, np.ndarray) for array in empty.values()):
        options = options | {"backend": "cpu"}
    probe: NDArray[Any] = gemm(**_joined(empty), **options)
    return probe


def _as_codes(role: str, array: da.Array) -> da.Array:
    """Return a Dask array whose blocks can be sent: ml_dtypes become integers."""
    travelling = _travelling(array.dtype)
    return array if travelling == array.dtype else array.map_blocks(_codes, role, array.dtype, dtype=travelling)


def _codes(block: NDArray[Any], role: str, declared: np.dtype[Any]) -> NDArray[Any]:
    _check_block(role, block, declared)
    return block.view(_travelling(declared))


def _meta(A: da.Array, dtype: np.dtype[Any], axes: int) -> NDArray[Any]:
    """Return an empty array of the same array type as A's blocks."""
    from dask.array.utils import meta_from_array

    meta: NDArray[Any] = meta_from_array(A._meta, ndim=axes, dtype=dtype)  # noqa: SLF001 (Dask's name for it)
    return meta
