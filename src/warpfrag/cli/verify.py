"""`warpfrag verify`: compare with the GPU of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from warpfrag.cli.support.options import complete_instruction, file_option, integer, json_option
from warpfrag.cli.support.output import NO, ProgressLine, echo, print_json
from warpfrag.cli.support.verbs import verb
from warpfrag.files import check_writable, write_atomically

if TYPE_CHECKING:
    from warpfrag.hardware.report import KernelResult


@verb(
    "warpfrag verify                                       # everything this GPU can run, 1000 cases each",
    "warpfrag verify mma.m16n8k16.f32.f16.f16.f32 --cases 100000",
    "warpfrag verify --only wgmma --cases 60               # all whose name contains it",
    "warpfrag verify --capture my_gpu.npz --report my_gpu.md   # evidence to contribute",
    "warpfrag verify --open-points --capture points.npz    # on a B200: what is open about tcgen05",
)
@click.argument("names", metavar="[INSTRUCTION]...", nargs=-1, shell_complete=complete_instruction)
@click.option("--only", metavar="TEXT", default="", help="Only instructions whose name contains this.")
@click.option(
    "--cases",
    default=1000,
    type=integer(low=1),
    show_default=True,
    help="Cases for each instruction and selector; of wgmma, tiles of 16 x 8.",
)
@click.option("--seed", default=0, type=integer(low=0), show_default=True, help="Seed of the operands.")
@click.option("--device", default=0, type=integer(0, 1000), show_default=True, help="Which GPU.")
@file_option("--capture", help_text="Write operands and results, for `warpfrag check`.")
@file_option("--report", help_text="Write the report as Markdown.")
@click.option("--open-points", is_flag=True, help="Ask the GPU what nobody has settled about tcgen05, and no more.")
@json_option
def command(
    names: tuple[str, ...],
    only: str,
    cases: int,
    seed: int,
    device: int,
    capture: str | None,
    report: str | None,
    *,
    open_points: bool,
    as_json: bool,
) -> int:
    """Run instructions on the GPU of this machine and compare every code with what warpfrag predicts.

    Exit status 0 if every code is equal, 1 if one differs or was not compared, 2 if there is no GPU.
    """
    from warpfrag.errors import NoGpu
    from warpfrag.hardware.verify import verify

    for path in filter(None, (capture, report)):
        check_writable(path)  # before the GPU has worked for it
    if open_points:
        if names or only or report:
            msg = "--open-points asks a fixed list: it takes --device, --capture and --json alone"
            raise click.UsageError(msg)
        return _settle(device, capture, as_json=as_json)
    try:
        with ProgressLine(lines=True) as progress:
            verification = verify(
                [*names] or None,
                only=only,
                cases=cases,
                seed=seed,
                device=device,
                capture=capture,
                progress=lambda done, total, line: progress.show(done, total, _line(line)),
            )
    except NoGpu as error:
        msg = f"{error}; `warpfrag check` compares with captured results instead"
        raise NoGpu(msg) from None
    if report:
        write_atomically(report, verification.markdown())
    if as_json:
        print_json("verify", verification.json())
    else:
        for line in verification.lines:
            for mismatch in line.mismatches:
                echo(f"{line.kernel}: {mismatch}")
        for line in verification.troubles:
            echo(_line(line))
        echo(verification.summary())
    return 0 if verification.equal else NO


def _settle(device: int, capture: str | None, *, as_json: bool) -> int:
    """Ask every open point, and print what the GPU says."""
    from warpfrag.hardware.open_points import settle

    with ProgressLine(lines=True) as progress:
        answers = settle(
            device=device,
            capture=capture,
            progress=lambda done, total, answer: progress.show(done, total, str(answer)),
        )
    if as_json:
        print_json("open_points", {"points": [asdict(answer) for answer in answers]})
    else:
        for answer in answers:
            echo(f"{answer.question}\n  {answer}")
    return 0 if all(answer.words == answer.equal and not answer.trouble for answer in answers) else NO


def _line(line: KernelResult) -> str:
    """What became of one kernel."""
    state = line.trouble or ("equal" if not line.differing else f"{line.differing} DIFFER")
    return f"{line.kernel}: {line.cases} cases, {state}"
