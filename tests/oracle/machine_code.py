"""Machine code of instructions: assembled, disassembled, and written as rows of `tables/machine_code.toml`.

    python -m oracle.machine_code > ../src/warpfrag/tables/machine_code.toml      # from tests/; takes minutes

needs ptxas and nvdisasm of the same release: pip install 'nvidia-cuda-nvcc>=13.4' 'nvidia-cuda-nvdisasm>=13.4'.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from oracle.toolkit import absent, find_newest_ptxas, programs
from warpfrag.codegen.emit import ptx_header
from warpfrag.codegen.ptx_kernels import raw_kernel, raw_kernels
from warpfrag.isa.alias_names import fill
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.operations import OPS
from warpfrag.tensorcore.registry import find

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.instruction import Instruction

TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a")
OLDEST = (13, 4)  # release that the table was made with
WGMMA_TARGET = "sm_90a"  # where wgmma is; what sm_90 has besides is the same there
LINE = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z][^ ;]*)", re.MULTILINE)
MATRIX = re.compile(r"[HIBDQO]MMA|LDSM|STSM|MOVM|[A-Z]+GMMA")
ARITHMETIC = ("HADD2", "FMUL", "FFMA", "FADD", "SHFL")
# What a row says in lists; the state space, the layouts in memory, saturation and rounding never choose a row.
FIELDS = ("op", "shape", "kind", "d", "a", "b", "c", "bitop", "scale_vec", "scale_type", "num", "trans", "memory")
HEAD = """\
# The machine code (SASS) of instructions. Rows have the form of those in names.toml; `sass` has a pattern for each
# target. "2 x HMMA..." is a sequence of two in any order; "emulated" means without tensor cores. Instructions
# that the disassembler cannot name have no row. Written by tests/oracle/machine_code.py.

