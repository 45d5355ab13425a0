"""Train the networks of `warpfrag.blas.cublas.choice_model` on a GPU, with the library's answers.

The inputs of a network are the features and the kind of a gemm, and its outputs are the choices. One network is for
16-bit and fp8 gemms, whose choice is a split count, and one for tf32. Chunks of shapes are held out for testing.

`network_*.npz` have the weights, the labels of the outputs, and the number of answers. `pack` combines them with the
package's decision trees for thin and unaligned shapes, which were fitted to earlier answers with scikit-learn.
"""

from __future__ import annotations

import json
import os
import time
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.choices.answers import HELD_OUT, KINDS, Answers
from tools.libraries.measure import say
from warpfrag.blas.cublas.choice_model import FILE, ChoiceNetwork, ChoiceTree, built_in_model, features
from warpfrag.blas.cublas.choice_table import NVJET, Choice, ProductKind
from warpfrag.blas.cublas.kernel_orders import BYTES, LINE, order_of
from warpfrag.blas.cublas.predict_order import library_additions
from warpfrag.errors import NotModelled

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from warpfrag.blas.cublas.choice_model import ChoiceModel
    from warpfrag.blas.cublas.cublaslt import Configuration

SECONDS = float(os.environ.get("TRAIN_SECONDS", "50"))
DEVICE = os.environ.get("TRAIN_DEVICE", "cuda")
WIDTHS = {"tf32": (384, 384), "nvjet": (384, 384)}
BATCH, RATE, WARM_UP = 16384, 4e-3, 0.03
COMMON, TESTED = 450, 1500
"""The number of common choices that a network distinguishes, and the number of test shapes for each kind."""
CUTLASS, XMMA, XMMA_SM80, GEMV_NUMBER = (21, 23), 43, 63, 13
"""The numbers of cuBLASLt algorithms."""
FAMILIES = {11: "gemmSN", 14: "dot_kernel", 20: "simt", 55: "ffma", 63: "xmma_sm80"}
GEMV = ((8, "gemv2N"), (11, "gemvNSP"), (15, "gemv2T"))
"""The kernels of other algorithms, and those of algorithm 13 for custom options below each limit, from `launches`."""
STAGE_DEPTHS = {3: 16, 4: 16, 5: 16, 6: 16, 9: 32, 10: 32, 11: 32, 12: 32, 27: 16}
"""The k of a stage, by cublasLtMatmulStages_t."""


def label(configuration: Configuration) -> tuple[int, ...]:
    """Return the algorithm, tile, split count, custom option, depth, cluster and swizzle that determine an order."""
    algorithm, tile, split, _, swizzle, custom, stages, _, cluster = configuration
    if algorithm in CUTLASS:
        return CUTLASS[0], 0, split, 0, STAGE_DEPTHS.get(stages, 32), 0, 0
    if algorithm == XMMA and split < 0:
        return XMMA, tile, split, 0, 0, cluster, swizzle
    return algorithm, 0, split, 0 if algorithm in {XMMA, NVJET} else custom, 0, 0, 0


def samples(folder: Path, numbers: list[int]) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
    """Return rows of kind, m, n, k, label and chunk for the answers of these kinds, and the labels."""
    known: dict[tuple[int, ...], int] = {}
    found = []
    for path in sorted(folder.glob("answers*.npz")):
        rows, configurations = Answers.load(path)
        rows = rows[np.isin(rows[:, 0], numbers)].copy()
        used = set(rows[:, 4].tolist())
        mapped = [
            known.setdefault(label(each), len(known)) if place in used else -1
            for place, each in enumerate(configurations)
        ]
        rows[:, 4] = np.array(mapped, np.int32)[rows[:, 4]]
        found.append(rows)
    return np.concatenate(found), list(known)


