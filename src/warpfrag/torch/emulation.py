"""The context manager that computes PyTorch matmuls with tensor-core arithmetic, and its records."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from threading import Lock, current_thread, get_ident, local
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from warpfrag.blas.cublas.choice_table import TABLE_OF_ARCH, choices_of
from warpfrag.blas.cublas.predict_order import PredictedOrder, find_product_order, library_instruction, product_kind
from warpfrag.blas.cublas.torch_settings import assumption_lines, own_value
from warpfrag.blas.gemm import gemm
from warpfrag.blas.instruction_choice import choose_instruction
from warpfrag.blas.order import Order, check_order
from warpfrag.errors import InvalidOperand, NoGpu, NotEmulated, NotModelled, check_flag, quote
from warpfrag.formats.arrays import dtype_of
from warpfrag.formats.codes import as_read, from_codes, to_codes
from warpfrag.formats.epilogue import Epilogue, finish
from warpfrag.formats.number_formats import FORMATS
from warpfrag.html import table_lines
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import form_of
from warpfrag.isa.qualifiers import HasForm
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch
from warpfrag.tensorcore.array_types import ArrayKind, to_caller_kind
from warpfrag.tensorcore.backends.device_kernel import cupy
from warpfrag.torch.attention import ATTENTION, AttentionWatch
from warpfrag.torch.interception import ProcessSwitch, ProductHooks
from warpfrag.torch.torch_operations import OPERATIONS, PLAIN_PRODUCTS, NodeLabels, TorchProduct, computes, has_numbers

ASCENDING = Order()


@dataclass(frozen=True)
class Record:
    """A record of one emulated matmul.

    `error` is the root mean square difference from the float64 matmul of the same rounded operands, relative to the
    root mean square of that matmul. `differing` counts the outputs whose bits differ on the `compare` architecture.
    `layer` is "" if it is unknown.
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
    instruction: str = ""
    prediction: PredictedOrder | None = None
    """The order that the library chooses, with its evidence, if a library is emulated."""
    overflows: int = 0
    """The number of finite elements of A and B that became infinite or NaN when rounded to the instruction's format."""

    @property
    def is_guess(self) -> bool:
        """True if the library's order of additions is not known for certain."""
        return self.prediction is not None and self.prediction.is_guess


class ProductChoice(NamedTuple):
    """The instruction and order of a matmul, and the number of terms that are omitted at the end of k."""

    instruction: str
    order: Order
    omitted_k: int = 0
    prediction: PredictedOrder | None = None


class _Inside(local):
    """The layers that this thread is running, outermost first, each with the autograd node that runs it, or None.

    Hooks see the layers of all threads.
    """

    def __init__(self) -> None:
        self.layers: list[tuple[str, object]] = []


class _Computing(local):
    """A per-thread counter, above 0 inside an emulated matmul, because its inner operations must not be emulated."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


COMPUTING = _Computing()
OPEN: list[Emulation] = []
"""The active emulations of all threads; a thread's innermost emulation comes last."""
HOOKS = ProductHooks()


def _emulation_here(name: str) -> Emulation | None:
    """Return the emulation for this thread: its own, or the only active one."""
    emulations = tuple(OPEN)
    own = [emulation for emulation in emulations if emulation.thread == get_ident()]
    owners = {emulation.thread for emulation in emulations}
    if not own and len(owners) > 1:
        raise InvalidOperand(
            f"{name} in thread {current_thread().name!r}: {len(owners)} other threads have emulations; enter one here"
        )
    return (own or emulations or (None,))[-1]


def _run_anywhere(func: Any, plain: Callable[..., Any], args: Any, kwargs: Any) -> Any:  # noqa: ANN401 (torch's)
    """Run an operation in any thread, unless a mode has already handled it."""
    is_ours = OPEN and not COMPUTING.depth and has_numbers(args)
    emulation = _emulation_here(func.overloadpacket.__name__) if is_ours else None
    return plain(*args, **kwargs) if emulation is None else emulation.run(func, plain, args, kwargs)


