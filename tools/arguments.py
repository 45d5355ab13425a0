"""Command-line options that the tools share."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def make_parser(module: str, doc: str | None) -> ArgumentParser:
    """Return a parser whose help is a tool's docstring."""
    return ArgumentParser(
        prog=f"python -m tools.{module}", description=doc, formatter_class=RawDescriptionHelpFormatter
    )


def report_parser(module: str, doc: str | None, only: str) -> ArgumentParser:
    """Return a parser for a tool that writes a report; `only` is the help of its filter option."""
    parser = make_parser(module, doc)
    parser.add_argument("report", nargs="?", type=Path, metavar="REPORT.md", help="write a report to this file")
    parser.add_argument("--only", default="", metavar="TEXT", help=only)
    return parser
