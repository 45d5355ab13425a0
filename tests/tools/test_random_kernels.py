"""The generator of random kernels, its probes, and the search for causes, with the PTX machine instead of a GPU."""

import re
from collections import Counter

import numpy as np
import pytest

from oracle.toolkit import find_ptxas
from tools import exact_runs
from tools.fuzz import fixed_set, jobs, matrix_probe, probe
from tools.fuzz.assembler import assemble
from tools.fuzz.campaign import CALLED_CERTAIN, Tally, readable
from tools.fuzz.coverage import missing, rows_of
from tools.fuzz.emulation import data_of, emulate, launch
from tools.fuzz.generate import generate
from tools.fuzz.kernel import OUT_BYTES, TAIL_BYTES, instructions
from tools.fuzz.pool import work
from tools.fuzz.reduce import shrink
from tools.fuzz.spellings import TARGETS, accepted, accepted_updates, names, table

SEEDS = (40, 41, 42)


class Device:
    """Runs kernels as a GPU would, after a change of their text."""

    def __init__(self, pattern="", replacement=""):
        self.pattern, self.replacement = pattern, replacement

    def run(self, text, grid, block, arguments):
        arrays = [item.copy() if isinstance(item, np.ndarray) else item for item in arguments]
        launch(re.sub(self.pattern, self.replacement, text) if self.pattern else text, grid, block, arrays)
        return [item for item in arrays if isinstance(item, np.ndarray)]


@pytest.fixture
def wrong_device(monkeypatch):
    """A GPU whose min of two numbers is a max."""
    monkeypatch.setattr(jobs, "device", lambda: Device(r"(?m)^(@\S+ )?min(\.[fsu]\d\d) ", r"\1max\2 "))


def test_the_table_has_an_answer_for_every_spelling():
    """A new row needs `python -m tools.fuzz spellings`."""
    assert names() == set(table())
    assert all(len(accepted(target)) > 4000 and len(accepted_updates(target)) > 100 for target in TARGETS)
    assert table()["bfi.b32"] == ("0123", "0123")
    assert table()["cvt.rn.f32.f32"] == ("-", "-")
    assert table()["atom.global.add.noftz.v4.f16"] == ("-", ".")


