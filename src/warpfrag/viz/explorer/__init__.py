"""The explorer: one self-contained HTML page that shows every fragment of every instruction.

`explorer_data` writes the tables as JSON.
`page_builder` puts data, script and style of `page/` into one file under a strict content security policy, and shows
the profile of a launch in the same style.

    >>> from warpfrag.viz.explorer import build_page
    >>> build_page().startswith("<!doctype html>")
    True
"""

from warpfrag.viz.explorer.page_builder import build_page

__all__ = ["build_page"]
