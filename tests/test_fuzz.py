"""The whole Python surface with wrong types, shapes and values: only WarpfragErrors may be raised.

Every call starts from arguments that are right. Each is replaced by each of the hostile ones, then two at a time by
chance; whatever then happens must be an answer or a refusal of ours, and never a TypeError or a fault from deep inside.
A function, or a method that takes something, is tried here or a test fails; those of wf.wmma are tried in
wmma/test_wrong_types.py. `WARPFRAG_FUZZ=100` in the environment tries a hundred times as many pairs.
"""

import inspect
import os
import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.diagnosis.diagnose import DiagnoseOptions
from warpfrag.errors import NoGpu
from warpfrag.hardware import verification
from warpfrag.smem.instruction_descriptor import ZeroColumnMask
from warpfrag.smem.shared_memory import bank_conflicts, wavefronts

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SP = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
MX = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
WG = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
TENSOR = "tcgen05.mma.cta_group::1.kind::f16"
LD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
WMMA_LOAD = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16"
ST = "stmatrix.sync.aligned.m8n8.x4.shared.b16"

PAIRS_EACH = 40 * int(os.environ.get("WARPFRAG_FUZZ", "1"))
HOSTILE: list[Any] = [
    None, True, -1, 7, 2**70, 1.5, float("nan"), float("inf"), 1j, "", "x", "\x1b[31mred", "²", "a" * 100_000, b"f16",
    [], [[1], [2, 3]], (1, 2, 3), {}, {"row": 1}, object(), object, len, np.uint8(200), np.float32("nan"),
    np.datetime64("2020-01-01"), np.array(5), np.zeros((0, 0)), np.zeros((32, 4), np.uint32),
    np.zeros((16, 16), object),
    np.array([["a"]]), np.full((16, 16), np.nan), np.zeros((16, 16), complex), np.ones((3, 0, 32, 4), np.uint32),
    np.full((16, 8), 300, np.int64), np.ma.masked_all((16, 16)), Fraction(1, 3), ml_dtypes.bfloat16(3), range(5),
]  # fmt: skip


