"""Ten mistakes planted in CUDA programs: each is reported with its source line."""

import json
import subprocess
from pathlib import Path

import pytest

from device.conditions import needs_nvcc, needs_nvdisasm, needs_stand_ins
from device.driver_api import run
from warpfrag.cuda_tools import find_tool

pytestmark = [*needs_stand_ins, needs_nvcc, needs_nvdisasm]
SOURCE = Path(__file__).with_name("mistakes.cu")
LINES = {
    line.partition("// MISTAKE ")[2]: number
    for number, line in enumerate(SOURCE.read_text(encoding="utf-8").splitlines(), start=1)
    if "// MISTAKE " in line
}
EXPECTED = {  # the error of the launch, and the category of the finding or a part of the message
    "store_outside": (700, "bounds"),
    "load_outside": (700, "bounds"),
    "after_free": (700, "in freed memory"),
    "misaligned": (716, "not a multiple of 16"),
    "no_barrier": (0, "race"),
    "no_atomic": (0, "race"),
    "shared_outside": (700, "bounds"),
    "uninitialised": (0, "uninitialised"),
    "overwritten": (0, "race"),
    "divergent_barrier": (0, "barrier"),
}


@pytest.fixture(scope="module")
def launches(tmp_path_factory):
    """Return the launches of a program that calls every kernel, each in a separate context, by kernel."""
    folder = tmp_path_factory.mktemp("mistakes")
    command = [find_tool("nvcc").path, "-arch=sm_90", "-lineinfo", "-cubin", SOURCE, "-o", folder / "mistakes.cubin"]
    subprocess.run(command, check=True, capture_output=True)
    program = run(
        f"""
        ok(cu.cuInit(0))
        image = open("mistakes.cubin", "rb").read()
        for name in {sorted(EXPECTED)!r}:
            context = C.c_void_p()
            ok(cu.cuCtxCreate_v2(C.byref(context), 0, 0))
            out = allocate(4 * 64)
            kernel = function(load(image), name)
            if name == "after_free":
                ok(cu.cuMemFree_v2(out))
            threads = 65 if name == "store_outside" else 64
            print(name, launch(kernel, (2,), (threads,), out, C.c_int(64)))
            ok(cu.cuCtxDestroy_v2(context))
        """,
        folder,
        checks=("all",),
    )
    assert program.returncode == 0, program.stderr
    errors = dict(line.split() for line in program.stdout.splitlines())
    entries = [json.loads(line)["launch"] for line in (folder / "launches.jsonl").read_text().splitlines()]
    return {each["kernel"]: {**each, "returned": int(errors[each["kernel"]])} for each in entries}


def test_ten_mistakes_are_planted():
    assert len(EXPECTED) == 10
    assert LINES.keys() == EXPECTED.keys()


@pytest.mark.every_case
@pytest.mark.parametrize("name", EXPECTED)
def test_a_planted_mistake_is_found_with_its_line(name, launches):
    error, text = EXPECTED[name]
    found = launches[name]
    messages = [*found["findings"], found["message"]]

    assert found["returned"] == error, messages
    assert any(text in message and f"mistakes.cu:{LINES[name]}" in message for message in messages), messages
