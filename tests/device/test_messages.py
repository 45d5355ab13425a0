"""Output and status of `warpfrag gpu`: time limits, Ctrl-C, findings, counts, and launches that nothing executed."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from device.conditions import is_found, needs_stand_ins
from device.driver_api import HEAD, environment
from warpfrag.cli import main
from warpfrag.cuda_tools import find_tool
from warpfrag.device.launch_log import read_log, summary_of

pytestmark = needs_stand_ins
KERNELS = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry spin(.param .u64 out)
{
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, 0;
LOOP:
    add.u32 %r1, %r1, 1;
    st.volatile.global.u32 [%rd1], %r1;
    bra LOOP;
}
.visible .entry racy(.param .u64 out)
{
    .reg .b32 %r<5>; .reg .b64 %rd<4>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, tile;
    add.u32 %r4, %r3, %r2;
    st.shared.u32 [%r4], %r1;
    xor.b32 %r2, %r2, 252;
    add.u32 %r4, %r3, %r2;
    ld.shared.u32 %r1, [%r4];
    cvt.u64.u32 %rd2, %r2;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
"""
START = """
start()
module = load(KERNELS)
out = allocate(256)
"""


def command_of(folder: Path, source: str, *options: str) -> list[str]:
    """Return the command that runs a Python program with `warpfrag gpu`."""
    program = folder / "program.py"
    program.write_text(HEAD + f"KERNELS = {KERNELS!r}.encode()\n" + textwrap.dedent(source), encoding="utf-8")
    return [sys.executable, "-m", "warpfrag", "gpu", *options, "--", sys.executable, str(program)]


