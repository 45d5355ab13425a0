"""Lower bounds on the cycles per multiply-add, from the instructions that the vector loops need."""

import ctypes
import platform
import statistics
import time
from typing import NamedTuple

CHAIN = 64
"""The number of instructions in one iteration of the loop that measures the clock."""
VECTOR_BYTES = {"neon": 16, "avx2": 32, "avx512": 64}
VECTOR_UNITS = 2
"""The number of vector instructions that a core starts per cycle: Neoverse N1 and Intel's server cores."""
START_AND_FINISH = {"neon": 16.5, "avx2": 18, "avx512": 18}
"""The number of instructions of `short_steps.h` per vector of f32 sums, besides the multiply-adds.

NEON's conversions count twice.
"""


class Bound(NamedTuple):
    """Cycles per multiply-add, for each part of a step."""

    multiply_adds: float
    exponents: float
    start_and_finish: float

    def __str__(self) -> str:
        """Return the total and its parts."""
        parts = ", ".join(f"{name.replace('_', ' ')} {cycles:.3f}" for name, cycles in self._asdict().items())
        return f"at least {sum(self):.3f} cycles ({parts})"


def bound_of(level: str, products: int) -> Bound:
    """Return the bound for a level and a number of products per step.

    Products are added in float64. Finding the largest exponent of each output takes an addition and a maximum of bytes
    per product. Each step starts a sum from C and converts it to f32.
    """
    size = VECTOR_BYTES[level]
    per_step = START_AND_FINISH[level] / (size / 4) / products
    return Bound(1 / (size / 8) / VECTOR_UNITS, 2 / size / VECTOR_UNITS, per_step / VECTOR_UNITS)


def float32_bound(level: str) -> float:
    """Return the cycles per multiply-add of a float32 gemm that keeps both vector units busy."""
    return 1 / (VECTOR_BYTES[level] / 4) / VECTOR_UNITS


def clock_rate() -> float:
    """Return the cycles per second of this core, from a chain of instructions whose latency is known."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    is_arm = platform.machine() in {"aarch64", "arm64"}
    instruction, latency = ("add $0, $0, $0", 1) if is_arm else ("imulq $0, $0", 3)
    chain = r"\0A".join([instruction] * CHAIN)
    module = llvm.parse_assembly(f"""
        define i64 @chain(i64 %count) {{
        entry:
          br label %loop
        loop:
          %i = phi i64 [0, %entry], [%next, %loop]
          %x = phi i64 [%count, %entry], [%y, %loop]
          %y = call i64 asm sideeffect "{chain}", "=r,0"(i64 %x)
          %next = add i64 %i, 1
          %again = icmp ult i64 %next, %count
          br i1 %again, label %loop, label %end
        end:
          ret i64 %y
        }}""")
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("chain"))
    iterations, rates = 100_000, []
    for _ in range(9):
        start = time.process_time()
        run(iterations)
        rates.append(iterations * CHAIN * latency / (time.process_time() - start))
    return statistics.median(rates)
