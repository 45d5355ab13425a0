"""Source lines of PTX instructions, from the directives .file and .loc.

`.file 1 "softmax.py"` numbers a file, and `.loc 1 12 20` means that the following instructions are from line 12. For
inlined code, .loc also names the call: nvcc writes `inlined_at 1 30 5`, and LLVM writes a comment,
`@[ softmax.py:30:5 ]`. The call is in the user's file; the function is often in a library file. nvcc writes these
directives with -lineinfo; Triton always writes them.
"""

import re
from collections.abc import Iterator

from warpfrag.machine.ir.program import SourceLine, file_name

FILE = re.compile(r'\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
LOCATION = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)")
# LLVM's comments, which list the calls innermost first
CALLER = re.compile(r"@\[ ([^@]+?):(\d+)(?::\d+)?(?= @\[| \])")
NO_CODE = {"", "/", "."}  # the first characters of lines that contain no instruction
ASSEMBLY = {"// begin inline asm": True, "// end inline asm": False}


def source_lines(text: str) -> dict[int, SourceLine]:
    r"""Return the source lines of a module's text, by line number, as given by the preceding .loc.

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
    earlier: dict[tuple[str, int], SourceLine] = {}  # inlined_at refers to an earlier .loc, which may itself be inlined
    in_assembly = False  # within inline assembly, LLVM counts lines from the start of the statement
    for number, line in enumerate(lines, start=1):
        words = line.strip()
        if words[:1] not in NO_CODE:
            if current is not None:
                yield number, current
        elif words.startswith(".loc"):
            current = current if in_assembly else _location(line, files, by_name, earlier)
            if current is not None:
                earlier[current.file, current.line] = current
        elif words in ASSEMBLY:
            in_assembly = ASSEMBLY[words]
        elif ".entry" in line or ".func" in line:
            current = None


def _location(
    line: str, files: dict[str, str], by_name: dict[str, str], earlier: dict[tuple[str, int], SourceLine]
) -> SourceLine | None:
    """Return the source line that a .loc names, or None for line 0, which marks compiler-generated code."""
    match = LOCATION.match(line)
    if match is None or match[1] not in files or match[2] == "0":
        return None
    calls = [(by_name.get(file_name(file), file), int(at)) for file, at in CALLER.findall(line)]
    if not calls and (inlined := INLINED.search(line)) and inlined[1] in files:
        calls = [(files[inlined[1]], int(inlined[2]))]
    outer = earlier.get(calls[0]) if len(calls) == 1 else None
    for file, at in reversed(calls) if outer is None else ():
        outer = SourceLine(file, at, outer)
    return SourceLine(files[match[1]], int(match[2]), outer)