def _warn_of_workers(method: str) -> None:
    msg = f"the workers of a DataLoader ({method}) are separate processes: matmuls in them are not emulated"
    for emulation in OPEN:
        emulation.warn_once("DataLoader", msg)


def _watch_attention(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the arguments of attention)
    """Call attention, and let the emulation of this thread watch the call."""
    emulation = _emulation_here("scaled_dot_product_attention") if OPEN else None
    return ATTENTION(*args, **kwargs) if emulation is None else emulation.attention.watch(args, kwargs)


SWITCH = ProcessSwitch(_warn_of_workers, _watch_attention)


class Emulation(TorchDispatchMode):
    """A context that computes every mm, addmm, bmm, baddbmm and linear with the arithmetic of `instruction` on `arch`.

    Without an instruction, each matmul uses the one that libraries use for its dtypes on `arch`; `Record.instruction`
    names it. The context emulates forward and backward matmuls, on CPU and GPU tensors; a GPU computes its own tensors
    if CuPy is installed. `compare` names a second architecture, with which every matmul is compared; `model` provides
    the names of layers; `keep` keeps the result of every matmul. The instruction's formats must contain every number of
    the operands' dtypes, unless `rounding="rne"` is given. Afterwards, `records` has a record of each matmul, `results`
    has the kept results, and `not_emulated` counts the operations that PyTorch computed itself. With `strict=True`, an
    operation raises `NotModelled` if it sums products but is not emulated.

    `scales` has one scale for every A and one for every B, as for fp8: operands are divided by them before they are
    rounded, and the sums are multiplied by both. "amax" scales the largest magnitude of each tensor to the largest
    number of the format.

    Instead of an instruction, `library="cublas"` uses, for every matmul, the instruction and the order of additions
    that PyTorch's library chooses for its shape on the GPU `arch`, as `wf.predict` does; `Record.prediction` has the
    evidence. A float32 matmul is emulated only if PyTorch's settings allow TF32, for example after
    `torch.set_float32_matmul_precision("high")`. Otherwise a GPU runs a float32 kernel, which is not modelled.

    An emulation applies to every thread of the process except threads that enter their own. If several threads have an
    emulation, a matmul in a thread without one is rejected. Functions compiled with torch.compile run uncompiled. Other
    operations that sum products (mv, dot, convolutions, solvers, fused recurrent layers) are left to PyTorch, with a
    `NotEmulated` warning for each. A matmul in a process that is forked inside an emulation, such as a DataLoader
    worker, is rejected.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        *,
        instruction: str | HasForm | None = None,
        library: str | None = None,
        arch: str = "sm_90",
        order: Order = ASCENDING,
        compare: str | None = None,
        model: torch.nn.Module | None = None,
        keep: bool = False,
        scales: tuple[TensorScale, TensorScale] = (1.0, 1.0),
        rounding: str | None = None,
        strict: bool = False,
    ) -> None:
        """Create an emulation and validate its settings; nothing changes before the context is entered."""
        super().__init__()
        if instruction is not None and library is not None:
            raise InvalidOperand("expected an instruction, or library='cublas'; got both")
        if library is not None:
            if not isinstance(library, str) or library != "cublas":
                raise InvalidOperand(f"library: expected 'cublas', got {quote(library)}")
            choices_of(arch)  # raises an error for a GPU without a table of cuBLAS's choices
        self.is_chosen = instruction is None
        """True if each matmul's instruction is chosen from its dtypes."""
        half = np.dtype(np.float16)
        form = form_of(choose_instruction(half, half, arch) if instruction is None else instruction)
        for name in (arch, *([compare] if compare is not None else [])):
            arithmetic_arch(form, name)
        is_dense = form.operation.does == "multiply" and not form.operation.sparsity and not form.block_scale
        if not is_dense or not FORMATS[form.a].is_float or form.c != form.d:
            raise InvalidOperand(
                f"{spell(form)}: expected a dense mma of floats without scale factors, with the same type for C and D"
            )
        if model is not None and not isinstance(model, torch.nn.Module):
            raise InvalidOperand(f"model: expected a torch.nn.Module, got {quote(model)}")
        # raises an error if lengths do not fit the instruction
        check_order(order).chains(0, form.shape.k, FORMATS[form.a].bits)
        if rounding is not None and not (isinstance(rounding, str) and rounding == "rne"):
            raise InvalidOperand(f"rounding: expected 'rne' or None, got {quote(rounding)}")
        self.instruction, self.arch, self.order, self.compare = spell(form), arch, order, compare
        self.library = library
        self.rounding, self.strict = rounding, check_flag("strict", strict)
        self.scales = check_scales(scales)
        if library is not None and self.scales != (1.0, 1.0):
            raise InvalidOperand("scales need an instruction: wf.predict computes the library's scaled gemms")
        self.records: list[Record] = []
        self.results: list[torch.Tensor] = []
        self.not_emulated: Counter[str] = Counter()
        """The number of calls of each operation that PyTorch computed itself, except copies and views."""
        self.products: set[str] = set()
        """The operations that PyTorch computed itself although they sum products."""
        self._keep = check_flag("keep", keep)
        self._names = {} if model is None else {id(module): name for name, module in model.named_modules()}
        self._inside = _Inside()
        self._layers, self._widenings = NodeLabels(), NodeLabels()
        self._around = ExitStack()
        self.attention = AttentionWatch(self.warn_once)
        self._is_open = False
        self._lock = Lock()
        self._warned: set[str] = set()
        self._process = os.getpid()
        self.thread = get_ident()
        """The thread that entered the emulation."""

    def __enter__(self) -> Self:
        """Start emulating, in this thread and in all threads without their own emulation."""
        from torch.nn.modules import module as hooks

        if self._is_open:
            raise InvalidOperand("this emulation is already active: call emulate() again for another one")
        with ExitStack() as around:  # undo a partial setup if something fails
            HOOKS.install([*OPERATIONS, *PLAIN_PRODUCTS], _run_anywhere)
            around.enter_context(SWITCH)
            around.enter_context(self.attention)
            around.callback(hooks.register_module_forward_pre_hook(self._enter_layer).remove)
            around.callback(hooks.register_module_forward_hook(self._leave_layer, always_call=True).remove)
            super().__enter__()
            self._around = around.pop_all()
        self.thread, self._process = get_ident(), os.getpid()
        self._is_open = True
        OPEN.append(self)
        return self

    def __exit__(self, *why: object) -> None:
        """Stop emulating, and remove the hooks of the model."""
        OPEN.remove(self)
        try:
            super().__exit__(*why)  # type: ignore[arg-type] # with torch's own parameter names
        finally:
            self._is_open = False
            self._inside = _Inside()
            self._around.close()

    def __iter__(self) -> Iterator[Record]:
        """Return an iterator over the records."""
        return iter(self.records)

    def _enter_layer(self, module: torch.nn.Module, _args: object) -> None:
        name = self._names.get(id(module), type(module).__name__)
        self._inside.layers.append((name or "model", NodeLabels.running()))

    def _leave_layer(self, _module: torch.nn.Module, _args: object, _result: object) -> None:
        if self._inside.layers:
            self._inside.layers.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Emulate a matmul, and leave all other operations to PyTorch."""
        return self.run(func, func, args, kwargs or {})

    def run(self, func: Any, plain: Callable[..., Any], args: Any, kwargs: Any) -> Any:  # noqa: ANN401 (torch's)
        """Run an operation: emulate it if it is a matmul, and otherwise call `plain`."""
        is_attention = isinstance(func, HigherOrderOperator) and "attention" in func.name()
        if func in PLAIN_PRODUCTS or is_attention:
            if has_numbers(args):
                self._leave(func.name() if is_attention else PLAIN_PRODUCTS[func])
            with COMPUTING:
                return plain(*args, **kwargs)
        if isinstance(func, HigherOrderOperator):  # it calls functions whose matmuls are emulated
            return plain(*args, **kwargs)
        read = OPERATIONS.get(func)
        if read is None:
            if not COMPUTING.depth and computes(func) and has_numbers(args):
                self._count(func.overloadpacket.__name__)
            return plain(*args, **kwargs)
        operation = read(*args, **kwargs)
        if operation.A.device.type == "meta" or not (operation.A.is_floating_point() or operation.A.is_complex()):
            return plain(*args, **kwargs)
        label = f"{operation.name} of {operation.A.dtype}"
        kind = label if operation.A.is_complex() else self._left_to_pytorch(operation)
        if kind:
            self._leave(kind)
        with COMPUTING:
            return plain(*args, **kwargs) if kind else self._multiply(operation)

    def _left_to_pytorch(self, operation: TorchProduct) -> str:
        """Return the name of a matmul that PyTorch must compute itself, with the reason; "" if it can be emulated."""
        try:
            self._choice(operation)
        except NotModelled as error:
            return f"{operation.name} ({error})"
        return ""

    def _leave(self, name: str) -> None:
        """Count an operation that sums products and is not emulated, and warn; raise an error if `strict` is True."""
        if self.strict:
            raise NotModelled(f"{name} is not emulated, which strict=True forbids")
        self._count(name)
        self.products.add(name)
        self.warn_once(name, f"{name} is not emulated: PyTorch computes it")

    def _count(self, name: str) -> None:
        with self._lock:
            self.not_emulated[name] += 1

    def warn_once(self, label: str, message: str) -> None:
        """Issue a warning unless one with the same label was issued before."""
        with self._lock:
            is_new = label not in self._warned
            self._warned.add(label)
        if is_new:
            warnings.warn(message, NotEmulated, stacklevel=2)

    def _multiply(self, operation: TorchProduct) -> torch.Tensor:
        operation.check()
        if os.getpid() != self._process:
            where = "in a process that was forked inside an emulation, such as a DataLoader worker"
            raise InvalidOperand(f"{operation.name} cannot be recorded {where}; use num_workers=0")
        choice = self._choice(operation)
        form, device = form_of(choice.instruction), _device(operation.A)
        if self.rounding is None and not self.is_chosen and self.scales == (1.0, 1.0):
            check_dtypes(operation, (form.a, form.b), self.attention.widening(operation.A.dtype))
        wide = [tensor.detach().resolve_neg().to(device) for tensor in (operation.A, operation.B)]
        factors = [scale_factor(*part) for part in zip(wide, (form.a, form.b), self.scales, strict=True)]
        A, B = (
            rounded(tensor if factor == 1 else widened(tensor) / factor, name)
            for tensor, name, factor in zip(wide, (form.a, form.b), factors, strict=True)
        )
        finite = [(widened(given).isfinite(), widened(low).isfinite()) for given, low in zip(wide, (A, B), strict=True)]
        scaled = operation._replace(alpha=operation.alpha * factors[0] * factors[1])
        product = self._product(A, B, scaled, self.arch, choice)
        result = product.to(device=operation.A.device, dtype=operation.result)
        overflows = sum(int((before & ~after).sum()) for before, after in finite)
        record = replace(self._record(scaled, A, B, product, choice), prediction=choice.prediction, overflows=overflows)
        output = operation.written(result)
        with self._lock:
            self.records.append(replace(record, number=len(self.records)))
            if self._keep:
                self.results.append(result.clone())
        return output

    def _choice(self, operation: TorchProduct) -> ProductChoice:
        """Return the instruction and order for a matmul: those of the emulation, or the library's choice."""
        if self.is_chosen and self.rounding is None and is_plain_float32(operation):
            widening = self.attention.widening(operation.A.dtype) or self._widenings.of_running_node()
            self._widenings.add(operation, widening)
            raise NotModelled(widening or PLAIN_FLOAT32)
        if self.library is None:
            return ProductChoice(self._instruction(operation), self.order)
        name = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "tf32"}.get(operation.A.dtype)
        if name is None or operation.alpha != 1 or operation.beta != 1:
            label = f"{operation.name} of {operation.A.dtype}, alpha {operation.alpha}, beta {operation.beta}"
            raise NotModelled(f"{label}: cuBLAS is modelled for float16, bfloat16 and float32, alpha and beta 1")
        a, b = operation.A, operation.B
        layout = "".join("n" if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else "t" for tensor in (a, b))
        has_bias = operation.C is not None and operation.C.ndim == 1
        is_batch = b.ndim == 3
        batch = max(1, a.shape[0]) if is_batch else None
        kind = product_kind(name, "nn" if layout == "tt" else layout, bias=has_bias and not is_batch, batch=batch)
        rows = a.shape[-2] if is_batch else prod(a.shape[:-1])  # a linear layer multiplies all rows as one matrix
        shape = (int(rows), int(b.shape[-1]), int(a.shape[-1]))
        known = find_product_order(kind, shape, query_cublas=False, choices=self.arch)
        if layout == "tt":  # this layout was not measured, so the choice for two row-major operands is assumed
            known = replace(known, is_guess=True)
        return ProductChoice(library_instruction(name, self.arch), known.order, known.omitted_k, known)

    def _instruction(self, operation: TorchProduct) -> str:
        """Return the given instruction, or the one that libraries use for the dtypes."""
        if not self.is_chosen:
            return self.instruction
        if operation.A.dtype == torch.float64:
            raise NotModelled("only wf.gemm computes float64, with the f64 mma that libraries use")
        return choose_instruction(dtype_of(operation.A), dtype_of(operation.B), self.arch)

    def _product(
        self, A: torch.Tensor, B: torch.Tensor, operation: TorchProduct, arch: str, choice: ProductChoice
    ) -> torch.Tensor:
        """Return the matmul in float32, before rounding to the dtype of the operation."""
        if choice.omitted_k:
            A, B = A[..., : -choice.omitted_k], B[..., : -choice.omitted_k, :]
        backend = "auto" if A.is_cuda else "cpu"
        c, order = operation.C, choice.order
        if c is not None:
            shape = (*torch.broadcast_shapes(A.shape[:-2], B.shape[:-2]), A.shape[-2], B.shape[-1])
            try:
                c = c.detach().resolve_neg().broadcast_to(shape)
            except RuntimeError:
                shapes = f"{tuple(c.shape)}, and the product is {shape}"
                raise InvalidOperand(f"{operation.name}: cannot broadcast C to the product: C is {shapes}") from None
        if c is not None and order.in_place:  # the kernel adds the parts to C one by one
            own = Epilogue(operation.alpha, operation.beta)
            given = A, B, c.to(A.device)
            return gemm(*given, instruction=choice.instruction, arch=arch, order=order, epilogue=own, backend=backend)
        sums = gemm(A, B, instruction=choice.instruction, arch=arch, order=order, backend=backend).float()
        if c is None and operation.alpha == 1:
            return sums
        known, is_matrix = choice.prediction, operation.C is not None and operation.C.ndim > 1
        if known is not None and is_matrix and known.kernel.startswith("nvjet") and order.split_k == 1:
            sums = sums.to(operation.result).float()  # these kernels round the sum and then add it to C in memory
        if c is not None and sums.is_cuda and operation.alpha == operation.beta == 1 and c.dtype != torch.float64:
            return sums + c.float()  # one addition, which is rounded once
        numbers = None if c is None else widened(c).cpu().numpy()
        finished = finish(Epilogue(operation.alpha, operation.beta), sums.cpu().numpy(), numbers)
        return torch.from_numpy(finished).to(sums.device)

    def _record(
        self, operation: TorchProduct, A: torch.Tensor, B: torch.Tensor, product: torch.Tensor, choice: ProductChoice
    ) -> Record:
        exact = operation.alpha * (A.double() @ B.double())
        if operation.C is not None:
            exact = exact + operation.beta * operation.C.detach().to(product.device).double()
        size, distance = (float(one.square().mean().sqrt()) if one.numel() else 0.0 for one in (exact, product - exact))
        differing, first = None, None
        if self.compare is not None:
            other = self._product(A, B, operation, self.compare, choice)
            mine, theirs = (numbers.to(operation.result) for numbers in (product, other))
            unlike = (mine != theirs) & ~(mine.isnan() & theirs.isnan())
            differing = int(unlike.sum())
            first = tuple(int(index) for index in unlike.nonzero()[0]) if differing else None
        return Record(
            0, *self._layer(operation), operation.name, tuple(product.shape), A.shape[-1],
            distance / size if size else distance, differing, product.numel(), first, choice.instruction,
        )  # fmt: skip

    def _layer(self, operation: TorchProduct) -> tuple[str, str]:
        """Return the layer and the pass (forward or backward) of a matmul; a backward one has its node's layer."""
        layer, outer = self._inside.layers[-1] if self._inside.layers else ("", None)
        direction = "forward" if layer else ""
        if NodeLabels.running() is not outer:
            layer, direction = self._layers.of_running_node(), "backward"
        self._layers.add(operation, layer)
        return layer, direction

    def __repr__(self) -> str:
        """Return the settings and the number of matmuls."""
        return f"<Emulation: {self._heading()}>"

    def _heading(self) -> str:
        name = "the instruction for each dtype" if self.is_chosen else self.instruction
        gpu = TABLE_OF_ARCH.get(self.arch, self.arch)
        used = f"{name} on {self.arch}, {self.order}" if self.library is None else f"cuBLAS on an {gpu}"
        guesses, count = sum(record.is_guess for record in self), len(self.records)
        used += f", {guesses} order{'s' * (guesses != 1)} guessed" if guesses else ""
        return f"{used}: " + (f"{count} matmul{'s' * (count != 1)}" if count else "no matmul was emulated")

    def __str__(self) -> str:
        """Return a table with a line for each matmul."""
        heads = ["", "layer", "pass", "call", "shape (..., k)", "error"]
        rows = []
        for record in self.records:
            shape, error = " x ".join(map(str, (*record.shape, record.k))), f"{record.error:.3g}"
            row: list[object] = [record.number, record.layer, record.direction, record.operation, shape, error]
            if self.compare:
                row.append(f"{record.differing} of {record.outputs}")
            if self.library and record.prediction:
                order = record.prediction.order.describe(record.k)
                order = f"tf32, {order}" if record.prediction.kind.type == "tf32" else order
                row.append(f"{order} (a guess)" if record.is_guess else order)
            elif self.is_chosen:
                row.append(record.instruction)
            rows.append(row)
        heads += [f"differ on {self.compare}"] * bool(self.compare)
        heads += ["order"] if self.library else ["instruction"] * self.is_chosen
        lines = table_lines(heads, rows) if rows else []
        if overflows := sum(record.overflows for record in self):
            lines.append(f"finite operand elements that became infinite or NaN when they were rounded: {overflows}")
        left = [entry for entry in self.not_emulated.most_common() if self.is_chosen or entry[0] in self.products]
        if left:
            counts = ", ".join(f"{name} {count}" for name, count in left)
            lines.append(f"computed by PyTorch, not as on a GPU: {counts}")
        types = (record.prediction.kind.type for record in self.records if record.prediction is not None)
        return "\n".join([self._heading(), *lines, *assumption_lines(types)])


