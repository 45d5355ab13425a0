"""The mode in which PyTorch's matrix products run with a tensor core's arithmetic, and what it records."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:  # pragma: no cover (tests of this room need torch)
    msg = "warpfrag.torch needs PyTorch: pip install 'warpfrag[torch]'"
    raise ImportError(msg) from error

from warpfrag.coordinates import check_flag
from warpfrag.epilogue import Epilogue, finish
from warpfrag.errors import InvalidOperand, shown
from warpfrag.formats import FORMATS
from warpfrag.gemm import gemm
from warpfrag.isa.legality import arithmetic_arch, form_of
from warpfrag.isa.names import spell
from warpfrag.order import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from warpfrag.isa.words import HasForm

ASCENDING = Order()


class Operation(NamedTuple):
    """A product as PyTorch asks for it: alpha * (A B) + beta * C."""

    name: str
    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor | None = None
    alpha: float = 1.0
    beta: float = 1.0


@dataclass(frozen=True)
class Record:
    """One product that ran.

    `error` is the root mean square distance from the product of the same rounded operands in float64, divided by the
    root mean square of that; `differing` counts the codes that another architecture gives otherwise, if one is named.
    """

    number: int
    layer: str
    direction: str
    operation: str
    shape: tuple[int, ...]
    k: int
    error: float
    differing: int | None
    outputs: int
    first_differing: tuple[int, ...] | None


def _plain(name: str) -> Callable[..., Operation]:
    def read(A: torch.Tensor, B: torch.Tensor) -> Operation:
        return Operation(name, A, B)

    return read


def _added(name: str) -> Callable[..., Operation]:
    def read(C: torch.Tensor, A: torch.Tensor, B: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Operation:
        return Operation(name, A, B, C if beta != 0 else None, float(alpha), float(beta))

    return read


def _linear(A: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Operation:
    return Operation("linear", A, weight.t(), bias)


aten = torch.ops.aten
OPERATIONS: dict[Any, Callable[..., Operation]] = {
    aten.mm.default: _plain("mm"),
    aten.bmm.default: _plain("bmm"),
    aten.addmm.default: _added("addmm"),
    aten.baddbmm.default: _added("baddbmm"),
    aten.linear.default: _linear,
}


class Emulation(TorchDispatchMode):
    """What `emulate` gives: a context, and the products that ran in it."""

    def __init__(
        self,
        instruction: str,
        arch: str,
        order: Order,
        compare: str | None,
        model: torch.nn.Module | None,
        *,
        keep: bool,
    ) -> None:
        """Remember what is asked for; `emulate` has checked it."""
        super().__init__()
        self.instruction, self.arch, self.order, self.compare = instruction, arch, order, compare
        self.records: list[Record] = []
        self.results: list[torch.Tensor] = []
        """What each product gave, if `keep` was asked for."""
        self._keep = keep
        self._names = {} if model is None else {id(module): name for name, module in model.named_modules()}
        self._inside: list[str] = []
        self._layer_of_storage: dict[int, str] = {}
        self._around = ExitStack()

    def __enter__(self) -> Self:
        """Begin; attention is made of its products rather than one fused kernel."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.modules import module as hooks

        self._around.enter_context(sdpa_kernel(SDPBackend.MATH))
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        self._around.callback(torch.backends.mha.set_fastpath_enabled, fast)
        before = hooks.register_module_forward_pre_hook(self._enter_layer)
        after = hooks.register_module_forward_hook(self._leave_layer, always_call=True)
        self._around.callback(before.remove)
        self._around.callback(after.remove)
        super().__enter__()
        return self

    def __exit__(self, *why: object) -> None:
        """End."""
        try:
            super().__exit__(*why)  # type: ignore[arg-type] # as torch has it, whatever it is called there
        finally:
            self._around.close()

    def __iter__(self) -> Iterator[Record]:
        """The products that ran."""
        return iter(self.records)

    def _enter_layer(self, module: Any, _args: Any) -> None:  # noqa: ANN401 (a Module)
        self._inside.append(self._names.get(id(module), type(module).__name__))

    def _leave_layer(self, _module: Any, _args: Any, _result: Any) -> None:  # noqa: ANN401 (as above)
        if self._inside:
            self._inside.pop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None  # noqa: ANN401 (torch's signature)
    ) -> Any:  # fmt: skip  # noqa: ANN401
        """Compute a product ourselves, and leave everything else to PyTorch."""
        read = OPERATIONS.get(func)
        if read is None:
            return func(*args, **(kwargs or {}))
        operation = read(*args, **(kwargs or {}))
        if not operation.A.dtype.is_floating_point:
            return func(*args, **(kwargs or {}))
        return self._multiply(operation)

    def _multiply(self, operation: Operation) -> torch.Tensor:
        A, B = _array(operation.A), _array(operation.B)
        found = self._product(A, B, operation, self.arch)
        self._record(operation, A, B, found)
        result = torch.from_numpy(found).to(device=operation.A.device, dtype=operation.A.dtype)
        if self._keep:
            self.results.append(result.clone())
        return result

    def _product(self, A: NDArray[Any], B: NDArray[Any], operation: Operation, arch: str) -> NDArray[np.float32]:
        """The product in float32, before it is rounded to the dtype of the operation."""
        sums = gemm(A, B, instruction=self.instruction, arch=arch, order=self.order, rounding="rne")
        finished = sums.astype(np.float32)
        if operation.C is None and operation.alpha == 1:
            return finished
        c = None if operation.C is None else np.broadcast_to(_array(operation.C), finished.shape)
        return finish(Epilogue(operation.alpha, operation.beta), finished, c)

    def _record(self, operation: Operation, A: NDArray[Any], B: NDArray[Any], found: NDArray[np.float32]) -> None:
        layer, direction = self._layer(operation)
        form = form_of(self.instruction)
        rounded = [_rounded(array, name) for array, name in ((A, form.a), (B, form.b))]
        exact = operation.alpha * (rounded[0] @ rounded[1])
        if operation.C is not None:
            exact = exact + operation.beta * _array(operation.C).astype(np.float64)
        size = float(np.sqrt(np.mean(exact**2))) if exact.size else 0.0
        distance = float(np.sqrt(np.mean((found - exact) ** 2))) if exact.size else 0.0
        differing, first = None, None
        if self.compare is not None:
            other = self._product(A, B, operation, self.compare)
            mine, theirs = (torch.from_numpy(array).to(operation.A.dtype) for array in (found, other))
            unlike = (mine != theirs) & ~(mine.isnan() & theirs.isnan())
            differing = int(unlike.sum())
            first = tuple(int(index) for index in unlike.nonzero()[0]) if differing else None
        self.records.append(
            Record(
                len(self.records), layer, direction, operation.name, tuple(found.shape), A.shape[-1],
                distance / size if size else distance, differing, int(found.size), first,
            )
        )  # fmt: skip

    def _layer(self, operation: Operation) -> tuple[str, str]:
        """The layer of a product: the one that runs, or in the backward pass the one whose operands these are."""
        storages = [tensor.untyped_storage().data_ptr() for tensor in (operation.A, operation.B)]
        if self._inside:
            layer = self._inside[-1] or "model"
            for storage in storages:
                self._layer_of_storage.setdefault(storage, layer)
            return layer, "forward"
        known = [self._layer_of_storage[storage] for storage in storages if storage in self._layer_of_storage]
        return (known[0], "backward") if known else ("", "")

    def __str__(self) -> str:
        """A line for each product."""
        against = f"  codes unlike {self.compare}" if self.compare else ""
        lines = [f"{self.instruction} on {self.arch}, {self.order}: {len(self.records)} products"]
        width = max([len(record.layer) for record in self.records] + [5])
        for record in self.records:
            shape = " x ".join(map(str, (*record.shape, record.k)))
            unlike = f"  {record.differing} of {record.outputs}" if against else ""
            lines.append(
                f"{record.number:4}  {record.layer:{width}}  {record.direction:8}  {record.operation:7}  "
                f"{shape:24}  error {record.error:.3g}{unlike}"
            )
        return "\n".join(lines) + (f"\n(last column:{against})" if against else "")


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor as numpy has it: without a copy where it lies in memory and numpy knows its dtype."""
    plain = tensor.detach().cpu()
    if plain.dtype not in (torch.float16, torch.float32, torch.float64):
        plain = plain.float()
    array: NDArray[Any] = plain.numpy()
    return array


def _rounded(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Numbers as the instruction takes them, in float64."""
    from warpfrag.codes import from_codes, to_codes

    row = FORMATS[name]
    codes = to_codes(row, array, rounding="rne")
    if row.unused:
        codes = codes & ~codes.dtype.type((1 << row.unused) - 1)
    return from_codes(row, codes).astype(np.float64)


