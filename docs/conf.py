"""Sphinx configuration of the documentation, which docs/build.py builds."""

from sphinx.pycode import ModuleAnalyzer

import warpfrag

project = "warpfrag"
author = "the warpfrag authors"
copyright = "the warpfrag authors, MIT licence"  # noqa: A001 (Sphinx's name)
release = version = warpfrag.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
root_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "ref.python"]  # generated regions may start at any heading level

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
nitpicky = True
nitpick_ignore_regex = [("py:.*", r".*")]  # numpy and our internal types have no pages; broken links still fail

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_extra_path = ["_extra"]  # the explorer, which docs/build.py writes
html_title = f"warpfrag {release}"
html_show_sphinx = False
html_copy_source = False
highlight_language = "text"
pygments_style = "default"

# Overloads are for type checkers: the page shows the one signature that has every keyword and its default.
gemm = ModuleAnalyzer.for_module("warpfrag.blas.gemm")
gemm.analyze()
gemm.overloads.clear()
del gemm  # Sphinx treats every remaining name as a setting
