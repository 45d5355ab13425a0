"""The languages of emitted code, and the register operations that both builders can write.

A plan that only shifts, masks, permutes and exchanges registers is lowered once to these operations (`plan_code`); both
builders can then write it.
"""

from importlib.resources import files
from string import Template
from typing import Literal, NamedTuple, get_args

from warpfrag.errors import InvalidOperand, quote

Language = Literal["cuda", "ptx"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


def check_language(lang: object) -> Language:
    """Return the language; raise InvalidOperand if the name is unknown."""
    for language in LANGUAGES:
        if isinstance(lang, str) and lang == language:
            return language
    raise InvalidOperand(f"lang: expected one of {', '.join(LANGUAGES)}, got {quote(lang)}")


def check_function_name(name: object, default: str) -> str:
    """Return the name, or the default if it is empty; raise InvalidOperand if it is not an ASCII identifier."""
    if isinstance(name, str) and (not name or (name.isascii() and name.isidentifier())):
        return name or default
    raise InvalidOperand(f"name: expected a function name, such as {default}; got {quote(name)}")


def fill_template(name: str, /, **values: object) -> str:
    """Return the text of a file in `templates`, in which each ${name} is replaced, without the last line break."""
    text = files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
    return Template(text).substitute(values).removesuffix("\n")


class Spelling(NamedTuple):
    """The text of an operation in each language; {0} is the result, and {1}, {2}, ... are the operands."""

    cuda: str
    ptx: str


class ThreadIndex(NamedTuple):
    """The index of a thread in its warp or warpgroup: its name, and the code that reads it in each language."""

    name: str
    cuda: tuple[str, ...]
    ptx: tuple[str, ...]


LANE = ThreadIndex("lane", ('uint32_t lane; asm("mov.u32 %0, %laneid;" : "=r"(lane));',), ("mov.u32 %lane, %laneid",))
WARPGROUP_THREAD = ThreadIndex(
    "thread", ("uint32_t thread = threadIdx.x % 128;",), ("mov.u32 %thread, %tid.x", "and.b32 %thread, %thread, 127")
)
THREAD_INDICES = {32: LANE, 128: WARPGROUP_THREAD}
"""The thread index for each number of threads: that of a warp or a warpgroup."""

OPERATION_TEXTS = {
    "and": Spelling("{0} = {1} & {2:#x};", "and.b32 {0}, {1}, {2:#x};"),
    "or": Spelling("{0} = {1} | {2};", "or.b32 {0}, {1}, {2};"),
    "xor": Spelling("{0} = {1} ^ {2};", "xor.b32 {0}, {1}, {2};"),
    "shl": Spelling("{0} = {1} << {2};", "shl.b32 {0}, {1}, {2};"),
    "shr": Spelling("{0} = {1} >> {2};", "shr.u32 {0}, {1}, {2};"),
    "add": Spelling("{0} = {1} + {2};", "add.u32 {0}, {1}, {2};"),
    "mad": Spelling("{0} = {1} * {2} + {3};", "mad.lo.u32 {0}, {1}, {2}, {3};"),
    "popc": Spelling("{0} = __popc({1});", "popc.b32 {0}, {1};"),
    "prmt": Spelling("{0} = __byte_perm({1}, {2}, {3:#06x});", "prmt.b32 {0}, {1}, {2}, {3:#06x};"),
    "prmt by lane": Spelling("{0} = __byte_perm({1}, {2}, {3});", "prmt.b32 {0}, {1}, {2}, {3};"),
    "select": Spelling(
        "{0} = {3} ? {1} : {2};", "{{ .reg .pred p; setp.ne.b32 p, {3}, 0; selp.b32 {0}, {1}, {2}, p; }}"
    ),
    "shfl": Spelling("{0} = __shfl_sync(0xffffffff, {1}, {2});", "shfl.sync.idx.b32 {0}, {1}, {2}, 31, 0xffffffff;"),
    "bfly": Spelling(
        "{0} = __shfl_xor_sync(0xffffffff, {1}, {2});", "shfl.sync.bfly.b32 {0}, {1}, {2}, 31, 0xffffffff;"
    ),
    # instructions that have no CUDA C++ function; {1} is the instruction. A whole warp executes a collective one, so
    # the compiler must not move it. A conversion takes words or halves; the upper element of a pair comes first
    "collective": Spelling('asm volatile("{1} %0, %1;" : "=r"({0}) : "r"({2}));', "{1} {0}, {2};"),
    "cvt pair to word": Spelling('asm("{1} %0, %1, %2;" : "=r"({0}) : "r"({2}), "r"({3}));', "{1} {0}, {2}, {3};"),
    "cvt pair to half": Spelling(
        'asm("{{ .reg .b16 h; {1} h, %1, %2; cvt.u32.u16 %0, h; }}" : "=r"({0}) : "r"({2}), "r"({3}));',
        "{{ .reg .b16 h; {1} h, {2}, {3}; cvt.u32.u16 {0}, h; }}",
    ),
    "cvt word to half": Spelling(
        'asm("{{ .reg .b16 h; {1} h, %1; cvt.u32.u16 %0, h; }}" : "=r"({0}) : "r"({2}));',
        "{{ .reg .b16 h; {1} h, {2}; cvt.u32.u16 {0}, h; }}",
    ),
    "cvt": Spelling('asm("{1} %0, %1;" : "=r"({0}) : "r"({2}));', "{1} {0}, {2};"),
    "cvt low half": Spelling(
        'asm("{{ .reg .b16 l, h; mov.b32 {{l, h}}, %1; {1} %0, l; }}" : "=r"({0}) : "r"({2}));',
        "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {2}; {1} {0}, l; }}",
    ),
    "cvt high half": Spelling(
        'asm("{{ .reg .b16 l, h; mov.b32 {{l, h}}, %1; {1} %0, h; }}" : "=r"({0}) : "r"({2}));',
        "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {2}; {1} {0}, h; }}",
    ),
}
