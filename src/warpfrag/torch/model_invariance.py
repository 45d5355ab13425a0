"""Batch invariance of a model: the layers in which cuBLAS changes its order of additions with the batch size.

The model runs once per batch size on the CPU, with zeros as the result of each matmul, and records the order that the
library would choose. A row of a matmul keeps its bits as long as the order stays the same. Other operations are not
judged: `not_judged` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from warpfrag.blas.cublas.predict_order import PredictedOrder, library_additions, order_runs
from warpfrag.blas.cublas.torch_settings import assumption_lines, assumptions
from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.grouping import grouped
from warpfrag.html import TextCard
from warpfrag.torch.emulation import Emulation, Record
from warpfrag.torch.torch_operations import OPERATIONS, TorchProduct

FUSED = "attention, which a GPU usually computes in one fused kernel"
MAX_NAMES = 8
"""The maximum number of layers that the first line names; the remaining lines name all layers."""


@dataclass(frozen=True)
class LayerOrders:
    """One matmul of a layer at every batch size; a prediction is None if the library's choice is not modelled."""

    layer: str
    operation: str
    shapes: tuple[tuple[int, ...], ...]
    predictions: tuple[PredictedOrder | None, ...]
    remedy: str = ""
    reason: str = ""
    """The reason why the order is not known at some batch size, or ""."""

    @property
    def is_judged(self) -> bool:
        """True if the order is known at every batch size."""
        return None not in self.predictions

    @property
    def changes(self) -> bool:
        """True if K is split or summed differently at two batch sizes."""
        known = {(entry.kind.type, entry.order, entry.omitted_k) for entry in self.predictions if entry is not None}
        if len(known) < 2:
            return False
        depth = max(shape[-1] for shape in self.shapes)
        return len({(library_additions(name, order, depth - omitted), omitted) for name, order, omitted in known}) > 1

    @property
    def is_guess(self) -> bool:
        """True if at least one order is a guess."""
        return any(known is not None and known.is_guess for known in self.predictions)


@dataclass(frozen=True)
class ModelInvariance(TextCard):
    """The matmuls of a model, with their orders of additions at every batch size."""

    batches: tuple[int, ...]
    layers: tuple[LayerOrders, ...]
    not_judged: Mapping[str, int]
    arch: str
    products: frozenset[str] = frozenset()
    """The operations in `not_judged` that sum products, in kernels that are not modelled."""

    @property
    def changes(self) -> tuple[LayerOrders, ...]:
        """The matmuls whose bits change with the batch size."""
        return tuple(layer for layer in self.layers if layer.changes)

    def __str__(self) -> str:
        """Return each layer that changes, with its orders and a remedy, then guesses and unjudged operations."""
        sizes = ", ".join(map(str, self.batches))
        open_layers = [layer for layer in self.layers if not layer.is_judged and not layer.changes]
        count = len(self.layers) - len(open_layers)
        head = f"{len(self.changes)} of {count} judged matmuls change their order"
        uncertain = sum(layer.is_guess for layer in self.layers if layer.is_judged or layer.changes)
        head += f" (for {uncertain}, the order is a guess)" if uncertain else ""
        if open_layers:
            head += f"; {len(open_layers)} not judged: {_named(open_layers, MAX_NAMES)}"
        between = " (others were not tried)" if len(self.batches) > 1 else ""
        lines = [f"batch sizes {sizes} on {self.arch}{between}: {head}"]
        for layer in self.changes:
            lines.append(f"{layer.layer or 'model'} ({layer.operation}){', a guess' * layer.is_guess}")
            for batch, shape, known in zip(self.batches, layer.shapes, layer.predictions, strict=True):
                label = "not modelled" if known is None else _described(known)
                lines.append(f"  batch {batch}: {' x '.join(map(str, shape))}, {label}")
            lines.append(f"  remedy: {layer.remedy}")
        guesses = [layer for layer in self.layers if layer.is_guess and layer.is_judged and not layer.changes]
        if guesses:
            lines.append(f"no change, a guess: {_named(guesses)}")
        unknown = grouped((layer.reason, layer) for layer in self.layers if not layer.is_judged)
        lines += [f"{_named(layers)} not judged: {reason}" for reason, layers in unknown.items()]
        for label, is_product in (("a product that is not modelled", True), ("not a matrix product", False)):
            counts = (entry for entry in self.not_judged.items() if (entry[0] in self.products) == is_product)
            if listed := ", ".join(f"{name} {number}" for name, number in counts):
                lines.append(f"not judged ({label}): {listed}")
        return "\n".join([*lines, *assumption_lines(self._types)])

    @property
    def _types(self) -> list[str]:
        """The operand formats of the judged matmuls."""
        return [known.kind.type for layer in self.layers for known in layer.predictions if known is not None]

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        layers = [
            {
                "layer": layer.layer,
                "operation": layer.operation,
                "shapes": [list(shape) for shape in layer.shapes],
                "orders": [None if known is None else asdict(known.order) for known in layer.predictions],
                "kernels": [None if known is None else known.kernel for known in layer.predictions],
                "judged": layer.is_judged,
                "changes": layer.changes,
                "guess": layer.is_guess,
                "reason": layer.reason,
                "remedy": layer.remedy,
            }
            for layer in self.layers
        ]
        return {
            "arch": self.arch,
            "batches": list(self.batches),
            "settings": assumptions(self._types),
            "layers": layers,
            "not_judged": dict(self.not_judged),
            "products": sorted(self.products),
        }


def _named(layers: Sequence[LayerOrders], limit: int | None = None) -> str:
    """Return the distinct names of layers as text, at most `limit` of them."""
    names = list(dict.fromkeys(f"layer {layer.layer!r}" if layer.layer else "model" for layer in layers))
    more = [] if limit is None or len(names) <= limit else [f"and {len(names) - limit} more"]
    return ", ".join([*names[:limit], *more])


