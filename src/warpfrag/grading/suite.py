"""What a file of tests says: kernels, launches, arguments, expectations. Everything is checked when it is read.

A table `[[test]]` has these keys; those of `[defaults]` stand in every test that does not say otherwise.

| key | meaning |
|---|---|
| name | of the test; its number without |
| kernel | FILE.ptx, FILE.cu or FILE.py:FUNCTION (a kernel of Triton) |
| entry | which kernel of the file, where there are several |
| grid, block | one to three numbers; a kernel of Triton has no block |
| shared | bytes of dynamic shared memory |
| args | the arguments, in order |
| meta | the constexprs of a kernel of Triton |
| expect | what arrays hold afterwards: an expression, or a table with expr or file, and rtol, atol or ulps |
| reference | FILE.py:FUNCTION, called with the arguments by name; gives a dict of arrays |
| arch, checks, engine, cooperative, options | of the launch; options are those of nvcc |
| exact | true: fail where a GPU might give other bits |
| seconds, memory, limit | wall time, MiB beyond what Python itself takes, warp instructions |

An argument is a table with `name` and one of `value` (a number), `expr` (an expression of the arguments before it),
`file` (.npy), `out` (the shape of an array that the kernel must write, every element of it), `null = true`, or `fields`
(a struct, by value: a list of arguments); and its `dtype`.
"""

from __future__ import annotations

import tomllib
from dataclasses import field, fields
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any

from warpfrag.errors import FileError, quote
from warpfrag.files import read_bytes
from warpfrag.layout.frozen import frozen_dataclass

MAX_BYTES = 1 << 24
MAX_TESTS = 10_000
SOURCES = ("value", "expr", "file", "out", "null", "fields")
TOLERANCES = ("rtol", "atol", "ulps")
FOREIGN = (".cu", ".py")  # what is compiled or run, and so must be trusted


@frozen_dataclass
class TestArgument:
    """An argument of a launch: its name, and where its value comes from."""

    name: str
    dtype: str | None = None
    value: float | None = None
    expr: str | None = None
    file: str | None = None
    out: list[int] | None = None
    null: bool = False
    fields: list[TestArgument] = field(default_factory=list)

    __test__ = False  # pytest takes a name that begins with Test for its own


@frozen_dataclass
class Expectation:
    """What an array should hold: an expression or a file, and how far off a value may be."""

    expr: str | None = None
    file: str | None = None
    rtol: float = 0.0
    atol: float = 0.0
    ulps: int = 0


@frozen_dataclass
class KernelTest:
    """A launch and what it should leave."""

    name: str
    kernel: str
    folder: Path
    grid: list[int] = field(default_factory=lambda: [1])
    block: list[int] = field(default_factory=lambda: [32])
    entry: str | None = None
    shared: int = 0
    args: list[TestArgument] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    expect: dict[str, Expectation] = field(default_factory=dict)
    reference: str | None = None
    arch: str | None = None
    checks: list[str] = field(default_factory=list)
    engine: str = "auto"
    cooperative: bool = False
    options: list[str] = field(default_factory=list)
    exact: bool = False
    seconds: float = 60.0
    memory: int = 4096
    limit: int = 10_000_000_000

    @property
    def needs_trust(self) -> str:
        """Why the test must be trusted: what of it is compiled or run besides PTX, or lies elsewhere."""
        for what, name in (("kernel", self.kernel), ("reference", self.reference or "")):
            if PurePosixPath(name.partition(":")[0]).suffix in FOREIGN:
                return f"{what} {quote(name)} is {'compiled by nvcc' if name.endswith('.cu') else 'Python'}"
        files = [item.file for item in self.args] + [item.file for item in self.expect.values()]
        for name in (self.kernel, *filter(None, files)):
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts:
                return f"{quote(name)} is outside the folder of the file"
        return ""