source = "ptxas and nvdisasm 13.4, one kernel for each instruction, -O3"
"""


def listed(target: str) -> list[Instruction]:
    """Return the instructions of a target that become machine instructions; wmma.load is made of plain loads."""
    if target == WGMMA_TARGET:
        return [one for one in find(arch=target) if one.op.startswith("wgmma")]
    return [
        one
        for one in find(arch=target)
        if not one.op.startswith("tcgen05") and (one.form.is_product or not one.form.is_wmma)
    ]


def kernel(instruction: Instruction) -> str:
    """A kernel with one instruction in it."""
    form = instruction.form
    if not form.op.startswith("wgmma"):
        return "\n".join(raw_kernel(instruction) if form.is_product else raw_kernels(instruction))
    count = instruction.d.regs
    name = re.sub(r"\W", "_", instruction.name)
    negate = "" if form.a in {"s8", "u8", "b1"} else ", 1, 1"
    transpose = ", 0, 0" if form.a in {"f16", "bf16"} else ""
    metadata = ", word, 0" if form.is_sparse else ""
    registers = ", ".join(f"d{number}" for number in range(count))
    lines = [
        f".visible .entry {name}(.param .u64 memory) {{ .reg .pred keep; .reg .b32 word; .reg .b64 at, a, b;",
        f".reg {'.f32' if form.d == 'f32' else '.b32'} d<{count}>; ld.param.u64 at, [memory];",
        "ld.global.u64 a, [at]; ld.global.u64 b, [at + 8]; ld.global.b32 word, [at + 16]; setp.ne.b32 keep, word, 0;",
        *(f"ld.global.b32 d{number}, [at + {32 + 4 * number}];" for number in range(count)),
        "wgmma.fence.sync.aligned;",
        f"{instruction.name} {{{registers}}}, a, b{metadata}, keep{negate}{transpose};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        *(f"st.global.b32 [at + {32 + 4 * number}], d{number};" for number in range(count)),
        "ret; }",
    ]
    return "\n".join(lines)


def find_nvdisasm() -> Path:
    """Return a disassembler that knows every target; skip if there is none."""
    for program in programs("nvdisasm"):
        said = subprocess.run([str(program), "--version"], capture_output=True, check=False, text=True).stdout
        release = re.search(r"release (\d+)\.(\d+)", said)
        if release and tuple(map(int, release.groups())) >= OLDEST:
            return program
    return absent("no nvdisasm 13.4 or later: install nvidia-cuda-nvdisasm>=13.4")


def disassembled(instructions: Iterable[Instruction], target: str, folder: Path) -> dict[Form, str]:
    """The machine code of each instruction on a target; nothing for one without a name in the disassembler."""
    ptxas, version = find_newest_ptxas(target)
    nvdisasm, instructions = find_nvdisasm(), list(instructions)
    lines, owners = [f".version {version[0]}.{version[1]}", *ptx_header(instructions, target)[1:]], {}
    for one in instructions:
        text = kernel(one)
        owners.update(dict.fromkeys(re.findall(r"\.entry (\w+)", text), one.form))
        lines.append(text)
    module, binary = folder / f"{target}.ptx", folder / f"{target}.cubin"
    module.write_text("\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run([str(ptxas), f"-arch={target}", "-o", str(binary), str(module)], check=True, capture_output=True)
    command = [str(nvdisasm), "-c", str(binary)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names, bodies = (re.split(r"^\.text\.([\w$]+):", shown, flags=re.MULTILINE)[start::2] for start in (1, 2))
    found = {owners[name]: _summary(LINE.findall(body)) for name, body in zip(names, bodies, strict=True)}
    return {form: code for form, code in found.items() if code}


def _summary(opcodes: list[str]) -> str:
    counts = Counter(opcode for opcode in opcodes if MATRIX.match(opcode))
    if counts:
        return " + ".join(f"{count} x {name}" if count > 1 else name for name, count in sorted(counts.items()))
    used = {opcode.split(".")[0] for opcode in opcodes} & set(ARITHMETIC)
    return f"emulated with {' '.join(sorted(used))}" if "FFMA" in used else ""


def pattern(form: Form, code: str) -> str:
    """Return the code with placeholders for the words of the form, so that few rows cover many forms."""
    upper = {role: getattr(form, role).upper() for role in "dab"}
    if form.is_product:
        code = code.replace(".SAT", "{.SAT}") if form.satfinite else code
        code = code.replace(f".{form.rounding.upper()}", "{.ROUNDING}") if form.rounding else code
        m, n, k = form.shape
        code = re.sub(rf"\.{m}{n}{k}(?=\.|$|\{{)", ".{mnk}", code)
        code = re.sub(rf"\.{m}x{n}x{k}(?=\.|$|\{{)", ".{mxnxk}", code)
        for role in "dab":
            if role == "d" or form.a not in ("f16", "f64"):
                word, place = rf"\.{upper[role]}(?=\.|$|\{{| )", f".{{{role.upper()}}}"
                code = re.sub(word, place, code, count=0 if role == "d" else 1)
    return code


def rows(codes: dict[Form, dict[str, str]]) -> list[tuple[dict[str, list[str]], dict[str, str]]]:
    """Forms with the same patterns on all targets, as boxes of lists that hold them and no other."""
    groups: dict[tuple[tuple[str, str], ...], set[tuple[str, ...]]] = {}
    for form, by_target in codes.items():
        patterns = {target: _with_places(form, target, codes) for target in by_target}
        for target, code in by_target.items():
            assert fill(patterns[target], form) == code, (spell(form), target, patterns[target], code)
        key = tuple(sorted(patterns.items(), key=lambda item: TARGETS.index(item[0])))
        point = [str(getattr(form, field)) for field in FIELDS]
        if form.op.startswith("wgmma"):  # all widths are alike; lists of hundreds would hide that
            point[FIELDS.index("shape")] = ""
        groups.setdefault(key, set()).add(tuple(point))
    found = []
    for key, points in groups.items():
        for box in _boxes(points):
            lists = {field: sorted(choices) for field, choices in zip(FIELDS, box, strict=True)}
            words = {"op", *(word for op in lists["op"] for word in OPS[op].qualifiers)}
            said = {
                field: choices
                for field, choices in lists.items()
                if field in words and (choices != [""] or field == "kind")
            }
            found.append((said, dict(key)))
    return found


def _with_places(form: Form, target: str, codes: dict[Form, dict[str, str]]) -> str:
    """The pattern, with a place for saturation and rounding where a sister shows them on this target."""
    text = pattern(form, codes[form][target])
    for field, chosen, place in (("satfinite", True, "{.SAT}"), ("rounding", "rz", "{.ROUNDING}")):
        sister = replace(form, **{field: chosen})
        if sister in codes and place in pattern(sister, codes[sister][target]) and place not in text:
            text += place
    return text


def _boxes(points: set[tuple[str, ...]]) -> list[tuple[frozenset[str], ...]]:
    boxes = {tuple(frozenset({entry}) for entry in point) for point in points}
    for axis in (*range(2, len(FIELDS)), 1, 0):
        merged: dict[tuple[frozenset[str], ...], frozenset[str]] = {}
        for box in boxes:
            rest = box[:axis] + box[axis + 1 :]
            merged[rest] = merged.get(rest, frozenset()) | box[axis]
        boxes = {(*rest[:axis], union, *rest[axis:]) for rest, union in merged.items()}
    return sorted(boxes, key=lambda box: [sorted(entry) for entry in box])


def toml(found: list[tuple[dict[str, list[str]], dict[str, str]]]) -> str:
    """The table."""
    lines = [HEAD + "rows = ["]
    for lists, patterns in sorted(found, key=lambda row: [*row[0]["op"], *row[0].get("shape", ()), str(row[0])]):
        by_pattern: dict[str, list[str]] = {}
        for target, text in patterns.items():
            by_pattern.setdefault(text, []).append(target)
        said = ", ".join(f"{field} = {choices}".replace("'", '"') for field, choices in lists.items())
        sass = ", ".join(f'"{" ".join(targets)}" = "{text}"' for text, targets in by_pattern.items())
        lines.append(f"  {{ {said}, sass = {{ {sass} }} }},")
    return "\n".join([*lines, "]", ""])


def main() -> None:
    """Print the table."""
    codes: dict[Form, dict[str, str]] = {}
    with TemporaryDirectory() as folder:
        for target in TARGETS:
            for form, code in disassembled(listed(target), target, Path(folder)).items():
                codes.setdefault(form, {})[target] = code
    sys.stdout.write(toml(rows(codes)))


if __name__ == "__main__":
    main()
