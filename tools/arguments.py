"""The command line that the tools share."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def make_parser(module: str, doc: str | None) -> ArgumentParser:
    """A parser whose help is the docstring of a tool."""
    return ArgumentParser(
        prog=f"python -m tools.{module}", description=doc, formatter_class=RawDescriptionHelpFormatter
    )


def report_parser(module: str, doc: str | None, only: str) -> ArgumentParser:
    """A parser of tools that write a report and can be restricted: `only` says to what."""
    parser = make_parser(module, doc)
    parser.add_argument("report", nargs="?", type=Path, metavar="REPORT.md", help="write a report to this file")
    parser.add_argument("--only", default="", metavar="TEXT", help=only)
    return parser
