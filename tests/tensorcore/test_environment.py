"""The caller's floating-point environment does not affect codes, and is restored. On x86 and ARM.

A caller's environment is set here through the C library, apart from the code under test.
"""

import ctypes
import platform
import signal
import threading
from functools import cache
from itertools import product

import numpy as np
import pytest
from arithmetic_cases import TWINS, code_type, compiled_by, instruction, rule_of

import warpfrag as wf
from warpfrag.formats.codes import to_codes
from warpfrag.plans.relayout_execution import convert_codes
from warpfrag.tensorcore.backends.compiled import CHAIN_BLOCK, CHECK_ENVIRONMENT, Compiled
from warpfrag.tensorcore.backends.cuda_backend import canary_operands
from warpfrag.tensorcore.backends.portable import Portable, PortableKernel
from warpfrag.tensorcore.thread_split import run_split

MACHINE = {"x86_64": "x86", "aarch64": "arm"}.get(platform.machine()) if platform.system() == "Linux" else None
pytestmark = pytest.mark.skipif(MACHINE is None, reason="neither x86-64 nor 64-bit ARM with the C library of Linux")

# Where the control word is in a fenv_t, and its bits: rounding up, down, to zero; flush-to-zero; denormals-are-zero.
PLACE, UP, DOWN, TO_ZERO, FLUSH, DENORMALS = {
    "x86": (28, 0x4000, 0x2000, 0x6000, 0x8000, 0x0040),
    "arm": (0, 1 << 22, 2 << 22, 3 << 22, 1 << 24, 1 << 19),
    None: (0, 0, 0, 0, 0, 0),
}[MACHINE]
OURS = TO_ZERO | FLUSH | (DENORMALS if MACHINE == "x86" else 0)  # ARM's second bit is about f16, which we never add in
ENVIRONMENTS = {
    "upward": UP,
    "downward": DOWN,
    "towards zero": TO_ZERO,
    "flush to zero": FLUSH,
    "denormals are zero": DENORMALS,
    "all at once": UP | FLUSH | DENORMALS,
}
LIBRARY = ctypes.CDLL("libm.so.6" if MACHINE else None)
MX = {"kind": "mxf8f6f4", "scale_vec": "1X", "scale_type": "ue8m0"}
RULES = {
    "fused to f32": rule_of(instruction("mma", "m16n8k16", "f32.bf16.bf16.f32"), "sm_90"),
    "fused to f16": rule_of(instruction("mma", "m16n8k16", "f16.f16.f16.f16"), "sm_90"),
    "fused to e8m13": rule_of(instruction("mma", "m16n8k32", "f32.e4m3.e5m2.f32"), "sm_89"),
    "fused, c last": rule_of(instruction("mma", "m16n8k32", "f32.e4m3.e4m3.f32"), "sm_90"),
    "fused, d rounded": rule_of(instruction("wmma.mma", "m16n16k16", "f16.f16.f16.f32"), "sm_90"),
    "sparse": rule_of(instruction("mma.sp", "m16n8k32", "f32.bf16.bf16.f32"), "sm_90"),
    "scaled": rule_of(instruction("mma", "m16n8k32", "f32.e5m2.e2m1.f32", **MX), "sm_120"),
    "grouped": rule_of(
        instruction("mma", "m16n8k64", "f32.e2m1.e2m1.f32", kind="mxf4", scale_vec="2X", scale_type="ue8m0"), "sm_120"
    ),
    "chain to f32": rule_of(instruction("mma", "m8n8k4", "f32.f16.f16.f32"), "sm_90"),
    "chain to f16": rule_of(instruction("mma", "m8n8k4", "f16.f16.f16.f16"), "sm_90"),
    **{
        f"f64 {rounding}": rule_of(instruction("mma", "m8n8k4", "f64.f64.f64.f64", rounding=rounding), "sm_90")
        for rounding in ("", "rz", "rm", "rp")
    },
    "integer": rule_of(instruction("mma", "m16n8k32", "s32.s8.u8.s32"), "sm_90"),
    "popcount": rule_of(instruction("mma", "m8n8k128", "s32.b1.b1.s32", bitop="xor"), "sm_90"),
}


def control_word(bits=None):
    """The control word of this thread; with `bits`, set on top of the default, sticky flags cleared."""
    environment = ctypes.create_string_buffer(64)
    LIBRARY.fegetenv(environment)
    word = ctypes.c_uint32.from_buffer(environment, PLACE)
    found = word.value
    if bits is not None:
        word.value = (0x1F80 if MACHINE == "x86" else 0) | bits
        LIBRARY.fesetenv(environment)
    return found & ~0x3F if MACHINE == "x86" else found


