"""The explorer: one self-contained HTML page that shows every fragment of every instruction.

`explorer_data` writes the tables as JSON. `page_builder` puts the data, scripts and styles of `page/` into one file
with a strict content security policy; it also builds the page of a launch's profile.

    >>> from warpfrag.viz.explorer import build_page
    >>> build_page().startswith("<!doctype html>")
    True
"""

from warpfrag.viz.explorer.page_builder import build_page

__all__ = ["build_page"]
