"""The n and k of every projection in the models of models.txt, whole and split by tensor parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS = Path(__file__).parent / "models.txt"
PARALLEL = (1, 2, 4, 8)
"""The numbers of GPUs that a layer may be split over."""


class Model(NamedTuple):
    """A model's published configuration."""

    name: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    mlp: str

    def projections(self, gpus: int) -> Iterator[tuple[str, int, int]]:
        """Yield the name, n and k of each projection on one of `gpus` GPUs; indivisible ones are omitted."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        outputs = {"q": queries, "kv": keys, "qkv": queries + 2 * keys, "up": self.intermediate}
        if self.mlp == "glu":
            outputs["gate and up"] = 2 * self.intermediate
        outputs["vocabulary"] = self.vocabulary
        yield from ((name, n // gpus, self.hidden) for name, n in outputs.items() if n % gpus == 0)
        inputs = {"out": queries, "down": self.intermediate}
        yield from ((name, self.hidden, k // gpus) for name, k in inputs.items() if k % gpus == 0)


def models() -> list[Model]:
    """Return the models in models.txt."""
    lines = [line.split() for line in MODELS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [Model(name, *map(int, numbers), mlp) for name, *numbers, mlp in lines]  # type: ignore[arg-type,call-arg]


def layers() -> dict[tuple[int, int], str]:
    """Return each distinct (n, k) with the first layer that has it, whole layers first."""
    named: dict[tuple[int, int], str] = {}
    for gpus in PARALLEL:
        for model in models():
            for name, n, k in model.projections(gpus):
                named.setdefault((n, k), f"{model.name} {name}" + (f" on {gpus}" if gpus > 1 else ""))
    return named


def plan() -> str:
    """Return a plan for `warpfrag survey`."""
    lines = ['types = ["bf16", "f16", "tf32", "e4m3"]', 'layouts = ["nt", "nn"]', "", "[layers]"]
    return "\n".join([*lines, *(f'"{name}" = [{n}, {k}]' for (n, k), name in layers().items())]) + "\n"
