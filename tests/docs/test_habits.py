"""Files at the root that say something about the version or the tools say the same as the package."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import warpfrag
from warpfrag.cli import VERBS
from warpfrag.isa.ops import OPS

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^(`{3,}).*?^\1$|`[^`\n]+`", re.MULTILINE | re.DOTALL)  # where kernel[grid](x) is no link


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_names_this_version():
    found = re.search(r"^version: (\S+)$", read("CITATION.cff"), re.MULTILINE)

    assert found
    assert found[1] == warpfrag.__version__
    assert "license: MIT" in read("CITATION.cff")


def test_hooks_fetch_nothing_and_run_our_own_tools():
    hooks = read(".pre-commit-config.yaml")

    assert re.findall(r"repo: (\S+)", hooks) == ["local"]
    entries = re.findall(r"entry: \.venv/bin/(\S+)", hooks)
    assert entries == ["ruff", "ruff", "mypy", "python"]
    assert set(re.findall(r"language: (\S+)", hooks)) == {"system"}


def test_links_of_llms_txt_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", read("llms.txt"))

    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = []
    for page in pages:
        text = CODE.sub("", page.read_text(encoding="utf-8"))
        links = re.findall(r"\]\((?!\w+:)([^)#\s]+)", text)
        broken += [f"{page.relative_to(ROOT)}: {link}" for link in links if not (page.parent / link).exists()]

    assert pages[2:]
    assert broken == []


def test_files_that_pages_name_exist():
    """As in `layout.py` or `arithmetic/kernels/`: from the root, from the package, or among its tables."""
    folders = [ROOT, ROOT / "src" / "warpfrag", ROOT / "src" / "warpfrag" / "tables"]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = [
        (page.relative_to(ROOT).as_posix(), name)
        for page in pages
        for name in re.findall(r"`([\w./]+(?:\.(?:py|toml|csv|js|md)|/))`", page.read_text(encoding="utf-8"))
    ]

    assert len(named) > 50
    assert [pair for pair in named if not any((folder / pair[1]).exists() for folder in folders)] == []


def test_files_that_the_settings_name_exist():
    names = re.findall(r"[\w/]+\.py\b", read("pyproject.toml"))

    assert "tests/typed_program.py" in names
    assert [name for name in names if not any((ROOT / folder / name).exists() for folder in ("", "tests"))] == []


def test_the_readme_says_which_tests_need_more_and_how_to_run_them():
    readme = read("README.md")
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]

    assert re.search(r"^make test +# .*no GPU, no NVIDIA compiler, no mmasim and no PyTorch$", readme, re.MULTILINE)
    # no test uses the first two, dev has what the third has, and .ci/run tests Triton beside PyTorch
    needless = {"gpu", "png", "dask", "triton"}
    assert set(re.search(r"`make test EXTRAS=([\w,]+)`", readme)[1].split(",")) == extras.keys() - needless
    assert "`warpfrag verify` compares with a GPU" in readme.replace("\n", " ")


def test_the_readme_mentions_compiling_before_its_first_pack():
    before, _, after = read("README.md").partition("## In Python")

    assert "compiled on first heavy use" in before
    assert "wf.execute(" in after


def test_what_the_readme_says_of_json_holds():
    """What it leaves out draws pictures."""
    silent = [
        verb
        for verb in VERBS
        if not any("--json" in param.opts for param in import_module(f"warpfrag.cli.{verb}").command.params)
    ]

    assert f"all but {' and '.join(f'`{verb}`' for verb in silent)} also answer as JSON with `--json`" in read(
        "README.md"
    )


@pytest.mark.parametrize("page", ["llms.txt", "skills/warpfrag/SKILL.md"])
def test_short_descriptions_name_every_operation(page):
    first = next(line for line in read(page).splitlines() if "NVIDIA" in line)

    assert [op for op in (*OPS, "tcgen05") if op.split(".")[0] not in first] == []


def test_the_skill_says_when_to_use_it():
    head = read("skills/warpfrag/SKILL.md").split("---")[1]

    assert re.search(r"^name: warpfrag$", head, re.MULTILINE)
    assert len(re.search(r"^description: (.+)$", head, re.MULTILINE)[1]) > 50
