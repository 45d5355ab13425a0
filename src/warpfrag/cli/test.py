"""`warpfrag test`: launches of a TOML file, compared with what they should leave."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from warpfrag.cli.support.options import complete_file, json_option
from warpfrag.cli.support.output import DONE, INCOMPLETE, NO, ProgressLine, echo, print_json
from warpfrag.cli.support.verbs import verb

if TYPE_CHECKING:
    from warpfrag.grading.grade import Grade


@verb(
    "warpfrag test kernels.toml",
    "warpfrag test homework.toml --only softmax --json",
    "warpfrag test triton.toml --trust",
)
@click.argument("file", metavar="FILE.toml", shell_complete=complete_file)
@click.option("--only", metavar="TEXT", help="Only tests whose name contains this.")
@click.option("--trust", is_flag=True, help="Compile CUDA C++ and run Python that the file names, from any folder.")
@json_option
def command(*, file: str, only: str | None, trust: bool, as_json: bool) -> int:
    """Run the kernels of a TOML file and compare what they leave with what they should, without a GPU.

    Each [[test]] has a kernel, its launch, arguments and expectations, which may be numpy expressions. PTX reaches
    nothing but its arguments. An output that is never written, a finding of a check, and a launch beyond its limits of
    time and memory fail. The exit status is 1 if a test fails, 3 if all pass but checks could not judge everything.
    """
    from warpfrag.grading.suite import read_suite
    from warpfrag.grading.worker import run_tests

    suite = read_suite(file)
    chosen = [number for number, test in enumerate(suite) if only is None or only in test.name]
    if not chosen:
        names = ", ".join(test.name for test in suite)
        msg = f"--only: no test has this in its name; there are {names}"
        raise click.UsageError(msg)
    grades: list[Grade] = []
    with ProgressLine() as progress:
        for grade in run_tests(file, chosen, trust=trust):
            grades.append(grade)
            if not as_json:
                progress.clear()
                _echo_grade(grade)
            progress.show(len(grades), len(chosen), "tests")
    failed = sum(not grade.passed for grade in grades)
    if as_json:
        tests = [asdict(replace(grade, seconds=round(grade.seconds, 3))) for grade in grades]
        print_json("test", {"tests": tests, "passed": len(grades) - failed, "failed": failed})
    else:
        echo(f"{len(grades) - failed} passed, {failed} failed")
    incomplete = any(grade.verdict == "incomplete" for grade in grades)
    return NO if failed else INCOMPLETE if incomplete else DONE


def _echo_grade(grade: Grade) -> None:
    if grade.printed:
        echo(grade.printed.removesuffix("\n"))
    exact = {None: "", True: f", exact on {grade.arch}", False: f", not exact on {grade.arch}"}[grade.exact]
    echo(f"ok      {grade.name}{exact}" if grade.passed else f"FAILED  {grade.name}: {grade.reason}")