def variables(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of `warpfrag gpu`."""
    return {**environment(folder), "LD_PRELOAD": "", "LD_LIBRARY_PATH": "", **more}


def gpu(folder: Path, source: str, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program with `warpfrag gpu`."""
    return subprocess.run(
        command_of(folder, START + source, *options), env=variables(folder, **more), cwd=folder, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--fast",), ("--check", "races")])
def test_a_launch_that_never_ends_fails_with_the_line_that_it_runs(options, tmp_path):
    done = gpu(tmp_path, 'print(launch(function(module, "spin"), (1,), (32,), out))', "--launch-seconds", "2", *options)

    assert done.stdout == "702\n"
    assert done.returncode == 1, "the program ignores the error"
    assert "CUDA_ERROR_LAUNCH_TIMEOUT" in done.stderr
    assert "the launch did not end in 2 s (--launch-seconds); it was running this instruction" in done.stderr
    assert int(re.search(r"address (0x[0-9a-f]+)", done.stderr)[1], 16) > 0
    assert "1 launch, " in done.stderr
    assert "1 failed" in done.stderr


def test_a_rejected_launch_is_reported_and_counted(tmp_path):
    done = gpu(tmp_path, 'print(launch(function(module, "racy"), (1,), (2048,), out))')

    assert done.stdout == "1\n"
    assert done.returncode == 1
    assert "racy with grid (1, 1, 1) and block (2048, 1, 1) failed, CUDA_ERROR_INVALID_VALUE: " in done.stderr
    assert "does not allow this grid and block with 0 bytes of dynamic shared memory" in done.stderr
    assert "1 launch, 0.0 s in kernels, 0 exact, 1 failed" in done.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_a_wrong_time_limit_is_rejected(seconds, tmp_path):
    done = gpu(tmp_path, "", "--launch-seconds", seconds)

    assert done.returncode == 2
    assert "seconds" in done.stderr


SPIN = """
    import signal
    signal.signal(signal.SIGINT, signal.SIG_DFL if IS_DEFAULT else signal.default_int_handler)
    try:
        start()
        out = allocate(256)
        kernel = function(load(KERNELS), "spin")
        print("ready", flush=True)
        print(launch(kernel, (1,), (32,), out), flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


@pytest.mark.parametrize("is_default", [True, False])
def test_ctrl_c_stops_the_launch_and_counts_it(is_default, tmp_path):
    command = command_of(tmp_path, SPIN.replace("IS_DEFAULT", str(is_default)))
    with subprocess.Popen(
        command, env=variables(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as program:  # fmt: skip
        assert program.stdout.readline() == "ready\n", program.stderr.read()
        time.sleep(2)
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        printed, messages = program.communicate(timeout=60)

    assert program.returncode == (130 if is_default else 1)
    assert printed == ("" if is_default else "stopped\n")
    assert "the launch was interrupted; it was running this instruction" in messages
    assert re.search(r"1 launch, \d+\.\d s in kernels, 0 exact, 1 failed\n$", messages)


def test_a_program_ends_with_a_terminated_launcher(tmp_path):
    command = command_of(tmp_path, "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        command, env=variables(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        number = int(program.stdout.readline())
        program.terminate()
        program.communicate(timeout=60)

    assert program.returncode == 128 + signal.SIGTERM
    assert not Path(f"/proc/{number}").exists()


RACES = """
    import os
    if IS_CAPTURED:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    start()
    kernel = function(load(KERNELS), "racy")
    out = allocate(256)
    print([launch(kernel, (1,), (64,), out) for _ in range(3)])
"""


@pytest.mark.parametrize("is_captured", [True, False])
def test_a_finding_is_printed_once_and_counted(is_captured, tmp_path):
    command = command_of(tmp_path, RACES.replace("IS_CAPTURED", str(is_captured)), "--check", "races")
    done = subprocess.run(
        command, env=variables(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 1, done.stderr
    assert done.stdout == "[0, 0, 0]\n"
    assert done.stderr.count("nothing orders them") == 1
    assert "3 launches" in done.stderr
    assert "3 checked, 3 findings (3 race)\n" in done.stderr


@pytest.mark.parametrize("options", [(), ("--check", "races")])
def test_the_status_is_3_if_no_launch_could_be_executed(options, tmp_path):
    if not is_found("ptxas"):
        pytest.skip("needs ptxas, of the extra assembler")
    (tmp_path / "kernels.ptx").write_text(KERNELS, encoding="ascii")
    subprocess.run([find_tool("ptxas").path, "-arch=sm_90", "kernels.ptx", "-o", "k.cubin"], cwd=tmp_path, check=True)
    done = gpu(
        tmp_path, 'print(launch(function(load(open("k.cubin", "rb").read()), "racy"), (1,), (64,), out))', *options,
        WARPFRAG_LEVEL="ptx",
    )  # fmt: skip

    assert done.stdout == "801\n"
    assert done.returncode == 3
    assert "machine code is turned off by WARPFRAG_LEVEL=ptx" in done.stderr
    assert "1 could not be executed" in done.stderr


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--check", "races"), 3)])
def test_a_program_that_launches_nothing_is_not_called_checked(options, status, tmp_path):
    done = gpu(tmp_path, "", *options)

    assert done.returncode == status
    assert "warpfrag gpu: no kernel was launched, so nothing was checked" in done.stderr
    assert "torch.version.cuda" in done.stderr


def test_the_summary_counts_findings_by_category(tmp_path):
    log = tmp_path / "launches.jsonl"
    launch = (
        '{"launch": {"kernel": "k", "findings": ["race: a", "race: b", "bounds: c"], "error": 700, "exact": false,'
        ' "verdict": "mistakes", "seconds": 1.0, "unjudged": [], "message": ""}}\n'
    )
    log.write_text(launch, encoding="ascii")

    assert summary_of(read_log(log)) == (
        "1 launch, 1.0 s in kernels, 0 exact, 1 failed, 1 checked, 3 findings (2 race, 1 bounds)"
    )


@pytest.mark.parametrize(("choice", "status", "is_shown"), [("fail", 3, True), ("warn", 0, True), ("accept", 0, False)])
def test_incomplete_checks_can_be_accepted(choice, status, is_shown, tmp_path, monkeypatch, capsys):
    log = tmp_path / "launches.jsonl"
    launch = (
        '{"launch": {"kernel": "k", "findings": [], "error": 0, "exact": true, "verdict": "incomplete",'
        ' "seconds": 1.0, "unjudged": ["a lock"], "message": ""}}\n'
    )
    log.write_text(2 * launch, encoding="ascii")
    monkeypatch.setattr("warpfrag.cli.gpu_verb.run_program", lambda *_args, **_options: (0, read_log(log)))

    assert main(["gpu", "--check", "races", "--check-incomplete", choice, "--", "program"]) == status
    printed = capsys.readouterr().err
    assert ("warpfrag gpu: k: not judged: a lock (2 launches)\n" in printed) == is_shown
    assert "2 not fully judged, 0 findings" in printed
