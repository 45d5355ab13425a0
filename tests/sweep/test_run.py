"""A sweep has the products and figures of gemm and error_report; killed at any moment, it resumes and ends the same."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from contextlib import suppress
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.cli import main
from warpfrag.errors import MissingExtra, NoGpu, SchedulerError, StoreWarning
from warpfrag.formats.codes import from_codes
from warpfrag.sweep import SweepPlan, sweep, sweep_run, sweep_store
from warpfrag.sweep import sweep_run as run
from warpfrag.sweep.sweep_run import run_task

zarr = pytest.importorskip("zarr", reason="needs the extra dask")
distributed = pytest.importorskip("distributed", reason="needs the extra dask")

F16 = "mma.m16n8k16.f32.f16.f16.f32"
S8 = "mma.m16n8k32.s32.s8.s8.s32"
SCALED = "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e5m2.f32.ue8m0"
TABLE = {"instruction": F16, "arch": ["sm_80", "sm_90"], "shape": [16, 17, 40], "data": ["normal", "special"]}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def toml(folder: Path, rest: str = '[16, 17, 40]\ndata = ["normal", "special"]\narch = ["sm_80", "sm_90"]') -> Path:
    path = folder / "sweep.toml"
    path.write_text(f'instruction = "{F16}"\nblock = [8, 6]\nshape = {rest}\n', encoding="utf-8")
    return path


@pytest.mark.parametrize("block", [[16, 17], [8, 6], [5, 300]])
def test_products_and_figures_do_not_depend_on_blocks(tmp_path, block):
    orders = [{}, {"split_k": 2, "unit": 16}]
    table = {"instruction": [F16, S8], "arch": ["sm_70", "sm_80"], "shape": [16, 17, 40], "data": "uniform"}
    plan = SweepPlan.of_table(table | {"order": orders, "block": block})
    found = sweep(plan, tmp_path / "sweep.zarr")
    group = zarr.open_group(tmp_path / "sweep.zarr", mode="r")

    assert [bool(outcome.refusal) for outcome in found] == [True, True, False, False] * 2
    assert sorted(group) == [outcome.name for outcome in found if not outcome.refusal] == ["2", "3", "6", "7"]
    for outcome in found:
        if outcome.refusal:
            assert outcome.figures is None
            continue
        case, given = outcome.case, outcome.case.operands()
        D = wf.gemm(**given, **case.options(), raw=True)
        array = group[outcome.name]
        assert np.array_equal(array[:].view(np.uint32), D)
        assert array.chunks == (min(16, block[0]), min(17, block[1]))
        assert {name: array.attrs[name] for name in [*case.to_dict(), "figures"]} == {
            **case.to_dict(),
            "figures": outcome.figures,
        }
        a, b = (from_codes(getattr(wf.get(case.instruction), role.lower()).format, given[role]) for role in "AB")
        (errors,) = wf.error_report(a, b, **case.options())
        assert outcome.figures == {
            "outputs": 16 * 17, "nonfinite": 0, "compared": 16 * 17, "worst": [errors.row, errors.col],
            "errors": {name: getattr(errors, name) for name in outcome.figures["errors"]},
        }  # fmt: skip
        assert (errors.rms_ulps > 0) == (case.instruction == wf.get(F16).name)


def test_scale_factors_are_part_of_the_exact_product(tmp_path):
    table = {"instruction": SCALED, "arch": "sm_120", "shape": [5, 6, 70], "data": "wide", "block": [4, 4]}
    (outcome,) = sweep(SweepPlan.of_table(table), tmp_path / "sweep.zarr")
    given = outcome.case.operands()
    mma = wf.get(SCALED)
    rows = {"A": mma.a.format, "B": mma.b.format, "scale_a": mma.scale_a.format, "scale_b": mma.scale_b.format}
    A, B, SA, SB = (
        [[Fraction(float(rows[role].decode(int(code)))) for code in line] for line in given[role]] for role in rows
    )
    D = zarr.open_group(tmp_path / "sweep.zarr", mode="r")["0"][:].astype(float)
    worst = Fraction(0)
    for i, j in np.ndindex(5, 6):
        exact = sum(A[i][k] * SA[i][k // 32] * B[k][j] * SB[k // 32][j] for k in range(70))
        place = abs(exact).numerator.bit_length() - abs(exact).denominator.bit_length()
        place -= Fraction(2) ** place > abs(exact)
        worst = max(worst, abs(Fraction(D[i, j]) - exact) / Fraction(2) ** (place - 23))
    assert outcome.figures["compared"] == 30
    assert outcome.figures["errors"]["largest_ulps"] == float(worst) > 0.1


def test_only_outputs_of_finite_numbers_are_compared(tmp_path):
    table = {"instruction": F16, "arch": "sm_90", "shape": [24, 17, 3], "data": ["special", "bits"], "block": [8, 6]}
    for outcome in sweep(SweepPlan.of_table(table), tmp_path / "sweep.zarr"):
        given = outcome.case.operands()
        a, b = (np.isfinite(given[role].astype(np.uint16).view(np.float16)) for role in "AB")
        D = zarr.open_group(tmp_path / "sweep.zarr", mode="r")[outcome.name][:]
        compared = a.all(axis=1)[:, None] & b.all(axis=0) & np.isfinite(D)
        assert 0 < compared.sum() == outcome.figures["compared"] < D.size
        assert outcome.figures["nonfinite"] == (~np.isfinite(D)).sum() > 0


def test_a_chunk_of_negative_zeros_comes_back(tmp_path):
    plan = SweepPlan.of_table(TABLE)
    with sweep_store.StoreWriter(tmp_path / "sweep.zarr", plan) as kept:
        kept.begin(0)
        kept.write(0, (0, 0), np.full((16, 17), -0.0, np.float32), run.ErrorTally())
    assert np.signbit(zarr.open_group(tmp_path / "sweep.zarr", mode="r")["0"][:]).all()


HOST = """
import os, signal, sys
from pathlib import Path
import numpy.ma, numpy.random, zarr.storage
import warpfrag.tensorcore.backends.portable, warpfrag.tensorcore.arithmetic_plan, warpfrag.cli.sweep_verbs
from warpfrag.cli import main
from warpfrag.sweep import SweepPlan

