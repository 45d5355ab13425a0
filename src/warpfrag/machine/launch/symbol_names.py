"""Find entries and variables by PTX name, C++ name, or a unique part of a name."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache

import cxxfilt

from warpfrag.errors import PtxError, quote

MAX_NAMES = 12  # maximum number of names that a message lists
MAX_LENGTH = 4096  # maximum length of a mangled name that is demangled
BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)|\{[^{}]*\}")
ANONYMOUS = "(anonymous namespace)"


@lru_cache(4096)
def readable(name: str) -> str:
    """Return the C++ form of a mangled name; other names are returned unchanged."""
    if not name.startswith("_Z") or len(name) > MAX_LENGTH:
        return name
    try:
        return cxxfilt.demangle(name).replace("> >", ">>")
    except (cxxfilt.Error, UnicodeError):  # not a mangled name, or this machine has no C++ library
        return name


def qualified_name(text: str) -> str:
    """Return a C++ name without its return type and parameters.

    >>> qualified_name("void ns::gemm<float, 16>(float const*, int)")
    'ns::gemm<float, 16>'
    """
    depth = start = 0
    for at, character in enumerate(text):
        if depth == 0 and character == "(" and not text.startswith(ANONYMOUS, at):
            return text[start:at]
        if depth == 0 and character == " ":
            start = at + 1
        depth += (character in "<({") - (character in ">)}")
    return text[start:]


def bare_name(text: str) -> str:
    """Return a qualified name without template arguments, such as ns::gemm."""
    while (shorter := BRACKETS.sub("", text)) != text:
        text = shorter
    return text.lstrip(":")


def matching(wanted: str, names: Sequence[str]) -> list[str]:
    """Return the names that match a wanted name best.

    In order of preference: the whole name, the name without parameters, without template arguments, without namespaces,
    and a part of the name. Spaces do not matter.

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
    """Return the one matching name; raise PtxError with the candidates if none or several match."""
    matches = matching(wanted, names) if isinstance(wanted, str) else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise PtxError(0, f"expected one of the {kind}, got {quote(wanted)}, which matches {_listed(matches, '; ')}")
    near = get_close_matches(wanted[:100] if isinstance(wanted, str) else "", [readable(one) for one in names], 3, 0.5)
    hint = f"; the nearest are {'; '.join(near)}" if near and len(names) > MAX_NAMES else ""
    raise PtxError(0, f"expected one of the {kind} ({_listed(names) or 'none'}), got {quote(wanted)}{hint}")


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    """Return the first few names in readable form, and the number of omitted names."""
    more = f"{separator}{len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return separator.join(readable(name) for name in names[:MAX_NAMES]) + more


def _without_spaces(text: str) -> str:
    return "".join(text.split())


FORMS = (
    readable,
    lambda name: qualified_name(readable(name)),
    lambda name: bare_name(qualified_name(readable(name))),
    lambda name: bare_name(qualified_name(readable(name))).rpartition("::")[2],
)


def short_name(name: str, kernel: str) -> str:
    """Return a parameter's name for messages, without the mangled kernel name that nvcc puts before it.

    >>> short_name("_Z6saxpyifPKfPf_param_2", "_Z6saxpyifPKfPf"), short_name("out", "scale")
    ('param 2', 'out')
    """
    number = re.fullmatch(rf"{re.escape(kernel)}_param_(\d+)", name)
    return f"param {number[1]}" if number else name
