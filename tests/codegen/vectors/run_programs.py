"""Run the emitted test programs on a GPU: they pass as they are, and name the right groups when a mistake is planted.

    python tests/codegen/vectors/run_programs.py build FOLDER     # needs warpfrag and nvcc, no GPU
    python tests/codegen/vectors/run_programs.py run FOLDER       # needs a GPU and Python, no warpfrag and no nvcc

For each of a sample of instructions, `build` compiles the program twice: as it is, and with a function under test that
makes one mistake of `debug.mistakes`. What each must print is worked out, register by register, by executing the
mistake. `run` compares every line. The exit status is 0 if all programs print what they must.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ARCH = "sm_90"
# One of each family that an H200 runs, and the mistake to plant: registers that the function under test swaps.
SAMPLE = {
    "mma.m16n8k16.f32.f16.f16.f32": "a: registers 1 and 2 swapped",
    "mma.m16n8k16.f32.bf16.bf16.f32": "b: registers 0 and 1 swapped",
    "mma.m16n8k8.f32.tf32.tf32.f32": "c: registers 0 and 3 swapped",
    "mma.m16n8k32.f32.e4m3.e5m2.f32": "a: registers 0 and 1 swapped",
    "mma.m16n8k16.f64.f64.f64.f64.rm": "d: registers 0 and 1 swapped",
    "mma.m8n8k4.f64.f64.f64.f64": "c: registers 0 and 1 swapped",
    "mma.m16n8k32.row.col.satfinite.s32.s8.u8.s32": "a: registers 2 and 3 swapped",
    "mma.m16n8k64.s32.s4.s4.s32": "b: registers 0 and 1 swapped",
    "mma.m16n8k256.s32.b1.b1.s32.and.popc": "a: registers 0 and 3 swapped",
    "mma.m8n8k4.col.row.f32.f16.f16.f32": "d: registers 2 and 5 swapped",
    "mma.sp.m16n8k32.f32.f16.f16.f32": "a: registers 0 and 2 swapped",
    "mma.sp::ordered_metadata.m16n8k64.s32.s8.s8.s32": "b: registers 1 and 3 swapped",
    "wmma.mma.row.col.m16n16k16.f32.f32": "c: registers 0 and 7 swapped",
    "wmma.mma.row.col.m8n8k4.f64.f64.f64.f64": "d: registers 0 and 1 swapped",
}
SHOWN = 4  # registers that a program prints of a group


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def build(folder: Path) -> int:
    """Compile every program into a folder, and write beside it what it must print."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        sys.exit("no nvcc on the path")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as sources:
        for name, planted in SAMPLE.items():
            for mistake in (None, planted):
                _build_one(folder, Path(sources), nvcc, name, mistake)
            say(f"built {name}")
    return 0


