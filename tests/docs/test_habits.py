"""Pages name this version, and their links and file names exist."""

import re
from pathlib import Path

import warpfrag

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^(`{3,}).*?^\1$|`[^`\n]+`", re.MULTILINE | re.DOTALL)  # where kernel[grid](x) is no link


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_names_this_version():
    found = re.search(r"^version: (\S+)$", read("CITATION.cff"), re.MULTILINE)

    assert found
    assert found[1] == warpfrag.__version__
    assert "license: MIT" in read("CITATION.cff")


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
    """A name such as `layout/layout.py` or `formats.toml` is relative to the root, the package or its tables."""
    folders = [ROOT, ROOT / "src" / "warpfrag", ROOT / "src" / "warpfrag" / "tables"]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = [
        (page.relative_to(ROOT).as_posix(), name)
        for page in pages
        for name in re.findall(r"`([\w./]+(?:\.(?:py|toml|csv|js|md)|/))`", page.read_text(encoding="utf-8"))
    ]

    assert len(named) > 50
    assert [pair for pair in named if not any((folder / pair[1]).exists() for folder in folders)] == []


def test_the_skill_says_when_to_use_it():
    head = read("skills/warpfrag/SKILL.md").split("---")[1]

    assert re.search(r"^name: warpfrag$", head, re.MULTILINE)
    assert len(re.search(r"^description: (.+)$", head, re.MULTILINE)[1]) > 50