MMA = {"instruction": "mma.m16n8k16.f32.f16.f16.f32", "arch": "sm_90"}
SweepPlan.of_table({**MMA, "shape": [1, 1, 1], "data": "normal"})  # reads tables, which every process below needs

WRITES = os.O_WRONLY | os.O_RDWR
EVENTS = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"}
for line in sys.stdin:  # the change to a file or folder at which the process is killed, 0 for none; then the words
    moment, *words = line.split()
    child = os.fork()
    if not child:
        changes = 0

        def is_the_moment():
            global changes
            changes += 1
            return changes == int(moment)

        def watch(event, details):
            if event in EVENTS or (event == "open" and isinstance(details[2], int) and details[2] & WRITES):
                if is_the_moment():
                    os.kill(os.getpid(), signal.SIGKILL)

        def write(path, data):
            if is_the_moment():
                whole(path, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(path, data)

        sys.addaudithook(watch)
        whole, Path.write_bytes = Path.write_bytes, write
        sys.stdout = sys.stderr = open(os.devnull, "w")
        status = main(words)
        os.write(1, f"{changes} ".encode())
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def run_until():
    """Run `warpfrag sweep` in a process that is killed at a change to a file, or in the middle of writing it.

    The answer is the exit code, after the number of changes if it was not killed.
    """
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", HOST], stdin=-1, stdout=-1, text=True) as host:

        def run_words(moment: int, *words: object) -> list[int]:
            host.stdin.write(f"{moment} sweep {' '.join(map(str, words))}\n")
            host.stdin.flush()
            return [int(word) for word in host.stdout.readline().split()]

        yield run_words
        host.stdin.close()


def test_a_sweep_that_is_killed_ten_times_ends_like_one_that_was_not(tmp_path, run_until):
    plan, whole, killed = toml(tmp_path), tmp_path / "whole.zarr", tmp_path / "killed.zarr"
    changes, status = run_until(0, plan, "-o", whole)
    assert status == 0
    chance, records = random.Random(17), []
    for _ in range(10):
        assert run_until(chance.randrange(1, changes // 10), plan, "-o", killed) == [-signal.SIGKILL]
        records.append(len([path for path in files(killed) if path.startswith(".blocks")]))
    assert max(records) > 1  # work was under way
    assert run_until(0, plan, "-o", killed)[1:] == [0]
    assert files(killed) == files(whole)
    assert not [path for path in files(whole) if "/." in f"/{path}"]


def test_there_is_no_moment_at_which_it_must_not_be_killed(tmp_path, run_until):
    """A plan of one block, killed at each change in turn."""
    plan, whole = toml(tmp_path, '[8, 6, 16]\ndata = "normal"\narch = "sm_90"'), tmp_path / "whole.zarr"
    changes, status = run_until(0, plan, "-o", whole)
    assert status == 0
    assert changes > 30
    for moment in range(1, changes + 1):
        killed = tmp_path / f"{moment}.zarr"
        assert run_until(moment, plan, "-o", killed) == [-signal.SIGKILL]
        sweep(SweepPlan.read(plan), killed)
        assert files(killed) == files(whole)


def test_nor_is_there_one_while_it_mends(tmp_path, run_until):
    """A block with a wrong bit, which only --verify detects: a run after a kill need not request it."""
    plan, whole = toml(tmp_path, '[8, 6, 16]\ndata = "normal"\narch = "sm_90"'), tmp_path / "whole.zarr"
    sweep(SweepPlan.read(plan), whole)

    def damaged(name: str) -> Path:
        path = tmp_path / name
        shutil.copytree(whole, path)
        chunk = path / "0" / "c" / "0" / "0"
        chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
        return path

    changes, status = run_until(0, plan, "--verify", "-o", damaged("repaired.zarr"))
    assert status == 0
    assert changes > 3
    untouched = 0
    for moment in range(1, changes + 1):
        killed = damaged(f"{moment}.zarr")
        before = files(killed)
        assert run_until(moment, plan, "--verify", "-o", killed) == [-signal.SIGKILL]
        if files(killed) == before:
            untouched += 1  # nothing was done yet
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            sweep(SweepPlan.read(plan), killed)
        assert files(killed) == files(whole)
    assert untouched < changes / 2


def stopping(monkeypatch, after: int, stop) -> None:
    """Call a function after a number of blocks are written."""
    write, number = sweep_store.StoreWriter.write, count(1)

    def writing(*given):
        write(*given)
        if next(number) == after:
            stop()

    monkeypatch.setattr(sweep_store.StoreWriter, "write", writing)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_with_what_is_done_and_how_to_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    toml(tmp_path)
    with monkeypatch.context() as patched:
        stopping(patched, 7, lambda: os.kill(os.getpid(), signal.SIGINT))
        assert main(["sweep", "sweep.toml"]) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.split("\n\n")[0].splitlines()[-1] == (
        "interrupted; 6 of 24 blocks are in sweep.zarr; run the same command again to resume"
    )
    assert main(["sweep", "sweep.toml", "--json"]) == 0
    assert '"computed": 17' in capsys.readouterr().out
    assert main(["sweep", "sweep.toml"]) == 0
    assert "nothing to compute; everything is in sweep.zarr" in capsys.readouterr().out


def test_a_disk_that_is_full_is_said_and_nothing_is_lost(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    toml(tmp_path)

    def full() -> None:
        msg = "cannot write 'x': No space left on device"
        raise wf.errors.FileError(msg)

    with monkeypatch.context() as patched:
        stopping(patched, 3, full)
        assert main(["sweep", "sweep.toml"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "warpfrag: cannot write 'x': No space left on device; 2 of 24 blocks are in sweep.zarr; run the same "
        "command again to resume"
    )


def test_backends_that_are_not_there(tmp_path, monkeypatch, capsys):
    """Without a GPU, a sweep ends and keeps its results, as does one whose GPU has another architecture."""
    monkeypatch.chdir(tmp_path)
    path = toml(tmp_path, '[8, 12, 16]\ndata = "normal"\narch = ["sm_80", "sm_90"]\nbackend = ["cpu", "native"]')

    def on_a_gpu(*given, backend: str = "cpu", **options):
        if backend == "native" and not has_gpu:
            msg = "there is no GPU here"
            raise NoGpu(msg)
        if backend == "native" and options["arch"] == "sm_80":
            msg = "the GPU of this machine is sm_90"
            raise wf.errors.NotModelled(msg)
        return wf.gemm(*given, **options)

    monkeypatch.setattr(run, "gemm", on_a_gpu)
    has_gpu = False
    assert main(["sweep", str(path)]) == 2
    assert "there is no GPU here; 2 of 8 blocks are in" in capsys.readouterr().err
    has_gpu = True
    assert main(["sweep", str(path)]) == 2
    assert "normal ascending 0 native: the GPU of this machine is sm_90" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["zarr", "distributed"])
def test_an_extra_that_is_missing(tmp_path, monkeypatch, missing: str):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=rf"{missing} is not installed: pip install '\.\[dask\]'"):
        sweep(SweepPlan.of_table(TABLE), tmp_path / "sweep.zarr", workers=1)


def test_stores_that_hold_something_else(tmp_path):
    plan = SweepPlan.of_table(TABLE | {"block": [16, 9]})
    with pytest.raises(wf.errors.InvalidOperand, match=r"plan: expected a SweepPlan.*got 'sweep.toml'"):
        sweep("sweep.toml", tmp_path / "a.zarr")
    (tmp_path / "file").touch()
    with pytest.raises(wf.errors.FileError, match=r"cannot write .*file': File exists"):
        sweep(plan, tmp_path / "file")
    with pytest.raises(wf.errors.FileError, match="exists and is not a sweep; choose another name"):
        sweep(plan, tmp_path)
    sweep(plan, tmp_path / "a.zarr")
    other = SweepPlan.of_table(TABLE | {"seed": 5, "data": "tiny"})
    with pytest.raises(wf.errors.FileError) as refused:
        sweep(other, tmp_path / "a.zarr")
    assert str(refused.value).partition(" has ")[2] == (
        "a different sweep: data is ['normal', 'special'] in the store and ['tiny'] in the plan; "
        "seed is [0] in the store and [5] in the plan; block is [16, 9] in the store and [256, 256] in the plan; "
        "choose another name with -o"
    )
    with (
        sweep_store.StoreWriter(tmp_path / "a.zarr", plan),
        pytest.raises(wf.errors.FileError, match="another sweep is writing to it"),
    ):
        sweep(plan, tmp_path / "a.zarr")


def test_another_version_is_refused_in_a_store_and_in_a_worker(tmp_path, monkeypatch):
    plan = SweepPlan.of_table(TABLE)
    sweep(plan, tmp_path / "a.zarr")
    tasks = []
    monkeypatch.setattr(run, "run_task", lambda task: tasks.append(task) or run_task(task))
    sweep(plan, tmp_path / "b.zarr")
    with pytest.raises(SchedulerError, match=r"a worker has version .*, but the sweep has version 9"):
        run_task(tasks[0]._replace(versions={"version": "9", "numpy": "9"}))
    monkeypatch.setattr(sweep_store, "versions", lambda: {"version": "9", "numpy": np.__version__})
    with pytest.raises(wf.errors.FileError, match=r"the store was written with version \S+; this process has 9"):
        sweep(plan, tmp_path / "a.zarr")


def test_a_scheduler_that_never_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_run, "CONNECT_TIMEOUT", 0.05)
    plan = SweepPlan.of_table(TABLE)
    for address in ("tcp://127.0.0.1:9", "zzz://x"):
        with pytest.raises(SchedulerError, match=f"no scheduler answers at '{address}'"):
            sweep(plan, tmp_path / "sweep.zarr", scheduler=address)
    sweep(plan, tmp_path / "sweep.zarr")
    found = sweep(plan, tmp_path / "sweep.zarr", scheduler="zzz://x")  # there is nothing to do for it
    assert all(outcome.figures for outcome in found)


def test_a_scheduler_that_goes_away(tmp_path, monkeypatch, capsys):
    """Or a worker that fails: earlier results are kept.

    The same plan goes on with workers that are processes, one of which is killed.
    """
    monkeypatch.chdir(tmp_path)
    toml(tmp_path)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0"
    ) as there:
        words = ["sweep", "sweep.toml", "--scheduler", there.scheduler_address]
        with monkeypatch.context() as patched:
            patched.setattr(run, "run_task", lambda task: 1 // 0)
            assert main(words) == 2
        assert "warpfrag: a worker failed (ZeroDivisionError: " in capsys.readouterr().err
        with monkeypatch.context() as patched:
            stopping(patched, 5, there.close)
            assert main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("warpfrag: the scheduler is no longer reachable")
    assert said.endswith("blocks are in sweep.zarr; run the same command again to resume")

    children = set()

    def kill() -> None:
        import psutil

        workers = [one for one in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(one.cmdline())]
        children.update(workers)
        workers[-1].kill()

    stopping(monkeypatch, 2, kill)
    with socket.socket() as other:
        with suppress(OSError):  # a cluster of somebody else has it already
            other.bind(("", 8787))
            other.listen()
        assert main(["sweep", "sweep.toml", "--workers", "2"]) == 0
    assert len(children) > 1
    assert main(["sweep", "sweep.toml", "-o", "whole.zarr"]) == 0
    assert files(tmp_path / "sweep.zarr") == files(tmp_path / "whole.zarr")