def read_suite(path: str | Path) -> list[KernelTest]:
    """The tests of a file; FileError says what in it cannot be used."""
    try:
        table = tomllib.loads(read_bytes(path, MAX_BYTES).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{quote(str(path))} is no TOML: {error}"
        raise FileError(msg) from None
    _check_keys(str(path), table, ("test", "defaults"))
    defaults, tests = table.get("defaults", {}), table.get("test", [])
    if not isinstance(tests, list) or not tests or not isinstance(defaults, dict) or len(tests) > MAX_TESTS:
        msg = f"{quote(str(path))}: expected tables [[test]], at most {MAX_TESTS}, and perhaps [defaults]"
        raise FileError(msg)
    folder = Path(path).resolve().parent
    return [_test(number, {**defaults, **test}, folder) for number, test in enumerate(tests, start=1)]


def _test(number: int, table: dict[str, Any], folder: Path) -> KernelTest:
    name = str(table.get("name", f"test {number}"))
    known = [item.name for item in fields(KernelTest) if item.name != "folder"]
    _check_keys(name, table, known)
    if not isinstance(table.get("kernel"), str):
        msg = f"{name}: expected kernel as the name of a file, got {quote(table.get('kernel'))}"
        raise FileError(msg)
    words = dict(table, name=name, folder=folder)
    for key in ("grid", "block"):
        if key in words:
            words[key] = words[key] if isinstance(words[key], list) else [words[key]]
    words["args"] = [_argument(f"{name}, argument {at}", item) for at, item in enumerate(table.get("args", []))]
    names = [item.name for item in words["args"]]
    expected = table.get("expect", {})
    if not isinstance(expected, dict) or not (expected or table.get("reference")):
        msg = f"{name}: expected expect = {{ array = EXPRESSION }}, or a reference: a test must test something"
        raise FileError(msg)
    for key in expected:
        if key not in names:
            msg = f"{name}: expect names {quote(key)}, which is none of the arguments: {', '.join(names)}"
            raise FileError(msg)
    words["expect"] = {key: _expectation(f"{name}, expect {key}", value) for key, value in expected.items()}
    test = KernelTest(**words)
    for key, kind in KINDS.items():
        value = getattr(test, key)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            msg = f"{name}: {key} cannot be {quote(value)}"
            raise FileError(msg)
    return test


KINDS: dict[str, Any] = {
    "entry": str, "shared": int, "meta": dict, "reference": str, "arch": str, "checks": list, "engine": str,
    "cooperative": bool, "options": list, "exact": bool, "seconds": int | float, "memory": int, "limit": int,
}  # fmt: skip


def _argument(what: str, table: object) -> TestArgument:
    if not isinstance(table, dict):
        example = "{ name = 'x', expr = 'arange(8)', dtype = 'float32' }"
        msg = f"{what}: expected a table such as {example}, got {quote(table)}"
        raise FileError(msg)
    _check_keys(what, table, ("name", "dtype", *SOURCES))
    sources = [key for key in SOURCES if key in table]
    if len(sources) != 1:
        msg = f"{what}: expected one of {', '.join(SOURCES)}, got {', '.join(sources) or 'none'}"
        raise FileError(msg)
    words = dict(table)
    words.setdefault("name", what.rsplit(" ", 1)[-1])
    if "out" in words:
        words["out"] = words["out"] if isinstance(words["out"], list) else [words["out"]]
    if "fields" in words:
        words["fields"] = [_argument(f"{what}.{at}", item) for at, item in enumerate(words["fields"])]
    if sources[0] in {"value", "out"} and not isinstance(words.get("dtype"), str):
        msg = f"{what}: expected a dtype such as 'float32' beside {sources[0]}"
        raise FileError(msg)
    return TestArgument(**words)


def _expectation(what: str, value: object) -> Expectation:
    if isinstance(value, str):
        return Expectation(expr=value)
    if not isinstance(value, dict) or len({"expr", "file"} & value.keys()) != 1:
        msg = f"{what}: expected an expression, or a table with expr or file, got {quote(value)}"
        raise FileError(msg)
    _check_keys(what, value, ("expr", "file", *TOLERANCES))
    if any(isinstance(value.get(key, 0), bool) or value.get(key, 0) < 0 for key in TOLERANCES):
        msg = f"{what}: expected {', '.join(TOLERANCES)} as numbers of at least 0"
        raise FileError(msg)
    return Expectation(**value)


def _check_keys(what: str, table: dict[str, Any], known: list[str] | tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"nearest {near[0]}" if near else f"keys are {', '.join(known)}"
            msg = f"{what}: there is no key {quote(key)}; {hint}"
            raise FileError(msg)