def _described(known: PredictedOrder) -> str:
    """Return a description of an order, of the terms that the library omits, and of the kernel."""
    lost = f", without the last {known.omitted_k} terms along K" if known.omitted_k else ""
    guess = ", a guess" if known.is_guess else ""
    return f"{known.order.describe(known.shape[2] - known.omitted_k)}{lost}{guess}: {known.kernel}"


class OrderRecorder(Emulation):
    """An emulation that records the library's order of each matmul, and returns zeros."""

    def __init__(self, *, arch: str, model: torch.nn.Module) -> None:
        """Create a recorder without records."""
        super().__init__(library="cublas", arch=arch, model=model)
        self.reasons: list[str] = []
        """For each recorded matmul, the reason why its order is not known, or "" if it is known."""

    def run(self, func: Any, plain: Callable[..., Any], args: Any, kwargs: Any) -> Any:  # noqa: ANN401 (torch's)
        """Run an operation; a matmul whose operands do not match is passed to PyTorch, which usually rejects it."""
        try:
            if func in OPERATIONS:
                OPERATIONS[func](*args, **kwargs).check()
                meta = (torch.empty_like(each, device="meta") if torch.is_tensor(each) else each for each in args)
                func(*meta, **{name: value for name, value in kwargs.items() if name != "out"})
        except (InvalidOperand, RuntimeError):
            self._count(func.overloadpacket.__name__)
            return plain(*args, **kwargs)
        return super().run(func, plain, args, kwargs)

    def _left_to_pytorch(self, operation: TorchProduct) -> str:  # noqa: ARG002 (all are recorded)
        return ""

    def _multiply(self, operation: TorchProduct) -> torch.Tensor:
        known, reason = None, FUSED if self.attention.dtypes else ""
        try:
            known = None if reason else self._choice(operation).prediction
        except NotModelled as error:
            reason = str(error)
        self.reasons.append(reason)
        shape, k = (*operation.A.shape[:-1], operation.B.shape[-1]), operation.A.shape[-1]
        given = len(self.records), *self._layer(operation), operation.name, shape, k, 0.0, None, 0, None
        self.records.append(Record(*given, prediction=known))
        return operation.written(operation.A.new_zeros(shape, dtype=operation.result))


def batch_invariance(
    model: torch.nn.Module,
    example: Any,  # noqa: ANN401 (a model's input)
    batches: Sequence[int] = (1, 2, 4, 8),
    *,
    arch: str = "H200",
) -> ModelInvariance:
    """Return the matmuls of a model whose order of additions changes with the batch size, with a remedy for each.

    `example` is the model's input: a tensor, a tuple of arguments, or a mapping of keyword arguments. The first axis of
    each tensor is the batch; its first row is repeated for every batch size. The forward pass runs on the CPU.
    """
    sizes = tuple(batches) if isinstance(batches, Iterable) else ()
    if not sizes or any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes):
        raise InvalidOperand(f"batches: expected positive batch sizes, such as [1, 2, 4, 8]; got {quote(batches)}")
    args, kwargs = _arguments(example)
    if not any(isinstance(entry, torch.Tensor) for entry in (*args, *kwargs.values())):
        raise InvalidOperand(f"example: expected the model's input, such as torch.zeros(1, 4096); got {quote(example)}")
    runs = [OrderRecorder(arch=arch, model=model) for _ in sizes]
    for run, size in zip(runs, sizes, strict=True):
        with torch.no_grad(), run:
            model(*_repeated(args, size), **dict(zip(kwargs, _repeated(kwargs.values(), size), strict=True)))
    counts = [len(run.records) for run in runs]
    if len(set(counts)) > 1:
        raise InvalidOperand(f"expected the same number of matmuls at batch sizes {list(sizes)}, got {counts}")
    layers = []
    for records, unknown in zip(zip(*runs, strict=True), zip(*(run.reasons for run in runs), strict=True), strict=True):
        known = tuple(record.prediction for record in records)
        shapes = tuple((*record.shape, record.k) for record in records)
        layer = LayerOrders(records[0].layer, records[0].operation, shapes, known, reason=max(unknown))
        layers.append(replace(layer, remedy=_remedy(known, arch, layer)))
    counted, products = dict(runs[-1].not_emulated.most_common()), frozenset(runs[-1].products)
    return ModelInvariance(sizes, tuple(layers), counted, arch, products)


def _arguments(example: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:  # noqa: ANN401 (a model's input)
    """Return the arguments and keyword arguments of a model."""
    if isinstance(example, Mapping):
        return (), example
    return (example if isinstance(example, tuple | list) else (example,)), {}


def _repeated(entries: Iterable[Any], size: int) -> list[Any]:
    """Return the arguments of a model, with the first row of each tensor repeated."""
    rows = ((entry, torch.is_tensor(entry) and entry.ndim) for entry in entries)
    return [entry[:1].expand(size, *entry.shape[1:]).contiguous() if has_rows else entry for entry, has_rows in rows]


def _remedy(known: tuple[PredictedOrder | None, ...], arch: str, layer: LayerOrders) -> str:
    """Return advice for a matmul whose order changes: pad m to the first m that has the largest batch's order."""
    if not layer.changes:
        return ""
    largest = max((entry for entry in known if entry is not None), key=lambda entry: entry.shape[0])
    m, n, k = largest.shape
    if largest.kind.call == "bmm":
        return "compute the entries of every batch with matmuls of the same shape"
    runs, _ = order_runs(largest.kind, n, k, (1, m), query_cublas=False, choices=arch)
    first = runs[-1].first
    return f"pad smaller inputs to {first} rows (tokens); from {first} to {m} the order is the same"
