"""A user's program that uses every public object, for mypy: no expression in it may have type Any."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

import warpfrag as wf
from warpfrag.blas.cublas.batch_invariance import Invariance
from warpfrag.blas.cublas.predict import Prediction
from warpfrag.blas.cublas.predict_order import PredictedOrder
from warpfrag.blas.error_report import ErrorReport, Errors
from warpfrag.blas.explain import Explanation
from warpfrag.diagnosis.diagnose import Agreement, Diagnosis, Finding
from warpfrag.formats.number_formats import Format
from warpfrag.layout.coordinates import Coordinate, Place
from warpfrag.plans.access_plan import AccessPlan
from warpfrag.plans.relayout import Relayout
from warpfrag.smem.instruction_descriptor import ZeroColumnMask
from warpfrag.tensorcore.arithmetic_table import ArithmeticRow, ArithmeticTable, Reference, references
from warpfrag.tensorcore.evidence import Evidence
from warpfrag.tensorcore.operand import Operand
from warpfrag.viz.drawing import Drawing

VARIABLE = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .u64 pointer;\n"
KERNEL = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n"


def registers() -> None:
    mma: wf.Instruction = wf.get("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90a")
    names: list[str] = [one.name for one in wf.find(arch="sm_90a", a="e4m3")]
    m, n, k = mma.shape
    print(mma.name, names, m + n + k, mma.targets[0].upper(), mma.selectors, mma.op, mma.kind, mma.layouts, mma.sources)
    operand: Operand = mma.a
    print(operand.role, operand.format.bits, operand.shape[0], operand.regs, operand.slots, operand.words)
    print(operand.ptx_type, operand.source, operand.bits(1).high, operand.element(reg=1), operand.storage)
    layout: wf.Layout = operand.layout
    print(layout.ins["lane"], layout.outs["row"], layout.lanes, layout.copies, layout.rank, layout.bases["lane"])
    element = layout.at(lane=5, reg=2, slot=1)
    row: int = element.row
    place = layout.where(row=row, col=element.col)[0]
    print(place.lane + place.reg, element[0], layout.inverse().at(row=1, col=2).lane, (layout @ layout.inverse()).ins)
    print(
        layout.tiled(col=2) == layout,
        wf.Layout.parse({"row": 2}, lane="r1").fix(lane=0).outs,
        layout.runs("row")[0].modulo,
    )
    text: str = layout.to("cute")
    again = wf.Layout.read("cute", text, shape=(16, 16), slots=2)
    found = wf.identify(again)
    print(found[0].instruction.name, found[0].operand, [one.tiles for one in found.tiles], found.near[0].differences)
    print(layout.to("numpy")["row"].shape, layout.steps("lane")[0].moves.col, layout.start.row, layout.is_additive)

    A = np.zeros((16, 16), np.float16)
    B = np.zeros((16, 8), np.float16)
    a, b = mma.a.pack(A), mma.b.pack(B)
    d = wf.execute(mma, a, b, arch="sm_90")
    print(mma.execute(a, b, None, arch="sm_90").shape)
    print(d.shape, mma.d.unpack(d).shape, mma(A, B, arch="sm_90").shape, mma.d.tiled(col=2).pack(A).shape)
    print(wf.gemm(A, B, instruction=mma, arch="sm_90").shape)
    known: Evidence = mma.evidence("sm_90")
    print(known.level, known.detail, known.cases, known.machine, known.native, known.authority, known.gpus[0])
    print(mma.c.threads, mma.arch, mma.form.op, mma.operands["a"].words, mma.pattern, mma.a.description)
    print(mma.a.codes(A).shape, mma.a.check_words(a).shape)


def maps() -> None:
    layout = wf.get("mma.m16n8k16.f32.f16.f16.f32").a.layout
    print(layout.dims[0], layout.is_onto, layout.along("slot").upper(), layout.digits("lane")[0][0] + 1)
    print(layout.joined("place", "reg", "slot").ins["place"], next(layout.places()).lane)
    steps = {name: layout.steps(name) for name in layout.ins}
    print(wf.Layout.of_steps(layout.outs, steps) == layout)
    place: Place = layout.where(row=9, col=3)[0]
    element: Coordinate = layout.at(lane=5, reg=2, slot=1)
    print(place.lane + 1, element.row + 1, layout.is_bitwise, layout.is_trivial_over())
    thread: wf.Layout = layout.rename(lane="thread")
    warps: wf.Layout = wf.Layout.identity(warp=4) * thread
    print(warps.divide_left(thread), warps.divide_right(thread), thread.sublayout(["thread"], ["row", "col"]).ins)
    print(layout.reshape(ins={"place": 256}, outs={"element": 256}).outs)
    print(layout.in_axes[0].name, layout.out_axes[0].radices[0], layout.columns[0] + layout.origin)


def chosen_words() -> None:
    sp = wf.get("mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32")
    full = np.zeros((16, 32), np.float16)
    stored, codes = sp.compress(full)
    words = sp.metadata.pack(codes, selector=1)
    print(sp.expand(stored, codes).shape, sp.a.span(lane=5, reg=2).first, sp.a.where(row=0, col=0, codes=codes)[0].lane)
    print(sp.metadata.where(row=1, chunk=2).bit, sp.metadata.at(lane=0, bit=0).row, sp.metadata.unpack(words).shape)
    print(sp.a.full_codes(full).shape, sp.a.pattern, sp.a.sparsity)
    mx = wf.get("mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0")
    ones = np.ones((16, 2))
    scales = mx.scale_a.pack(ones, byte_id=2, thread_id=1)
    print(mx.scale_a.unpack(scales, byte_id=2, thread_id=1).shape, mx.scale_b.where(scale=0, col=1).byte)


def memory() -> None:
    ld = wf.get("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    shared = np.zeros(1024, np.uint8)
    lanes = np.zeros(32, np.int64)
    words = wf.execute(ld, lanes, shared=shared)
    print(ld.execute(lanes, shared=shared).shape)
    after = wf.execute("stmatrix.sync.aligned.m8n8.x4.shared.b16", lanes, words, shared=shared)
    tile = wf.Memory(order="col", pitch=128, swizzle=128)
    print(words.shape, after.shape, tile.address(row=1, col=2, bits=16), ld.addresses.at(lane=9).matrix)
    print(tile.order, tile.pitch, tile.swizzle, tile.start, tile.base_offset, tile.contiguous, tile.description)
    codes = np.zeros((8, 8), np.uint16)
    print(tile.along[0].stride, tile.across, tile.write(shared, codes, 16).shape)
    print(tile.read(shared, (8, 8), 16).shape)
    print(tile.addresses((8, 8), 16).shape, tile.elements(0, (8, 8), 16)[0].row, tile.size((8, 8), 16))


def tensor_memory() -> None:
    t = wf.get("tcgen05.mma.cta_group::1.kind::f16", m=128, n=64, a="f16", b="f16", d="f32")
    word: wf.InstructionDescriptor = wf.InstructionDescriptor.of(t, transpose_b=True)
    print(
        hex(word.word),
        wf.InstructionDescriptor.decode(word.word, kind="f16").m,
        word.explain()[0].raw,
        word.problems(t),
    )
    print(
        word.kind,
        word.n,
        word.a,
        word.b,
        word.d,
        word.sparse,
        word.selector,
        word.saturate,
        word.negate_a,
        word.negate_b,
    )
    print(
        word.transpose_a,
        word.transpose_b,
        word.scale_type,
        word.scale_a_id,
        word.scale_b_id,
        word.max_shift,
        word.other,
    )
    print(word.wide_k, word.k_96, word.k_128, word.sparsity_version)
    mask = ZeroColumnMask(zeros=2, used=2)
    print(hex(mask.word), ZeroColumnMask.decode(mask.word).columns(64, 64)[:4], mask.problems(64), mask.starts)
    print(mask.zeros, mask.used, mask.zero_first, mask.shift, mask.active, mask.other)
    desc = wf.Descriptor(stride=1024, swizzle=128, kind="tcgen05")
    print(
        desc.fields["version"].low,
        desc.TENSOR_FIELDS["swizzle"].bits,
        desc.unit,
        desc.absolute,
        desc.version,
        desc.kind,
    )


def warpgroups() -> None:
    w = wf.get("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
    desc = wf.Descriptor(start=0, leading=0, stride=256, swizzle=32, base_offset=0)
    print(hex(desc.word), wf.Descriptor.decode(desc.word).leading, desc.explain()[0].meaning, desc.cute(), desc.width)
    print(desc.problems(w.b)[:1], desc.used(w.b)["stride"], desc.moved(32).other, desc.FIELDS["start"].low, w.b.staged)
    print(w.b.transposable_bits, w.b.descriptor_kind, desc.hints())
    print(desc.tensor_map(w.b).box, desc.memory("b").overlap((16, 8), 16), w.b.memory(desc).start)
    A, B, C = np.zeros((64, 16), np.float16), np.zeros((16, 8), np.float16), np.zeros((64, 8), np.float32)
    tile: wf.Shared = w.b.store(B)
    print(tile.memory.shape, tile.descriptor.word, tile.trans, w.b.load(tile).shape, w.b.addresses(desc, trans=True))
    print(w.b.descriptors(k=64, swizzle=128)[1].start, w.b.read(tile).shape)
    a, c = w.a.pack(A), w.c.pack(C)
    signs = wf.Immediates(negate=(True, False), scale_d=False)
    print(signs.selector, signs.byte_id, signs.thread_id, signs.trans, signs.negate, signs.scale_d, w.b.spec.role)
    scaled: wf.Scaled = wf.Scaled(A, C)
    print(scaled.elements is scaled.scales, wf.sweep.__name__)
    d = wf.execute(w, a, tile, c, immediates=signs, arch="sm_90")
    again = wf.execute(w, a, desc, c, shared=tile.memory, arch="sm_90")
    print(w.execute(a, tile, c, immediates=signs).shape)
    print(d.shape, again.shape, w.d.layout.at(warp=1, lane=5, reg=3).row, wf.aliases(w)["cute"])


def motion() -> None:
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    plan: Relayout = wf.relayout(mma.d.tiled(col=2), mma.a)
    registers = np.zeros((32, 8), np.uint32)
    print(plan.is_free, plan.counts["shfl"], plan.operations, plan(registers).shape, plan.emit("ptx").splitlines()[0])
    order = wf.relayout(mma.d.tiled(col=2), mma.a, permute="col").permutation
    print(order[0] if order else None)
    print(plan.cost, plan.verdict, plan.source, plan.target, plan.permuted, plan.permutation_text)
    memory = wf.Memory(order="row", pitch=128, swizzle=128)
    load: AccessPlan = wf.loads(mma.a, memory)[0]
    shared = np.zeros(4096, np.uint8)
    first = load.accesses[0]
    print(load.name, load.passes, first.addresses[5], load.expression(first), load.load(shared).shape)
    print(load.conflicts, load.cost, load.direction, load.instructions, load.memory, load.operand, load.shift)
    print(load.targets, load.transposes, load.emit("cuda").splitlines()[0])
    print(wf.stores(mma.d, memory)[0].store(registers[:, :4], shared).shape)


def arithmetic_rules() -> None:
    table: ArithmeticTable = wf.arithmetic_table("sm_90")
    row: ArithmeticRow = table.of("mma.m16n8k16.f32.f16.f16.f32")
    print(row.arch, row.operation, row.operands, row.c, row.d, row.kind, row.machine, row.family)
    print(row.step, row.citation)
    print(row.products, row.fraction_bits, row.rounding, row.order, row.subnormals, row.nan)
    print(row.level, row.source, row.references, row.instructions, row.to_dict())
    print(table.rows, table.not_modelled, table.cells()[0], table.overview()[0], table.to_dict())
    print(table.every("mma.m16n8k16.f32.f16.f16.f32"), len(table), table[0])
    paper: Reference = references()["Fasi2021"]
    print(paper.key, paper.authors, paper.title, paper.year, paper.venue, paper.section)
    print(paper.doi, paper.arxiv, paper.url, paper.address, paper.to_dict())


def mistakes() -> None:
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    A = np.zeros((16, 16), np.float16)
    B = np.zeros((16, 8), np.float16)
    observed = np.ones((16, 8), np.float32)
    findings: Diagnosis = wf.diagnose(mma, observed, A, B)
    first: Finding | None = findings[0] if findings else None
    print(findings.correct, findings.tried, findings.summary)
    right: Agreement | None = findings.agreement
    if right is not None:
        print(right.correct, right.elements, right.rows, right.columns, right.blocks, right.block_shape)
        print(right.lanes, right.registers, right.equals, right.to_dict())
    print(wf.diagnose(mma, observed, A, B, tile=(16, 8)).correct)
    if first is not None:
        print(first.kind, first.operand, first.text)


def cuda_in_python() -> None:
    wmma = wf.wmma
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float)
    wmma.fill_fragment(c, 0.0)
    wmma.load_matrix_sync(a, np.eye(16, dtype=np.float16), 16)
    wmma.load_matrix_sync(b, wmma.ptr(np.zeros(256, np.float16)), 16)
    wmma.mma_sync(c, a, b, c)
    memory = np.zeros((16, 16), np.float32)
    layout: wmma.layout_t = wmma.mem_row_major
    wmma.store_matrix_sync(memory, c, 16, layout)
    where: wmma.ElementMap = a.layout()
    print(where.at(t=0, lane=0), c.x.shape, c.words.shape, wmma.mem_col_major, wmma.precision.tf32)
    pointer: wmma.Pointer = wmma.ptr(memory) + 16
    kinds: list[wmma.ElementType] = [
        wmma.double, wmma.bfloat16, wmma.char, wmma.signed_char, wmma.unsigned_char, wmma.unsigned, wmma.int,
        wmma.experimental.precision.b1,
    ]  # fmt: skip
    print(pointer, kinds, wmma.float_to_tf32(1.1))


def whole_products() -> None:
    name = "mma.m16n8k16.f32.f16.f16.f32"
    A, B = np.ones((4, 48), np.float16), np.ones((48, 3), np.float16)
    order: wf.Order = wf.Order(split_k=3, unit=16, promote=None, residue=None)
    print(
        order.split_k,
        order.unit,
        order.promote,
        order.residue,
        order.step,
        order.segment_k,
        order.vector,
        order.in_halves,
        order.in_place,
        order.carries_c,
    )
    print(
        order.chains(48, 16, 16), order.describe(48), order.seen_in, wf.find_order(A, B, A[:, :3] * 48, backend="auto")
    )
    epilogue: wf.Epilogue = wf.Epilogue(alpha=1.0, beta=1.0, bias=None, result="bf16")
    print(epilogue.alpha, epilogue.beta, epilogue.bias, epilogue.result)
    print(wf.gemm(A, B, instruction=name, order=order, epilogue=epilogue).shape)
    found: Prediction = wf.predict(A, B, shape=(64, 64, 48))
    library: wf.LibraryEpilogue = wf.LibraryEpilogue(beta=0.0, C=None, activation="relu")
    facts: tuple[object, str, object] = (library.C, library.activation, library.bias)
    assert facts == (None, "relu", None), library
    assert library.scales == (1.0, 1.0)
    print(found.D.shape, found.order, found.instruction, found.is_guess, found.text, found.basis, found.accuracy)
    print(found.omitted_k, None if found.row is None else found.row.kernel, found.kernel)
    known: PredictedOrder = wf.predict_order(
        4, 64, 4096, dtype="bf16", layout="nt", bias=False, batch=1, choices="H200"
    )
    print(
        known.kind, known.shape, known.order, known.basis, known.accuracy, known.omitted_k, known.is_guess, known.kernel
    )
    print(known.source, known.choice, known.row, known.text, known.to_dict()["basis"])
    ranges: Invariance = wf.batch_invariance(
        [(64, 4096)], dtype="bf16", layout="nt", m=(1, 64), choices="H200", query_cublas=False
    )
    print(ranges.layers, ranges.type, ranges.layout, ranges.m, ranges.source, ranges.changes, ranges.ranges)
    print(ranges.is_guess, ranges.text, len(ranges.svg(theme="light")), ranges.to_dict()["changes"])
    why: Explanation = wf.explain(found, found, A, B, arch="sm_90", names=("one", "other"))
    print(why.first, why.second, why.outputs, why.differing, why.output, why.steps, why.parted, why.text)
    print(why.rows, why.to_dict()["differing"], wf.errors.LossyProduct)
    codes, scales = wf.quantize(A, "e4m3", scale="ue8m0", block=32, scale_rounding="rceil", nonfinite="nan")
    stored, kept = wf.compress(wf.prune(A, "2:4"), "2:4")
    print(codes.shape, scales.shape, stored.shape, kept.shape)
    report: ErrorReport = wf.error_report(A, B, instruction=name, arch=["sm_80", "sm_90"], backend="cpu")
    print(report.instruction, report.shape, report.result, len(report.svg()), report.to_dict()["instruction"])
    one: Errors = report.errors[0]
    print(one.arch, one.order, one.outputs, one.nonfinite, one.row, one.col, one.computed, one.exact)
    print(one.largest_ulps, one.rms_ulps, one.mean_ulps, one.largest_relative, one.rms_relative, one.mean_relative)
    print(one.largest_to_magnitude, one.rms_to_magnitude, one.largest_to_rms, one.rms_to_rms, report.is_unquantised)
    print(one.growth[0].k, one.edges[0], one.counts[0], one.steps[0].result, one.name, one.differing)


class Tensor:
    """A PyTorch tensor, as a type checker sees it."""

    def detach(self) -> Tensor:
        return self


class Chunks:
    """A Dask array, as a type checker sees it."""

    chunks = ((1,), (1,))

    def compute(self) -> object:
        return self


def arrays_of_others(A: Tensor, B: Chunks) -> tuple[Tensor, Chunks]:
    name = "mma.m16n8k16.f32.f16.f16.f32"
    of_both: Chunks = wf.gemm([[1.0]], B, instruction=name)
    return wf.gemm(A, A, A, instruction=name, backend="cuda"), wf.gemm(of_both, [[1.0]], instruction=name)


def machine_code() -> None:
    cubin = Path(__file__).parent / "data" / "sass" / "globals_sm90.cubin"
    module: wf.sass.SassModule = wf.sass.load(cubin, arch="sm_90", kernel="globals")
    print(module.basis, module.keep_state, module.address_size, list(module), module.symbols)


def whole_kernels() -> None:
    module: wf.ptx.Module = wf.ptx.load(KERNEL)
    kernel: wf.ptx.Kernel = module["nothing"]
    run: wf.ptx.Run = kernel.launch(grid=1, block=32)
    print(module.version, module.target, list(module), kernel.name, kernel.shared_bytes, kernel.order_matters)
    print(
        run.exact,
        run.basis,
        run.uncertain,
        run.counts.instructions,
        sorted(run.evidence),
        run.findings,
        sorted(kernel.opcodes),
        run.printed,
    )
    print(run.engine, run.arch, run.inexact, run.inexact_lines, run.interpreted, run.profile)
    checked: wf.ptx.Run = kernel.launch(grid=1, block=32, checks="all", options=wf.ptx.LaunchOptions(explore=1))
    print(checked.verdict, checked.checks, checked.unjudged)
    explored: wf.ptx.Exploration | None = checked.exploration
    if explored is not None:
        print(explored.runs, explored.seeds, explored.arrays, explored.errors, explored.agrees)
    found: list[wf.ptx.KernelFinding] = checked.findings
    for item in found:
        print(item.kind, item.check, item.line, item.text, item.source, item.block, item.thread, item.stack, item.count)
        print(item.space, item.address, item.array, item.element, item.to_dict())
        other: wf.ptx.KernelAccess | None = item.other
        if other is not None:
            print(other.operation, other.line, other.block, other.thread, other.stack, other.source, other.text)
    print(wf.ptx.Unwritten([1.0]).array)
    sources: dict[wf.ptx.SourceLine, int] = run.source_counts
    print([(line.file, line.line, line.inlined_at, line.outermost) for line in sources], module.sources)
    linked: wf.ptx.Module = wf.ptx.link([module, VARIABLE], keep_state=True)
    symbols: wf.ptx.Symbols = linked.symbols
    table = wf.ptx.DeviceArray([np.zeros(4), None, [np.ones(2)]])
    symbols["pointer"] = table.address
    print(symbols["pointer"].shape, "pointer" in symbols, linked.keep_state, kernel.readable_name)
    print(kernel.launch(1, 32, options=wf.ptx.LaunchOptions(cooperative=True)).exact, table.array)
    linked.reset()
    picture, layers = np.zeros((4, 4), np.float32), np.zeros((2, 4, 4), np.uint8)
    texture = wf.ptx.Texture(picture, filter="linear", address="wrap", normalized=True)
    surface = wf.ptx.Surface(layers, layered=True)
    tiles = wf.ptx.TensorMap(np.zeros((64, 64), np.float16), box=(16, 64), swizzle=128, fill="nan", dtype="float16")
    pixels = wf.ptx.Im2col((0, 0), (0, 0), channels=16, pixels=8)
    columns = wf.ptx.TensorMap(np.zeros((2, 8, 8, 16), np.float16), pixels)
    print(tiles.problems(), tiles.box_bytes, tiles.memory(start=1024).swizzle, tiles.descriptor().word, columns)
    print(tiles.encode(4096), tiles.array is None, tiles.fields.rank, kernel.cluster, kernel.tensor_maps)
    memory = wf.GlobalMemory({0x7F00_0000_0000: np.zeros(4, np.float32)})
    session = wf.gpu(profile="H200", checks="races")
    print(len(memory.arrays), len(memory.allocations), session is not None, wf.ptx.TensorMap.from_bytes is not None)
    hopper = wf.ptx.load(KERNEL.replace("sm_80", "sm_90"))["nothing"]
    print(hopper.launch(grid=2, block=32, options=wf.ptx.LaunchOptions(cluster=2)).exact)
    with kernel.debug(grid=1, block=32) as debugger:
        point: wf.ptx.Breakpoint = debugger.break_at(opcode="ret")
        stop: wf.ptx.Stop | None = debugger.run()
        print(stop, point.hits, debugger.registers(), debugger.shared)
        print(debugger.focus(warp=0), debugger.instruction.name, debugger.visit, debugger.step(), debugger.is_finished)
    print(texture.geometry, texture.filter, texture.address, texture.normalized, texture.read, texture.channels)
    print(texture.copy(), texture.is_guess, texture.layered, surface.geometry, surface.channels, surface.layered)


def on_a_gpu() -> None:
    report = wf.verify("mma.m16n8k16.f32.f16.f16.f32", cases=10)
    print(report.device, report.lines[0])


def the_rest() -> None:
    warnings.simplefilter("error", wf.errors.SlowArithmetic)
    f16: Format = wf.FORMATS["f16"]
    print(f16.encode(1.5) + 1, f16.decode(0x3C00), f16.name, f16.max, f16.is_float)
    figure: Drawing = wf.draw("mma.m16n8k16.f32.f16.f16.f32", "a")
    print(figure.svg, figure.text, figure.to_text(80), figure.title, figure.theme)
    print(figure.save, figure.png)
    print(
        f16.codes,
        f16.min,
        f16.canonical_nan,
        f16.emin,
        f16.sign_bit,
        f16.nan_code,
        f16.is_nan(0x7E00),
        f16.signed,
        f16.infinity,
        f16.nan,
    )
    print(f16.dtype, f16.register, f16.exponent, f16.fraction, f16.bias, f16.unused)
    print(wf.emit("mma.m16n8k16.f32.f16.f16.f32", lang="cuda").splitlines()[0], wf.__version__)
    print(wf.test_vectors("mma.m16n8k16.f32.f16.f16.f32").instruction)
    try:
        wf.get("mma.m16n8k99")
    except wf.errors.IllegalInstruction as error:
        print(error.name, error.reason, error.nearest[0])
    except wf.errors.MemoryFault as fault:
        print(fault.index, fault.of(0).reason)
    except (
        wf.errors.InvalidOperand,
        wf.errors.InvalidSparsity,
        wf.errors.MissingExtra,
        wf.errors.NoGpu,
        wf.errors.NotModelled,
        wf.errors.OutOfMemory,
        wf.errors.ParseError,
        wf.errors.PtxError,
        wf.errors.FileError,
        wf.errors.SchedulerError,
        wf.WarpfragError,
    ) as error:
        print(error)


if __name__ == "__main__":
    registers()
    maps()
    chosen_words()
    memory()
    warpgroups()
    tensor_memory()
    motion()
    whole_products()
    machine_code()
    whole_kernels()
    arithmetic_rules()
    mistakes()
    cuda_in_python()
    the_rest()
