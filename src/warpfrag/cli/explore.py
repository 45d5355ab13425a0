"""`warpfrag explore`: the explorer, as one HTML file or served on this machine."""

from __future__ import annotations

import click

from warpfrag.cli.support.options import file_option, integer
from warpfrag.cli.support.output import echo, flush
from warpfrag.cli.support.verbs import verb
from warpfrag.files import write_atomically


@verb(
    "warpfrag explore -o explorer.html     # one file: open it in a browser",
    "warpfrag explore --serve              # or look at it under an address of this machine",
)
@file_option("-o", "--output", help_text="Write the page to a file.")
@click.option("--serve", is_flag=True, help="Serve the page on 127.0.0.1, until interrupted.")
@click.option("--port", type=integer(0, 65535), help="The port of --serve; default: any free one.")
def command(*, output: str | None, serve: bool, port: int | None) -> None:
    """A page that shows every fragment of every instruction, in a browser, without a network."""
    if output is None and not serve:
        msg = "expected -o FILE or --serve"
        raise click.UsageError(msg)
    if port is not None and not serve:
        msg = "--port goes with --serve"
        raise click.UsageError(msg)
    if output is not None:
        _write(output)
    if serve:
        _serve(port or 0)


def _write(output: str) -> None:
    from warpfrag.viz.explorer import build_page

    page = build_page()
    write_atomically(output, page)
    echo(f"{output}: {len(page.encode()) // 1024} KiB")


def _serve(port: int) -> None:
    from warpfrag.viz.explorer.page_server import PageServer

    with PageServer(port) as server:
        echo(f"{server.address} shows the explorer; Ctrl-C ends it")
        flush()  # at once, also into a pipe
        server.serve_forever()
