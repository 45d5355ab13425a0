"""Kernels for debugger tests: launches of captured kernels, as keyword arguments of `Kernel.launch` and `debug`."""

import json
import zipfile
from pathlib import Path

import numpy as np

import warpfrag as wf
from ptx import hopper_products
from seeded import seeded

DATA = Path(__file__).parent.parent / "data" / "ptx"
CASES = json.loads((DATA / "cases.json").read_text(encoding="utf-8"))
STORED = json.loads((DATA / "kernels.json").read_text(encoding="utf-8"))


def captured(name, change=None):
    """A kernel of `cases.json`, its launch and its arrays; `change` edits the text."""
    case = CASES[name]
    with np.load(DATA / "memory.npz") as memory:
        arrays = {arg["array"]: memory[f"{name}/{arg['array']}"].copy() for arg in case["args"] if "array" in arg}
    args = [
        arrays[arg["array"]] if "array" in arg else np.dtype(arg["dtype"]).type(arg["scalar"]) for arg in case["args"]
    ]
    text = (DATA / f"{name}.ptx").read_text(encoding="utf-8")
    kernel = wf.ptx.load(text if change is None else change(text))[case["entry"]]
    return kernel, {"grid": case["grid"], "block": case["block"], "args": args, "shared": case["shared"]}, arrays


def stored(name, change=None):
    """A kernel of `kernels.json` and its launch."""
    case = STORED[name]
    with zipfile.ZipFile(DATA / "kernels.zip") as kernels:
        text = kernels.read(f"{case['file']}.ptx").decode()
    args = [_argument(given) for given in case["args"]]
    kernel = wf.ptx.load(text if change is None else change(text))[case["entry"]]
    return kernel, {"grid": case["grid"], "block": case["block"], "args": args, "shared": case["shared"]}


def _argument(given):
    if given is None:
        return None
    if "kind" in given:
        return seeded(given["kind"], given["shape"], given.get("seed"))
    return bytes.fromhex(given["bytes"]) if "bytes" in given else np.dtype(given["dtype"]).type(given["scalar"])


def hopper(name):
    """A product of `hopper_products` with its tensor maps."""
    product = hopper_products.PRODUCTS[name]()
    args = [
        wf.ptx.TensorMap(item.array, item.box, swizzle=128) if isinstance(item, hopper_products.Tiles) else item
        for item in product.args
    ]
    with zipfile.ZipFile(DATA / "hopper" / "kernels.zip") as archive:
        kernel = wf.ptx.load(archive.read(product.file).decode())[product.entry]
    launch = {"grid": product.grid, "block": product.block, "args": args, "shared": product.shared}
    return kernel, launch, [item for item in args if isinstance(item, wf.ptx.TensorMap)]
