"""Entries and variables by name: as PTX spells it, as C++ does, or by a part of that which no other has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.errors import PtxError, quote
from warpfrag.ptx.launch.demangle import demangle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_NAMES = 12  # in a message


def readable(name: str) -> str:
    """A name as C++ has it; one that is not mangled stays."""
    cxx = demangle(name)
    return cxx.text if cxx is not None else name


def matching(wanted: str, names: Sequence[str]) -> list[str]:
    """The names that are meant: those that match best.

    A whole name is better than one without parameters, that better than one without template arguments, then without
    namespaces; a part of a name comes last. Spaces do not matter.

    >>> matching("gemm", ["_Z4gemmIfEvPT_", "_Z9gemm_tailPf"])
    ['_Z4gemmIfEvPT_']
    >>> matching("tail", ["_Z4gemmIfEvPT_", "_Z9gemm_tailPf"])
    ['_Z9gemm_tailPf']
    """
    if wanted in names:
        return [wanted]
    plain = _without_spaces(wanted)
    if not plain:
        return []
    for form in FORMS:
        if matches := [name for name in names if _without_spaces(form(name)) == plain]:
            return matches
    return [name for name in names if plain in _without_spaces(readable(name))]


def resolve(wanted: object, names: Sequence[str], kind: str) -> str:
    """The one name that is meant; PtxError lists what there is if it is none, or which if it is several."""
    matches = matching(wanted, names) if isinstance(wanted, str) else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        msg = f"expected one of the {kind}, got {quote(wanted)}, which may be {_listed(matches, '; ')}"
        raise PtxError(0, msg)
    from difflib import get_close_matches

    near = get_close_matches(str(wanted)[:100], [readable(name) for name in names], 3, 0.5)
    hint = f"; the nearest are {'; '.join(near)}" if near and len(names) > MAX_NAMES else ""
    raise PtxError(0, f"expected one of the {kind} ({_listed(names) or 'none'}), got {quote(wanted)}{hint}")


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    """The first of some names, readable, and how many more there are."""
    more = f"{separator}{len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return separator.join(readable(name) for name in names[:MAX_NAMES]) + more


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def _form(field: str) -> Callable[[str], str]:
    """A form of a name: one field of its C++ name."""

    def form(name: str) -> str:
        cxx = demangle(name)
        return getattr(cxx, field) if cxx is not None else name

    return form


FORMS = tuple(_form(field) for field in ("text", "qualified", "bare", "last"))
