"""Code by code against mmasim 2.1.1, the published model: captured results always, the package itself if installed.

mmasim follows the host's fused multiply-add for f64, so of a NaN in f64 only that it is one is compared.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.errors import NotModelled
from warpfrag.tensorcore.arithmetic_plan import Plan, plan

if TYPE_CHECKING:
    from types import ModuleType

TESTS = Path(__file__).parent.parent


def _load(path: Path) -> ModuleType:
    """A helper module by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        msg = f"cannot load {path}"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


capture = _load(TESTS / "data" / "mmasim" / "capture.py")
cases = _load(TESTS / "tensorcore" / "arithmetic_cases.py")

with np.load(capture.TARGET) as _stored:
    CAPTURED = {key: _stored[key] for key in _stored}
NAMES = sorted({tuple(key.split("/")[1:3]) for key in CAPTURED if key.startswith("out/")})


def our_plan(arch: str, name: str) -> Plan:
    """The plan of mmasim's instruction."""
    facts = capture.parse(name)
    scale_vec = f"{facts['k'] // facts['block']}X" if facts["block"] else ""
    types = ".".join(facts[operand] for operand in "dabc")
    shape = "m{m}n{n}k{k}".format(**facts)
    asked = cases.instruction(
        "mma", shape, types, kind=facts["kind"], scale_vec=scale_vec, scale_type=facts["scale_type"]
    )
    return plan(asked, arch)


def assert_same(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], d: str) -> None:
    """Equal codes; in f64 any NaN equals any other."""
    if d == "f64":
        magnitude = np.uint64((1 << 63) - 1)
        infinity = np.uint64(0x7FF << 52)
        both = ((ours & magnitude) > infinity) & ((theirs & magnitude) > infinity)
        ours, theirs = np.where(both, infinity, ours), np.where(both, infinity, theirs)
    np.testing.assert_array_equal(ours, theirs)


def run_ours(twin: str, arch: str, name: str, operands: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Run one tile with one of the implementations."""
    tiles = {operand: codes[None] for operand, codes in operands.items()}
    result: np.ndarray[Any, Any] = cases.TWINS[twin](our_plan(arch, name).rule, **tiles)[0]
    return result


def test_there_is_something_to_compare() -> None:
    """All seven architectures that mmasim models are in the captured results."""
    assert {arch for arch, _name in NAMES} == set(capture.ARCHITECTURES)
    assert len(NAMES) > 150


@pytest.mark.parametrize(("arch", "name"), NAMES)
def test_captured_results(arch: str, name: str) -> None:
    """The backends return the captured codes for every output, and the reference for one row."""
    facts = capture.parse(name)
    for kind in capture.CLASSES:
        operands = {operand: CAPTURED[key] for operand, (key, _codes) in capture.inputs(facts, kind).items()}
        expected = CAPTURED[f"out/{arch}/{name}/{kind}"]
        for twin in ("portable", "compiled"):
            assert_same(run_ours(twin, arch, name, operands), expected, facts["d"])
        row = {**operands, "a": operands["a"][:1], "c": operands["c"][:1]}
        if facts["block"]:
            row["scale_a"] = operands["scale_a"][:1]
        assert_same(run_ours("reference", arch, name, row), expected[:1], facts["d"])


def test_captured_inputs_are_those_drawn() -> None:
    """The stored inputs are those that the script generates, so the capture can be repeated."""
    for _arch, name in NAMES[::20]:
        for kind in capture.CLASSES:
            for key, codes in capture.inputs(capture.parse(name), kind).values():
                np.testing.assert_array_equal(CAPTURED[key], codes)


@pytest.mark.parametrize("arch", sorted(capture.ARCHITECTURES))
def test_installed_mmasim(arch: str) -> None:
    """Fresh codes through the installed mmasim."""
    pytest.importorskip("mmasim.nv_ptx", reason="mmasim 2.1.1 is not installed", exc_type=(ImportError, OSError))
    for their_arch, name in capture.instruction_names():
        if their_arch != arch:
            continue
        facts = capture.parse(name)
        for kind in capture.CLASSES:
            for seed in range(2):
                operands = {
                    operand: capture.draw(key.split("/")[2], codes.shape, kind, seed)
                    for operand, (key, codes) in capture.inputs(facts, kind).items()
                }
                theirs = capture.run(arch, name, operands)
                assert_same(run_ours("compiled", arch, name, operands), theirs, facts["d"])


def our_tensor_memory(name: str, operands: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """D of mmasim's tcgen05 by our rule."""
    facts = capture.parse(name)
    words = f"tcgen05.mma.cta_group::1.kind::{facts['kind']}"
    words += f".block_scale.block{facts['block']}" if facts["block"] else ""
    shape = {key: facts[key] for key in ("m", "n", "k", "d", "a", "b")}
    form = wf.get(words, **shape, **({"scale_type": facts["scale_type"]} if facts["block"] else {})).form
    result: np.ndarray[Any, Any] = cases.TWINS["compiled"](
        plan(form, "sm_100").rule, **{operand: codes[None] for operand, codes in operands.items()}
    )[0]
    return result


def test_captured_tcgen05() -> None:
    """Every form of tcgen05 that mmasim models: more than 100,000 outputs, every code."""
    outputs = 0
    for line in capture.DIGESTS.read_text(encoding="utf-8").splitlines():
        name, kind, expected = line.split(",")
        operands = {operand: codes for operand, (_key, codes) in capture.inputs(capture.parse(name), kind).items()}
        ours = our_tensor_memory(name, operands)
        assert capture.digest(ours) == expected, (name, kind)
        outputs += ours.size
    assert outputs > 100_000


def test_installed_tcgen05() -> None:
    """Fresh codes through the tcgen05 of the installed mmasim: 100,000 outputs too."""
    pytest.importorskip("mmasim.nv_ptx", reason="mmasim 2.1.1 is not installed", exc_type=(ImportError, OSError))
    outputs = 0
    for name in capture.tensor_memory_names():
        for kind in capture.CLASSES:
            operands = {
                operand: capture.draw(key.split("/")[2], codes.shape, kind, 7)
                for operand, (key, codes) in capture.inputs(capture.parse(name), kind).items()
            }
            ours = our_tensor_memory(name, operands)
            assert_same(ours, capture.run_tensor_memory(name, operands), capture.parse(name)["d"])
            outputs += ours.size
    assert outputs > 100_000


def test_what_mmasim_leaves_out_is_ours_to_say() -> None:
    """fp8 on sm_90 and sm_100 is not one machine instruction: mmasim rejects it, the plan expands it."""
    name = "m16n8k32.f32.e4m3.e4m3.f32"
    assert ("sm_90", name) not in NAMES
    assert not our_plan("sm_90", name).native
    with pytest.raises(NotModelled):
        our_plan("sm_80", name)
