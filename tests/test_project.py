"""The project itself: the installed wheel, the checkout, its size, its configuration and its history."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections import Counter
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import warpfrag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
INSTALLED = Path(warpfrag.__file__).parent

# Brackets keep these patterns from finding themselves.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:wor[k]|roo[t]|tm[p]|hom[e])/\w")
REGISTRY_HOST = re.compile(
    r"pypi[.](?:org|python[.]org)|pythonhosted[.]org|npmjs[.](?:org|com)|anaconda[.](?:org|com)|crates[.]io"
)
NOT_TRACKED = {".git", ".venv", "build", "dist", "__pycache__"}
NOT_TRACKED |= {".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}


# The wheel


def test_the_wheel_is_tested_and_not_the_source_tree():
    origin = json.loads(distribution("warpfrag").read_text("direct_url.json") or "{}")

    assert Path(sysconfig.get_path("purelib")) / "warpfrag" == INSTALLED
    assert "archive_info" in origin
    assert origin["url"].endswith(".whl")
    assert SOURCE not in map(Path, sys.path)


BUILT = {"library.json", "libwarpfrag.so", "libwarpfrag.dylib", "stand_ins.json"}  # compiled with the wheel


def test_the_wheel_holds_every_file_of_the_package():
    def contents(package):
        return {
            path.relative_to(package).as_posix(): path.read_bytes()
            for path in package.rglob("*")
            if path.is_file()
            and "__pycache__" not in path.parts
            and path.name not in BUILT
            and not (path.parent.name == "device" and path.name.startswith("lib"))
        }

    expected, actual = contents(SOURCE / "warpfrag"), contents(INSTALLED)

    assert "tables/formats.toml" in expected
    assert sorted(expected) == sorted(actual)
    assert [name for name in expected if expected[name] != actual[name]] == []


def test_the_package_is_typed():
    assert (INSTALLED / "py.typed").is_file()


def test_the_version_is_the_same_everywhere():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(.+?)\] - (.+)$", changelog, re.MULTILINE)

    assert newest
    assert newest[1] + (".dev0" if newest[2] == "unreleased" else "") == warpfrag.__version__
    assert distribution("warpfrag").version == warpfrag.__version__


def test_the_tools_are_pinned():
    requirements = [line.partition(";") for line in distribution("warpfrag").requires or []]
    tools = [tool.strip() for tool, _, marker in requirements if "extra" in marker and "dev" in marker]

    assert {tool.partition("==")[0] for tool in tools} >= {"mypy", "pytest", "ruff"}
    assert [tool for tool in tools if "==" not in tool] == []


# The checkout


def tracked_files(root: Path) -> list[Path]:
    """Return the files that git tracks or would track; without git, everything that make did not create."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
        files = [root / name.decode() for name in listing.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [path for path in root.rglob("*") if NOT_TRACKED.isdisjoint(path.relative_to(root).parts)]
    return [path for path in files if path.is_file()]


def tracked_lines(root: Path) -> Iterator[tuple[str, str]]:
    """Return every line of every text file, with its location."""
    for path in tracked_files(root):
        content = path.read_bytes()
        if b"\0" in content:
            continue  # not text
        for number, line in enumerate(content.decode("utf-8").splitlines(), start=1):
            yield f"{path.relative_to(root).as_posix()}:{number}", line


def test_no_file_names_a_machine_path_or_a_package_registry():
    lines = dict(tracked_lines(ROOT))

    assert "pyproject.toml:1" in lines
    assert [place for place, line in lines.items() if MACHINE_PATH.search(line)] == []
    assert [place for place, line in lines.items() if REGISTRY_HOST.search(line)] == []


INSTALL_COMMAND = re.compile(r"pip install[^\n`]*?(?P<source>[\w./-]*)\[(?P<extras>[\w,]+)\]")


def test_install_commands_work_in_a_checkout():
    """No release exists, so every command installs from a checkout, and names extras that exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    found = [(name, match) for name, text in tracked_lines(ROOT) for match in INSTALL_COMMAND.finditer(text)]
    found = [(name, match) for name, match in found if match["source"] != "numba-cuda"]  # another project's extra
    commands = [(name, match) for name, match in found if not name.startswith(("tests/", "CHANGELOG"))]

    assert len(commands) >= 6
    assert [name for name, match in commands if match["source"] not in {".", "./warpfrag"}] == []
    assert {extra for _, match in commands for extra in match["extras"].split(",")} <= {*extras}


@pytest.mark.parametrize("folder", ["work", "root", "tmp", "home"])
def test_machine_paths_are_recognised(folder):
    assert MACHINE_PATH.search(f"see /{folder}/notes")
    assert MACHINE_PATH.search(f'open("/{folder}/notes")')
    assert not MACHINE_PATH.search(f"src/{folder}/notes")
    assert not MACHINE_PATH.search(f"https://example.org/{folder}/notes")


@pytest.mark.parametrize("name", ["pypi", "files.pythonhosted", "test.pypi"])
def test_registry_hosts_are_recognised(name):
    assert REGISTRY_HOST.search(f"https://{name}.org/simple")
    assert not REGISTRY_HOST.search(f"https://example.org/{name}")


# Size and shape of the package

LINES_PER_FILE, PACKAGES, ROOT_NAMES, PARAMETERS = 600, 20, 45, 10
CODE_LINES = {"": 54_000, "sass": 7_000, "device": 3_500}  # of the package without the rows that follow, and of these


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that docstrings occupy."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = [
        node.body[0] for node in ast.walk(tree) if isinstance(node, owners) and ast.get_docstring(node, clean=False)
    ]
    return {line for doc in docs for line in range(doc.lineno, (doc.end_lineno or doc.lineno) + 1)}


def code_lines(path: Path) -> int:
    """Return the number of lines that contain code: not blank, not a comment, not in a docstring."""
    text = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.split("\n")
    strings = {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and (node.end_lineno or 0) > node.lineno
        for number in range(node.lineno + 1, (node.end_lineno or 0) + 1)
    }
    code = {number for number, line in enumerate(lines, 1) if number in strings or not line.lstrip().startswith("#")}
    return sum(1 for number in code - docstring_lines(tree) if lines[number - 1].strip())


def test_code_lines_leave_out_blanks_comments_and_docstrings(tmp_path):
    file = tmp_path / "example.py"
    file.write_text('"""Head.\n\nMore.\n"""\n\n# why\nx = [  # here\n    1,\n]\ny = """a\n\nb"""\n', encoding="utf-8")

    assert code_lines(file) == 5


def test_the_package_stays_small():
    files = sorted((SOURCE / "warpfrag").rglob("*.py"))
    packages = [path.parent.name for path in files if path.name == "__init__.py" and path.parents[1].name == "warpfrag"]

    assert len(packages) > 10
    assert len(packages) <= PACKAGES, packages
    lines: Counter[str] = Counter()
    for path in files:
        package = path.relative_to(SOURCE).parts[1]
        lines[package if package in CODE_LINES else ""] += code_lines(path)
    assert all(lines[package] <= limit for package, limit in CODE_LINES.items()), lines
    lengths = {path.relative_to(SOURCE).as_posix(): len(path.read_bytes().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > LINES_PER_FILE} == {}


def test_module_names_are_unique():
    names = Counter(path.stem for path in SOURCE.rglob("*.py") if not path.stem.startswith("__"))

    assert len(names) > 100
    assert {name: count for name, count in names.items() if count > 1} == {}


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the public functions, and the public methods of public classes, with their names."""
    for module in (warpfrag, warpfrag.ptx, warpfrag.wmma):
        for name in sorted(set(module.__all__) - {"torch", "triton"}):  # they need extras
            thing = getattr(module, name)
            if inspect.isfunction(thing):
                yield f"{module.__name__}.{name}", thing
            elif inspect.isclass(thing):
                methods = inspect.getmembers(
                    thing, lambda member: inspect.isfunction(member) or inspect.ismethod(member)
                )
                yield from ((f"{name}.{method}", call) for method, call in methods if not method.startswith("_"))


def test_the_public_surface_stays_small():
    names = [name for name in warpfrag.__all__ if not name.startswith("__")]
    counts = {
        name: len(inspect.signature(function).parameters.keys() - {"self"}) for name, function in public_functions()
    }

    assert len(names) <= ROOT_NAMES
    assert len(counts) > 50
    assert {name: count for name, count in counts.items() if count > PARAMETERS} == {}


# Docstrings


def module_files(source: Path, prefix: str = "") -> dict[str, Path]:
    """Return the modules under a folder by their dotted names, which start with a prefix."""
    names = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        names[prefix + ".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


@pytest.mark.every_case
@pytest.mark.parametrize("name", [name for name in module_files(SOURCE) if not name.endswith("__main__")])
def test_the_examples_in_docstrings_hold(name):
    if name.startswith("warpfrag.torch"):
        pytest.importorskip("torch", reason="needs the extra torch")
    if name.startswith("warpfrag.triton") or name == "warpfrag.pytest_plugin":
        pytest.importorskip("triton", reason="needs the extra triton")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# Configuration

CONFIGURATION = ("Makefile", "pyproject.toml", ".ci/run", ".github/workflows/ci.yml", ".github/workflows/release.yml")
PATH_IN_TEXT = re.compile(r"(?<![\w./-])((?:src|tests|docs|tools|benchmarks|examples|skills)/[\w.*/-]*[\w*/])")
MODULE_IN_TEXT = re.compile(r"(?:-m |module = \"|\", \")((?:warpfrag|tools)(?:\.\w+)+)")
GENERATED = "/objects"  # the folder that `make dist` makes; the one around it is in the tree


def exists(pattern: str) -> bool:
    """Return True if the checkout has a file or folder that a path with wildcards matches."""
    return any(ROOT.glob(pattern.partition(GENERATED)[0].removesuffix("/")))


def test_configuration_names_only_files_and_folders_that_exist():
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in CONFIGURATION}
    paths = [(name, path) for name, text in texts.items() for path in PATH_IN_TEXT.findall(text)]
    modules = [(name, module) for name, text in texts.items() for module in MODULE_IN_TEXT.findall(text)]

    assert len(paths) > 15
    assert [(name, path) for name, path in paths if not exists(path)] == []
    assert len(modules) >= 3
    files = {*module_files(SOURCE), *module_files(ROOT / "tools", "tools.")}
    assert [(name, module) for name, module in modules if module not in files] == []


def test_hooks_and_exceptions_match_files_of_the_tree():
    """Every alternative in `files:` of a pre-commit hook, and every glob of ruff's per-file-ignores."""
    files = [path.relative_to(ROOT).as_posix() for path in tracked_files(ROOT)]
    hooks = re.findall(r"files: \^\((.+)\)", (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    alternatives = [alternative for hook in hooks for alternative in hook.split("|")]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    globs = [
        start + folder + rest
        for glob in settings["ruff"]["lint"]["per-file-ignores"]
        for start, folders, rest in [re.fullmatch(r"([^{]*)\{?([^}]*)\}?(.*)", glob).groups()]
        for folder in folders.split(",")
    ]

    assert len(alternatives) > 5
    assert [part for part in alternatives if not any(re.match(part, file) for file in files)] == []
    assert len(globs) > 5
    assert [glob for glob in globs if not exists(glob)] == []


def test_the_lock_file_has_everything_that_make_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = map(
        Requirement, [*project["dependencies"], *extras["dev"], *extras["docs"], *extras["newest-assembler"]]
    )
    lock = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)

    assert len(pins) > 50
    stale = []
    for requirement in requirements:
        versions = [version for name, version in pins if name == canonicalize_name(requirement.name)]
        if not versions or not all(map(requirement.specifier.contains, versions)):
            stale.append(str(requirement))
    assert stale == [], "run: make lock"


def test_every_supported_python_is_tested():
    """The classifiers, and the versions that the workflow runs on Linux; the lowest is that of requires-python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    supported = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    linux = re.search(r"python: \[(.+)\]", workflow)

    assert project["requires-python"] == f">={supported[0]}"
    assert linux
    assert re.findall(r"3\.\d+", linux[1]) == supported


def test_the_actions_of_workflows_are_pinned_by_commit():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    actions = [line for path in workflows for line in re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))]

    assert len(actions) > 5
    assert [action for action in actions if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[\d.]+", action)] == []


# History

LAST_UNCHECKED = "70183a77611cba750155e2c285ea37418e9f0f42"  # later commits keep the rules of CONTRIBUTING
SUBJECT = re.compile(r"[a-z0-9][\w./, -]*: \S.*")


def git(*words: str) -> str:
    """Return the output of a git command in the checkout."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, check=True, text=True, encoding="utf-8"
    ).stdout


def test_new_commits_are_linear_and_have_short_subjects_with_a_component():
    try:
        git("merge-base", "--is-ancestor", LAST_UNCHECKED, "HEAD")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, or a shallow one")
    commits = [
        line.split("\t", 2) for line in git("log", "--format=%h%x09%p%x09%s", f"{LAST_UNCHECKED}..").splitlines()
    ]

    assert [commit for commit, parents, _ in commits if len(parents.split()) > 1] == []
    assert [(commit, subject) for commit, _, subject in commits if len(subject) > 72] == []
    assert [(commit, subject) for commit, _, subject in commits if not SUBJECT.fullmatch(subject)] == []
