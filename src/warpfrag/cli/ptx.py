"""`warpfrag ptx`: what a PTX file holds, run one of its kernels, and look inside."""

from __future__ import annotations

import io
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from warpfrag.cli.support.kernel_views import at_line, explain_line, print_comparison, print_profile, print_view
from warpfrag.cli.support.options import complete_file, complete_target, file_option, integer, json_option, target
from warpfrag.cli.support.output import (
    DONE,
    INCOMPLETE,
    NO,
    ProgressLine,
    echo,
    echo_error,
    print_heading,
    print_json,
    print_notes,
    print_table,
)
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand, UnusableFile, quote
from warpfrag.ptx.interpreter.kernel_findings import CHECKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from warpfrag.ptx import Kernel, Module, Run
    from warpfrag.ptx.interpreter.kernel_findings import Check
    from warpfrag.ptx.program.program import ModuleVariable
    from warpfrag.tensorcore.evidence import Evidence

DTYPES = {"f16": "f2", "f32": "f4", "f64": "f8"} | {
    f"{kind}{bits}": f"{letter}{bits // 8}"
    for kind, letter in (("i", "i"), ("s", "i"), ("u", "u"))
    for bits in (8, 16, 32, 64)
}
MAX_BYTES = 1 << 32
ACTIONS = ["info", "run", "profile", "explain", "compare"]
CUDA_TARGET = "sm_90a"  # what CUDA C++ is compiled for, unless --arch says
SPACES = ("global", "shared", "local", "param", "const")


class LaunchOptions(TypedDict):
    """Which kernel, and how it is launched."""

    entry: str | None
    grid: str
    block: str | None
    args: tuple[str, ...]
    shared: int
    checks: tuple[Check, ...]
    seed: int | None
    explore: int
    arch: str | None
    linked: tuple[str, ...]
    symbols: tuple[str, ...]
    cooperative: bool
    cluster: str | None
    other: str | None
    by: str | None
    at_block: str | None
    warp: int | None
    visit: int


