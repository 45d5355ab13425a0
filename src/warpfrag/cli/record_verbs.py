"""`warpfrag record` and `warpfrag replay`: record kernel launches on a GPU, and run them anywhere."""

from __future__ import annotations

import code
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple

from warpfrag.cli.io.arguments import File, Natural
from warpfrag.cli.io.output import DONE, INCOMPLETE, NO, ProgressLine, echo, echo_error, print_notes, print_table
from warpfrag.cli.io.verbs import Answer, verb
from warpfrag.machine.launch.options import checks_of
from warpfrag.machine.launch.symbol_names import readable

if TYPE_CHECKING:
    from warpfrag.device.replay import Replay, Replayed

MAX_NAME = 60


class RecordFacts(NamedTuple):
    """The launches that were stored.

    status: exit status of the program
    launches: the kernel of each stored launch
    without_code: launches that were stored without code, each with the reason
    """

    folder: str
    status: int
    gpu: str
    launches: tuple[str, ...]
    without_code: dict[str, str]


class ReplayFacts(NamedTuple):
    """The results of a replay.

    gpu: the GPU that the launches were recorded on
    equal: number of launches with the same bytes as the GPU
    launches: the result of each launch
    """

    gpu: str
    equal: int
    launches: tuple[Replayed, ...]


@verb
def record(
    program: tuple[str, ...],
    *,
    output: File,
    kernel: str | None = None,
    launch: tuple[Natural, ...] = (),
    last: bool = False,
    limit: Natural = 50,
    max_bytes: Natural = 1 << 30,
) -> Answer[RecordFacts]:
    """Run a program on this machine's GPU, and store kernel launches for `warpfrag replay`.

    A stored launch contains the code, the grid, the parameters, and all reachable memory before and after the launch.
    Memory is reachable if a parameter or other stored memory points to it. The program runs unchanged; CUPTI, which
    comes with the CUDA toolkit and with PyTorch, reports its launches. The code of NVIDIA's closed-source libraries is
    not stored.

    Options:
        output (FOLDER): The folder to write.
        kernel (REGEX): Store only kernels whose mangled name matches this extended regular expression.
        launch: Store only this launch, counted from 0 among the matching ones; may be repeated.
        last: Store only the last matching launch, even if it fails.
        limit: Store at most N launches.
        max_bytes: Skip launches that can reach more than N bytes.

    For example:
        warpfrag record -o launches/ --kernel softmax --limit 5 -- python train.py
        warpfrag record -o launches/ --last -- ./solver
    """
    from warpfrag.device.record import RecordOptions, record_program

    result = record_program(program, output, RecordOptions(kernel or "", launch, last, limit, max_bytes))
    records = result.records
    missing = {each.name: each.reason or each.launches[0].reason for each in records if not each.launches[0].code}
    facts = RecordFacts(output, result.status, result.gpu, tuple(each.name for each in records), missing)

    def show() -> None:
        echo(f"{len(records)} launches stored in {output}; replay them with: warpfrag replay {output}")
        print_notes([*result.notes, *(f"{name}: {reason}" for name, reason in missing.items())])

    return Answer(facts, show, result.status)


@verb
def replay(
    folder: File,
    *,
    kernel: str | None = None,
    launch: tuple[Natural, ...] = (),
    check: tuple[Literal["memory", "races", "uninitialised", "barriers", "async", "all"], ...] = (),
    debug: bool = False,
) -> Answer[ReplayFacts] | None:
    """Run recorded launches without a GPU, and compare the resulting memory with the GPU's.

    Every byte of the stored memory is compared. The exit status is 1 if a launch differs, fails or has findings, and 3
    if a launch could not be replayed, for example because its code belongs to a closed-source library.

    Options:
        kernel (REGEX): Run only kernels whose name matches this regular expression.
        launch: Run only this launch, counted from 0 in the folder; may be repeated.
        check: The mistakes to search for.
        debug: Open a Python prompt with a debugger that stops before a launch's first instruction.

    For example:
        warpfrag replay launches/
        warpfrag replay launches/ --launch 3 --check all
        warpfrag replay launches/ --launch 3 --debug
    """
    from warpfrag.device.recording import Recording
    from warpfrag.device.replay import Replay

    session = Replay(Recording(folder))
    chosen = session.select(kernel, launch)
    if debug:
        _debug(session, chosen)
        return None
    results = []
    with ProgressLine() as line:
        for done, index in enumerate(chosen):
            name = _short(session.recording.records[index].name)
            line.show(done, len(chosen), name)

            def progress(blocks: int, all_blocks: int, done: int = done, name: str = name) -> None:
                line.show(done, len(chosen), f"{name}: {blocks} of {all_blocks} blocks")

            results.append(session.run(index, checks=checks_of(check), progress=progress))
    equal = sum(each.status == "equal" for each in results)
    status = DONE
    if any(each.status == "not replayed" or each.verdict == "incomplete" for each in results):
        status = INCOMPLETE
    if any(each.status in {"different", "failed"} or each.findings for each in results):
        status = NO
    facts = ReplayFacts(session.recording.gpu, equal, tuple(results))
    return Answer(facts, lambda: _print_replay(facts), status)


def _short(name: str) -> str:
    text = readable(name)
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."


def _print_replay(facts: ReplayFacts) -> None:
    rows = [[each.launch, _short(each.name), each.status, f"{each.seconds:.2f} s"] for each in facts.launches]
    print_table(["launch", "kernel", "result", "time"], rows)
    notes = []
    for each in facts.launches:
        notes += [f"{each.launch}: {each.reason}"] if each.reason else []
        for place in each.differences:
            notes.append(
                f"{each.launch}: {place.bytes} bytes of {place.variable or hex(place.address)} differ; the first, at "
                f"{place.first:#x}, is {place.computed:#04x}; on the GPU it is {place.recorded:#04x}"
            )
        notes += [f"{each.launch}: {finding}" for finding in each.findings]
        notes += [f"{each.launch}: verdict of the checks: {each.verdict}"] if each.verdict else []
    print_notes(notes)
    echo(f"{facts.equal} of {len(facts.launches)} launches write the same bytes as the {facts.gpu or 'GPU'}")


def _debug(session: Replay, chosen: list[int]) -> None:
    import click

    if len(chosen) != 1:
        raise click.UsageError(f"--debug needs exactly one launch, but {len(chosen)} match; add --launch N")
    with session.debug(chosen[0]) as debugger:
        calls = "debugger.break_at(LINE), debugger.run(), debugger.step(), debugger.explain(); Ctrl-D exits"
        banner = f"{_short(session.recording.records[chosen[0]].name)}: stopped at the first instruction; call {calls}"
        echo_error(banner)
        code.interact(banner="", local={"debugger": debugger}, exitmsg="")
    sys.stdout.flush()