def emulate(
    *,
    instruction: str | HasForm,
    arch: str = "sm_90",
    order: Order = ASCENDING,
    compare: str | None = None,
    model: Any = None,  # noqa: ANN401 (a Module, of whichever version of torch)
    keep: bool = False,
) -> Emulation:
    """A context in which every mm, addmm, bmm, baddbmm and linear runs as `instruction` on `arch` computes it.

    Forward and backward products alike, on tensors of the CPU or of a GPU. `compare` names another architecture, with
    which every product is compared; `model` gives layers their names; `keep` keeps what every product gave.
    It is the object to ask afterwards: `records`, `results`.
    """
    form = form_of(instruction)
    for name in (arch, *([compare] if compare is not None else [])):
        arithmetic_arch(form, name)
    if not form.is_product or not FORMATS[form.a].is_float or form.is_sparse or form.block_scale or form.c != form.d:
        msg = f"{spell(form)}: expected a dense product of floats without scale factors, whose C and D are alike"
        raise InvalidOperand(msg)
    if not isinstance(order, Order):
        msg = f"order: expected a wf.Order, got {shown(order)}"
        raise InvalidOperand(msg)
    if model is not None and not isinstance(model, torch.nn.Module):
        msg = f"model: expected a torch.nn.Module, got {shown(model)}"
        raise InvalidOperand(msg)
    order.chains(0, form.shape.k, FORMATS[form.a].bits)  # refuses lengths that do not fit the instruction
    return Emulation(spell(form), arch, order, compare, model, keep=check_flag("keep", keep))
