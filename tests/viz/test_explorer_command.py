"""`warpfrag explore`."""

import click
import pytest

from warpfrag.cli.figure_verbs import explore as command
from warpfrag.errors import WarpfragError
from warpfrag.viz.explorer import build_page


def run(*words):
    return command.main([str(word) for word in words], standalone_mode=False)


def test_the_page_is_written(tmp_path, capsys):
    file = tmp_path / "explorer.html"
    run("-o", file)

    assert file.read_text(encoding="utf-8") == build_page()
    assert capsys.readouterr().out == f"{file}: {len(build_page().encode()) // 1024} KiB\n"


@pytest.mark.slow
def test_a_hosted_page_knows_its_address(tmp_path):
    run("-o", f"{tmp_path}/site/", "--url", "https://example.org/explorer/")

    page = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    assert '<link rel="canonical" href="https://example.org/explorer/">' in page
    assert "canonical" not in build_page().partition("<style>")[0]
    with pytest.raises(WarpfragError, match="url: expected an address such as https"):
        run("-o", tmp_path, "--url", 'javascript:"><script>')


def test_a_file_must_be_named():
    with pytest.raises(click.UsageError) as refused:
        run()
    assert "Missing option" in refused.value.format_message()


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    file = tmp_path / "nowhere" / "explorer.html"
    with pytest.raises(WarpfragError) as refused:
        run("-o", file)
    assert str(refused.value) == f"cannot write {str(file)!r}: No such file or directory"
