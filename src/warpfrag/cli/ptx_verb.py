"""`warpfrag ptx`: inspect, run, profile and explain the kernels of a PTX or CUDA file."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import click
import numpy as np

from warpfrag.cli.io.arguments import Arch, File, Natural, Seconds
from warpfrag.cli.io.kernel_arguments import Arrays, read_argument, read_symbol
from warpfrag.cli.io.output import (
    DONE,
    INCOMPLETE,
    NO,
    ProgressLine,
    echo,
    echo_error,
    print_heading,
    print_notes,
    print_table,
    terminal_width,
)
from warpfrag.cli.io.verbs import Answer, Param, facts_of, verb
from warpfrag.errors import InvalidOperand, location_text, quote
from warpfrag.files import write_atomically
from warpfrag.machine.interpreter.kernel_findings import KernelFinding
from warpfrag.machine.ir.program import DecodedInstruction, Parameter, SourceLine, excerpt, file_name
from warpfrag.machine.launch.exploration import Exploration
from warpfrag.machine.launch.run import UNORDERED, Counts, InexactLine
from warpfrag.tensorcore.evidence import Evidence
from warpfrag.viz.drawing import Drawing

if TYPE_CHECKING:
    from warpfrag.ptx import InstructionView, Kernel, Module, OperandValues, Profile, Run
    from warpfrag.sass.sass_module import SassModule


MAX_BLOCKS = 2**31 - 1
MAX_ROWS = 30  # number of rows of a profile printed as text
NO_KERNELS = "the file has no kernels; instantiate a template, as in template __global__ void k<float>(float *);"
CUDA_ARCH = "sm_90a"  # the default for CUDA C++
ACCESS = re.compile(r"(ld|st|atom|red|cp)\.(?!param)")
TENSOR = re.compile(r"(wgmma\.|tcgen05\.)?(mma|wmma)\b")
SPACES = ("global", "shared", "local", "param", "const")


def read_extent(text: str) -> tuple[int, ...]:
    """Return one to three extents, such as 4,2."""
    if not re.fullmatch(r"\d{1,18}([,x]\d{1,18}){0,2}", text, re.ASCII):
        raise click.BadParameter(f"expected one to three numbers such as 4,2, got {quote(text)}")
    extent = tuple(int(part) for part in re.split("[,x]", text))
    if max(extent) > MAX_BLOCKS:
        raise click.BadParameter(f"expected at most {MAX_BLOCKS}, got {max(extent)}")
    return extent


Extent = Annotated[tuple[int, ...], Param("X[,Y[,Z]]", read_extent)]


class LaunchSettings(NamedTuple):
    """The settings of a launch.

    Options:
        entry (NAME): The kernel, or a part of its C++ name; needed only if there are several.
        link (FILE.ptx): A module that defines this module's .extern names.
        grid: Number of blocks; default: 1.
        block: Threads per block; default: the kernel's .reqntid, or 32.
        arg (ARG): An argument, in order: FILE.npy, NAME:TYPE:SHAPE for zeros, TYPE:NUMBER, null, or [ARG,ARG] for
            pointers.
        symbol (NAME[=VALUE]): A module variable, optionally set to FILE.npy or a number; -o writes it too.
        shared (BYTES): Dynamic shared memory.
        cluster: Blocks per cluster; default: as declared in the PTX.
        cooperative: Run all blocks at the same time, as grid.sync() requires.
        seed: Seed of the order in which blocks and, with --check, warps run.
        arch: The architecture whose arithmetic is used; default: sm_90 if it can run the module, else its target.
        launch_seconds: Stop the launch after this many seconds, and report the line it had reached.
        judge_seconds: The maximum time to judge whether the result of machine code is exact; default: 10 seconds.
    """

    entry: str | None = None
    link: tuple[str, ...] = ()
    grid: Extent | None = None
    block: Extent | None = None
    arg: tuple[str, ...] = ()
    symbol: tuple[str, ...] = ()
    shared: Natural = 0
    cluster: Extent | None = None
    cooperative: bool = False
    seed: Natural | None = None
    arch: Arch | None = None
    launch_seconds: Seconds | None = None
    judge_seconds: Seconds | None = None

    def settings(self, kernel: Kernel, arrays: Arrays) -> dict[str, Any]:
        """Return the arguments of `Kernel.launch`, and add the arrays to `arrays` by name."""
        from warpfrag.ptx import LaunchOptions

        return {
            "grid": self.grid or (1,),
            "block": self.block or tuple(kernel.program.directives.get("reqntid", (32,))),
            "args": [read_argument(text, arrays) for text in self.arg],
            "shared": self.shared,
            "arch": self.arch,
            "seed": self.seed,
            "options": LaunchOptions(
                cluster=self.cluster,
                cooperative=self.cooperative,
                seconds=self.launch_seconds,
                judge=self.judge_seconds or True,
            ),
        }


class RunOptions(NamedTuple):
    """The checks of a run, and the position of the instruction to explain.

    Options:
        check: The mistakes to search for; exit status 1 if any are found, 3 if not everything could be judged.
        explore: Run N more interleavings, and compare the results.
        at_block: explain: the block; default: the first that reaches the line.
        warp: explain: the warp; default: the first that reaches the line.
        visit: explain: the number of earlier executions to skip.
    """

    check: tuple[Literal["memory", "races", "uninitialised", "barriers", "async", "all"], ...] = ()
    explore: Natural = 0
    at_block: Extent | None = None
    warp: Natural | None = None
    visit: Natural = 0


class VariableFacts(NamedTuple):
    """A module variable."""

    name: str
    readable_name: str
    space: str
    type: str
    shape: tuple[int, ...]
    bytes: int


class EntryFacts(NamedTuple):
    """A kernel of a module.

    shared: static shared memory, in bytes
    instructions: number of instructions
    cluster: blocks per cluster
    tensor_maps: parameters that are tensor maps
    opcodes: the evidence for each opcode
    """

    name: str
    readable_name: str
    shared: int
    instructions: int
    parameters: list[Parameter]
    cluster: tuple[int, ...] | None
    tensor_maps: tuple[str, ...]
    opcodes: dict[str, Evidence]


class ModuleFacts(NamedTuple):
    """The contents of a PTX module or a cubin.

    version: PTX version; null for machine code
    target: the target that the module names, such as sm_90a
    arch: the architecture to which the evidence applies
    """

    action: str
    version: str | None
    target: str
    arch: str
    variables: list[VariableFacts]
    entries: list[EntryFacts]


class ArrayFacts(NamedTuple):
    """An array after a launch."""

    dtype: str
    shape: tuple[int, ...]


class RunFacts(NamedTuple):
    """A kernel launch.

    exact: true if a GPU would write the same bytes to memory
    basis: the executed code: ptx, or sass with the architecture, the ptxas version and the cubin's digest
    inexact: reasons why the result may differ on a GPU
    instructions: number of warp instructions
    evidence: the evidence for each opcode
    verdict: verdict of the checks: clean, findings or incomplete; null without checks
    unjudged: reasons why the checks could not judge everything
    notes: unusual accesses that are not mistakes
    exploration: with --explore: the other interleavings
    inexact_lines: lines whose results may differ on a GPU
    printed: output of printf
    """

    action: str
    entry: str
    arch: str
    exact: bool
    basis: str
    inexact: tuple[str, ...]
    instructions: int
    evidence: dict[str, Evidence]
    counts: Counts
    verdict: str | None
    findings: list[KernelFinding]
    unjudged: list[str]
    notes: tuple[str, ...]
    exploration: Exploration | None
    inexact_lines: list[InexactLine]
    printed: str
    arrays: dict[str, ArrayFacts]


class ExplainedInstruction(NamedTuple):
    """An instruction that one warp executes.

    source: the source line that it was compiled from
    visit: number of earlier executions
    lanes: the active lanes, as a mask
    operands: sources before the instruction, results after it
    """

    line: int
    text: str
    source: str | None
    name: str
    arch: str
    block: tuple[int, ...]
    warp: int
    visit: int
    lanes: int
    operands: tuple[OperandValues, ...]


class PtxView(NamedTuple):
    """The result of `profile` or `explain`; the key of the other action is null.

    profile: counts by line
    instruction: the explained instruction
    """

    action: str
    profile: Profile | None = None
    instruction: ExplainedInstruction | None = None


@verb
def ptx(
    action: Literal["info", "run", "profile", "explain"],
    file: File,
    *,
    launch: LaunchSettings = LaunchSettings(),  # noqa: B008 (immutable)
    checks: RunOptions = RunOptions(),  # noqa: B008 (immutable)
    by: Literal["source", "line"] | None = None,
    output: File | None = None,
) -> Answer[ModuleFacts] | Answer[RunFacts] | Answer[PtxView]:
    """Inspect the kernels of a PTX, CUDA or cubin file, run one, and profile or explain the run.

    info lists entries, parameters, shared memory, and opcodes with their evidence. run reads arrays from files, runs
    the kernel, and writes the arrays. profile counts instructions, bytes, wavefronts, bank conflicts and tensor-core
    operations by line. explain FILE:LINE shows an instruction in one warp, with its operands as matrices. LINE is a
    line of the PTX or CUDA file; its tensor-core instruction is shown, or if it has none, its memory access. FILE may
    be CUDA C++ (.cu) if nvcc is installed; an --entry with template arguments is instantiated. A .cubin or .fatbin is
    executed as is, and LINE is then an address.

    Options:
        by: profile: the rows of the table; default: source lines if the PTX has .loc directives.
        output: run: an .npz file with the arrays; profile: an .html page; explain: a figure, .svg, .png or .txt.

    For example:
        warpfrag ptx info sample:rowsum.ptx
        warpfrag ptx run sample:rowsum.ptx --grid 2 --block 128 --arg x:f32:2x128 --arg sums:f32:2 --check races
        warpfrag ptx profile sample:rowsum.ptx --block 128 --arg x:f32:1x128 --arg sums:f32:1 -o profile.html
        warpfrag ptx run saxpy.cu --entry saxpy --block 128 --arg f32:2 --arg x.npy --arg y.npy -o results.npz
        warpfrag ptx explain matmul.ptx:565 --grid 4 --block 128 --arg a.npy --arg b.npy --arg c:f32:64x64 -o mma.svg
        warpfrag ptx explain matmul.cu:8 --entry "tile<float, 16>" --block 32 --arg a.npy --arg b.npy --arg d:f32:16x8
    """
    line = 0
    if action == "explain":
        file, line = _file_and_line(file)
    module = read_module([file, *launch.link], launch.arch, launch.entry)
    if action == "info":
        return _info(module, launch)
    kernel = chosen_kernel(module, launch.entry)
    arrays: Arrays = {}
    variables = dict(read_symbol(text, module) for text in launch.symbol)
    settings = launch.settings(kernel, arrays)
    if action == "explain":
        lines = _ptx_lines(kernel, file, line) if file.endswith(".cu") else [line]
        return _explain(kernel, settings, lines, checks, output)
    run = _run(kernel, settings, checks)
    if action == "profile":
        return _profile(run, by, output)
    arrays |= variables
    if output is not None:
        data = io.BytesIO()
        np.savez_compressed(data, **arrays)  # type: ignore[arg-type] # the names of the arrays
        write_atomically(output, data.getvalue())
    differs = run.exploration is not None and not run.exploration.agrees
    status = NO if run.findings or differs else INCOMPLETE if run.verdict == "incomplete" else DONE
    return Answer(_run_facts(kernel, run, arrays), lambda: _print_run(kernel, run), status)


def _run(kernel: Kernel, settings: dict[str, Any], checks: RunOptions) -> Run:
    """Launch a kernel, with a progress bar."""
    with ProgressLine() as line:
        try:
            options = replace(
                settings["options"],
                explore=checks.explore,
                progress=lambda done, total: line.show(done, total, "blocks"),
            )
            return kernel.launch(**settings | {"options": options, "checks": checks.check})
        except KeyboardInterrupt as error:
            line.clear()
            for note in getattr(error, "__notes__", ()):
                echo_error(f"warpfrag: {note.partition(';')[0]}; nothing was written")
            raise


def read_module(files: list[str], arch: str | None, entry: str | None) -> Module | SassModule:
    """Return the module in a file, linked with other files if any; CUDA C++ is compiled first."""
    from warpfrag.ptx import compile as compile_cuda
    from warpfrag.ptx import link, load
    from warpfrag.sass.sass_module import load as load_machine_code

    if len(files) == 1 and files[0].endswith((".cubin", ".fatbin")):
        return load_machine_code(files[0], arch=arch)
    templates = [entry] if entry is not None and entry.endswith(">") else []
    modules = [
        compile_cuda(Path(file), arch=arch or CUDA_ARCH, instantiate=templates if number == 0 else [])
        if file.endswith(".cu")
        else load(Path(file))
        for number, file in enumerate(files)
    ]
    return modules[0] if len(modules) == 1 else link(modules)


def chosen_kernel(module: Module | SassModule, entry: str | None) -> Kernel:
    """Return the kernel that --entry names, or the only one."""
    from warpfrag.machine.launch.symbol_names import readable

    names = list(module)
    if entry is None and len(names) != 1:
        listed = f"specify --entry: the file has {len(names)} kernels ({', '.join(map(readable, names))})"
        raise click.UsageError(listed if names else NO_KERNELS)
    return module[names[0] if entry is None else entry]


def _info(module: Module | SassModule, launch: LaunchSettings) -> Answer[ModuleFacts]:
    from warpfrag.machine.launch.options import default_arch
    from warpfrag.machine.launch.run_evidence import opcode_evidence
    from warpfrag.machine.launch.symbol_names import readable, short_name

    arch, version = launch.arch or default_arch(module.target), getattr(module, "version", None)
    kernels = [module[name] for name in ([launch.entry] if launch.entry else module)]
    variables = [
        VariableFacts(name, readable(name), variable.space, variable.type, variable.shape, variable.size)
        for name, variable in module.symbols.variables.items()
    ]
    entries = [
        facts_of(
            EntryFacts,
            kernel,
            shared=kernel.shared_bytes,
            instructions=len(kernel.program.instructions),
            opcodes=opcode_evidence(kernel.program, arch),
        )
        for kernel in kernels
    ]

    def show() -> None:
        echo(f"{f'PTX {version}' if version else 'Machine code'} for {module.target}; evidence for {arch}")
        if variables:
            rows = [[one.readable_name, f".{one.space}", f".{one.type}", one.shape, one.bytes] for one in variables]
            print_table(["variable", "space", "type", "shape", "bytes"], rows)
        for entry in entries:
            echo()
            print_heading(entry.readable_name)
            echo(f"{entry.shared} bytes of static shared memory, {entry.instructions} instructions")
            if entry.cluster is not None:
                echo(f"clusters of {' x '.join(map(str, entry.cluster))} blocks")
            if entry.tensor_maps:
                names = ", ".join(short_name(name, entry.name) for name in entry.tensor_maps)
                echo(f"tensor maps by value: {names} (wf.ptx.TensorMap)")
            rows = [
                [short_name(each.name, entry.name), f".{each.type}", each.size, each.offset]
                for each in entry.parameters
            ]
            print_table(["parameter", "type", "bytes", "offset"], rows)
            echo()
            known = entry.opcodes
            print_table(["opcode", "known"], [[name, evidence.level] for name, evidence in sorted(known.items())])
            print_notes(evidence.detail for evidence in known.values() if evidence.level == "not modelled")

    return Answer(ModuleFacts("info", version, module.target, arch, variables, entries), show)


def _run_facts(kernel: Kernel, run: Run, arrays: Arrays) -> RunFacts:
    shapes = {name: ArrayFacts(str(array.dtype), array.shape) for name, array in arrays.items()}
    instructions = run.counts.instructions
    return facts_of(RunFacts, run, action="run", entry=kernel.name, instructions=instructions, arrays=shapes)


def _print_run(kernel: Kernel, run: Run) -> None:
    if run.printed:
        echo(run.printed.removesuffix("\n"))
    counts = run.counts
    code = f"PTX semantics for {run.arch}"
    if run.basis != "ptx":
        code = f"machine code for {run.basis.split()[1].rstrip(',')}"
    echo(f"{kernel.readable_name}: {counts.instructions} warp instructions, {code}")
    if run.verdict is not None:
        echo(f"verdict of {', '.join(run.checks)}: {run.verdict}")
    for finding in run.findings:
        echo(str(finding))
    for reason in run.unjudged:
        echo(f"not judged: {reason}")
    echo(_exactness(run))
    for inexact in run.inexact_lines:
        echo(f"uncertain, line {inexact.line}: {inexact.reason}")
    print_notes(run.notes)
    if run.exploration is not None:
        echo(str(run.exploration))
    echo()
    by_count = sorted(counts.opcodes.items(), key=lambda pair: -pair[1])
    print_table(["opcode", "times", "known"], [[name, count, run.evidence[name].level] for name, count in by_count])
    touched = [name for name in SPACES if counts.read.get(name) or counts.written.get(name)]
    if touched:
        echo()
        tables = (counts.read, 0), (counts.written, 0), (counts.wavefronts, "")
        rows = [[name, *(table.get(name, empty) for table, empty in tables)] for name in touched]
        print_table(["memory", "bytes read", "written", "wavefronts"], rows)
    print_notes(f"{name}: {entry.detail}" for name, entry in run.evidence.items() if entry.level == "approximate")


def _exactness(run: Run) -> str:
    """Return a line that states that the run is exact, or the first reason why not."""
    if run.exact:
        return "exact: yes, every executed spelling was compared with a GPU (column known: evidence for each opcode)"
    first, *others = sorted(run.inexact, key=lambda reason: reason != UNORDERED)
    return f"not exact: {first}" + (f"; --json lists {len(others)} more" if others else "")


def _profile(run: Run, by: str | None, output: str | None) -> Answer[PtxView]:
    profile = run.profile
    if output is not None:
        from warpfrag.viz.explorer.page_builder import build_profile_page

        if not output.endswith((".html", ".htm")):
            raise InvalidOperand(f"profile: expected a name that ends in .html, got {quote(output)}")
        write_atomically(output, build_profile_page(profile))

    def show() -> None:
        echo(repr(profile)[1:-1])
        heads, rows = profile.table(by=by or "", limit=None)
        print_table(heads, rows[:MAX_ROWS], right=profile.numeric(heads))
        if len(rows) > MAX_ROWS:
            echo(f"{len(rows) - MAX_ROWS} more; --json has all")

    return Answer(PtxView("profile", profile=profile), show)


def _file_and_line(file: str) -> tuple[str, int]:
    """Split FILE:LINE into the file and the line."""
    name, colon, line = file.rpartition(":")
    if not colon or not (line.isascii() and line.isdigit()) or len(line) > 9:
        raise click.UsageError(f"explain: expected FILE:LINE, such as matmul.ptx:120 or matmul.cu:8, got {quote(file)}")
    return name, int(line)


def _ptx_lines(kernel: Kernel, file: str, line: int) -> list[int]:
    """Return the PTX lines of the instruction that `explain` shows for a CUDA line.

    It is a tensor-core instruction if the CUDA line has one, otherwise a memory access, otherwise the first
    instruction. There are several PTX lines if the compiler unrolled a loop or inlined a function more than once. A
    statement that continues on later lines may have its instructions on one of them.
    """
    lines: dict[int, list[DecodedInstruction]] = {}
    for inst in kernel.program.instructions:
        for call in kernel.sources[inst.line].calls if inst.line in kernel.sources else ():
            if file_name(call.file) == file_name(file):
                lines.setdefault(call.line, []).append(inst)
    last, text = line, SourceLine(file, line).text
    while last not in lines and text.count("(") > text.count(")"):
        last += 1
        text += SourceLine(file, last).text or ")" * len(text)  # after the end of the file
    found = lines.get(last)
    if not found:
        near = sorted(sorted(lines, key=lambda number: abs(number - line))[:4])
        raise InvalidOperand(
            f"{kernel.readable_name} has no instruction at {file}:{line}; the nearest lines with instructions are "
            f"{', '.join(map(str, near)) or 'unknown'}"
        )
    shown = next((inst for pattern in (TENSOR, ACCESS) for inst in found if pattern.match(inst.name)), found[0])
    return sorted({inst.line for inst in found if inst.name == shown.name})


def _explain(
    kernel: Kernel, settings: dict[str, Any], lines: list[int], options: RunOptions, output: str | None
) -> Answer[PtxView]:
    view = _stopped(kernel, settings, lines, options)
    stop, visit = view.stop, options.visit
    if output is not None and not view.is_matrix:
        raise InvalidOperand(f"line {stop.line} is not a matrix instruction, so {stop.text} cannot be drawn")
    at = location_text(stop.line, stop.source)
    title = f"{kernel.readable_name}, {at}; block {stop.block}, warp {stop.warp}, visit {visit}; {view.arch}"
    picture = _drawing(view, title) if view.is_matrix else None
    if output is not None and picture is not None:
        picture.save(output)
    source = None if stop.source is None else str(stop.source)
    where = view.instruction, view.arch, stop.block, stop.warp, visit, stop.lanes
    facts = ExplainedInstruction(stop.line, stop.text, source, *where, view.operands)

    def show() -> None:
        if picture is not None:
            echo(picture.to_text(terminal_width()).rstrip("\n") + excerpt(stop.source))
            return
        print_heading(stop.text)
        echo(title + excerpt(stop.source))
        heads = ["lane", *(f"{each.name}{' (after)' if each.is_result else ''}" for each in view.operands), ""]
        active = ["" if stop.lanes >> lane & 1 else "idle" for lane in range(32)]
        print_table(heads, [[lane, *(_value(one, lane) for one in view.operands), active[lane]] for lane in range(32)])

    return Answer(PtxView("explain", instruction=facts), show)


def _stopped(kernel: Kernel, settings: dict[str, Any], lines: list[int], options: RunOptions) -> InstructionView:
    """Run until a warp reaches an instruction at one of the lines for the given visit."""
    with kernel.debug(**settings) as debugger:
        block, warp = options.at_block, options.warp
        for visit in range(options.visit + 1):
            debugger.breakpoints.clear()
            for line in lines:
                debugger.break_at(line, block=block, warp=warp)
            if debugger.run() is None:
                reached = "reached the line"
                if not visit:
                    raise InvalidOperand(
                        f"no warp of {kernel.readable_name} that matches --at-block and --warp {reached}"
                    )
                raise InvalidOperand(f"warp {warp} of block {block} {reached} only {visit} time{'s' * (visit > 1)}")
            block, warp = debugger.focus()
        debugger.breakpoints.clear()
        return debugger.explain()


def _drawing(view: InstructionView, title: str) -> Drawing:
    """Return the operands of a matrix instruction as a figure, with their values."""
    from warpfrag.tensorcore.registry import get
    from warpfrag.viz.value_view import draw_values

    instruction = get(view.instruction, view.arch if view.instruction.startswith("wmma") else None)
    matrices = [
        (each.name, f"{each.format}, {'after' if each.is_result else 'before'}", each.values) for each in view.operands
    ]
    staged = {each.name: each.in_shared_memory for each in view.operands}
    note = ("Grey: in shared memory.",) if any(staged.values()) else ()
    return draw_values(instruction, matrices, title=title, notes=(view.stop.text, *note), staged=staged)


def _value(operand: OperandValues, lane: int) -> str:
    value = operand.values[lane]
    if operand.values.dtype.kind == "f":
        return f"{value:.9g}"
    is_number = operand.values.dtype.kind == "i" or operand.format in {"pred", "u8", "u16", "u32", "u64"}
    half = f" (f16 {value.view(np.float16):.5g})" if operand.format in {"b16", "u16"} else ""
    return (str(int(value)) if is_number else f"{int(value):#x}") + half
