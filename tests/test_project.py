"""The project itself: the wheel is what is tested, it is complete, and the checkout keeps its own rules."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import warpfrag

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_the_wheel_holds_every_file_of_the_package():
    def contents(package):
        return {
            path.relative_to(package).as_posix(): path.read_bytes()
            for path in package.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
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


class RunTime(ast.NodeTransformer):
    """A module without what only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        return node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def test_numba_has_an_upper_bound_and_only_its_public_parts_are_used():
    """A release of numba may change whatever starts with an underscore; the extension interface is stable.

    `build_objects` runs for a release, with the numba of the lock file; where it fails elsewhere, numba itself runs.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (numba,) = (line for line in settings["project"]["dependencies"] if line.startswith("numba"))
    assert re.fullmatch(r"numba>=[\d.]+,<[\d.]+", numba)

    files = [path for path in SOURCE.rglob("*.py") if "numba" in path.read_text(encoding="utf-8")]
    files = [path for path in files if path.name != "build_objects.py"]
    assert len(files) > 5
    private, modules = [], set()
    for path in files:
        for node in ast.walk(RunTime().visit(ast.parse(path.read_bytes()))):
            if (
                isinstance(node, ast.Attribute)
                and re.match(r"_(?!_|fields$)", node.attr)
                and ast.unparse(node.value) != "self"
            ):
                private.append(f"{path.name}: {ast.unparse(node)}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba"):
                modules.add(node.module)
    assert private == []
    assert modules <= {"numba", "numba.extending", "numba.core.cgutils"}  # which its guide to intrinsics uses


# The checkout


def tracked_files(root: Path) -> list[Path]:
    """What git tracks or would track; without git, everything that make did not make."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
        files = [root / name.decode() for name in listing.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [path for path in root.rglob("*") if NOT_TRACKED.isdisjoint(path.relative_to(root).parts)]
    return [path for path in files if path.is_file()]


def tracked_lines(root: Path) -> Iterator[tuple[str, str]]:
    """Every line of every text file, with where it is."""
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


def test_ruff_refuses_a_text_file_opened_without_an_encoding():
    code = 'from pathlib import Path\n\nTEXT = Path("x").read_text()\n'
    command = [sys.executable, "-m", "ruff", "check", "--output-format=json", "--stdin-filename=x.py", "-"]
    ruff = subprocess.run(command, cwd=ROOT, input=code.encode(), capture_output=True, check=False)

    assert "PLW1514" in {finding["code"] for finding in json.loads(ruff.stdout)}


# The modules


def module_files(source: Path) -> dict[str, Path]:
    """The modules under a folder of sources, by dotted name."""
    names = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


@pytest.mark.parametrize("name", [name for name in module_files(SOURCE) if not name.endswith("__main__")])
def test_the_examples_in_docstrings_hold(name):
    if name.startswith("warpfrag.torch"):
        pytest.importorskip("torch", reason="needs the extra torch")
    if name.startswith("warpfrag.triton"):
        pytest.importorskip("triton", reason="needs the extra triton")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# Releases and the tools of development


def test_a_release_takes_less_than_sixty_lines_of_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = [section.strip().splitlines() for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]]

    assert len(sections) >= 3
    assert [section[0] for section in sections if len(section) >= 60] == []
    assert [line for section in sections for line in section if len(line) > 120] == []


def test_the_lock_file_has_everything_that_make_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = map(Requirement, [*project["dependencies"], *extras["dev"], *extras["docs"], *extras["assembler"]])
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
