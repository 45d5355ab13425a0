"""A Drawing: a figure that can be shown in a notebook, printed in a terminal, or saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand, WarpfragError, quote
from warpfrag.files import write_atomically
from warpfrag.viz.composition import page
from warpfrag.viz.terminal import grid_text, note_text

if TYPE_CHECKING:
    from os import PathLike

    from warpfrag.viz.palette import Theme
    from warpfrag.viz.views import Scene

TEXT_WIDTH = 100  # letters in a line of text, unless asked otherwise
PNG_ZOOM = 2  # pixels for each unit of the SVG: sharp on common screens and in print


@dataclass(frozen=True)
class Drawing:
    """A figure: its title, the instruction, notes for the reader, and scenes of grids."""

    title: str
    instruction: str
    notes: tuple[str, ...]
    scenes: tuple[Scene, ...]
    theme: Theme = "auto"

    def __repr__(self) -> str:
        """The title: the picture itself is in .svg and .text."""
        return f"<Drawing {self.title!r} of {self.instruction}>"

    @cached_property
    def svg(self) -> str:
        """The figure as SVG, the same text every time."""
        return page(
            title=self.title,
            subtitle=self.instruction,
            notes=self.notes,
            scenes=self.scenes,
            theme=self.theme,
        )

    @property
    def text(self) -> str:
        """The figure for a terminal, in ASCII but for a title that is not."""
        return self.to_text()

    def to_text(self, width: int = TEXT_WIDTH) -> str:
        """The figure for a terminal, with lines of about `width` letters at most."""
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            msg = f"the width of a text is a number of letters, an integer from 1 on; got {quote(width)}"
            raise InvalidOperand(msg)
        grids = [grid_text(grid, width=width) for scene in self.scenes for grid in scene]
        notes = [note_text(note, width=width) for note in self.notes]
        return "\n\n".join(["\n".join([self.title, self.instruction, *notes]), *grids]) + "\n"

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the figure to a file, as its suffix says: .svg, .png (needs resvg-py) or .txt."""
        try:
            place = Path(path)
        except TypeError:
            msg = f"cannot save a figure as {quote(path)}: expected a name that ends in .svg, .png or .txt"
            raise InvalidOperand(msg) from None
        suffix = place.suffix.lower()
        if suffix not in {".svg", ".png", ".txt"}:
            msg = f"cannot save a figure as {quote(place.name)}: expected a name that ends in .svg, .png or .txt"
            raise InvalidOperand(msg)
        write_atomically(place, self.png() if suffix == ".png" else self.svg if suffix == ".svg" else self.text)
        return place

    def png(self) -> bytes:
        """The figure as a PNG image, with the colours of its theme: light unless it is "dark"."""
        try:
            import resvg_py
        except ImportError:
            msg = 'PNG needs the package resvg-py: install "warpfrag[png]", or save the figure as .svg'
            raise WarpfragError(msg) from None
        fixed = replace(self, theme="dark" if self.theme == "dark" else "light")
        return bytes(resvg_py.svg_to_bytes(svg_string=fixed.svg, zoom=PNG_ZOOM))

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows."""
        return self.svg

    def _repr_html_(self) -> str:
        """The picture in a box that scrolls sideways, for notebooks that prefer HTML."""
        return f'<div style="overflow-x:auto">{self.svg}</div>'