emulate = Emulation  # the public name: `with warpfrag.torch.emulate():`


def _device(tensor: torch.Tensor) -> torch.device:
    """Return the device that computes a matmul: the tensor's own GPU if CuPy is installed, otherwise the host."""
    if tensor.is_cuda:
        try:
            cupy()
        except NoGpu:
            return torch.device("cpu")
    return tensor.device


PLAIN_FLOAT32 = "float32 without TF32 is not modelled: call torch.set_float32_matmul_precision('high'), or use bfloat16"


def is_plain_float32(operation: TorchProduct) -> bool:
    """Return True for a float32 matmul that PyTorch's settings do not allow a GPU to compute in TF32."""
    return operation.A.dtype == torch.float32 and not own_value("allow_tf32")


CONTAINED = {
    torch.float16: {"f16", "tf32"},
    torch.bfloat16: {"bf16", "tf32"},
    torch.float8_e4m3fn: {"e4m3", "f16", "bf16", "tf32"},
    torch.float8_e5m2: {"e5m2", "f16", "bf16", "tf32"},
}
"""The instruction formats that contain every number of a dtype."""


def check_dtypes(operation: TorchProduct, formats: tuple[str, str], note: str = "") -> None:
    """Raise an error for operands that would be rounded to the instruction's formats."""
    for name, tensor, wanted in zip("AB", (operation.A, operation.B), formats, strict=True):
        hint = f"; {note}" if note else ""
        if wanted not in CONTAINED.get(tensor.dtype, ()):
            raise InvalidOperand(
                f"{operation.name}: {name} is {tensor.dtype}, but the instruction multiplies {wanted}: pass "
                f'rounding="rne" to round operands to the nearest value, or use an instruction for this dtype{hint}'
            )


