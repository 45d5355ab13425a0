"""Limits of the virtual GPU that programs meet: a full disk, and NVIDIA's closed-source libraries."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warpfrag
from device.conditions import needs_stand_ins
from device.driver_api import ADD, HEAD, run
from oracle import toolkit
from warpfrag.device.launch_log import COMPLETE, LaunchLog, LaunchRecord, read_log, summary_of

pytestmark = needs_stand_ins
LAUNCHES = """
start()
buffer = allocate(4096)
add = function(load(ADD), "add")
for _ in range(500):
    ok(launch(add, (1,), (32,), buffer, buffer, buffer, C.c_int(32)))
print("finished")
"""
MOUNT = 'mount -t tmpfs -o size=128k none "$0" && exec "$@"'


def in_small_disk(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """Run a command while a folder is a file system of 128 KiB."""
    unshare = shutil.which("unshare") or toolkit.absent("no unshare")
    own = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(folder)]
    if subprocess.run([*own, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system does not permit mounts in a namespace")
    environment = {
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(folder),
        "PYTHONPATH": str(Path(warpfrag.__file__).parents[1]),
    }
    return subprocess.run(
        [*own, *map(str, command)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_full_disk_ends_the_log_and_not_the_program(tmp_path):
    (tmp_path / "program.py").write_text(HEAD + f"ADD = {ADD!r}.encode()\n" + LAUNCHES, encoding="utf-8")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-m", "warpfrag", "gpu", "--record-only"]
    done = in_small_disk(disk, *command, "--", sys.executable, tmp_path / "program.py")
    assert done.stdout == "finished\n", done.stderr
    assert "launches are no longer recorded" in done.stderr
    assert "later launches were not recorded" in done.stderr
    assert done.returncode == 1, "nothing is known about the later launches"


def test_a_truncated_line_is_left_out(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(COMPLETE)
    log = LaunchLog(str(path))
    log.launch(LaunchRecord("k", (1, 1, 1), (32, 1, 1)))
    path.write_bytes(path.read_bytes() + b'{"process": 1, "launch": {"kernel": "x"}')
    found = read_log(path)
    assert [each["kernel"] for each in found["launches"]] == ["k"]
    assert found["complete"]
    assert json.loads(COMPLETE) == {"complete": True}
    assert "not recorded" not in summary_of(found)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("libcudnn_graph.so.9", "cuDNN is not supported. PyTorch computes convolutions"),
        ("libcufft.so.12", "cuFFT is not supported"),
        ("libcusolver.so.12", "cuSOLVER is not supported"),
        ("libcusparse.so.12", "cuSPARSE is not supported"),
        ("libother.so", "Link the runtime dynamically"),
    ],
)
def test_closed_libraries_are_named_with_advice(name, advice, tmp_path):
    compiler = shutil.which("cc") or toolkit.absent("no C compiler")
    source = tmp_path / "library.c"
    source.write_text(
        "int cuGetExportTable(const void **, const void *);\n"
        "int ask(void) { const void *table = &table; return cuGetExportTable(&table, 0) + (table ? 1000 : 0); }\n",
        encoding="utf-8",
    )
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-fno-optimize-sibling-calls", source, "-o", tmp_path / name], check=True
    )
    program = run(f'library = C.CDLL("./{name}")\nprint(library.ask(), library.ask())', tmp_path)
    assert program.stdout == "500 500\n"
    assert program.stderr.count(advice) == 1


def test_libraries_opened_by_path_are_the_stand_ins(tmp_path):
    for name in ("libcudart.so.13", "libcublas.so.13.1.0", "libcuda.so.1"):
        (tmp_path / name).write_text("not a library", encoding="utf-8")
    program = run(
        """
        import os
        version = C.c_int()
        runtime = C.CDLL(os.path.abspath("libcudart.so.13"))
        ok(runtime.cudaRuntimeGetVersion(C.byref(version)))
        print(version.value // 1000)
        print(bool(C.CDLL("./libcublas.so.13.1.0").cublasGemmEx), bool(C.CDLL("./libcuda.so.1").cuInit))
        """,
        tmp_path,
    )
    assert program.stdout.splitlines() == ["13", "True True"], program.stderr


def test_other_libraries_are_searched_where_their_caller_says(tmp_path):
    compiler = shutil.which("cc") or toolkit.absent("no C compiler")
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "inner.c").write_text("int value(void) { return 7; }\n", encoding="utf-8")
    (tmp_path / "outer.c").write_text(
        "#include <dlfcn.h>\n#include <stddef.h>\n"
        'int is_found(void) { void *library = dlopen("libinner.so", RTLD_NOW); return library != NULL; }\n',
        encoding="utf-8",
    )
    shared = [compiler, "-shared", "-fPIC"]
    subprocess.run([*shared, tmp_path / "inner.c", "-o", inner / "libinner.so"], check=True)
    paths = ["-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/inner"]
    subprocess.run([*shared, tmp_path / "outer.c", *paths, "-o", tmp_path / "libouter.so"], check=True)
    program = run('print(C.CDLL("./libouter.so").is_found())', tmp_path)
    assert program.stdout == "1\n", program.stderr
