"""`warpfrag gemm`, `predict`, `batch-invariance`, `find-order`, `explain` and `error-report`: whole GEMMs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import click

import warpfrag as wf
from warpfrag.blas.order import Order
from warpfrag.cli.io.arguments import (
    Backend,
    Count,
    File,
    InstructionName,
    Matrix,
    NamedArch,
    OrderFields,
    RoundingName,
)
from warpfrag.cli.io.matrix_files import read_array, read_optional
from warpfrag.cli.io.output import (
    DONE,
    NO,
    ProgressLine,
    echo,
    echo_wrapped,
    print_heading,
    print_notes,
    print_table,
    shape_text,
    wrapped,
)
from warpfrag.cli.io.verbs import Answer, Param, verb
from warpfrag.errors import LossyProduct, WarpfragError
from warpfrag.files import write_atomically
from warpfrag.formats.number_formats import FORMATS, format_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.blas.cublas.batch_invariance import Invariance  # noqa: TC004 (a return type is not evaluated)
    from warpfrag.blas.cublas.predict_order import PredictedOrder
    from warpfrag.blas.error_report import ErrorReport  # noqa: TC004 (a return type is not evaluated)
    from warpfrag.blas.explain import Explanation  # noqa: TC004 (a return type is not evaluated)
    from warpfrag.blas.gemm_trace import ProductStep
    from warpfrag.tensorcore.array_types import Scaled


def format_parameter(label: str, known: Sequence[str], text: str = "") -> Param:
    """Return a parameter that is a number format in any spelling: f16, fp16, half, float16."""
    return Param("FORMAT" if text else label, lambda name: format_name(name, known, label), help=text)


CODES = "A and B are codes of this format (needed for bf16 and fp8, which .npy lacks), or floats that are exact in it."
CodesFormat = Annotated[str, format_parameter("--codes", sorted(FORMATS), CODES)]
RESULTS, LAYERS = ("bf16", "f16", "f32"), ("bf16", "f16", "tf32", "e4m3", "s8")
ResultFormat = Annotated[str, format_parameter("--result", RESULTS, "The results have this format: codes or floats.")]
LayerFormat = Annotated[str, format_parameter("TYPE", LAYERS)]
GemmInstruction = Annotated[str, Param("NAME", help="Default: the instruction that cuBLAS uses for these operands.")]
Number = Annotated[float, Param("X", click.FLOAT)]
Bias = Annotated[str, Param("FILE", help="The bias of a linear layer, as .npy; with --codes bf16, codes are accepted.")]


class GemmResult(NamedTuple):
    """The result of a GEMM.

    instruction: canonical name
    shape: M, N and K
    order: order of additions
    d: D as numbers
    trace: with --trace: the steps of the output
    """

    instruction: str
    arch: str
    shape: tuple[int, int, int]
    order: Order
    d: list[Any]
    trace: list[ProductStep]


@verb
def gemm(
    a: Matrix,
    b: Matrix,
    *,
    instruction: InstructionName | None = None,
    arch: NamedArch = "sm_90",
    order: OrderFields | None = None,
    codes: CodesFormat | None = None,
    rounding: RoundingName | None = None,
    trace: tuple[int, int] | None = None,
    output: File | None = None,
    backend: Backend = "cpu",
) -> Answer[GemmResult]:
    """Compute D = A B bit for bit, as a kernel with a given instruction does, and trace one output.

    A and B are .npy files that contain an M x K and a K x N matrix.

    Options:
        instruction: The instruction of the kernel; default: the one that libraries use for these dtypes.
        order: The order of additions, such as split_k=3,unit=64; default: k ascending.
        trace (ROW COL): Show each instruction that contributes to one output.
        output: Write D to this .npy file; bf16 is written as uint16 codes.

    For example:
        warpfrag gemm A.npy B.npy --arch A100 -o D.npy
        warpfrag gemm A.npy B.npy --instruction mma.m16n8k16.f32.f16.f16.f32 -o D.npy
        warpfrag gemm A.npy B.npy --instruction mma.m16n8k16.f32.f16.f16.f32 --order split_k=3,unit=64 --trace 3 5
    """
    from warpfrag.blas.gemm import gemm as compute
    from warpfrag.blas.gemm_trace import trace_output
    from warpfrag.blas.instruction_choice import choose_instruction, truncation_note
    from warpfrag.blas.prepared_gemm import read_gemm

    A, B = read_array(a, codes), read_array(b, codes)
    name, order = wf.get(instruction or choose_instruction(A.dtype, B.dtype, arch)).name, order or Order()
    D = compute(A, B, instruction=name, arch=arch, order=order, rounding=rounding, backend=backend)
    steps: list[ProductStep] = []
    if trace is not None:
        steps = trace_output(read_gemm(A, B, instruction=name, arch=arch, rounding=rounding), *trace, order=order)
    _save(D, output)
    shape = A.shape[-2], B.shape[-1], A.shape[-1]
    note = truncation_note(A, B, name, rounding).replace('rounding="rne"', "--rounding rne")

    def show() -> None:
        print_heading(f"{name} on {arch}: {shape_text(shape)}")
        echo(wrapped(order.describe(A.shape[-1])))
        print_notes([note] if note else [])
        if trace is None:
            echo(f"D is {D.dtype} of {shape_text(D.shape)}; --trace ROW COL traces an output")
        else:
            echo(f"D[{trace[0]}, {trace[1]}] in {len(steps)} steps")
            table = [[number, row.text, f"0x{row.code:x}", f"{row.value:.9g}"] for number, row in enumerate(steps, 1)]
            print_table(["step", "instruction", "code", "sum"], table)
        _print_written(output)

    return Answer(GemmResult(name, arch, shape, order, D.tolist(), steps), show)


def read_bias(file: str | None, codes: str | None) -> NDArray[Any] | None:
    """Return a bias; if A and B are bf16 codes, a uint16 bias contains codes too."""
    added = read_optional(file)
    is_codes = added is not None and added.dtype == "uint16" and codes == "bf16"
    return read_array(file, codes) if file is not None and is_codes else added


def _scaled(matrix: NDArray[Any], scales: File | None) -> NDArray[Any] | Scaled:
    """Return a matrix, with scale factors if their file is given."""
    from warpfrag.tensorcore.array_types import Scaled

    return matrix if scales is None else Scaled(matrix, read_array(scales, None))


def _save(D: NDArray[Any], output: str | None) -> None:
    """Write a matrix to a .npy file; bfloat16, which .npy cannot name, is written as codes."""
    import numpy as np

    if output is not None:
        array = np.asarray(D)
        stream = BytesIO()
        np.save(stream, array if array.dtype.kind in "iuf" else array.view(np.uint16))
        write_atomically(output, stream.getvalue())


def _print_written(output: str | None) -> None:
    if output is not None:
        echo(f"wrote {output}")


class LibraryOptions(NamedTuple):
    """The source of the library's choices.

    Options:
        arch (GPU): The GPU whose tabulated choices are used.
        query_cublas: Query the cuBLAS of this machine.
        choices (FILE): A file written by `warpfrag survey`; batch-invariance compares several.
    """

    arch: str = "H200"
    query_cublas: bool = False
    choices: tuple[File, ...] = ()


class EpilogueOptions(NamedTuple):
    """The operations that follow the sums.

    Options:
        alpha: The factor of A B.
        beta: The factor of C.
        c (FILE): C, as .npy: the first argument of torch.addmm.
        activation: The activation that the kernel applies after the bias (torch._addmm_activation); gelu: tanh form.
        scales (SA SB): The scales of A and B, for e4m3.
    """

    alpha: Number = 1.0
    beta: Number = 1.0
    c: File | None = None
    activation: Literal["relu", "gelu"] | None = None
    scales: tuple[Number, Number] = (1.0, 1.0)


class PredictedProduct(NamedTuple):
    """A predicted result.

    shape: extents of D
    instruction: the instruction of the kernel
    order: order of additions
    product: the GEMM, and the evidence for its order
    text: all of this as text
    """

    shape: tuple[int, ...]
    instruction: str
    order: Order
    product: PredictedOrder
    text: str


@verb
def predict(
    a: Matrix,
    b: Matrix,
    *,
    codes: CodesFormat | None = None,
    bias: Bias | None = None,
    layout: Literal["nn", "nt", "tn"] = "nn",
    fast_accumulation: bool = False,
    shape: tuple[Count, Count, Count] | None = None,
    epilogue: EpilogueOptions = EpilogueOptions(),  # noqa: B008 (immutable)
    library: LibraryOptions = LibraryOptions(),  # noqa: B008 (immutable)
    output: File | None = None,
) -> Answer[PredictedProduct]:
    """Predict D = A B as PyTorch computes it on a GPU, bit for bit, and show the evidence.

    float32 is multiplied as TF32, which PyTorch does not use by default. For F.linear(x, W, b), save W.T as B.npy.

    The order of additions is the library's own choice if the table or a --choices file contains it, or with
    --query-cublas. Otherwise, a model predicts the choice, and the result is marked as a guess.

    Options:
        layout: The memory order of A and B; B always has shape k x n. nt: B is stored as n x k, like a weight.
        fast_accumulation: PyTorch's use_fast_accum, for e4m3.
        shape (M N K): M, N and K of the whole GEMM, if A and B are slices.
        output: Write D to this .npy file; bf16 is written as uint16 codes.

    For example:
        warpfrag predict A.npy B.npy -o D.npy                        # float16; int8; float32 as TF32
        warpfrag predict A.npy B.npy --codes bf16 --layout nt --bias bias.npy -o D.npy   # a linear layer
        warpfrag predict A.npy B.npy --codes e4m3 --fast-accumulation --scales 0.5 2
        warpfrag predict A.npy B.npy --layout nt --bias bias.npy --activation gelu
        warpfrag predict A.npy B.npy --c C.npy --alpha 0.5 --beta 1  # torch.addmm
        warpfrag predict A.npy B.npy --shape 8 1024 4096             # some rows and columns of a larger GEMM
    """
    from warpfrag.blas.cublas.library_epilogue import LibraryEpilogue
    from warpfrag.blas.cublas.predict import predict as predict_product

    if len(library.choices) > 1:
        raise click.UsageError(
            f"--choices: expected one file, got {len(library.choices)}; `warpfrag batch-invariance` compares several"
        )
    A, B = read_array(a, codes), read_array(b, codes)
    C = epilogue.c and read_array(epilogue.c, codes)
    own = LibraryEpilogue(epilogue.alpha, epilogue.beta, C, epilogue.activation or "", epilogue.scales)
    with warnings.catch_warnings(), ProgressLine() as line:
        line.show(0, 1, f"multiplying {shape_text(A.shape)} by {shape_text(B.shape)}")
        warnings.simplefilter("ignore", LossyProduct)  # the answer includes the warning
        prediction = predict_product(
            A,
            B,
            bias=read_bias(bias, codes),
            layout=layout,
            fast_accumulation=fast_accumulation,
            shape=shape,
            query_cublas=library.query_cublas,
            choices=library.choices[0] if library.choices else library.arch,
            epilogue=own,
        )
    _save(prediction.D, output)

    def show() -> None:
        echo(wrapped(prediction.text))
        if output is not None:
            echo(f"wrote {output}: {prediction.D.dtype} of shape {prediction.D.shape}")

    made = prediction.instruction, prediction.order, prediction, prediction.text
    return Answer(PredictedProduct(tuple(prediction.D.shape), *made), show)


@verb
def batch_invariance(
    type_: LayerFormat = "bf16",
    *,
    n: Count | None = None,
    k: Count | None = None,
    layers: File | None = None,
    m: tuple[Count, Count] = (1, 8192),
    layout: Literal["nn", "nt", "tn"] = "nt",
    bias: bool = False,
    fast_accumulation: bool = False,
    library: LibraryOptions = LibraryOptions(),  # noqa: B008 (immutable)
    svg: File | None = None,
) -> Answer[Invariance]:
    """List the ranges of the batch size m in which a layer's order of additions, and thus its bits, stay the same.

    TYPE is bf16 (the default), f16, tf32, e4m3 or s8. Specify one layer with --n and --k, or a file with --layers.
    Ranges in which the library omits the end of K are marked. The exit status is 1 if the bits change within the range.

    Options:
        n: The layer's output features: rows of a PyTorch weight.
        k: The layer's input features: columns of a PyTorch weight.
        layers: A TOML file with [layers], as for `warpfrag survey`; its other keys are ignored.
        m (FIRST LAST): The range of m.
        layout: The memory order of A and B; nt: B is stored as n x k, like the weight of a linear layer.
        bias: The layer has a bias.
        fast_accumulation: PyTorch's use_fast_accum, for e4m3.
        svg: Write a figure of the ranges to this file.

    For example:
        warpfrag batch-invariance bf16 --n 4096 --k 14336            # one layer
        warpfrag batch-invariance --layers layers.toml --svg bits.svg   # a whole model
    """
    from warpfrag.blas.cublas.batch_invariance import batch_invariance as compute

    named: object = n
    if layers is not None:
        from warpfrag.hardware.cublas_survey import SurveyPlan

        named = dict(SurveyPlan.read(layers).layers)
    elif n is None or k is None:
        raise click.UsageError("expected a layer: --n and --k, or --layers FILE")
    ranges = compute(
        named,  # type: ignore[arg-type] # batch_invariance checks it
        None if layers else k,
        dtype=type_,
        layout=layout,
        bias=bias,
        fast_accumulation=fast_accumulation,
        m=m,
        query_cublas=library.query_cublas,
        choices=library.choices or library.arch,
    )
    if svg is not None:
        write_atomically(svg, ranges.svg().encode())

    def show() -> None:
        for line in ranges.text.splitlines():
            echo(wrapped(line, indent=4 if line.startswith(" ") else 0))
        _print_written(svg)

    return Answer(ranges, show, NO if ranges.changes else DONE)


class FoundOrder(NamedTuple):
    """The order of additions that reproduces a result.

    instruction: canonical name, if given
    shape: extents of D
    k: depth
    order: null if no order gives D
    text: the order as text
    seen_in: kernels that add in this order
    tried: the orders and architectures that were tried
    rivals: other orders that give the same codes
    note: the number of orders that fit; empty if only one fits
    """

    instruction: str | None
    arch: str
    shape: tuple[int, ...]
    k: int
    order: Order | None
    text: str
    seen_in: str
    tried: str
    rivals: tuple[str, ...]
    note: str


@verb
def find_order(
    a: Matrix,
    b: Matrix,
    d: Matrix,
    *,
    instruction: GemmInstruction | None = None,
    codes: CodesFormat | None = None,
    result: ResultFormat | None = None,
    arch: NamedArch = "sm_90",
    backend: Backend = "cpu",
) -> Answer[FoundOrder]:
    """Find the order of additions that reproduces every bit of D: k ascending, split-K, promotion, residue first.

    A, B and D may be some rows and columns of a larger GEMM, with the whole K. If no order reproduces D, every other
    modelled GPU, and float32 sums without tensor cores, are tried. The exit status is 1 if nothing reproduces D.

    Options:
        arch: The architecture whose arithmetic is tried first.

    For example:
        warpfrag find-order A.npy B.npy D.npy                                  # float16, float32 (as tf32) or int8
        warpfrag find-order A.npy B.npy D.npy --codes bf16 --result bf16       # codes, as uint16
        warpfrag find-order A.npy B.npy D.npy --instruction mma.m16n8k16.f32.f16.f16.f32 --arch sm_80
    """
    from warpfrag.blas.find_order import MAX_PARTS, find_float32_sum, find_orders, is_float64_product, rounded_hint
    from warpfrag.blas.instruction_choice import chosen_forms
    from warpfrag.isa.instruction_table import able_architectures
    from warpfrag.isa.targets import gpu_names, read_target
    from warpfrag.tensorcore.arithmetic_plan import arithmetic_groups

    name = None if instruction is None else wf.get(instruction).name
    A, B, D = read_array(a, codes), read_array(b, codes), read_array(d, result, "--result")
    form = None if name is None else wf.get(name).form
    forms = chosen_forms(A.dtype, B.dtype) if form is None else dict.fromkeys(able_architectures(form), form)
    groups, target = arithmetic_groups(forms)[::-1], read_target(arch, "find-order").arch
    others = [archs[0] for archs in groups if target not in archs]
    used = arch
    with ProgressLine() as line:
        for used in (arch, *others):
            found = find_orders(A, B, D, instruction=name, arch=used, progress=line.show, backend=backend)
            if found.orders:
                break
    order = next(iter(found.orders), None)

    def fits(other: str) -> bool:
        with suppress(WarpfragError):  # the lengths of an order may not fit the instruction
            sums = wf.gemm(A, B, instruction=name, arch=other, order=order or Order(), rounding="rne").astype(D.dtype)
            return bool(((sums == D) | (D != D)).all())  # noqa: PLR0124 (NaN)
        return False

    alike = [] if order is None else [each for archs in groups if fits(archs[0]) for each in archs]
    depth = int(A.shape[-1])
    plain = find_float32_sum(A, B, D) if order is None else ""
    text = "" if order is None else order.describe(depth)
    rivals = tuple(other.describe(depth) for other in found.orders[1:])
    rivals += ("a float64 product, rounded once",) * (bool(text) and is_float64_product(A, B, D))
    note = found.note("D")
    seen_in = order.seen_in if order and "sm_90" in alike else ""  # other GPUs have other kernels
    tried = f"k ascending, residue first, 2 to {MAX_PARTS} parts of k, promotion, segment-K, with the arithmetic of "
    tried += f"{gpu_names([target, *others])}, and float32 sums, ascending, descending, in parts or interleaved"

    def show() -> None:
        if order is None:
            hint = f"tried: {tried}; D must not include a bias, an activation or alpha"
            nothing = ["no order that was tried reproduces every code of D", rounded_hint(D, "D"), hint]
            lines = [f"a float32 sum without tensor cores: {plain}"] if plain else nothing
        else:
            same = " (the same codes on each)" if len(alike) > 1 else ""
            plural = [f"{note}:", *(f"  {other}" for other in (text, *rivals))] if rivals else [note, text]
            lines = plural if note else [f"{text}: as {seen_in}" if seen_in else text]
            lines.append(f"fits: {gpu_names(alike, well_known=True)}{same}")
            lines += [f"not {arch}: in Python, pass arch={gpu_names([used])!r}"] if used != arch else []
            lines.append(f"all {D.size} codes are equal; in Python: wf.{order!r}")
            if rivals and not note:
                lines.append(
                    f"note: the codes also fit {rivals[0]}; more outputs, or D in float32, can distinguish them"
                )
        echo_wrapped(filter(None, lines))

    facts = FoundOrder(name, used, tuple(D.shape), depth, order, text or plain, seen_in, tried, rivals, note)
    return Answer(facts, show, DONE if text or plain else NO)


@verb
def explain(
    d1: Matrix,
    d2: Matrix,
    a: Matrix,
    b: Matrix,
    *,
    bias: Bias | None = None,
    instruction: GemmInstruction | None = None,
    codes: CodesFormat | None = None,
    result: ResultFormat | None = None,
    arch: tuple[NamedArch, ...] = (),
) -> Answer[Explanation]:
    """Explain why two results of one GEMM differ: show the order and architecture of each, and where they diverge.

    A, B and the results may be some rows and columns of a larger GEMM, with the whole K. The exit status is 1 if no
    modelled order reproduces one of the results.

    Options:
        arch: An architecture to try; may be repeated.

    For example:
        warpfrag explain D1.npy D2.npy A.npy B.npy                          # float16, float32 (as tf32) or int8
        warpfrag explain D1.npy D2.npy A.npy B.npy --codes bf16 --result bf16   # codes, as uint16
        warpfrag explain D1.npy D2.npy A.npy B.npy --arch sm_80 --arch sm_90   # try these architectures
    """
    from warpfrag.blas.explain import ARCHS
    from warpfrag.blas.explain import explain as compare

    with ProgressLine() as line:
        answer = compare(
            read_array(d1, result, "--result"),
            read_array(d2, result, "--result"),
            read_array(a, codes),
            read_array(b, codes),
            bias=read_bias(bias, codes),
            instruction=instruction,
            arch=arch or ARCHS,
            progress=line.show,
        )

    def show() -> None:
        echo_wrapped(answer.text.splitlines())
        if answer.rows:
            echo()
            header = ["step", answer.first.name, "sum", answer.second.name, "sum"]
            print_table(header, [list(row) for row in answer.rows])

    is_explained = answer.first.order is not None and answer.second.order is not None
    return Answer(answer, show, DONE if is_explained else NO)


@verb
def error_report(
    a: Matrix,
    b: Matrix,
    more: tuple[NamedArch, ...] = (),
    *,
    instruction: InstructionName | None = None,
    arch: tuple[NamedArch, ...] = (),
    order: tuple[OrderFields, ...] = (),
    c: File | None = None,
    scale_a: File | None = None,
    scale_b: File | None = None,
    against: tuple[File, File] | None = None,
    codes: CodesFormat | None = None,
    rounding: RoundingName | None = None,
    output: File | None = None,
    backend: Backend = "cpu",
) -> Answer[ErrorReport]:
    """Compare D = A B + C with the exact result, and show the largest, root mean square and mean errors.

    A and B are .npy files that contain an M x K and a K x N matrix. The exact result is computed with integers. Errors
    are given in ulps, and relative to each result, to |A||B| + |C| (the size of the terms), and to the root mean square
    of the results.

    Options:
        instruction: The instruction that computes the GEMM; default: the one that libraries use for these dtypes.
        arch (ARCH...): The architectures, or GPUs such as A100; default: sm_90.
        order: An order of additions, such as split_k=3,unit=64 or promote=128; may be repeated.
        c: C, as .npy; default: zero.
        scale_a: Scale factors of A, as .npy.
        scale_b: Scale factors of B, as .npy.
        against (A B): A and B before quantization, as .npy: compare with their exact product.
        output: Write the figure to this file, as SVG.

    For example:
        warpfrag error-report A.npy B.npy --arch A100 --arch H100
        warpfrag error-report A.npy B.npy --instruction mma.m16n8k16.f32.f16.f16.f32 --arch sm_80 sm_90 sm_100
        warpfrag error-report A.npy B.npy --instruction mma.m16n8k16.f32.f16.f16.f32 --order '' --order
            split_k=4,unit=64
        warpfrag error-report A.npy B.npy --instruction mma.m16n8k16.f32.bf16.bf16.f32 --codes bf16 -o errors.svg
        warpfrag error-report A8.npy B8.npy --instruction mma.m16n8k32.f32.e4m3.e4m3.f32 --codes e4m3 --against
            A.npy B.npy
    """
    from warpfrag.blas.measure_errors import error_report as measure

    archs = [*arch, *more] or ["sm_90"]
    with ProgressLine() as line:
        report = measure(
            _scaled(read_array(a, codes), scale_a),
            _scaled(read_array(b, codes), scale_b),
            read_optional(c),
            instruction=instruction and wf.get(instruction).name,
            arch=archs,
            order=list(order) or Order(),
            rounding=rounding,
            progress=line.show,
            backend=backend,
            against=None if against is None else (read_array(against[0], None), read_array(against[1], None)),
        )
    if output is not None:
        write_atomically(output, report.svg().encode())

    def show() -> None:
        echo(str(report).replace('rounding="rne"', "--rounding rne"))
        for series in report:
            if series.nonfinite:
                echo(f"{series.name}: {series.nonfinite} outputs are infinite or NaN and are left out")
        _print_written(output)

    return Answer(report, show)