@verb(
    "warpfrag ptx info matmul.ptx",
    "warpfrag ptx run saxpy.cu --entry saxpy --block 128 --arg f32:2 --arg x.npy --arg y.npy -o results.npz",
    "warpfrag ptx profile matmul.ptx --grid 4 --block 128 --arg a.npy --arg b.npy --arg c:f32:64x64 -o profile.html",
    "warpfrag ptx explain matmul.ptx:565 --grid 4 --block 128 --arg a.npy --arg b.npy --arg c:f32:64x64 -o mma.svg",
    "warpfrag ptx compare matmul.ptx --with sm_80 --grid 4 --block 128 --arg a.npy --arg b.npy --arg c:f32:64x64",
    "warpfrag ptx run add.ptx --grid 4 --block 128 --arg x.npy --arg out:f32:512 --arg i32:512 -o results.npz",
)
@click.argument("action", metavar="|".join(ACTIONS), type=click.Choice(ACTIONS))
@click.argument("file", metavar="FILE.ptx", shell_complete=complete_file)
@click.option(
    "--entry", metavar="NAME", help="The kernel, or a part of its C++ name; needed only if there are several."
)
@click.option(
    "--link",
    "linked",
    metavar="FILE.ptx",
    multiple=True,
    help="Another module, which defines .extern names of this one.",
)
@click.option("--grid", metavar="X[,Y[,Z]]", default="1", show_default=True, help="Blocks.")
@click.option("--block", metavar="X[,Y[,Z]]", help="Threads of a block; default: .reqntid of the kernel, else 32.")
@click.option(
    "--arg",
    "args",
    metavar="ARG",
    multiple=True,
    help="An argument, in order: FILE.npy, NAME:TYPE:SHAPE for zeros, TYPE:NUMBER, null, or [ARG,ARG] for pointers.",
)
@click.option(
    "--symbol",
    "symbols",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="A variable of the module, optionally set to FILE.npy or a number; it is written with the arrays.",
)
@click.option("--shared", type=integer(0), default=0, metavar="BYTES", help="Dynamic shared memory.")
@click.option(
    "--check",
    "checks",
    multiple=True,
    type=click.Choice([*CHECKS, "all"]),
    help="Which mistakes to search for: exit status 1 if any are found, 3 if not all could be judged.",
)
@click.option(
    "--seed", type=integer(0), metavar="N", help="Seed of the order in which blocks run; with --check, also warps."
)
@click.option("--explore", type=integer(0), default=0, metavar="N", help="Run N more interleavings, and compare.")
@click.option("--cluster", metavar="X[,Y[,Z]]", help="Blocks per cluster; default: as the PTX says.")
@click.option("--cooperative", is_flag=True, help="Run all blocks at once: grid.sync() needs it.")
@click.option(
    "--arch",
    metavar="SM",
    type=target,
    shell_complete=complete_target,
    help="Whose arithmetic is used; default: sm_90 if it runs the module's target, else the target's own.",
)
@click.option("--with", "other", metavar="SM|FILE.ptx", help="compare: the other architecture, or the other kernel.")
@click.option("--by", type=click.Choice(["source", "line"]), help="profile: rows; default: source where .loc names it.")
@click.option("--at-block", metavar="X[,Y[,Z]]", help="explain: the block; default: the first that reaches it.")
@click.option("--warp", type=integer(0), metavar="N", help="explain: the warp; default: the first that reaches it.")
@click.option(
    "--visit",
    type=integer(0),
    default=0,
    metavar="N",
    show_default=True,
    help="explain: how many earlier executions to skip.",
)
@file_option(
    "-o", "--output", help_text="run: the arrays, .npz; profile: a page, .html; explain: a figure, .svg, .png or .txt."
)
@json_option
def command(*, action: str, file: str, output: str | None, as_json: bool, **options: Unpack[LaunchOptions]) -> int:
    """The contents of a PTX file (info), the memory that one of its kernels leaves (run), and what happens inside.

    info lists entries, parameters, shared memory and opcodes with how well each is known. run reads arrays from files
    and writes them as the kernel left them. profile counts instructions, bytes, wavefronts, bank conflicts and tensor
    operations by line. explain FILE:LINE shows an instruction in one warp, its operands as matrices. compare runs a
    launch twice and finds where the runs first differ: exit status 1 if they do. FILE may be CUDA C++ (.cu), if nvcc is
    installed.
    """
    line = 0
    if action == "explain":
        file, line = at_line(file)
    module = _module([file, *options["linked"]], options["arch"])
    if action == "info":
        _info(module, options["entry"], options["arch"], as_json=as_json)
        return 0
    kernel = _kernel(module, options["entry"])
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    if action in {"explain", "compare"}:
        return _look(action, kernel, line, arrays, output, options, as_json=as_json)
    variables = dict(_symbol(text, module) for text in options["symbols"])
    with ProgressLine() as progress:
        try:
            run = kernel.launch(
                _extent("--grid", options["grid"]),
                _block(kernel, options["block"]),
                [_argument(text, arrays) for text in options["args"]],
                shared=options["shared"],
                arch=options["arch"],
                checks=options["checks"],
                seed=options["seed"],
                explore=options["explore"],
                cooperative=options["cooperative"],
                cluster=None if options["cluster"] is None else _extent("--cluster", options["cluster"]),
                progress=lambda done, total: progress.show(done, total, "blocks"),
            )
        except KeyboardInterrupt as error:
            progress.clear()
            for note in getattr(error, "__notes__", ()):
                echo_error(f"warpfrag: {note.partition(';')[0]}; nothing was written")
            raise
    if action == "profile":
        return print_profile(run, by=options["by"], output=output, as_json=as_json)
    arrays |= variables
    if output is not None:
        _write(output, arrays)
    _report(kernel, run, arrays, as_json=as_json)
    differs = run.exploration is not None and not run.exploration.agrees
    return NO if run.findings or differs else INCOMPLETE if run.verdict == "incomplete" else DONE


