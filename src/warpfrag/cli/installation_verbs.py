"""`warpfrag samples`, `check`, `verify`, `cache` and `tools`: example files, comparisons, compiled code, CUDA tools."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import click
import numpy as np

from warpfrag.cli.io.arguments import Count, File, InstructionName, Seed
from warpfrag.cli.io.output import DONE, NO, ProgressLine, echo, print_notes, print_table
from warpfrag.cli.io.verbs import Answer, Param, integer, verb
from warpfrag.device.gpu_attributes import measure_profile
from warpfrag.disk_cache import DIGITS, cache_folders
from warpfrag.errors import NoGpu, WarpfragError, quote
from warpfrag.files import check_writable, write_atomically
from warpfrag.grouping import grouped
from warpfrag.hardware.verification import KernelResult, Report
from warpfrag.isa.instruction_table import Family, families_of
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.samples import SAMPLES, sample_path
from warpfrag.tensorcore.captures.capture import MEMORY, CapturedCase, WgmmaCase, address_maps, captures
from warpfrag.tensorcore.registry import get

LABEL_WIDTH = 58
MAPS = "wgmma addresses in shared memory, by descriptor"


class SampleFile(NamedTuple):
    """An example file, which any file argument accepts as `sample:NAME`."""

    name: str
    bytes: int
    text: str


class Samples(NamedTuple):
    """All example files, or the named one."""

    samples: list[SampleFile]


@verb
def samples(
    name: Literal[tuple(SAMPLES)] | None = None,  # type: ignore[valid-type] # the names come from a table
    *,
    output: File | None = None,
) -> Answer[Samples]:
    """List, print or copy the example files; any file argument accepts sample:NAME.

    Options:
        output: Write the sample to this file.

    For example:
        warpfrag samples                  # list them
        warpfrag samples dump.txt         # print a text file
        warpfrag samples D.npy -o D.npy   # copy a file
        warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 sample:A.txt sample:B.txt sample:dump.txt
    """
    if name is None and output is not None:
        raise click.UsageError("-o requires the name of a sample")
    contents = {each: sample_path(each).read_bytes() for each in ([name] if name else SAMPLES)}
    rows = [SampleFile(each, len(content), SAMPLES[each]) for each, content in contents.items()]
    if name is not None and output is not None:
        write_atomically(output, contents[name])

    def show() -> None:
        if name is None:
            print_table(["name", "bytes", "contents"], [list(row) for row in rows])
        elif output is not None:
            echo(f"wrote {output}")
        elif name.endswith(".npy"):
            echo(f"{name}: {SAMPLES[name]}, {rows[0].bytes} bytes; -o FILE writes it to a file")
        else:
            echo(contents[name].decode("utf-8").removesuffix("\n"))

    return Answer(Samples(rows), show)


class FamilyCheck(NamedTuple):
    """The captured cases of one instruction family on one architecture."""

    family: str
    arch: str
    cases: int
    differing: int


class CheckFacts(NamedTuple):
    """The comparison with captured results.

    cases: cases that were compared
    differing: cases with different codes
    """

    families: list[FamilyCheck]
    cases: int
    differing: int


@verb
def check(*, only: str = "") -> Answer[CheckFacts]:
    """Run every captured case, and compare every code with the GPU's result; the exit status is 1 if one differs.

    Options:
        only (TEXT): Only the instruction with this name, or instructions whose names contain this text.

    For example:
        warpfrag check                    # everything, one line per family
        warpfrag check --only mma.sp
    """
    from warpfrag.isa.similar_names import similar_names

    rows: list[FamilyCheck] = []
    devices: dict[int, str] = {}  # in the order of their first rows
    with ProgressLine() as line:
        for capture in captures():
            about = capture.about
            chosen = capture.cases(_named(only, capture.instructions))
            groups = grouped((_label(families_of(get(case.instruction).form)[0]), case) for case in chosen)
            if groups:
                devices[len(rows)] = f"{about['device']}, {about['arch']}, driver {about['driver']}"
            for number, (label, cases) in enumerate(groups.items()):
                line.show(number, len(groups), label)
                differing = sum(_differing_tiles(case, about["arch"]) for case in cases)
                rows.append(FamilyCheck(label, about["arch"], sum(len(case.d) for case in cases), differing))
    rows += _address_maps(only)
    if not rows:
        near = "; ".join(similar_names(only))
        raise click.UsageError(
            f"no captured instruction contains {quote(only)}" + (f"; similar legal names: {near}" if near else "")
        )
    total, different = sum(row.cases for row in rows), sum(row.differing for row in rows)

    def show() -> None:
        for number, row in enumerate(rows):
            if number in devices:
                echo(devices[number])
            unit = "maps " if row.family == MAPS else "cases"
            verdict = f"{row.differing} DIFFER" if row.differing else "equal"
            echo(f"  {row.family:<{LABEL_WIDTH}} {row.cases:>5} {unit}  {verdict}")
        echo(f"{total} cases, {f'{different} cases differ' if different else 'all codes equal'}")

    return Answer(CheckFacts(rows, total, different), show, NO if different else 0)


def _named(text: str, known: dict[str, Form]) -> set[str]:
    """Return the names that match `text`: the instruction itself, or names that contain `text` or its qualifiers."""
    try:
        meant = get(text).form
    except WarpfragError:
        containing = {name for name in known if text in name}
        return containing or {name for name in known if _in_order(text.split("."), name.split("."))}
    return {name for name, form in known.items() if form == meant}


def _in_order(words: list[str], others: list[str]) -> bool:
    left = iter(others)
    return all(word in left for word in words)


def _label(family: Family) -> str:
    """Return the display name of a family; all widths of wgmma share one."""
    op, is_wgmma = family.ops[0], family.ops[0].startswith("wgmma")
    types = ".".join("|".join(family.choices(role)) for role in ("dab" if is_wgmma else "dabc"))
    shape, kind, bitop = ("|".join(map(str, family.choices(name))) for name in ("shape", "kind", "bitop"))
    if is_wgmma:
        shape = re.sub(r"n\d+k", "nNk", shape).partition("|")[0]
    return " ".join(filter(None, [op.removesuffix("::ordered_metadata"), shape, types, kind, bitop]))


def _address_maps(only: str) -> list[FamilyCheck]:
    """Compare the address maps of the instructions that match a text."""
    maps = address_maps().maps
    named = _named(only, {captured.instruction: get(captured.instruction).form for captured in maps})
    chosen = [captured for captured in maps if captured.instruction in named]
    differing = 0
    for captured in chosen:
        instruction = get(captured.instruction)
        operand = instruction.a if captured.operand == "a" else instruction.b
        addresses = operand.addresses(captured.descriptor, captured.trans)
        differing += not np.array_equal(np.where(addresses < MEMORY, addresses, 0), captured.addresses)
    return [FamilyCheck(MAPS, "sm_90", len(chosen), differing)] if chosen else []


def _differing_tiles(case: CapturedCase | WgmmaCase, arch: str) -> int:
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.execute import execute

    if isinstance(case, WgmmaCase):
        from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases

        return int((run_wgmma_cases(case.instruction, case.call, arch) != case.d).any(axis=(-1, -2, -3)).sum())
    form = get(case.instruction).form
    if isinstance(form, TensorForm):
        return _differing_images(form, case, arch)
    scales = None if case.scale_a is None or case.scale_b is None else (case.scale_a, case.scale_b)
    chosen = Immediates(case.selector or 0)
    result = execute(
        case.instruction, case.a, case.b, case.c, metadata=case.metadata, scales=scales, immediates=chosen, arch=arch
    )
    return int((result != case.d).any(axis=(-1, -2)).sum())


def _differing_images(form: TensorForm, case: CapturedCase, arch: str) -> int:

    from warpfrag.tensorcore.tensor_images import run_images

    images = ({"a": case.a[number], "b": case.b[number], "c": case.c[number]} for number in range(len(case.d)))
    return sum(not np.array_equal(run_images(form, image, arch), d) for image, d in zip(images, case.d, strict=True))


@verb
def verify(
    instructions: tuple[InstructionName, ...] = (),
    *,
    only: str = "",
    cases: Count = 1000,
    seed: Seed = 0,
    device: Annotated[int, Param("N", integer(0, 1000))] = 0,
    capture: File | None = None,
    attributes: File | None = None,
) -> Answer[Report]:
    """Run instructions on this machine's GPU and compare the bits of every result with warpfrag's.

    The exit status is 0 if every code is equal, 1 if one differs or could not be compared, and 2 if there is no GPU.

    Options:
        only (TEXT): Only instructions whose names contain this text.
        cases: The number of cases for each instruction and selector; for wgmma, the number of 16 x 8 tiles.
        device: The index of the GPU.
        capture: Write operands and results to this file, for `warpfrag check`.
        attributes: Write the GPU's attributes to this file, as a profile for `warpfrag gpu --profile FILE`.

    For example:
        warpfrag verify                                       # everything this GPU can run, 1000 cases each
        warpfrag verify mma.m16n8k16.f32.f16.f16.f32 --cases 100000
        warpfrag verify --only wgmma --cases 60               # every wgmma
        warpfrag verify --capture my_gpu.npz                  # evidence to contribute
    """
    from warpfrag.hardware.verification import verify as compare

    if capture is not None:
        check_writable(capture)  # fail before the GPU runs
    if attributes is not None:
        write_atomically(attributes, (json.dumps(asdict(measure_profile(device)), indent=1) + "\n").encode())
    try:
        with ProgressLine(lines=True) as line:
            verification = compare(
                [*instructions] or None,
                only=only,
                cases=cases,
                seed=seed,
                device=device,
                capture=capture,
                progress=lambda done, total, kernel: line.show(done, total, _result_text(kernel)),
            )
    except NoGpu as error:
        raise NoGpu(f"{error}; `warpfrag check` compares with captured results instead") from None

    def show() -> None:
        for kernel in verification.lines:
            for mismatch in kernel.mismatches:
                echo(f"{kernel.kernel}: {mismatch}")
        for kernel in verification.skipped:
            echo(_result_text(kernel))
        echo(verification.summary())

    return Answer(verification, show, 0 if verification.equal else NO)


def _result_text(result: KernelResult) -> str:
    """Return one line with the result of a kernel."""
    state = result.skip_reason or ("equal" if not result.differing else f"{result.differing} DIFFER")
    return f"{result.kernel}: {result.cases} cases, {state}"


class CodeFolder(NamedTuple):
    """A folder with one category of compiled code (`contents`)."""

    contents: str
    folder: Path
    patterns: tuple[str, ...]

    def files(self) -> list[Path]:
        """Return the files in the folder that match the patterns."""
        return [path for pattern in self.patterns for path in sorted(self.folder.glob(pattern))]

    def facts(self) -> FolderFacts:
        """Return the number and total size of the files, except files that another process removes meanwhile."""
        sizes = []
        for path in self.files():
            with suppress(OSError):
                sizes.append(path.stat().st_size)
        return FolderFacts(self.contents, str(self.folder), len(sizes), sum(sizes))


class FolderFacts(NamedTuple):
    """A folder with compiled code.

    contents: wheel (the installed library), ptx (compiled kernels) or sass (the text of machine code)
    files: number of files
    bytes: total size
    """

    contents: str
    folder: str
    files: int
    bytes: int


class CacheFacts(NamedTuple):
    """The compiled code on disk.

    folders: in the order in which they are searched
    removed: files that --clear removed
    kept: files that --clear could not remove, with the reason
    """

    folders: list[FolderFacts]
    removed: int
    kept: list[str]


@verb
def cache(*, clear: bool = False) -> Answer[CacheFacts]:
    """Show where compiled code is stored: the wheel's library, compiled kernels, and decoded machine code.

    Removed code is compiled again when it is needed; removing it does not change results. WARPFRAG_CACHE_DIR names a
    folder for compiled kernels. The exit status is 1 if --clear could not remove every file.

    Options:
        clear: Remove code that was compiled here; code from a wheel stays.

    For example:
        warpfrag cache           # the folders of compiled code, and their size
        warpfrag cache --clear   # remove code that was compiled here
    """
    folders = code_folders()
    removed, kept = 0, []
    for path in [path for each in folders if clear and each.contents != "wheel" for path in each.files()]:
        try:
            path.unlink(missing_ok=True)
            removed += 1
        except OSError as error:
            kept.append(f"{path.name}: {error.strerror}")
    rows = [each.facts() for each in folders]

    def show() -> None:
        table = [[row.contents, row.files, row.bytes, row.folder] for row in rows]
        print_table(["contents", "files", "bytes", "folder"], table)
        if clear:
            print_notes([f"{removed} files removed", *kept])

    return Answer(CacheFacts(rows, removed, kept), show, NO if kept else DONE)


def code_folders() -> list[CodeFolder]:
    """Return the folders of compiled code, in the order in which they are searched."""
    from warpfrag.sass.disassembler import CACHE as TEXTS
    from warpfrag.tensorcore.native import library
    from warpfrag.tensorcore.native.levels import library_name

    folders = [CodeFolder("wheel", library.FOLDER, (library_name(),))]
    folders += [CodeFolder("ptx", path, (f"{'[0-9a-f]' * DIGITS}.o",)) for path in cache_folders("ptx")]
    return folders + [CodeFolder("sass", path, (f"*{TEXTS.suffix}",)) for path in cache_folders(TEXTS.name)]


class ToolFacts(NamedTuple):
    """A program of the CUDA toolkit.

    purpose: what warpfrag uses it for
    path: the program that is used; null if there is none
    version: the version that it reports
    source: the rule that found it: CUDA_HOME, CUDA_PATH, PyPI, Triton or PATH
    others: other programs with this name, which are not used
    """

    name: str
    purpose: str
    path: str | None
    version: str | None
    source: str | None
    others: list[str]


class ToolsFacts(NamedTuple):
    """The programs of the CUDA toolkit that warpfrag can run.

    install: a command that installs the missing ones; null if none is missing
    level: the default level at which PTX kernels run: auto, sass or ptx (WARPFRAG_LEVEL)
    """

    tools: list[ToolFacts]
    install: str | None
    level: str


@verb
def tools() -> Answer[ToolsFacts]:
    """List the CUDA tools that were found, with their versions, and how to install the missing ones.

    The tools are searched for under CUDA_HOME and CUDA_PATH, in PyPI packages, in Triton, and on PATH, in this order.
    With WARPFRAG_LEVEL=ptx, launches execute PTX instead of machine code.

    For example:
        warpfrag tools   # paths and versions of nvcc, ptxas and nvdisasm
    """
    from warpfrag.cuda_tools import INSTALL, TOOLS, execution_level, installed

    rows = []
    for name, purpose in TOOLS.items():
        found = [*installed(name)]
        path, version, source = (str(found[0].path), found[0].version, found[0].source) if found else (None, None, None)
        others = [f"{other.path} ({other.version})" for other in found[1:]]
        rows.append(ToolFacts(name, purpose, path, version, source, others))
    missing = [row.name for row in rows if row.path is None]

    def show() -> None:
        table = [[row.name, row.version or NO, row.source or NO, row.path or "not found", row.purpose] for row in rows]
        print_table(["tool", "version", "source", "path", "purpose"], table)
        if missing:
            print_notes([f"{', '.join(missing)} not found; to install: {INSTALL}"])

    return Answer(ToolsFacts(rows, INSTALL if missing else None, execution_level()), show)
