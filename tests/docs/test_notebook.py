"""The notebook runs from top to bottom, as a kernel would run it: every cell in one namespace."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook" / "tour.ipynb"


def run_cell(source, namespace):
    """Execute a cell; return the value of its last expression, if it has one."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), namespace)  # noqa: S102 (our own notebook)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), namespace)  # noqa: S307


@pytest.fixture(scope="module")
def notebook():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_the_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "notebook"}
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    values = [run_cell(cell, namespace) for cell in cells]

    assert len(values) > 10
    assert all(value is not None for cell, value in zip(cells, values, strict=True) if cell.startswith("wf.draw"))
    assert all(value._repr_svg_().startswith("<svg") for value in values if hasattr(value, "_repr_svg_"))


def test_the_notebook_keeps_no_outputs(notebook):
    """A stored output may be outdated."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    assert code
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


def test_the_notebook_is_of_a_known_format(notebook):
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
