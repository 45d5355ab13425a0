"""Counts that README and documentation state, computed from the package.

`python docs/generate.py` writes them into the pages; a test compares.
"""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache

import warpfrag as wf
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.instruction_table import able_architectures
from warpfrag.isa.targets import architectures, targets
from warpfrag.tables import read_table
from warpfrag.tensorcore.captures.capture import captures
from warpfrag.tensorcore.captures.capture_index import INDEX, evidence_rows


@dataclass(frozen=True)
class CapturedGpu:
    """A GPU whose results the package contains."""

    device: str
    arch: str
    driver: str
    assembler: str
    instructions: int
    kernels: int
    cases: int


@cache
def captured_gpus() -> tuple[CapturedGpu, ...]:
    """Return, for every capture, the numbers of instructions, kernels (an instruction with a selector) and cases."""
    found = []
    for capture in captures():
        about = capture.about
        listed = json.loads((capture.path.parent / INDEX).read_text(encoding="utf-8"))["captures"]
        (cases,) = [entry["cases"] for entry in listed if entry["file"] == capture.path.name]
        kernels = {(wf.get(entry["instruction"]), entry["selector"]) for entry in about["entries"]}
        words = (about["device"], about["arch"], about["driver"], about["assembler"])
        found.append(CapturedGpu(*words, len(cases), len(kernels), sum(cases.values())))
    return tuple(found)


@dataclass(frozen=True)
class Known:
    """The instructions of one architecture, counted by level of evidence and by comparison with a GPU."""

    authorities: Counter[str]
    compared: int
    cases: int
    gpus: tuple[str, ...]


@cache
def evidence_by_architecture() -> dict[str, Known]:
    """Return the evidence for the arithmetic of each architecture."""
    products = [instruction for instruction in wf.find() if instruction.form.is_product]
    found = {}
    for arch in architectures():
        able = [one for one in products if arch in able_architectures(one.form)]
        known = [one.evidence(arch) for one in able]
        compared = [entry for entry in known if entry.cases]
        gpus = tuple(dict.fromkeys(gpu for entry in compared for gpu in entry.gpus))
        # the cases of one wgmma width may be evidence for other widths: each is counted once
        cases = sum(row.cases for one in able for row in evidence_rows(one.name, arch))
        found[arch] = Known(Counter(entry.authority for entry in known), len(compared), cases, gpus)
    return found


def facts() -> dict[str, int]:
    """Return the counts, by their names on the page."""
    everything = wf.find()
    operands = [operand for instruction in everything for operand in instruction.operands.values()]
    families = sum(len(table["families"]) for table in read_table("instructions").values())
    return {
        "instructions": len(everything),
        "matrix multiplications (mma, mma.sp, wmma.mma, wgmma)": sum(
            instruction.form.is_product for instruction in everything
        ),
        "sparse matrix multiplications": sum(instruction.form.is_sparse for instruction in everything),
        "loads, stores and other moves": sum(not instruction.form.is_product for instruction in everything),
        "rows of the instruction table": families,
        "operands": len(operands),
        "different layouts": len({operand.spec.layout for operand in operands if not operand.spec.unknown}),
        "number formats": len(FORMATS),
        "targets": len(targets()),
        "architectures": len(architectures()),
        "GPUs with captured results": len({capture.device for capture in captured_gpus()}),
        "captured cases": sum(gpu.cases for gpu in captured_gpus()),
    }