def _look(
    action: str,
    kernel: Kernel,
    line: int,
    arrays: dict[str, np.ndarray[Any, Any]],
    output: str | None,
    options: LaunchOptions,
    *,
    as_json: bool,
) -> int:
    """Explain an instruction, or compare two runs."""
    launch: dict[str, Any] = {
        "grid": _extent("--grid", options["grid"]),
        "block": _block(kernel, options["block"]),
        "args": [_argument(text, arrays) for text in options["args"]],
        "shared": options["shared"],
        "arch": options["arch"],
        "seed": options["seed"],
        "cooperative": options["cooperative"],
        "cluster": None if options["cluster"] is None else _extent("--cluster", options["cluster"]),
    }
    for text in options["symbols"]:
        _symbol(text, kernel.module)
    if action == "explain":
        block = None if options["at_block"] is None else _extent("--at-block", options["at_block"])
        view = explain_line(kernel, launch, line, block=block, warp=options["warp"], visit=options["visit"])
        return print_view(view, visit=options["visit"], output=output, as_json=as_json)
    from warpfrag.ptx import compare

    other = options["other"]
    if other is None or output is not None:
        msg = "compare: expected --with and an architecture or a PTX file, and no -o"
        raise click.UsageError(msg)
    if other.startswith("sm_"):
        kernels, launch["arch"] = [kernel], [launch["arch"] or kernel.launch_arch, other]
    else:
        kernels = [kernel, _kernel(_module([other], options["arch"]), options["entry"])]
    return print_comparison(compare(kernels, **launch), as_json=as_json)


def _module(files: list[str], arch: str | None) -> Module:
    """The module of a file, or of several that are linked; CUDA C++ is compiled first."""
    from warpfrag.ptx import compile as compile_cuda
    from warpfrag.ptx import link, load

    modules = [
        compile_cuda(Path(file), arch=arch or CUDA_TARGET) if file.endswith(".cu") else load(Path(file))
        for file in files
    ]
    return modules[0] if len(modules) == 1 else link(modules)


def _symbol(text: str, module: Module) -> tuple[str, np.ndarray[Any, Any]]:
    """A variable by the name that was used, after it was set."""
    import numpy as np

    name, equals, value = text.partition("=")
    memory = module.symbols[name]
    if value.endswith(".npy"):
        array = _load(value)
        if array.nbytes == memory.nbytes:  # nvcc declares most arrays as bytes
            array = np.ascontiguousarray(array).reshape(-1).view(memory.dtype).reshape(memory.shape)
        module.symbols[name] = array
    elif equals:
        module.symbols[name] = _number(f"--symbol {quote(text)}", memory.dtype, value)  # type: ignore[assignment] # of that dtype
    return name, memory


def _kernel(module: Module, entry: str | None) -> Kernel:
    """The kernel that is asked for, or the only one."""
    from warpfrag.ptx.launch.names import readable

    names = list(module)
    if entry is None and len(names) != 1:
        msg = f"expected --entry: the file has {len(names)} entries ({', '.join(map(readable, names)) or 'none'})"
        raise click.UsageError(msg)
    return module[names[0] if entry is None else entry]


