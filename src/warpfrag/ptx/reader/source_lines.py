"""Source lines of instructions, from the directives .file and .loc.

`.file 1 "softmax.py"` numbers a file, and `.loc 1 12 20` says that the instructions after it are from line
12. Inlined code names the call too, nvcc as `inlined_at 1 30 5`, LLVM in a comment: `@[ softmax.py:30:5 ]`. The
call is in the user's file, the function often in a library's. nvcc writes them with -lineinfo, Triton always.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfrag.machine.ir.program import SourceLine, file_name

FILE = re.compile(r'\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
LOCATION = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)")
CALLER = re.compile(r"@\[ ([^@]+?):(\d+)(?::\d+)?(?= @\[| \])")  # LLVM comments list the calls, innermost first
NO_CODE = {"", "/", "."}  # prefixes of comments, directives and empty lines
ASSEMBLY = {"// begin inline asm": True, "// end inline asm": False}


def source_lines(text: str) -> dict[int, SourceLine]:
    r"""Return the source line of every line of a module's text that a .loc covers.

    >>> source_lines('.file 1 "add.py"\n.loc 1 5 2\nadd.s32 %r1, %r2, 1;')
    {3: SourceLine(file='add.py', line=5, inlined_at=None)}
    """
    return dict(_locate(text)) if ".loc" in text else {}


def _locate(text: str) -> Iterator[tuple[int, SourceLine]]:
    lines = text.split("\n")
    declared = [match for match in map(FILE.match, (line for line in lines if ".file" in line)) if match]
    files = {match[1]: f"{match[2]}/{match[3]}" if match[3] else match[2] for match in declared}
    by_name = {file_name(file): file for file in files.values()}
    current: SourceLine | None = None
    in_assembly = False  # LLVM numbers inline assembly from its statement
    for number, line in enumerate(lines, start=1):
        words = line.strip()
        if words[:1] not in NO_CODE:
            if current is not None:
                yield number, current
        elif words.startswith(".loc"):
            current = current if in_assembly else _location(line, files, by_name)
        elif words in ASSEMBLY:
            in_assembly = ASSEMBLY[words]
        elif ".entry" in line or ".func" in line:
            current = None


def _location(line: str, files: dict[str, str], by_name: dict[str, str]) -> SourceLine | None:
    """Return the source line of a .loc; line 0 marks compiler-generated code."""
    match = LOCATION.match(line)
    if match is None or match[1] not in files or match[2] == "0":
        return None
    calls = [(by_name.get(file_name(file), file), int(at)) for file, at in CALLER.findall(line)]
    if not calls and (inlined := INLINED.search(line)) and inlined[1] in files:
        calls = [(files[inlined[1]], int(inlined[2]))]
    outer = None
    for file, at in reversed(calls):
        outer = SourceLine(file, at, outer)
    return SourceLine(files[match[1]], int(match[2]), outer)
