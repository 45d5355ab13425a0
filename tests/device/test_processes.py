"""Processes of the virtual GPU: kills, forks, several programs; nothing hangs, and no process remains."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from device.conditions import needs_stand_ins
from device.driver_api import ADD, HEAD, environment, run

pytestmark = needs_stand_ins
KILLS = int(os.environ.get("WARPFRAG_KILLS", "30"))
WORK = """
start()
n = 20000
a, b, c = (allocate(4 * n) for _ in range(3))
add = function(load(ADD), "add")
print("ready", flush=True)
while True:
    ok(launch(add, (160,), (128,), a, b, c, C.c_int(n)))
"""


def servers(folder: Path) -> list[int]:
    """The server processes whose log is in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in variables and b"warpfrag.device.server" in command:
            found.append(int(process.name))
    return found


def wait_for(condition, seconds=20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def start_program(folder: Path, source: str = WORK) -> subprocess.Popen[str]:
    text = HEAD + f"ADD = {ADD!r}.encode()\n" + source
    return subprocess.Popen(
        [sys.executable, "-c", text], env=environment(folder, memory=1 << 28), cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_the_server_ends_with_a_killed_program(tmp_path):
    with start_program(tmp_path) as program:
        assert program.stdout.readline() == "ready\n", program.stderr.read()
        assert len(servers(tmp_path)) == 1
        program.kill()

    assert wait_for(lambda: not servers(tmp_path))


def test_a_program_whose_server_is_killed_gets_an_error(tmp_path):
    with start_program(tmp_path) as program:
        assert program.stdout.readline() == "ready\n"
        os.kill(servers(tmp_path)[0], signal.SIGKILL)
        _, said = program.communicate(timeout=60)

    assert program.returncode == 1
    assert "AssertionError: 46" in said
    assert "the server process ended" in said


def test_two_programs_at_once_have_their_own_memory(tmp_path):
    source = """
start()
address = allocate(4)
put(address, (C.c_int * 1)({}))
print("ready", flush=True)
sys.stdin.readline()
print(take(address, C.c_int * 1), hex(address.value))
"""
    programs = []
    for number in (1, 2):
        text = HEAD + source.format(number)
        programs.append(
            subprocess.Popen(
                [sys.executable, "-c", text],
                env=environment(tmp_path, memory=1 << 28),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for program in programs:
        assert program.stdout.readline() == "ready\n"
    assert len(servers(tmp_path)) == 2
    answers = [program.communicate("\n", timeout=60)[0] for program in programs]

    assert answers == ["[1] 0x300000000000\n", "[2] 0x300000000000\n"]
    assert wait_for(lambda: not servers(tmp_path))


def test_a_forked_child_has_no_gpu_and_the_parent_keeps_it(tmp_path):
    program = run(
        """
        import os
        start()
        address = allocate(4)
        put(address, (C.c_int * 1)(5))
        child = os.fork()
        if not child:
            size = C.c_size_t()
            codes = cu.cuInit(0), cu.cuMemGetInfo_v2(C.byref(size), C.byref(size)), cu.cuMemFree_v2(address)
            os._exit(0 if codes == (3, 3, 3) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), take(address, C.c_int * 1))
        """,
        tmp_path,
    )

    assert program.stdout == "0 [5]\n", program.stderr
    assert wait_for(lambda: not servers(tmp_path))


def test_the_program_has_no_child_that_it_did_not_start(tmp_path):
    program = run(
        """
        import os
        start()
        try:
            os.wait()
        except ChildProcessError:
            print("none")
        """,
        tmp_path,
    )

    assert program.stdout == "none\n", program.stderr


def test_a_missing_server_is_an_error(tmp_path):
    text = HEAD + "print(cu.cuInit(0))"
    variables = {**environment(tmp_path), "WARPFRAG_GPU_SERVER": str(tmp_path / "absent")}
    done = subprocess.run([sys.executable, "-c", text], env=variables, capture_output=True, text=True, check=True)

    assert done.stdout == "100\n"
    assert "cannot start" in done.stderr


@pytest.mark.slow
def test_nothing_is_left_of_kills_at_random_times(tmp_path):
    chooser = random.Random(46)
    for number in range(KILLS):
        program = start_program(tmp_path)
        time.sleep(chooser.uniform(0, 1.5))
        victims = [program.pid, *servers(tmp_path)]
        os.kill(chooser.choice(victims), signal.SIGKILL)
        try:
            program.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            program.kill()
            pytest.fail(f"program {number} hangs after a kill")
        assert wait_for(lambda: not servers(tmp_path)), number
