"""`warpfrag explore`."""

from __future__ import annotations

import subprocess
import sys
from http.client import HTTPConnection
from signal import SIGINT

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


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "expected -o FILE or --serve"),
        (["-o", "x.html", "--port", "8000"], "--port goes with --serve"),
        (["--serve", "--port", "70000"], "'70000' is not in the range 0..65535"),
    ],
)
def test_what_makes_no_sense_is_refused(words, reason):
    with pytest.raises(click.UsageError) as refused:
        run(*words)
    assert reason in refused.value.format_message()


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    file = tmp_path / "nowhere" / "explorer.html"
    with pytest.raises(WarpfragError) as refused:
        run("-o", file)
    assert str(refused.value) == f"cannot write {str(file)!r}: No such file or directory"


def test_the_page_is_served_until_interrupted():
    # whoever runs the tests in the background has its children ignore Ctrl-C: here it must count
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from warpfrag.viz.explorer import page_server; page_server.build_page = lambda: 'the page'\n"
        "from warpfrag.cli.figure_verbs import explore as command; command.main(['--serve'])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            line = process.stdout.readline().decode()
            port = int(line.split(":")[2].split("/")[0])
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/")
            content = connection.getresponse().read().decode()
            connection.close()
            process.send_signal(SIGINT)
            process.wait(timeout=20)
        finally:
            process.kill()

    assert line == f"http://127.0.0.1:{port}/ shows the explorer; Ctrl-C ends it\n"
    assert content == "the page"