def _info(module: Module, entry: str | None, arch: str | None, *, as_json: bool) -> None:
    from warpfrag.ptx.launch.arguments import short_name
    from warpfrag.ptx.launch.evidence import default_arch, opcode_evidence

    arch = arch or default_arch(module.target)
    kernels = [module[name] for name in ([entry] if entry else module)]
    if as_json:
        print_json(
            "ptx",
            {
                "action": "info",
                "version": module.version,
                "target": module.target,
                "arch": arch,
                "variables": [_variable_facts(name, item) for name, item in module.symbols.variables.items()],
                "entries": [_facts(kernel, arch) for kernel in kernels],
            },
        )
        return
    echo(f"PTX {module.version} for {module.target}; what is known is about {arch}")
    if module.symbols:
        facts = [_variable_facts(name, item) for name, item in module.symbols.variables.items()]
        rows = [
            [row["readable_name"], f".{row['space']}", f".{row['type']}", row["shape"], row["bytes"]] for row in facts
        ]
        print_table(["variable", "space", "type", "shape", "bytes"], rows)
    for kernel in kernels:
        echo()
        print_heading(kernel.readable_name)
        echo(f"{kernel.shared_bytes} bytes of static shared memory, {len(kernel.program.instructions)} instructions")
        if kernel.cluster is not None:
            echo(f"clusters of {' x '.join(map(str, kernel.cluster))} blocks")
        if kernel.tensor_maps:
            names = ", ".join(short_name(name, kernel.name) for name in kernel.tensor_maps)
            echo(f"tensor maps by value: {names} (wf.ptx.TensorMap)")
        rows = [
            [short_name(entry.name, kernel.name), f".{entry.type}", entry.size, entry.offset]
            for entry in kernel.parameters
        ]
        print_table(["parameter", "type", "bytes", "at"], rows)
        echo()
        known = opcode_evidence(kernel.program, arch)
        print_table(["opcode", "known"], [[name, evidence.level] for name, evidence in sorted(known.items())])
        print_notes(evidence.detail for evidence in known.values() if evidence.level == "not modelled")


def _variable_facts(name: str, variable: ModuleVariable) -> dict[str, object]:
    """A variable of the module, as it is declared."""
    from warpfrag.ptx.launch.names import readable

    return {
        "name": name,
        "readable_name": readable(name),
        "space": variable.space,
        "type": variable.type,
        "shape": list(variable.shape),
        "bytes": variable.size,
    }


def _facts(kernel: Kernel, arch: str) -> dict[str, object]:
    from warpfrag.ptx.launch.evidence import opcode_evidence

    return {
        "name": kernel.name,
        "readable_name": kernel.readable_name,
        "shared": kernel.shared_bytes,
        "instructions": len(kernel.program.instructions),
        "parameters": [
            {"name": entry.name, "type": entry.type, "bytes": entry.size, "offset": entry.offset}
            for entry in kernel.parameters
        ],
        "cluster": kernel.cluster,
        "tensor_maps": kernel.tensor_maps,
        "opcodes": _evidence_json(opcode_evidence(kernel.program, arch)),
    }


def _evidence_json(evidence: Mapping[str, Evidence]) -> dict[str, dict[str, str]]:
    """How well the behaviour of each opcode is known, and from where."""
    return {name: {"level": entry.level, "detail": entry.detail} for name, entry in evidence.items()}


def _extent(option: str, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,9}([,x]\d{1,9}){0,2}", text, re.ASCII):
        msg = f"{option}: expected one to three numbers such as 4,2, got {quote(text)}"
        raise click.UsageError(msg)
    return tuple(int(part) for part in re.split("[,x]", text))


def _block(kernel: Kernel, text: str | None) -> tuple[int, ...]:
    """The extents of a block: as asked for, else as the kernel requires."""
    return tuple(kernel.program.directives.get("reqntid", (32,))) if text is None else _extent("--block", text)


def _argument(text: str, arrays: dict[str, np.ndarray[Any, Any]]) -> object:
    """An argument from its text; arrays are kept by name."""
    import numpy as np

    if text == "null":
        return None
    if text.startswith("[") and text.endswith("]"):
        from warpfrag.ptx import DeviceArray

        return DeviceArray([_argument(part.strip(), arrays) for part in text[1:-1].split(",")])
    parts = text.split(":")
    if len(parts) == 2 and parts[0] in DTYPES:
        return _number(f"--arg {quote(text)}", np.dtype(DTYPES[parts[0]]), parts[1])
    if len(parts) == 3 and parts[1] in DTYPES and re.fullmatch(r"\d{1,12}(x\d{1,12})*", parts[2], re.ASCII):
        shape = tuple(int(extent) for extent in parts[2].split("x"))
        dtype = np.dtype(DTYPES[parts[1]])
        if np.prod([float(extent) for extent in shape]) * dtype.itemsize > MAX_BYTES:
            msg = f"--arg {quote(text)}: expected at most {MAX_BYTES} bytes"
            raise InvalidOperand(msg)
        return arrays.setdefault(parts[0], np.zeros(shape, dtype))
    if not text.endswith(".npy"):
        known = " ".join(DTYPES)
        msg = f"--arg: expected FILE.npy, NAME:TYPE:SHAPE, TYPE:NUMBER or null, got {quote(text)}; types are {known}"
        raise click.UsageError(msg)
    name = re.split(r"[/\\:]", text.removesuffix(".npy"))[-1]
    return arrays.setdefault(name, np.ascontiguousarray(_load(text)))