TensorScale: TypeAlias = float | Literal["amax"]
"""The scale of a whole tensor."""


def scale_factor(tensor: torch.Tensor, name: str, scale: TensorScale) -> float:
    """Return the divisor of a tensor: the given number or, for "amax", the tensor's maximum over the format's."""
    if scale != "amax":
        return float(scale)
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    return float(np.float32(largest / float(FORMATS[name].max))) if np.isfinite(largest) and largest else 1.0


def check_scales(scales: object) -> tuple[TensorScale, TensorScale]:
    """Return the scales of A and B; raise InvalidOperand unless they are positive numbers or "amax"."""
    pair: Sequence[Any] = scales if isinstance(scales, tuple | list) and len(scales) == 2 else (None, None)
    for scale in pair:
        is_number = isinstance(scale, int | float) and not isinstance(scale, bool) and 0 < scale < float("inf")
        if not is_number and not (isinstance(scale, str) and scale == "amax"):
            raise InvalidOperand(f"scales: expected a positive number or 'amax' for A and for B; got {quote(scales)}")
    return pair[0], pair[1]


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in a dtype that NumPy supports: float32, unless it already has such a dtype."""
    return tensor if tensor.dtype in (torch.float16, torch.float32, torch.float64) else tensor.float()


def rounded(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Round a tensor to a format; the result has the format's dtype if PyTorch has one, otherwise float32."""
    if tensor.is_cuda and (on_gpu := rounded_there(tensor, name)) is not None:
        return on_gpu
    row = FORMATS[name]
    numbers = from_codes(row, as_read(row, to_codes(row, widened(tensor).cpu().numpy(), rounding="rne")))
    result: torch.Tensor = to_caller_kind(
        numbers if hasattr(torch, row.dtype) else numbers.astype(np.float32), ArrayKind("torch", str(tensor.device))
    )
    return result


def rounded_there(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
    """Round a tensor on its GPU with PyTorch, or return None if that would round twice."""
    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return None
    if name in ("f16", "bf16"):
        return tensor.to(getattr(torch, FORMATS[name].dtype))
    if name != "tf32":
        return None
    unused = FORMATS[name].unused
    bits = tensor.float().contiguous().view(torch.int32)
    even = (bits >> unused) & 1
    nearest = (bits + even + (1 << unused - 1) - 1) >> unused << unused
    return torch.where(tensor.isnan(), torch.nan, torch.where(tensor.isinf(), bits, nearest).view(torch.float32))