def _build_one(folder: Path, sources: Path, nvcc: str, name: str, planted: str | None) -> None:
    from warpfrag.codegen.statement import identifier
    from warpfrag.codegen.vectors import vectors
    from warpfrag.diagnosis.mistakes import mistakes

    found = vectors(name, arch=ARCH)
    stem = identifier(found.instruction) + ("_planted" if planted else "")
    source, header = sources / f"{stem}.cu", sources / f"{stem}.cuh"
    found.save(source)
    options = []
    mistake = next((one for one in mistakes(found.instruction) if one.name == planted), None)
    if planted:
        assert mistake is not None, planted
        header.write_text(_wrong_function(found.instruction, mistake), encoding="utf-8")
        options = ["-include", str(header), "-DUNDER_TEST=wrong"]
    command = [nvcc, "-std=c++17", f"-arch={ARCH}", *options, "-o", str(folder / stem), str(source)]
    run = subprocess.run(command, capture_output=True, check=False, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    lines = [line for group in found.groups for line in _expected(found.instruction, group, mistake)]
    (folder / f"{stem}.json").write_text(json.dumps(lines), encoding="utf-8")


def _wrong_function(instruction, mistake) -> str:
    """A function under test that swaps two registers and is right otherwise."""
    from warpfrag.codegen.cuda_functions import register_arrays
    from warpfrag.codegen.emit import emit
    from warpfrag.codegen.statement import identifier

    first, second = (int(word) for word in mistake.text.split() if word.isdigit())
    every = register_arrays(instruction)
    parameters = [variable.parameter(const=role != "d") for role, variable in every.items()]
    role = mistake.operand
    kind, count = every[role].c_type, every[role].count
    copy = f"    {kind} swapped[{count}];\n    for (int i = 0; i < {count}; ++i) swapped[i] = {role}[i];\n"
    swap = f"    swapped[{first}] = {role}[{second}];\n    swapped[{second}] = {role}[{first}];\n"
    selector = "selector" if instruction.form.is_sparse else ""
    right = f"warpfrag::{identifier(instruction)}::mma{f'<{selector}>' if selector else ''}"
    names = [*every]
    if role == "d":
        call = f"    {right}({', '.join(names)});\n"
        back = f"    {role}[{first}] = swapped[{first}];\n    {role}[{second}] = swapped[{second}];\n"
        body = call + copy + swap + back
    else:
        body = copy + swap + f"    {right}({', '.join('swapped' if name == role else name for name in names)});\n"
    template = "template <int selector>\n" if selector else ""
    return f"{emit(instruction)}\n{template}__device__ void wrong({', '.join(parameters)}) {{\n{body}}}\n"


def _expected(instruction, group, mistake) -> list[str]:
    """The lines that a program prints about a group."""
    import numpy as np

    from warpfrag.codegen.vectors.vector_group import run

    got = group.d
    if mistake and mistake.operand == "d":
        got = mistake.change(group.d)
    elif mistake:
        words = group.words | {mistake.operand: mistake.change(group.words[mistake.operand])}
        got = run(instruction, words, group.choice, ARCH)
    d = instruction.d
    width = d.words // d.regs
    pairs = [array.reshape(group.cases, -1, d.regs, width) for array in (group.d, got)]
    differs = (pairs[0] != pairs[1]).any(axis=-1)
    if not differs.any():
        return [f"ok      {group.name}: {group.cases} cases"]
    cases = int(differs.any(axis=(1, 2)).sum())
    lines = [f"FAILED  {group.name}: {cases} of {group.cases} cases differ, in {differs.sum()} registers"]
    lines.append(f"        catches {group.catches}")
    for case, lane, reg in np.argwhere(differs)[:SHOWN]:
        texts = ["0x" + "".join(f"{word:08x}" for word in array[case, lane, reg][::-1]) for array in pairs]
        lines.append(f"        case {case}, lane {lane}, register {reg}: expected {texts[0]}, got {texts[1]}")
    if differs.sum() > SHOWN:
        lines.append(f"        ... and {differs.sum() - SHOWN} more")
    return lines


def run(folder: Path) -> int:
    """Run every program and compare what it prints."""
    wrong = count = 0
    for place in sorted(folder.glob("*.json")):
        expected = json.loads(place.read_text(encoding="utf-8"))
        failed = [line.split(":")[0].split(maxsplit=1)[1] for line in expected if line.startswith("FAILED")]
        done = subprocess.run([str(place.with_suffix(""))], capture_output=True, check=False, text=True)
        lines = done.stdout.splitlines()
        said = [line for line in lines[1:] if line.startswith(("ok ", "FAILED ", "        "))]
        summary = f"groups failed: {', '.join(failed)}" if failed else "groups passed"
        good = said == expected and done.returncode == bool(failed) and any(summary in line for line in lines)
        planted = f", names {', '.join(failed)}" if failed else ", passes"
        say(f"{'as it must' if good else 'WRONG'}: {place.stem}{planted}")
        if not good:
            say("\n".join(["got", done.stdout, done.stderr, "expected", *expected]))
        wrong += not good
        count += 1
    say(f"{count} programs, {wrong} wrong")
    return int(bool(wrong) or count != 2 * len(SAMPLE))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in {"build", "run"}:
        sys.exit((__doc__ or "").strip())
    sys.exit({"build": build, "run": run}[sys.argv[1]](Path(sys.argv[2])))