def _load(text: str) -> np.ndarray[Any, Any]:
    """The array of a file."""
    import numpy as np

    from warpfrag.files import read_bytes

    data = io.BytesIO(read_bytes(text, MAX_BYTES))
    try:
        array = np.load(data, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        msg = f"{quote(text)} cannot be read as an array: {error}"
        raise UnusableFile(msg) from None
    if not isinstance(array, np.ndarray):
        msg = f"{quote(text)} holds no single array"
        raise UnusableFile(msg)
    return array


def _number(what: str, dtype: np.dtype[Any], digits: str) -> object:
    try:
        value = float(digits) if dtype.kind == "f" else int(digits, 0)
        return dtype.type(value)
    except (ValueError, OverflowError):
        msg = f"{what}: expected a number of that type"
        raise InvalidOperand(msg) from None


def _write(output: str, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    import numpy as np

    from warpfrag.files import write_atomically

    data = io.BytesIO()
    np.savez_compressed(data, **arrays)  # type: ignore[arg-type] # names of arrays, as numpy means them
    write_atomically(output, data.getvalue())


def _report(kernel: Kernel, run: Run, arrays: dict[str, np.ndarray[Any, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(
            "ptx",
            {
                "action": "run",
                "entry": kernel.name,
                "arch": run.arch,
                "basis": run.basis,
                "exact": run.exact,
                "inexact": list(run.inexact),
                "instructions": run.counts.instructions,
                "evidence": _evidence_json(run.evidence),
                "counts": asdict(run.counts),
                "verdict": run.verdict,
                "findings": [finding.to_dict() for finding in run.findings],
                "unjudged": list(run.unjudged),
                "exploration": None if run.exploration is None else asdict(run.exploration),
                "inexact_lines": [asdict(item) for item in run.inexact_lines],
                "printed": run.printed,
                "arrays": {name: {"dtype": str(a.dtype), "shape": a.shape} for name, a in arrays.items()},
            },
        )
        return
    if run.printed:
        echo(run.printed.removesuffix("\n"))
    echo(f"{kernel.readable_name}: {run.counts.instructions} warp instructions, PTX semantics for {run.arch}")
    print_table(
        ["opcode", "times", "known"],
        [
            [name, count, run.evidence[name].level]
            for name, count in sorted(run.counts.opcodes.items(), key=lambda pair: -pair[1])
        ],
    )
    counts = run.counts
    touched = [name for name in SPACES if counts.read.get(name) or counts.written.get(name)]
    if touched:
        echo()
        print_table(
            ["memory", "bytes read", "written", "wavefronts"],
            [
                [name, counts.read.get(name, 0), counts.written.get(name, 0), counts.wavefronts.get(name, "")]
                for name in touched
            ],
        )
    print_notes(f"{name}: {entry.detail}" for name, entry in run.evidence.items() if entry.level == "approximate")
    for item in run.inexact_lines:
        echo(f"uncertain, line {item.line}: {item.reason}")
    for finding in run.findings:
        echo(str(finding))
    for reason in run.unjudged:
        echo(f"not judged: {reason}")
    if run.verdict is not None:
        echo(f"verdict of {', '.join(run.checks)}: {run.verdict}")
    if run.exploration is not None:
        echo(str(run.exploration))