@pytest.fixture
def caller():
    """Sets an environment, and makes sure that the next test has the usual one."""
    usual = control_word()
    yield control_word
    control_word(usual & ~0x1F80)


@cache
def expected(name):
    """Return the reference's result in the usual environment."""
    return TWINS["reference"](RULES[name], **canary_operands(RULES[name])._asdict())


def runs(rule):
    """Every method to run a rule on the canary's operands."""
    operands = canary_operands(rule)
    compiled, portable = compiled_by(Compiled(), rule), Portable().compile(rule)
    return {
        "reference": lambda: TWINS["reference"](rule, **operands._asdict()),
        "portable": lambda: portable.run_whole(operands),
        "compiled": lambda: compiled.run_whole(operands),
        "compiled, split": lambda: run_split(compiled, operands, 1),
        "compiled, split, on threads": lambda: run_split(compiled, operands, 3),
        "portable, on threads": lambda: run_split(portable, operands, 3),
    }


@pytest.mark.parametrize("bits", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
@pytest.mark.parametrize("name", RULES)
def test_same_codes_and_its_own_environment_back(name, bits, caller):
    methods = runs(RULES[name])
    codes = expected(name)
    for method, run in methods.items():
        caller(bits)
        before = control_word()
        found = run()
        after = control_word()
        caller(0)
        assert before & bits == bits
        assert after == before, method
        assert [f"{code:x}" for code in found.ravel()] == [f"{code:x}" for code in codes.ravel()], method


@pytest.mark.slow
@pytest.mark.parametrize("bits", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_the_same_in_a_thread_of_the_callers(bits):
    found = {}

    def work():
        control_word(bits)
        found["before"] = control_word()
        found["codes"] = [run() for rule in RULES.values() for run in runs(rule).values()]
        found["after"] = control_word()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found["after"] == found["before"]
    assert found["before"] & bits == bits
    wanted = [expected(name) for name in RULES for _ in range(6)]
    for codes, right in zip(found["codes"], wanted, strict=True):
        np.testing.assert_array_equal(codes.astype(right.dtype), right)


def test_the_public_functions_too(caller):
    """One tile, a batch, a product that is split, matrices."""
    mma, f64 = wf.get("mma.m16n8k16.f32.f16.f16.f32"), wf.get("mma.m8n8k4.f64.f64.f64.f64")
    rng = np.random.default_rng(1)
    words = {
        one: [rng.integers(0, 2**32, (3, 32, getattr(one, role).words), np.uint32) for role in "abc"]
        for one in (mma, f64)
    }
    A, B = rng.standard_normal((2, 150, 150)).astype(np.float16)

    def ask():
        return [
            *(wf.execute(one, *(array[0] for array in arrays)) for one, arrays in words.items()),
            *(wf.execute(one, *arrays) for one, arrays in words.items()),
            wf.gemm(A, B, instruction=mma),
            mma(A[:16, :16], B[:16, :8]),
        ]

    usual = ask()
    for bits in ENVIRONMENTS.values():
        answers, before, after = asked_in(bits, ask, caller)
        assert after == before
        assert all(map(np.array_equal, answers, usual))


def asked_in(bits, ask, caller):
    """The answers in an environment of the caller's, and the environment before and after them."""
    caller(bits)
    before = control_word()
    answers = ask()
    after = control_word()
    caller(0)
    return answers, before, after


@pytest.mark.parametrize("bits", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_values_become_the_same_codes(bits, caller):
    """Packing by value rounds and takes subnormal numbers; so do conversions between formats."""
    values = np.concatenate([np.linspace(-3, 3, 200), [1e-40, 1e-45, -1e-39, 6e-8, 3e-8, 65519.99, 448.5, 2.5, 3.5]])
    numbers = values.astype(np.float32)

    def ask():
        rounded = [
            to_codes(wf.FORMATS[name], given, rounding="rne")
            for name in ("f16", "bf16", "tf32", "f32", "e5m2")
            for given in (values, numbers)
        ]
        converted = [convert_codes("f32", name, numbers.view(np.uint32)) for name in ("f16", "bf16", "e4m3", "s8")]
        return [*rounded, *converted]

    usual = ask()
    answers, before, after = asked_in(bits, ask, caller)
    assert after == before
    assert all(map(np.array_equal, answers, usual))


def test_the_canary_hears_every_environment(caller):
    """Its codes depend on each rounding mode and on subnormals: plain float64 code fails in every case."""
    rule = RULES["f64 "]
    operands = canary_operands(rule)
    a, b, c = (array.view(np.float64)[-1] for array in operands[:3])  # the tile with subnormals

    def plain():
        total = c.copy()
        for k in range(rule.k):
            total = a[:, k, None] * b[None, k] + total
        return total.view(np.uint64)

    usual = plain()
    detected = []
    for bits in ENVIRONMENTS.values():
        caller(bits)
        found = plain()
        caller(0)
        detected.append(not np.array_equal(found, usual))
    # ARM's second bit is about f16 only, which plain float64 code does not meet
    assert detected == [bits != DENORMALS or MACHINE == "x86" for bits in ENVIRONMENTS.values()]
    directed = [expected(f"f64 {rounding}").tobytes() for rounding in ("", "rz", "rm", "rp")]
    assert len(set(directed)) == 4


def here(work):
    """In the main thread."""
    return work()


def in_a_thread(work):
    """In a thread of the caller's."""
    found = {}

    def run():
        try:
            found["result"] = work()
        except BaseException as error:  # noqa: BLE001 (also what is no Exception)
            found["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in found:
        raise found["error"]
    return found["result"]


def interrupt():
    """Ctrl-C, which Python gives to the main thread; in another one, what Python would raise."""
    if threading.current_thread() is threading.main_thread():
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


def fail():
    msg = "in the middle"
    raise ZeroDivisionError(msg)


def broken(kernel, happens):
    """Changes to a kernel that make something happen in the middle of its work.

    In NumPy's with our environment on; where code is compiled, which nothing interrupts, behind a block.
    """
    if isinstance(kernel, PortableKernel):
        function = kernel.function
        return "function", lambda *args: (
            function(*args),
            control_word() & OURS == 0 and happens(),
        )
    start = kernel.start

    def started(operands):
        job = start(operands)
        run = job.run
        job.run = lambda block: (run(block), happens())
        return job

    return "start", started


@pytest.mark.parametrize("where", [here, in_a_thread])
@pytest.mark.parametrize(("happens", "error"), [(fail, ZeroDivisionError), (interrupt, KeyboardInterrupt)])
@pytest.mark.parametrize("bits", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
@pytest.mark.usefixtures("ctrl_c", "caller")
def test_after_a_failure_in_the_middle(bits, happens, error, where, monkeypatch):
    """The environment is restored, and the codes stay the same, for any caller and number of threads."""

    def work():
        control_word(bits)
        before = control_word()
        assert before & bits == bits
        for name, backend, threads in product(("fused to f32", "f64 rp"), (Portable(), Compiled()), (1, 3)):
            kernel, operands = backend.compile(RULES[name]), canary_operands(RULES[name])
            with monkeypatch.context() as patched:
                patched.setattr(kernel, *broken(kernel, happens))
                with pytest.raises(error):
                    run_split(kernel, operands, threads)
            assert control_word() == before
            codes = run_split(kernel, operands, threads)
            assert control_word() == before
            assert np.array_equal(codes, expected(name))
        control_word(0)

    for name in ("fused to f32", "f64 rp"):
        expected(name)
    where(work)


@pytest.mark.parametrize("bits", [0, UP | FLUSH])
def test_after_an_exception_inside_compiled_code(bits, caller):
    caller(bits)
    before = control_word()
    empty = np.empty((1, 4, 8), np.uint32)
    with pytest.raises(MemoryError):  # too many columns to allocate
        CHAIN_BLOCK.run(empty, empty, empty, empty, 0, 0, (0, 1, 0, 4, 0, 1 << 50))
    assert control_word() == before


@pytest.mark.parametrize("bits", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_an_interrupt_by_the_clock(bits, caller):
    """An alarm at an arbitrary moment, repeated until one occurs in the middle of a product."""
    rule = RULES["fused to f16"]
    operands, codes = canary_operands(rule), expected("fused to f16")
    kernels = [Portable().compile(rule), Compiled().compile(rule)]
    caller(bits)
    before = control_word()
    interrupts = 0
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for attempt in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + attempt * 0.00015)
                for _ in range(10_000):
                    for kernel in kernels:
                        kernel.run_whole(operands)
            except KeyboardInterrupt:
                interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert control_word() == before
            assert all(np.array_equal(kernel.run_whole(operands), codes) for kernel in kernels)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert interrupts == 20


@pytest.mark.parametrize("bits", [0, *ENVIRONMENTS.values()])
def test_the_processor_rounds_as_it_is_told(bits, caller):
    caller(bits)
    before = control_word()
    assert CHECK_ENVIRONMENT.call(b"") == 0
    assert control_word() == before


def test_code_types_are_those_of_the_format():
    for name, rule in RULES.items():
        assert expected(name).dtype == code_type(rule.d)
