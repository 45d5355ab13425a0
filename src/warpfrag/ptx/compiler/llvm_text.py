"""LLVM's language, one line after the other: values of 32 lanes, each with its width."""

from __future__ import annotations

from dataclasses import dataclass

FLOATS = {16: "half", 32: "float", 64: "double"}


@dataclass(frozen=True)
class Value:
    """A vector of 32 lanes: its name, or a constant of all lanes, and the bits of each."""

    name: str
    bits: int

    @property
    def type(self) -> str:
        """As LLVM spells it."""
        return f"<32 x i{self.bits}>"

    def __str__(self) -> str:
        """Type and name."""
        return f"{self.type} {self.name}"


class Text:
    """The lines of one function."""

    def __init__(self) -> None:
        """Start empty."""
        self.lines: list[str] = []
        self.used: set[str] = set()  # intrinsics
        self._count = 0

    def name(self) -> str:
        """A name of its own."""
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(f"  {text}")

    def new(self, text: str) -> str:
        """Add a line that makes a value, and give its name."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    # --- lanes of integers

    def constant(self, code: int, bits: int) -> Value:
        """One code in every lane."""
        if bits == 1:
            return Value(f"splat (i1 {'true' if code else 'false'})", 1)
        code &= (1 << bits) - 1
        return Value(f"splat (i{bits} {code})", bits)

    def binary(self, operation: str, a: Value, b: Value) -> Value:
        """add, and, lshr and their kin."""
        return Value(self.new(f"{operation} {a}, {b.name}"), a.bits)

    def compare(self, order: str, a: Value, b: Value) -> Value:
        """icmp."""
        return Value(self.new(f"icmp {order} {a}, {b.name}"), 1)

    def select(self, chooser: Value, a: Value, b: Value) -> Value:
        """Each lane of a or b."""
        return Value(self.new(f"select {chooser}, {a}, {b}"), a.bits)

    def resize(self, a: Value, bits: int, *, signed: bool = False) -> Value:
        """Cut or extended."""
        if a.bits == bits:
            return a
        operation = "trunc" if bits < a.bits else "sext" if signed else "zext"
        return Value(self.new(f"{operation} {a} to <32 x i{bits}>"), bits)

    def invert(self, a: Value) -> Value:
        """All bits turned."""
        return self.binary("xor", a, self.constant((1 << a.bits) - 1, a.bits))

    def call(self, intrinsic: str, a: Value, *rest: Value, flag: str = "") -> Value:
        """An intrinsic of LLVM on integers of one width."""
        name = f"llvm.{intrinsic}.v32i{a.bits}"
        takes = ", ".join([a.type] * (1 + len(rest)) + (["i1"] if flag else []))
        self.used.add(f"declare {a.type} @{name}({takes})")
        given = ", ".join([str(a), *(str(one) for one in rest), *([f"i1 {flag}"] if flag else [])])
        return Value(self.new(f"call {a.type} @{name}({given})"), a.bits)

    # --- lanes of floats: values stay integers, and are floats for one operation

    def float(self, a: Value) -> str:
        """The lanes as floats."""
        return self.new(f"bitcast {a} to <32 x {FLOATS[a.bits]}>")

    def codes(self, name: str, bits: int) -> Value:
        """Floats as codes."""
        return Value(self.new(f"bitcast <32 x {FLOATS[bits]}> {name} to <32 x i{bits}>"), bits)

    def float_call(self, intrinsic: str, bits: int, *given: str) -> str:
        """An intrinsic of LLVM on floats."""
        kind = f"<32 x {FLOATS[bits]}>"
        name = f"llvm.{intrinsic}.v32f{bits}"
        self.used.add(f"declare {kind} @{name}({', '.join([kind] * len(given))})")
        return self.new(f"call {kind} @{name}({', '.join(f'{kind} {one}' for one in given)})")


def spread(name: str, number: str) -> str:
    """A line that puts a number into every lane."""
    return (
        f"  %{name}_one = insertelement <32 x i64> poison, i64 {number}, i64 0\n"
        f"  %{name} = shufflevector <32 x i64> %{name}_one, <32 x i64> poison, <32 x i32> zeroinitializer"
    )