@pytest.mark.slow
def test_kernels_have_every_row():
    counts = Counter(name for seed in (*range(90), 350) for name in rows_of(generate(seed)))
    assert missing(counts) == []
    assert len(counts) > 220


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_makes_one_kernel_and_a_trace_changes_nothing(seed):
    kernel = generate(seed)
    text = kernel.text()
    assert text == generate(seed).text()
    assert sum(1 for _ in kernel.statements()) > 200
    data = data_of(kernel)
    (given, left), run = emulate(text, kernel, data)
    assert (given == data.given).all()
    assert len(left) == kernel.threads * OUT_BYTES + TAIL_BYTES
    assert run.counts.instructions > 200
    (_, again, trace), _ = emulate(kernel.text(traced=True), kernel, data, traced=True)
    assert (again == left).all()
    counts = trace.view(np.uint64).reshape(kernel.threads, -1)[:, 0]
    assert counts.min() > 50
    numbers = trace.view(np.uint64).reshape(kernel.threads, -1)[:, 2::2]
    assert numbers.max() < len(kernel.traced_results())


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_takes_the_kernels_and_the_probes(target, monkeypatch):
    ptxas, _ = find_ptxas("sm_90")
    monkeypatch.setenv("PTXAS", str(ptxas))
    assert [assemble(generate(seed, 200, target).text(), target) for seed in range(50, 52)] == [{}] * 2
    for first in (0, len(probe.probes(target)) // 2):
        assert assemble(probe.module(target, first, 60)[0], target) == {}
    assert assemble(matrix_probe.matrix_module(target, 600)[0], target) == {}
    assert 5 in assemble(
        f".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k() {{\nadd.f12 %r, 1;\n}}", target
    )


@pytest.mark.slow
def test_a_kernel_that_differs_is_explained(wrong_device):
    tally = Tally()
    for seed in range(40, 80):  # few kernels have a min, on values that differ, and nothing that is not exact
        tally.add(jobs.compare(seed, 200))
        if tally.seeds[CALLED_CERTAIN]:
            break
    wrong = tally.seeds[CALLED_CERTAIN]
    traced = [jobs.trace(seed, 200) for seed in wrong]
    assert len(traced) == 1
    for one in traced:
        assert re.match(r"(@\S+ )?min\.", one["statement"])
        assert one["key"].startswith("min.")
        assert one["here"] != one["gpu"]
        assert {one["here"], one["gpu"]} & {*one["operands"].values(), *re.findall("0x[0-9a-f]+", one["statement"])}
    assert f"{len(wrong):>12,}  {CALLED_CERTAIN}" in readable(tally, {"groups": {one["key"]: traced}}, [])


def test_what_a_difference_does_not_need_is_left_out():
    kernel = generate(40)
    needed = [statement for statement in instructions(kernel.body) if statement.name.startswith(("min.", "bra"))][-3:]
    small = shrink(kernel, lambda without: set(needed) <= set(instructions(kernel.body, without)), 60)
    assert small is not None
    assert all(statement.text in small for statement in needed)
    assert len(small) < 0.7 * len(kernel.text())
    assert shrink(kernel, lambda _: False, 60) is None


@pytest.mark.slow
def test_probes_that_differ_are_found(monkeypatch):
    at = next(n for n, item in enumerate(probe.probes("sm_90a")) if item.spelling.name == "xor.b32")
    monkeypatch.setattr(probe, "device", Device)
    assert probe.compare_probes("sm_90a", at)["differences"] == []
    monkeypatch.setattr(probe, "device", lambda: Device(r"xor\.b32 %r", "or.b32 %r"))
    found = probe.compare_probes("sm_90a", at)["differences"]
    assert {item["context"] for item in found} >= {"registers", "guarded", "same register", "constant 0", "constants"}
    assert all("xor.b32" in item["text"] for item in found)
    monkeypatch.setattr(matrix_probe, "device", lambda: Device(r"(mma\S*)\.f32\.bf16\.bf16", r"\1.f32.f16.f16"))
    names = [item.one.name for item in matrix_probe.matrix_probes("sm_90a")]
    found = matrix_probe.compare_matrix_probes("sm_90a", next(n for n, name in enumerate(names) if "bf16" in name))
    assert found["differences"]
    assert all("bf16" in item["text"] for item in found["differences"])


@pytest.mark.slow
def test_workers_that_fail_or_hang_are_replaced():
    listed = [{"do": "compare", "seed": 1, "size": 20, "on_gpu": False}, {"do": "nothing", "seed": 2}]
    answers = {answer["seed"]: answer["state"] for answer in work(listed, 1, seconds_each=60, seconds=60)}
    assert answers == {1: "equal", 2: "the tool fails"}
    late = list(work(listed[:1], 1, seconds_each=0.01, seconds=60))
    assert [(answer["state"], answer["seed"]) for answer in late] == [("hangs", 1)]


def test_a_fixed_set_is_written_and_read(tmp_path):
    answers = [
        {"seed": seed, "rows": rows, "gpu": "x" * seed} for seed, rows in ((3, ["a"]), (1, ["a"]), (2, ["a", "b"]))
    ]
    assert [answer["seed"] for answer in fixed_set.choose(answers, 2)] == [1, 2]
    kernels = [fixed_set.keep(seed, f"text {seed}", 1, 32, bytes(5000)) for seed in (4, 5)]
    fixed_set.write(tmp_path / "set", kernels)
    assert list(fixed_set.read(tmp_path / "set")) == kernels
    assert len(kernels[0].shown) == fixed_set.SHOWN_BYTES


@pytest.mark.slow
def test_runs_that_are_called_exact_do_not_depend_on_schedules_or_unwritten_values(monkeypatch):
    monkeypatch.setenv("WARPFRAG_LEVEL", "sass")
    find_ptxas("sm_90")
    counts = Counter(exact_runs.outcome(seed, 1, 40) for seed in range(9_000_000, 9_000_010))
    assert counts["differs"] == 0
    assert counts["same"] > 3
