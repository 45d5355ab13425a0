"""The documentation builds, and warnings are errors.

Sphinx is the extra `docs`. Without it this test is skipped, unless WARPFRAG_REQUIRE_DOCS is set: then it fails.
"""

import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import family_pages
import pytest

import site_checks
import warpfrag as wf
from warpfrag.layout.linear_layout import DigitRun
from warpfrag.machine.ir.program import Parameter
from warpfrag.machine.launch.run import Counts
from warpfrag.plans.access_plan import Access
from warpfrag.ptx.ptx_module import Module
from warpfrag.smem.shared_memory import Digit
from warpfrag.tensorcore.operand import Metadata, Operands, Scale

ROOT = Path(__file__).parents[2]
NEEDED = ("sphinx", "myst_parser", "furo")
RESULT_CLASSES = (Access, Operands, Metadata, Scale, DigitRun, Digit, Module, Counts, Parameter)
SHOWN = {  # without an entry
    "warpfrag.FORMATS": "a dict",
    "warpfrag.errors": "a module, whose classes have entries",
    "warpfrag.sass": "a module, whose function and class have entries",
    "warpfrag.ptx": "a module, whose functions have entries",
    "warpfrag.sweep": "a module, whose functions have entries",
    "warpfrag.torch": "a module that needs an extra; the page describes it in text",
    "warpfrag.triton": "a module that needs an extra; the page describes it in text",
    "warpfrag.wmma": "a module, whose functions have entries",
}


def build(folder):
    """The built site."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        reason = f"{', '.join(missing)} cannot be imported: pip install '.[docs]'"
        if os.environ.get("WARPFRAG_REQUIRE_DOCS"):
            pytest.fail(reason)
        pytest.skip(reason)
    command = [sys.executable, str(ROOT / "docs" / "build.py"), str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "the documentation is in" in built.stdout
    return folder / "html"


def missing_pages(site):
    """The pages of docs/ that are not in the site."""
    pages = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
    assert len(pages) > 10
    return [str(page) for page in pages if not (site / page).with_suffix(".html").exists()]


def dotted(kind):
    """The full name of a class."""
    return f"{kind.__module__}.{kind.__name__}"


def missing_names(site):
    """The public names of the package that the reference does not have."""
    page = "".join(path.read_text(encoding="utf-8") for path in (site / "reference").glob("python*.html"))
    names = [f"warpfrag.{name}" for name in wf.__all__ if not name.startswith("__")]
    assert names
    return [name for name in [*names, *map(dotted, RESULT_CLASSES)] if f'id="{name}"' not in page and name not in SHOWN]


def missing_parameters(site):
    """Return the parameters of products that the reference lacks: overloads for type checkers omit them."""
    page = (site / "reference" / "python.html").read_text(encoding="utf-8")
    entry = page[page.index('id="warpfrag.gemm"') :].partition("<dd>")[0]
    return [name for name in inspect.signature(wf.gemm).parameters if f'class="pre">{name}</span>' not in entry]


def broken_links(site):
    """Return links inside the site that are broken."""
    broken = []
    for page in site.rglob("*.html"):
        links = re.findall(r'(?:href|src)="(?!\w+:)([^"#?]+)[^"]*"', page.read_text(encoding="utf-8"))
        broken += [f"{page.relative_to(site)}: {link}" for link in links if not (page.parent / link).exists()]
    return broken


def in_a_browser(site):
    """Return the errors that a browser reports; none if there is no browser and none is required."""
    if site_checks.browser_path() is None or find_spec("playwright") is None:
        assert os.environ.get("WARPFRAG_REQUIRE_BROWSER") != "1", "there is no browser, or no playwright"
        return []
    command = [sys.executable, site_checks.__file__, str(site)]  # other tests of this process may have a browser open
    checked = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert checked.returncode == 0, checked.stderr
    return checked.stdout.splitlines()


def every_instruction_is_on_one_family_page(folder):
    written = [path for path in folder.glob("*.md") if path.stem != "index"]
    lines = Counter(line for path in written for line in path.read_text(encoding="utf-8").splitlines())

    assert len(written) == len(family_pages.groups()) > 1
    assert {lines[instruction.name] for instruction in wf.find()} == {1}
    for path in written:
        assert path.with_suffix(".svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.slow
def test_the_documentation_builds(tmp_path):
    """One test, because every process that runs a part of it would rebuild the site."""
    site = build(tmp_path)

    assert missing_pages(site) == []
    assert missing_names(site) == []
    assert missing_parameters(site) == []
    assert broken_links(site) == []
    assert site_checks.large_pages(site) == []
    assert in_a_browser(site) == []
    every_instruction_is_on_one_family_page(tmp_path / "pages" / "docs" / "families")
    assert (site / "families" / "mma.m16n8k16.html").exists()
    assert not (ROOT / "docs" / "families").exists()  # nothing is written into the checkout