def inputs(rows: NDArray[np.int32], numbers: list[int]) -> NDArray[np.float32]:
    """Return the network's inputs: the logarithms of the features, and the kind as a one-hot vector."""
    columns = []
    for first in range(0, len(rows), 1 << 18):
        some = rows[first : first + (1 << 18)]
        lines = np.array([LINE // BYTES[kind.type] for kind in KINDS])[some[:, 0]]
        seen = np.log2(1 + features(some[:, 1], some[:, 2], some[:, 3], lines))
        columns.append(np.concatenate([seen, some[:, :1] == np.array(numbers)], axis=1).astype(np.float32))
    return np.concatenate(columns)


def fit_network(torch: Any, folder: Path, name: str, numbers: list[int], seconds: float) -> None:  # noqa: ANN401
    """Train one network for a given time, and write its file."""
    rows, labels = samples(folder, numbers)
    counts = np.bincount(rows[:, 4], minlength=len(labels))
    common = np.argsort(-counts)[:COMMON]
    place = np.full(len(labels), -1)
    place[common] = np.arange(len(common))
    rows[:, 4] = place[rows[:, 4]]
    seen = inputs(rows, numbers)
    is_test = rows[:, 5] % HELD_OUT == 0
    mean, deviation = seen.mean(0), np.maximum(seen.std(0), 1e-3)
    x = torch.as_tensor((seen - mean) / deviation, device=DEVICE)
    y = torch.as_tensor(rows[:, 4].astype(np.int64), device=DEVICE)
    fitted = torch.as_tensor(np.flatnonzero(~is_test & (rows[:, 4] >= 0)), device=DEVICE)
    torch.manual_seed(0)
    widths = [x.shape[1], *WIDTHS[name], len(common)]
    layers = [torch.nn.Linear(*pair) for pair in pairwise(widths)]
    steps = [step for layer in layers for step in (layer, torch.nn.SiLU())][:-1]
    network = torch.nn.Sequential(*steps).to(DEVICE)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-3)
    start, rounds, share = time.time(), 0, 0.0
    while share < 1:
        for part in fitted[torch.randperm(len(fitted), device=DEVICE)].split(BATCH):
            share = min(1.0, (time.time() - start) / seconds)
            for group in optimizer.param_groups:
                group["lr"] = float(RATE * min(1.0, share / WARM_UP) * (1 + np.cos(np.pi * share)) / 2) + 1e-7
            if share == 1:
                break
            loss = torch.nn.functional.cross_entropy(network(x[part]), y[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rounds += 1
        if rounds % 20 == 0:
            say(f"{name}: round {rounds}, loss {float(loss):.4f}")
    with torch.no_grad():
        found = torch.cat([network(part).argmax(1) for part in x.split(1 << 18)]).cpu().numpy()
    is_right = found == rows[:, 4]
    for number in numbers:
        some = is_test & (rows[:, 0] == number)
        say(f"{name}: {KINDS[number]}: {is_right[some].mean():.4f}; {is_right[~is_test].mean():.4f} of all fitted")
    arrays = {"mean": mean, "deviation": deviation}
    for number, layer in enumerate(layers):
        arrays |= {
            f"weight{number}": layer.weight.detach().T.cpu().numpy(),
            f"bias{number}": layer.bias.detach().cpu().numpy(),
        }
    header = {"kinds": numbers, "samples": len(rows), "labels": [labels[each] for each in common], "rounds": rounds}
    np.savez_compressed(
        folder / f"network_{name}.npz", header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays
    )


def train(folder: Path, seconds: float = SECONDS) -> None:
    """Train both networks."""
    import torch

    torch.set_float32_matmul_precision("high")
    for name in ("tf32", "nvjet"):
        numbers = [number for number, kind in enumerate(KINDS) if (kind.type == "tf32") == (name == "tf32")]
        fit_network(torch, folder, name, numbers, seconds)


def choice_of_label(name: tuple[int, ...]) -> Choice:
    """Return the choice for a label."""
    algorithm, tile, split, custom, depth, cluster, swizzle = name
    if algorithm == NVJET:
        return Choice(NVJET, 0, split, 2 * (split > 1), 0, 0, "nvjet")
    if algorithm in CUTLASS:
        return Choice(algorithm, 0, split, 2 * (split > 1), 0, depth, "cutlass_80_s1688")
    if algorithm == XMMA and split < 0:  # a segment-K kernel is launched only if tiles must be cut
        return Choice(XMMA, tile, 0, 0, cluster, swizzle, "xmma_segment_k")
    if algorithm == XMMA or (algorithm == XMMA_SM80 and split == 1):
        return Choice(XMMA, 0, 1, 0, 0, 0, "xmma_sm90")
    family = next((family for end, family in GEMV if custom < end), "gemvx")
    return Choice(
        algorithm, 0, split, 0, custom, 0, FAMILIES.get(algorithm, "") if algorithm != GEMV_NUMBER else family
    )


def is_alike(kind: ProductKind, choices: tuple[Choice, Choice], shape: tuple[int, int, int]) -> bool:
    """Return True if two choices lead to the same order of additions."""
    if choices[0] == choices[1]:
        return True
    try:
        orders = [order_of(kind, choice, shape) for choice in choices]
    except NotModelled:
        return False
    tiles = [order.cut_tiles for order in orders]
    if any(each is not None for each in tiles):
        return all(each is not None for each in tiles) and orders[0].order == orders[1].order and tiles_equal(tiles)
    return len({library_additions(kind.type, order.order, shape[2]) for order in orders}) == 1


def tiles_equal(tiles: list[Any]) -> bool:
    """Return True if two kernels cut the same tiles."""
    first, second = tiles
    return bool(first[:2] == second[:2] and np.array_equal(first.is_cut, second.is_cut))


def read_network(folder: Path, name: str) -> ChoiceNetwork:
    """Read a trained network, and measure its accuracy on the shapes that were held out."""
    with np.load(folder / f"network_{name}.npz") as stored:
        header = json.loads(bytes(stored["header"]))
        layers = [
            (stored[f"weight{place}"].astype(np.float16), stored[f"bias{place}"].astype(np.float16))
            for place in range(len(stored.files) // 2 - 1)
        ]
        made = ChoiceNetwork(
            {" ".join(KINDS[number]): 0.0 for number in header["kinds"]}, stored["mean"], stored["deviation"], layers,
            tuple(choice_of_label(tuple(each)) for each in header["labels"]),
        )  # fmt: skip
    rows, labels = samples(folder, header["kinds"])
    right = [choice_of_label(each) for each in labels]
    rows = rows[rows[:, 5] % HELD_OUT == 0]
    for number in header["kinds"]:
        kind = ProductKind(*KINDS[number])
        results = []
        for _, m, n, k, chosen, _ in rows[rows[:, 0] == number][:TESTED].tolist():
            found = made.find(" ".join(KINDS[number]), features(m, n, k, LINE // BYTES[kind.type]))
            results.append(is_alike(kind, (found, right[chosen]), (m, n, k)))
        made.accuracies[" ".join(KINDS[number])] = round(float(np.mean(results)), 4)
        say(f"{KINDS[number]}: {np.mean(results):.4f} of {len(results)}")
    return made


def pack(folder: Path) -> None:
    """Write choice_model_h200.npz: the trained networks, and the package's trees."""
    networks = {name: read_network(folder, name) for name in ("nvjet", "tf32")}
    (folder / FILE).write_bytes(to_bytes((networks, built_in_model()[1])))


def to_bytes(model: ChoiceModel) -> bytes:
    """Return the file that `choice_model.read_model` reads."""
    arrays: dict[str, Any] = {}
    lines = []
    for name, network in model[0].items():
        numbers = [network.mean, network.deviation, *(each for layer in network.layers for each in layer)]
        arrays |= {f"{name}{place}": array for place, array in enumerate(numbers)}
        lines.append([name, network.accuracies, len(network.layers), network.choices])
    for field in ChoiceTree._fields[:5]:
        arrays[field] = np.concatenate([getattr(tree, field) for tree in model[1].values()] or [np.zeros(0)])
    trees = [[name, len(tree.feature), tree.accuracy, tree.choices] for name, tree in model[1].items()]
    header = {"format": "warpfrag choice model", "schema": 2, "gpu": "NVIDIA H200", "library": "cuBLASLt 13.1.0"}
    text = json.dumps({**header, "networks": lines, "trees": trees}).encode()
    stream = BytesIO()
    np.savez_compressed(stream, header=np.frombuffer(text, np.uint8), **arrays)
    return stream.getvalue()
