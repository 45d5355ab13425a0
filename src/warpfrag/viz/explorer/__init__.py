"""The explorer: one self-contained HTML page that shows every fragment of every instruction.

`data` writes the tables as JSON, with the plans of `relayouts` and the names of `aliases`. `bundle` joins the
JavaScript modules of `page/` into one script, `build` puts both into one file under a strict content security policy,
and `serve` hands that file out on this machine.

    >>> from warpfrag.viz.explorer import build_page
    >>> build_page().startswith("<!doctype html>")
    True
"""

from warpfrag.viz.explorer.page_builder import build_page

__all__ = ["build_page"]
