"""Products and attention in the style of Hopper libraries, compared with an H200's memory (`hopper_products`)."""

import hashlib
import zipfile
from pathlib import Path

import pytest

import warpfrag as wf
from ptx import hopper_products

DATA = Path(__file__).parent.parent / "data" / "ptx" / "hopper"


def kernel_of(file, entry):
    with zipfile.ZipFile(DATA / "kernels.zip") as archive:
        return wf.ptx.load(archive.read(file).decode())[entry]


@pytest.mark.slow
@pytest.mark.one_engine
@pytest.mark.parametrize("name", hopper_products.H200)
def test_whole_products_leave_what_the_gpu_left(name):
    product = hopper_products.PRODUCTS[name]()
    args = [
        wf.ptx.TensorMap(item.array, item.box, swizzle=128) if isinstance(item, hopper_products.Tiles) else item
        for item in product.args
    ]
    kernel = kernel_of(product.file, product.entry)
    kernel.launch(product.grid, product.block, args, shared=product.shared, engine=product.engine)
    assert hashlib.sha256(product.output.tobytes()).hexdigest() == hopper_products.H200[name]
