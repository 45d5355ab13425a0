"""Every command and every line of Python on every page runs, with the output that the page shows."""

import os
import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

import examples
from warpfrag.cli import VERBS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    set((ROOT / "docs").rglob("*.md"))
    | {path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"}
    | {ROOT / "llms.txt"}
    | set((ROOT / "skills").rglob("*.md"))
)
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
FENCE = re.compile(r"^```+([^\n`]*)$", re.MULTILINE)
NEEDED = {  # packages of extras
    "docs/how-to/test-kernels.md": ("triton", "nvidia", "numba"),
    "docs/how-to/torch.md": ("torch",),
}
SHOWN_ONLY = {"cuda", "text", "json", "toml", "cpp"}  # languages of blocks that are no examples of warpfrag


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # how wide `draw` may be
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # without it Triton warns that its default will change
    monkeypatch.delenv("WARPFRAG_CAPTURED", raising=False)  # a page shows what the package holds


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_page_hold(name):
    for package in NEEDED.get(name, ()):
        if find_spec(package) is None and os.environ.get("WARPFRAG_REQUIRE_TRITON") != "1":
            pytest.skip(f"needs {package}")
    outcome = examples.run_page(ROOT / name)

    assert "\n".join(outcome.failures) == "", f"if the page is wrong: python docs/examples.py --write {name}"


@pytest.mark.parametrize(
    "name", ["docs/tutorial.md", "docs/index.md", "docs/how-to/wmma.md", "docs/gallery.md", "llms.txt"]
)
def test_pages_have_examples(name):
    assert any(
        block.language == "python"
        or any(not examples.reason_not_to_run(one.line) for one in examples.commands(block.text))
        for block in examples.blocks((ROOT / name).read_text(encoding="utf-8"))
    )


def test_every_how_to_page_has_examples():
    pages = sorted((ROOT / "docs" / "how-to").glob("*.md"))

    assert pages
    assert [page.name for page in pages if not examples.blocks(page.read_text(encoding="utf-8"))] == []


def test_every_verb_is_shown():
    shown = {
        command.line.split()[1]
        for page in PAGES
        for block in examples.blocks(page.read_text(encoding="utf-8"))
        if block.language == "console"
        for command in examples.commands(block.text)
        if command.line.startswith("warpfrag ")
    }

    assert set(VERBS) - shown == set()


def test_the_tour_runs_and_writes_what_it_says(tmp_path, monkeypatch, capsys):
    """It stops if something does not hold."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "tour.py"), run_name="__main__")
    wrote = re.findall(r"^ +wrote (\S+):", capsys.readouterr().out, re.MULTILINE)

    assert sorted(wrote) == sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    assert len(wrote) == 1


@pytest.mark.parametrize("name", NAMES)
def test_no_example_hides_in_another_language(name):
    """A block marked bash or pycon would be shown but never run."""
    text = (ROOT / name).read_text(encoding="utf-8")
    opening = [words.strip() for words in FENCE.findall(text)][::2]

    allowed = {"", "python", "console", *SHOWN_ONLY}
    assert [word for word in opening if word not in allowed and not word.startswith("{")] == []


def test_commands_that_are_only_shown_have_a_reason():
    assert all(reason for reason in examples.NOT_RUN.values())
    assert examples.reason_not_to_run("warpfrag where mma.m16n8k16.f32.f16.f16.f32 a 9 3") is None
    assert examples.reason_not_to_run("warpfrag verify --cases 60   # needs a GPU") == "it needs a GPU"
    assert examples.reason_not_to_run("warpfrag check") is None


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b"], False),
        (["a", "...", "c"], ["a", "c"], True),
        (["a ... c"], ["a b c"], True),
        (["a ... c"], ["a b"], False),
        (["a ... c"], ["a b", "c"], False),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        ([], ["a"], False),
    ],
)
def test_output_is_compared_line_by_line(shown, printed, equal):
    assert examples.same(shown, printed) == equal


def test_a_page_that_is_wrong_is_found(tmp_path):
    page = tmp_path / "page.md"
    text = """\
```python
>>> 1 + 1
3
```

```python
raise ValueError("no")
```

```console
$ warpfrag legal mma.m16n8k8.f32.f16.f16.f32 --arch sm_75
no
...
$ warpfrag where nonsense a 0 0
$ warpfrag legal mma.m16n8k8.f32.f16.f16.f32 --json > legal.json
$ cat legal.json
{
 "schema": 2,
...
```
"""
    page.write_text(text, encoding="utf-8")
    outcome = examples.run_page(page)

    assert outcome.ran == 6
    assert [failure.splitlines()[0][:8] for failure in outcome.failures[1:]] == ["line 6:", "line 10:", "line 10:"]
    assert "Expected:\n    3\nGot:\n    2" in outcome.failures[0]
    assert "yes\nmma.sync.aligned" in outcome.failures[2]
    assert "exit code 2" in outcome.failures[3]
    assert "```console\n$ warpfrag legal mma.m16n8k8.f32.f16.f16.f32 --arch sm_75\nyes\n" in outcome.written