@cache
def surface() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return every public callable, with valid arguments."""
    mma, sp, mx, ld = wf.get(F16), wf.get(SP), wf.get(MX), wf.get(LD)
    A, B = np.eye(16, dtype=np.float16), np.ones((16, 8), np.float16)
    a, b = mma.a.pack(A), mma.b.pack(B)
    codes = np.full(sp.metadata.shape, 0b0100, np.uint8)
    full = np.zeros((16, 32), np.float16)
    scales = np.ones(mx.scale_a.shape)
    scale_words = mx.scale_a.pack(scales), mx.scale_b.pack(np.ones(mx.scale_b.shape))
    layout = mma.a.layout
    f16 = wf.FORMATS["f16"]
    memory = wf.Memory(order="row", pitch=64, swizzle=0)
    bytes_ = np.zeros(2048, np.uint8)

    plan = wf.relayout(mma.d.tiled(col=2), mma.a)
    load, store = wf.loads(mma.a, memory)[0], wf.stores(mma.d, memory)[0]
    vectors = wf.test_vectors(F16)
    wg = wf.get(WG)
    tensor = wf.get(TENSOR, m=128, n=64, a="f16", b="f16", d="f32")
    tile = wg.b.store(np.zeros((16, 8)))

    def joined(name: Any, axis: Any) -> wf.Layout:
        return layout.joined(name, axis)

    joined.__func__ = wf.Layout.joined

    def trivial_over(name: Any) -> bool:
        return layout.is_trivial_over(name)

    trivial_over.__func__ = wf.Layout.is_trivial_over

    return {
        "get": (wf.get, {"name": F16, "arch": "sm_90a", "selector": None}),
        "get sparse": (wf.get, {"name": SP, "arch": "sm_90", "selector": 0}),
        "find": (
            wf.find,
            {"arch": "sm_90a", "op": "mma", "shape": (16, 8, 16), "a": "f16", "kind": "", "sparse": False},
        ),
        "rules": (wf.arithmetic_table, {"arch": "sm_90"}),
        "ArithmeticTable.of": (wf.arithmetic_table("sm_90").of, {"instruction": F16}),
        "ArithmeticTable.every": (wf.arithmetic_table("sm_90").every, {"instruction": F16}),
        "execute": (wf.execute, {"instruction": F16, "a": a, "b": b, "c": None, "arch": "sm_90", "threads": 1}),
        "execute sparse": (
            wf.execute,
            {"instruction": SP, "a": sp.a.pack(full[:, :16]), "b": sp.b.pack(np.zeros((32, 8))), "c": None,
             "metadata": sp.metadata.pack(codes), "immediates": wf.Immediates(selector=0), "arch": "sm_90"},
        ),
        "execute scaled": (
            wf.execute,
            {"instruction": MX, "a": mx.a.pack(np.zeros((16, 64))), "b": mx.b.pack(np.zeros((64, 8))),
             "scales": scale_words, "immediates": wf.Immediates(thread_id=(1, 1)), "arch": "sm_120"},
        ),
        "execute ldmatrix": (wf.execute, {"instruction": LD, "a": 16 * np.arange(32), "b": None, "shared": bytes_}),
        "execute stmatrix": (
            wf.execute,
            {"instruction": ST, "a": 16 * np.arange(32), "b": np.zeros((32, 4), np.uint32), "shared": bytes_},
        ),
        "mma executes": (mma.execute, {"a": a, "b": b, "c": None, "arch": "sm_90", "threads": 1}),
        "mma.sp executes": (
            sp.execute,
            {"a": sp.a.pack(full[:, :16]), "b": sp.b.pack(np.zeros((32, 8))), "c": None,
             "metadata": sp.metadata.pack(codes), "immediates": wf.Immediates(selector=0), "arch": "sm_90"},
        ),
        "block-scaled mma executes": (
            mx.execute,
            {"a": mx.a.pack(np.zeros((16, 64))), "b": mx.b.pack(np.zeros((64, 8))), "scales": scale_words,
             "arch": "sm_120"},
        ),
        "ldmatrix executes": (wf.get(LD).execute, {"a": 16 * np.arange(32), "shared": bytes_}),
        "stmatrix executes": (
            wf.get(ST).execute,
            {"a": 16 * np.arange(32), "b": np.zeros((32, 4), np.uint32), "shared": bytes_},
        ),
        "wmma.load executes": (wf.get(WMMA_LOAD).execute, {"a": 0, "shared": bytes_}),
        "wgmma executes": (
            wg.execute,
            {"a": wg.a.pack(np.zeros((64, 16))), "b": tile, "c": None,
             "immediates": wf.Immediates(negate=(False, True)), "arch": "sm_90"},
        ),
        "gemm": (
            wf.gemm,
            {"A": A, "B": B, "C": None, "instruction": F16, "arch": "sm_90", "rounding": None, "raw": False,
             "backend": "cpu"},
        ),
        "Order": (wf.Order, {"split_k": 2, "unit": 64, "promote": 128, "residue": 32}),
        "Order chains": (wf.Order(2).describe, {"depth": 100}),
        "gemm in an order": (
            wf.gemm,
            {"A": A[None], "B": B, "C": None, "instruction": F16, "order": wf.Order(split_k=2, unit=16), "raw": False},
        ),
        "LibraryEpilogue": (wf.LibraryEpilogue, {"alpha": 1.5, "activation": "gelu", "scales": (0.5, 2.0)}),
        "Epilogue": (wf.Epilogue, {"alpha": 1.5, "beta": 0.5, "bias": [1, 2, 3], "result": "bf16"}),
        "gemm with an epilogue": (
            wf.gemm,
            {"A": A, "B": B, "C": B, "instruction": F16, "epilogue": wf.Epilogue(bias=np.ones(8)), "raw": False},
        ),
        "error_report": (
            wf.error_report,
            {"A": A, "B": B, "C": None, "instruction": F16, "arch": ["sm_90"], "order": wf.Order(),
             "backend": "auto"},
        ),
        "predict": (
            wf.predict,
            {"A": A, "B": B, "bias": None, "layout": "nn", "fast_accumulation": False, "shape": None,
             "choices": "H200", "epilogue": wf.LibraryEpilogue()},
        ),
        "predict_order": (
            wf.predict_order,
            {"m": 4, "n": 64, "k": 4096, "dtype": "bf16", "layout": "nt", "bias": False, "fast_accumulation": False,
             "batch": 1, "choices": "H200"},
        ),
        "invariance": (
            wf.batch_invariance,
            {"n": 4096, "k": 14336, "dtype": "bf16", "layout": "nt", "bias": False, "fast_accumulation": False,
             "m": (1, 64), "choices": "H200"},
        ),
        "invariance svg": (wf.batch_invariance(4096, 4096, m=(1, 4)).svg, {"theme": "light"}),
        "explain": (
            wf.explain,
            {"D1": (A @ B).astype(np.float16), "D2": (A @ B).astype(np.float16), "A": A, "B": B, "bias": None,
             "instruction": None, "arch": "sm_90", "names": ("one", "other")},
        ),
        "find_order": (
            wf.find_order,
            {"A": A, "B": B, "observed": B, "instruction": None, "arch": "sm_90", "backend": "auto"},
        ),
        "quantize": (
            wf.quantize, {"A": A, "number_format": "e2m1", "scale": "ue8m0", "block": 16, "axis": -1, "raw": False,
                          "scale_rounding": "even", "nonfinite": "nan"},
        ),
        "prune": (wf.prune, {"A": A, "pattern": "2:4"}),
        "compress whole": (wf.compress, {"A": full, "pattern": "2:4"}),
        "call": (mma, {"A": A, "B": B, "C": None, "arch": "sm_90", "rounding": "rne", "threads": None}),
        "call scaled": (
            mx,
            {"A": wf.Scaled(np.zeros((16, 64)), scales), "B": wf.Scaled(np.zeros((64, 8)), np.ones((4, 8))),
             "arch": "sm_120"},
        ),
        "pack": (mma.a.pack, {"matrix": A, "raw": False, "rounding": "rne"}),
        "pack integers": (wf.get(S8).a.pack, {"matrix": np.zeros((16, 32), int), "rounding": None}),
        "unpack": (mma.a.unpack, {"words": a, "raw": True, "strict": True}),
        "bits": (mma.a.bits, {"slot": 0}),
        "element": (mma.a.element, {"reg": 1, "slot": 0}),
        "check_words": (mma.a.check_words, {"words": a}),
        "codes": (mma.a.codes, {"matrix": A, "raw": False, "rounding": None}),
        "full_codes": (sp.a.full_codes, {"matrix": full, "raw": False, "rounding": "rne"}),
        "check metadata": (sp.metadata.check_words, {"words": sp.metadata.pack(codes)}),
        "tiled": (mma.a.tiled, {"row": 1, "col": 2}),
        "span": (sp.a.span, {"lane": 0, "reg": 1}),
        "where": (sp.a.where, {"row": 0, "col": 1, "codes": codes}),
        "compress": (sp.compress, {"matrix": full, "raw": False, "rounding": None}),
        "expand": (sp.expand, {"stored": full[:, :16], "metadata": codes}),
        "metadata pack": (sp.metadata.pack, {"codes": codes, "selector": 0}),
        "metadata unpack": (sp.metadata.unpack, {"words": sp.metadata.pack(codes), "selector": 1}),
        "metadata where": (sp.metadata.where, {"row": 0, "chunk": 1, "selector": 0}),
        "metadata at": (sp.metadata.at, {"lane": 0, "bit": 5, "selector": 0}),
        "scale pack": (mx.scale_a.pack, {"scales": scales, "byte_id": 0, "thread_id": 1, "rounding": "rne"}),
        "scale unpack": (mx.scale_a.unpack, {"words": scale_words[0], "byte_id": 0, "thread_id": 1}),
        "scale where": (mx.scale_b.where, {"scale": 0, "col": 1, "thread_id": 0}),
        "scale at": (mx.scale_a.at, {"lane": 0, "byte": 1, "thread_id": 0}),
        "at": (layout.at, {"lane": 5, "reg": 1, "slot": 0}),
        "layout where": (layout.where, {"row": 5, "col": 1}),
        "layout tiled": (layout.tiled, {"row": 2}),
        "fix": (layout.fix, {"reg": 1}),
        "digits": (layout.digits, {"source": "lane"}),
        "compose": (layout.__matmul__, {"inner": layout.inverse()}),
        "product": (layout.__mul__, {"other": layout}),
        "divide_left": (layout.divide_left, {"low": layout}),
        "divide_right": (layout.divide_right, {"high": layout}),
        "sublayout": (layout.sublayout, {"ins": ["lane"], "outs": ["row"]}),
        "rename": (layout.rename, {"lane": "thread"}),
        "reshape": (layout.reshape, {"ins": {"thread": 32, "value": 8}, "outs": {"element": 256}}),
        "is_trivial_over": (trivial_over, {"name": "lane"}),
        "identity": (wf.Layout.identity, {"warp": 4}),
        "joined": (joined, {"name": "i", "axis": "reg"}),
        "runs": (layout.runs, {"out": "row"}),
        "along": (layout.along, {"source": "slot"}),
        "parse": (wf.Layout.parse, {"extents": {"row": 2}, "lane": "r1", "reg": ""}),
        "addresses": (ld.addresses.at, {"lane": 9}),
        "evidence": (mma.evidence, {"arch": "sm_90"}),
        "decode": (f16.decode, {"code": 0x3C00}),
        "encode": (f16.encode, {"value": 1.5, "rounding": "rne"}),
        "is_nan": (f16.is_nan, {"code": 0x7E00}),
        "Memory": (wf.Memory, {"order": "col", "pitch": 128, "swizzle": 64, "start": 16}),
        "address": (memory.address, {"row": 1, "col": 2, "bits": 16, "shape": (8, 8)}),
        "memory addresses": (memory.addresses, {"shape": (8, 8), "bits": 16}),
        "memory size": (memory.size, {"shape": (8, 8), "bits": 16}),
        "memory elements": (memory.elements, {"address": 64, "shape": (8, 8), "bits": 16}),
        "memory write": (memory.write, {"shared": bytes_, "codes": np.zeros((8, 8), np.uint16), "bits": 16}),
        "memory read": (memory.read, {"shared": bytes_, "shape": (8, 8), "bits": 16}),
        "wavefronts": (wavefronts, {"addresses": [0] * 32, "width": 4}),
        "bank_conflicts": (bank_conflicts, {"addresses": [0] * 32, "width": 4}),
        "to_text": (wf.draw(F16, "a").to_text, {"width": 100}),
        "diagnose": (
            wf.diagnose,
            {"instruction": mma, "observed": mma(A, B), "A": A, "B": B, "C": None, "arch": "sm_90"},
        ),
        "diagnose sparse": (
            wf.diagnose,
            {"instruction": SP, "observed": np.zeros((16, 8)), "A": full, "B": np.zeros((32, 8)),
             "options": DiagnoseOptions(), "metadata": sp.metadata.pack(codes)},
        ),
        "diagnose operand": (
            wf.diagnose,
            {"instruction": mma.a, "observed": a, "A": A, "options": DiagnoseOptions(rounding="rne")},
        ),
        "diagnose scale": (
            wf.diagnose,
            {"instruction": mx.scale_a, "observed": scale_words[0], "A": scales},
        ),
        "draw": (wf.draw, {"subject": F16, "operand": "a", "rows": None, "title": "x"}),
        "emit": (wf.emit, {"instructions": F16, "lang": "cuda"}),
        "vectors": (wf.test_vectors, {"instruction": F16, "arch": "sm_90", "seed": 0}),
        "vectors save": (vectors.save, {"path": "vectors.npz"}),
        "drawing save": (wf.draw(F16, "a").save, {"path": "a.svg"}),
        "drawing to_svg": (wf.draw(F16, "a").to_svg, {"theme": "light"}),
        "relayout": (wf.relayout, {"source": mma.d.tiled(col=2), "target": mma.a, "permute": None}),
        "plan emit": (plan.emit, {"lang": "cuda", "name": "f"}),
        "Texture": (
            wf.ptx.Texture,
            {"array": np.zeros((4, 4), np.float32), "filter": "linear", "address": ("clamp", "wrap"), "channels": 1,
             "normalized": True, "read": "element", "layered": False, "border": (0, 0, 0, 0)},
        ),
        "TensorMap": (
            wf.ptx.TensorMap,
            {"array": np.zeros((32, 64), np.float16), "box": (8, 64), "swizzle": 128, "dims": (32, 64),
             "strides": (128, 2), "element_strides": (1, 1), "fill": "zero", "dtype": "float16", "interleave": 0},
        ),
        "TensorMap of columns": (
            lambda lower, upper, channels, pixels: wf.ptx.TensorMap(
                np.zeros((2, 8, 8, 16), np.float16), wf.ptx.Im2col(lower, upper, channels, pixels), 32
            ),
            {"lower": (0, 0), "upper": (0, 0), "channels": 16, "pixels": 8},
        ),
        "TensorMap memory": (wf.ptx.TensorMap(np.zeros((8, 64), np.float16), (8, 64), 128).memory, {"start": 0}),
        "TensorMap descriptor": (
            wf.ptx.TensorMap(np.zeros((8, 64), np.float16), (8, 64), 128).descriptor, {"start": 0},
        ),
        "TensorMap encode": (
            wf.ptx.TensorMap(np.zeros((8, 64), np.float16), (8, 64), 128).encode, {"address": 4096},
        ),
        "TensorMap from_bytes": (
            wf.ptx.TensorMap.from_bytes,
            {"data": bytes(wf.ptx.TensorMap(wf.ptx.DeviceArray(np.zeros((8, 64), np.float16)), (8, 64), 128))},
        ),
        "gpu": (wf.gpu, {"profile": "H200", "memory": 1 << 30, "checks": ("races",), "record_only": True}),
        "Surface": (wf.ptx.Surface, {"array": np.zeros((4, 4), np.float32), "channels": 1, "layered": False}),
        "way emit": (load.emit, {"lang": "ptx", "name": "f"}),
        "expression": (load.expression, {"access": load.accesses[0]}),
        "plan": (plan, {"words": np.zeros((32, 8), np.uint32)}),
        "loads": (wf.loads, {"operand": mma.a, "memory": memory}),
        "stores": (wf.stores, {"operand": mma.d, "memory": memory}),
        "load": (load.load, {"shared": bytes_}),
        "store": (store.store, {"words": mma.d.pack(np.zeros((16, 8))), "shared": bytes_}),
        "execute wgmma": (
            wf.execute,
            {"instruction": WG, "a": wg.a.pack(np.zeros((64, 16))), "b": tile, "c": None,
             "immediates": wf.Immediates(negate=(False, True)), "arch": "sm_90"},
        ),
        "execute descriptors": (
            wf.execute,
            {"instruction": WG, "a": tile.descriptor, "b": tile.descriptor, "shared": np.zeros(4096, np.uint8)},
        ),
        "Descriptor": (
            wf.Descriptor,
            {"start": 0, "leading": 16, "stride": 1024, "swizzle": 128, "base_offset": 0, "other": 0},
        ),
        "decode word": (wf.Descriptor.decode, {"word": 0x4000004000000000}),
        "InstructionDescriptor": (
            wf.InstructionDescriptor,
            {"kind": "f16", "m": 128, "n": 64, "a": "f16", "b": "f16", "d": "f32", "transpose_a": True, "selector": 0},
        ),
        "decode idesc": (wf.InstructionDescriptor.decode, {"word": 0x8400490, "kind": "f16"}),
        "idesc of": (wf.InstructionDescriptor.of, {"instruction": tensor}),
        "problems of idesc": (tensor.descriptor().problems, {"instruction": tensor}),
        "ZeroColumnMask": (ZeroColumnMask, {"zeros": 2, "used": 3, "starts": (0, 0, 0, 0), "shift": 8}),
        "decode mask": (ZeroColumnMask.decode, {"word": 1 << 39}),
        "columns of a mask": (ZeroColumnMask().columns, {"m": 64, "n": 64}),
        "problems of a mask": (ZeroColumnMask().problems, {"m": 64}),
        "get tcgen05": (wf.get, {"name": TENSOR, "m": 128, "n": 64, "a": "f16", "b": "f16", "d": "f32", "k": 16}),
        "execute tcgen05": (
            tensor.execute,
            {"tensor_memory": np.zeros((128, 128), np.uint32), "a": 0x4000404000000000, "b": 0x4000404000000000,
             "shared": np.zeros(1 << 15, np.uint8), "accumulate": False, "at": {"d": 0, "a": 64}, "idesc": None,
             "arch": "sm_100"},
        ),
        "descriptor of tcgen05": (tensor.descriptor, {"transpose_b": True}),
        "tensor pack": (tensor.d.pack, {"matrix": np.zeros((128, 64)), "raw": False, "rounding": "rne"}),
        "tensor unpack": (tensor.d.unpack, {"words": np.zeros((128, 64), np.uint32), "raw": True, "strict": True}),
        "tensor words": (tensor.d.check_words, {"words": np.zeros((128, 64), np.uint32)}),
        "tensor store": (
            tensor.b.store,
            {"matrix": np.zeros((16, 64)), "desc": None, "trans": True, "rounding": "rne"},
        ),
        "tensor read": (tensor.b.read, {"tile": tensor.b.store(np.zeros((16, 64)))}),
        "tensor addresses": (tensor.b.addresses, {"desc": 0x4000404000000000, "trans": False}),
        "through": (tensor.d.through, {"load": "tcgen05.ld.sync.aligned.32x32b.x8.b32", "column": 8, "base_lane": 0}),
        "cute of a descriptor": (tile.descriptor.cute, {"trans": False}),
        "moved": (tile.descriptor.moved, {"by": 32}),
        "memory of a descriptor": (tile.descriptor.memory, {"role": "b", "trans": False}),
        "problems": (tile.descriptor.problems, {"operand": wg.b, "trans": True}),
        "used": (tile.descriptor.used, {"operand": wg.b, "trans": True}),
        "tensor_map": (tile.descriptor.tensor_map, {"operand": wg.b, "trans": False, "k": 16}),
        "addresses of b": (wg.b.addresses, {"desc": tile.descriptor, "trans": False}),
        "memory of b": (wg.b.memory, {"desc": tile.descriptor, "trans": True}),
        "descriptors": (wg.b.descriptors, {"k": 64, "swizzle": 128, "trans": False, "start": 1024}),
        "store b": (wg.b.store, {"matrix": np.zeros((16, 8)), "desc": None, "trans": True, "rounding": "rne"}),
        "load b": (wg.b.load, {"tile": tile, "raw": True}),
        "read b": (wg.b.read, {"tile": tile}),
        "of_steps": (
            wf.Layout.of_steps,
            {"extents": {"row": 2}, "steps": {"lane": [(2, (1,))]}, "origin": None},
        ),
        "steps": (layout.steps, {"source": "lane"}),
        "to": (layout.to, {"notation": "cute", "transposed": False}),
        "read": (
            wf.Layout.read,
            {"notation": "cute", "source": "((4,8),2):((16,1),8)", "shape": (8, 8), "slots": 1, "dims": None,
             "transposed": False},
        ),
        "read arrays": (wf.Layout.read, {"notation": "numpy", "source": layout.to("numpy"), "dims": None}),
        "aliases": (wf.aliases, {"instruction": F16}),
        "identify": (wf.identify, {"layout": layout}),
        "chains": (wf.Order(split_k=2).chains, {"depth": 64, "k": 16, "bits": 16}),
        "error svg": (wf.error_report(A, B, instruction=F16).svg, {"theme": "light"}),
        "overlap": (memory.overlap, {"shape": (8, 8), "bits": 16}),
        "verify": (
            wf.verify,
            {"instructions": F16, "cases": 1, "seed": 0, "device": 0, "capture": None, "progress": None},
        ),
    }  # fmt: skip


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    """The methods of a public class, its own and inherited from ours, that take anything."""
    ours = [part for part in kind.__mro__ if part.__module__.startswith("warpfrag")]
    found = {
        name: getattr(member, "__func__", member) for part in reversed(ours) for name, member in vars(part).items()
    }
    return {
        f"{kind.__name__}.{name}": method
        for name, method in found.items()
        if (not name.startswith("_") or name in {"__call__", "__matmul__"})
        and inspect.isfunction(method)
        and len(inspect.signature(method).parameters) > 1
    }


def test_every_function_and_method_that_takes_something_is_tried():
    tried = set()
    given: list[Any] = []
    for call, right in surface().values():
        function = call if inspect.isroutine(call) or inspect.isclass(call) else type(call).__call__
        tried.add(getattr(function, "__func__", function))
        given += [getattr(call, "__self__", call), *right.values()]
    public = {name: getattr(wf, name) for name in set(wf.__all__) - {"torch", "triton"}}
    kinds = {kind for kind in public.values() if inspect.isclass(kind) and not issubclass(kind, Exception)}
    kinds |= {kind for one in given for kind in [type(one)] if kind.__module__.startswith("warpfrag")}
    wanted = {name: one for name, one in public.items() if inspect.isfunction(one)}
    for kind in kinds:
        wanted |= methods(kind)
    assert len(wanted) > 60
    assert sorted(name for name, function in wanted.items() if function not in tried) == []


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A folder to write to, and no GPU."""
    monkeypatch.chdir(tmp_path)

    def no_gpu(_device: int) -> None:
        reason = "none"
        raise NoGpu(reason)

    monkeypatch.setattr(verification, "Worker", no_gpu)


@pytest.mark.filterwarnings("ignore::warpfrag.errors.AmbiguousOrder")
@pytest.mark.parametrize("name", surface())
def test_only_our_errors_come_out(name: str):
    call, right = surface()[name]
    said = message(call, right)
    assert said == "" or name in {"verify", "wmma.load executes"}
    chance = random.Random(name)
    singles = [{argument: hostile} for argument in right for hostile in HOSTILE]
    pairs = [
        {argument: chance.choice(HOSTILE) for argument in chance.sample(sorted(right), 2)}
        for _ in range(PAIRS_EACH if len(right) > 1 else 0)
    ]
    refused = 0
    for replaced in singles + pairs:
        said = message(call, right | replaced)
        refused += bool(said)
        assert len(said) < 2500
        assert "\x1b" not in said
    assert refused > len(singles + pairs) // 4


def message(call: Callable[..., Any], given: dict[str, Any]) -> str:
    """Return the error message of a call, or nothing if it accepts its arguments."""
    try:
        call(**given)
    except wf.WarpfragError as error:
        return str(error)
    return ""
