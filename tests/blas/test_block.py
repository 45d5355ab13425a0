"""One bfloat16 transformer block on an H200: every product, given its operands, is predicted to the last bit."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from tools.libraries.cases import numpy_matrix

STORED = np.load(Path(__file__).parents[1] / "data" / "block_h200.npz")
LENGTH, EVERY = 48, 4
"""Tokens; of a layer's outputs every fourth column of eight rows is kept."""
WEIGHTS = {"qkv": (768, 256, 10), "out": (256, 256, 11), "up": (2048, 256, 12), "down": (256, 1024, 13)}
"""n, k and seed of each weight: a hash of its indices, an eighth of it."""


def stored(name: str) -> np.ndarray:
    return STORED[name].view(ml_dtypes.bfloat16)


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_layer_of_the_block(name: str):
    n, k, seed = WEIGHTS[name]
    weight = (numpy_matrix(np.arange(0, n, EVERY), np.arange(k), seed, "bf16") / 8).astype(ml_dtypes.bfloat16)
    found = wf.predict(stored(f"{name}_a"), weight.T, layout="nt", shape=(LENGTH, n, k))

    assert np.array_equal(found.D.view(np.uint16), STORED[f"{name}_d"])


@pytest.mark.parametrize(("name", "layout"), [("scores", "nt"), ("attention", "nn")])
def test_a_product_of_attention(name: str, layout: str):
    A, B = stored(f"{name}_a"), stored(f"{name}_b")
    found = wf.predict(A, B, layout=layout, shape=(LENGTH, B.shape[2], B.shape[1]))

    assert np.array_equal(found.D.view(np.uint16), STORED[f"{name}_d"])
