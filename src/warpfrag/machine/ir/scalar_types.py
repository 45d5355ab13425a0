"""PTX scalar types: their widths, their formats, and the NumPy dtypes of their codes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Kind = Literal["u", "s", "b", "f", "pred"]
Codes: TypeAlias = "NDArray[Any]"
"""An array of codes: unsigned integers as wide as the type, or bools for predicates."""


@dataclass(frozen=True)
class Type:
    """A PTX scalar type; a packed type has several `parts`, low bits first, each in the format `element`."""

    name: str
    kind: Kind
    bits: int
    parts: int = 1
    element: str = ""

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the type's codes; a 128-bit code is two uint64, low half first."""
        return container(self.bits)

    @property
    def part_bits(self) -> int:
        """The width of one part in bits."""
        return self.bits // self.parts

    @property
    def is_float(self) -> bool:
        """True for floating-point types."""
        return self.kind == "f"


def container(bits: int) -> np.dtype[Any]:
    """Return the dtype that stores a register of `bits` bits; predicates have one bit."""
    return np.dtype(np.bool_ if bits == 1 else f"u{min(8, max(1, -(-bits // 8)))}")


def _rows() -> dict[str, Type]:
    rows = [Type("pred", "pred", 1)]
    rows += [Type(f"{kind}{bits}", kind, bits) for kind in ("u", "s", "b") for bits in (8, 16, 32, 64)]
    rows += [Type("b128", "b", 128), Type("b1", "b", 1)]
    rows += [Type(f"{kind}16x2", kind, 32, 2, f"{kind}16") for kind in ("u", "s")]
    rows += [Type("f16", "f", 16, 1, "f16"), Type("bf16", "f", 16, 1, "bf16"), Type("f32", "f", 32, 1, "f32")]
    rows += [Type("f64", "f", 64, 1, "f64"), Type("tf32", "f", 32, 1, "tf32")]
    rows += [Type("f16x2", "f", 32, 2, "f16"), Type("bf16x2", "f", 32, 2, "bf16"), Type("f32x2", "f", 64, 2, "f32")]
    rows += [Type(f"{name}x2", "f", 16, 2, name) for name in ("e4m3", "e5m2", "e2m3", "e3m2", "ue8m0")]
    rows += [Type("e2m1x2", "f", 8, 2, "e2m1")]
    rows += [Type(f"{name}x4", "f", 32, 4, name) for name in ("e4m3", "e5m2", "e2m3", "e3m2")] + [
        Type("e2m1x4", "f", 16, 4, "e2m1")
    ]
    return {row.name: row for row in rows}


TYPES = _rows()


def types_of(names: str) -> tuple[Type, ...]:
    """Return the types with the given names, separated by spaces.

    >>> [each.bits for each in types_of("u16 f32x2")]
    [16, 64]
    """
    return tuple(TYPES[name] for name in names.split())


PRED, B8, B16, B32, B64, B128 = (TYPES[name] for name in ("pred", "b8", "b16", "b32", "b64", "b128"))
U8, U16, U32, U64 = (TYPES[name] for name in ("u8", "u16", "u32", "u64"))
S8, S16, S32, S64 = (TYPES[name] for name in ("s8", "s16", "s32", "s64"))
F16, BF16, F32, F64, TF32 = (TYPES[name] for name in ("f16", "bf16", "f32", "f64", "tf32"))
U16X2, S16X2, F16X2, BF16X2, F32X2 = (TYPES[name] for name in ("u16x2", "s16x2", "f16x2", "bf16x2", "f32x2"))


def split(codes: NDArray[Any], parts: int, bits: int) -> list[NDArray[Any]]:
    """Split packed codes into their parts, low bits first."""
    mask = codes.dtype.type((1 << bits) - 1)
    return [((codes >> codes.dtype.type(bits * part)) & mask).astype(container(bits)) for part in range(parts)]


def join(parts: list[NDArray[Any]], bits: int) -> NDArray[Any]:
    """Pack parts into codes, low bits first."""
    dtype = container(bits * len(parts))
    total = parts[0].astype(dtype)
    for index, part in enumerate(parts[1:], 1):
        total = total | part.astype(dtype) << dtype.type(bits * index)
    return total


def signed(codes: NDArray[Any]) -> NDArray[Any]:
    """Return codes reinterpreted as two's complement integers."""
    return codes.view(codes.dtype.str.replace("u", "i"))


def unsigned(values: NDArray[Any], bits: int) -> NDArray[Any]:
    """Return integers as codes, truncated to `bits` bits."""
    return values.astype(container(bits)) if values.dtype.itemsize * 8 != bits else values.view(container(bits))
