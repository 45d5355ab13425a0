"""Build the documentation as HTML: `make docs`, or python docs/build.py [FOLDER].

Needs the extra `docs`. The pages are copied, and pages for the instruction families are added. Nothing is written into
the checkout except FOLDER (default: build/docs). Warnings are errors.
"""

import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
EXPLORER = "<!-- live explorer -->"  # replaced by a link to the site's explorer


def copy_sources(folder: Path) -> Path:
    """Copy the pages to a folder, and add the generated ones."""
    from family_pages import write_pages

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "CONTRIBUTING.md", folder)  # docs/contributing.md includes it
    write_pages(folder / "docs" / "families")
    add_explorer(folder / "docs")
    return folder / "docs"


def add_explorer(pages: Path) -> None:
    """Add the live explorer to the site, and links to it at the marks in pages."""
    from warpfrag.viz.explorer import build_page

    live = pages / "_extra" / "live" / "index.html"
    live.parent.mkdir(parents=True)
    live.write_text(build_page(), encoding="utf-8", newline="\n")
    for page in pages.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if EXPLORER in text:
            up = "../" * (len(page.relative_to(pages).parts) - 1)
            link = f'<p class="live"><a href="{up}live/index.html">Open the live explorer</a></p>'
            page.write_text(text.replace(EXPLORER, link), encoding="utf-8", newline="\n")


def main(arguments: list[str]) -> int:
    """Generate the pages, run Sphinx, and return its exit code."""
    try:
        from sphinx.cmd.build import main as sphinx
    except ImportError:
        print("the documentation needs Sphinx: pip install '.[docs]'", file=sys.stderr)
        return 2
    folder = Path(arguments[0]) if arguments else ROOT / "build" / "docs"
    pages = copy_sources(folder / "pages")
    options = ["-q", "-W", "--keep-going", "-n", "-b", "html", "-d", str(folder / "doctrees")]
    status = int(sphinx([*options, str(pages), str(folder / "html")]))
    if status == 0:
        print(f"the documentation is in {folder / 'html' / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
