"""Every tool describes itself and its arguments, without a GPU."""

from importlib import import_module

import pytest

TOOLS = (
    "opcodes", "functions", "textures.__main__", "plans", "products", "tiles", "libraries.__main__",
    "write_capture_index", "fuzz.__main__", "choices.__main__", "race_oracle.__main__", "tiled_relayouts", "exact_runs",
    "lt_epilogues.__main__",
)  # fmt: skip


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_explains_itself(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        import_module(f"tools.{name}").main(["--help"])

    text = capsys.readouterr().out
    assert text.startswith("usage: ")
    assert len(text.splitlines()) > 5
