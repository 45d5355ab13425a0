"""C++ names of kernels and variables, read from the names that nvcc writes into PTX.

nvcc mangles names by the Itanium C++ ABI, section 5.1. This reads what the names of kernels, device functions and
variables are made of: namespaces, templates with types, numbers and packs, pointers to data and functions, lambdas, and
substitutions. What it does not read (expressions, decltype) keeps its mangled name: `demangle` gives None.

A type is text on the left and on the right of where a name would stand: `void (*` and `)(int)`.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.layout.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_DEPTH = 64
MAX_PARTS = 1 << 15  # types and lists that are read: packs in packs multiply them
MAX_LENGTH = 1 << 14  # characters of a name: substitutions of substitutions grow fast
BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...",
    "Dh": "half", "DF16_": "_Float16", "DF16b": "std::bfloat16_t", "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t",
    "Da": "auto", "Dc": "decltype(auto)", "Dn": "decltype(nullptr)",
}  # fmt: skip
STANDARD = {
    "St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
    "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
SUFFIXES = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul", "long long": "ll"}
SUFFIXES["unsigned long long"] = "ull"
OPERATORS = {
    "nw": " new", "na": " new[]", "dl": " delete", "da": " delete[]", "ps": "+", "ng": "-", "ad": "&", "de": "*",
    "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=",
    "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<",
    "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
    "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->",
    "cl": "()", "ix": "[]",
}  # fmt: skip
SPECIAL_NAMES = {"TV": "vtable", "TI": "typeinfo", "TS": "typeinfo name", "GV": "guard variable"}
QUALIFIERS = {"r": " restrict", "V": " volatile", "K": " const"}


@frozen_dataclass
class CxxName:
    """A name of C++: `text` with return type and parameters, and shorter forms."""

    text: str  # void ns::gemm<float, 16>(float const*, int)
    qualified: str  # ns::gemm<float, 16>
    bare: str  # ns::gemm
    last: str  # gemm


@lru_cache(maxsize=4096)
def demangle(name: str) -> CxxName | None:
    """The C++ name that a mangled name stands for; None where it is none, or has parts that are not read here.

    >>> demangle("_ZN2ns4gemmIfLi16EEEvPKT_i").text
    'void ns::gemm<float, 16>(float const*, int)'
    >>> demangle("main") is None
    True
    """
    if not name.startswith("_Z") or len(name) > MAX_LENGTH:
        return None
    parser = Demangler(name)
    try:
        result = parser.special_name() or parser.encoding()
    except NotReadable:
        return None
    return result if parser.at == len(name) else None


class NotReadable(ValueError):
    """A mangled name with a part that is not read here."""


class TypeText(NamedTuple):
    """A type around the place of a name; the stars of pointers to functions and arrays go into parentheses."""

    left: str
    right: str = ""
    needs_parentheses: bool = False

    def __str__(self) -> str:
        """The type without a name."""
        return self.left + self.right

    def with_sign(self, sign: str) -> TypeText:
        """A pointer or reference to this type."""
        if self.needs_parentheses:
            return TypeText(f"{self.left}{'' if self.left.endswith('(*') else ' '}({sign}", f"){self.right}")
        if sign != "*" and self.left.endswith("&"):  # references collapse
            return self if sign == "&&" or not self.left.endswith("&&") else TypeText(self.left[:-1], self.right)
        return TypeText(self.left + sign, self.right)

    def with_qualifiers(self, words: str) -> TypeText:
        """The type with const and the like; those of a function stand behind its parameters."""
        if self.needs_parentheses and self.right.startswith("("):
            return TypeText(self.left, self.right + words, needs_parentheses=True)
        return TypeText(self.left + words, self.right, self.needs_parentheses)


class PackText(NamedTuple):
    """The arguments of a parameter pack."""

    items: tuple[TypeText | PackText, ...]

    def __str__(self) -> str:
        """All, with commas."""
        return ", ".join(text for text in map(str, self.items) if text)


class Demangler:
    """A cursor over a mangled name; each method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        """Begin behind the prefix of mangled names."""
        self.text, self.at, self.depth, self.parts = text, 2, 0, 0
        self.substitutions: list[TypeText] = []
        self.arguments: list[TypeText | PackText] = []  # what T_, T0_ stand for
        self.pack_index = 0  # which item of a pack a parameter stands for
        self.pack_length: int | None = None  # of the pack that an expansion has met

    # --- the cursor

    def peek(self, count: int = 1) -> str:
        """The next characters."""
        return self.text[self.at : self.at + count]

    def takes(self, text: str) -> bool:
        """Step over this text if it comes next."""
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def expect(self, text: str) -> None:
        """Step over this text, or give up."""
        if not self.takes(text):
            raise NotReadable(self.text)

    def digits(self, alphabet: str = "0123456789") -> str:
        """The digits that come next, maybe none."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in alphabet:
            self.at += 1
        return self.text[start : self.at]

    def sequence_number(self, base: int = 10) -> int:
        """The number before an underscore: none is 0, 0 is 1."""
        digits = self.digits("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:base])
        self.expect("_")
        if len(digits) > 6:
            raise NotReadable(self.text)
        return int(digits, base) + 1 if digits else 0

    @contextmanager
    def nesting(self) -> Iterator[None]:
        """Go one level down; a name that only nests is no name."""
        self.depth += 1
        self.parts += 1
        if self.depth > MAX_DEPTH or self.parts > MAX_PARTS:
            raise NotReadable(self.text)
        yield
        self.depth -= 1

    def remember(self, item: TypeText) -> TypeText:
        """Make a type or a prefix one that a substitution may name."""
        if len(item.left) + len(item.right) > MAX_LENGTH:
            raise NotReadable(self.text)
        self.substitutions.append(item)
        return item

    # --- names

    def special_name(self) -> CxxName | None:
        """A table that the compiler makes for a class or a static variable; None for any other name."""
        for prefix, text in SPECIAL_NAMES.items():
            if self.takes(prefix):
                what = f"{text} for {self.encoding().text if prefix == 'GV' else self.type()}"
                return CxxName(what, what, what, what)
        return None

    def encoding(self, *, with_result: bool = True) -> CxxName:
        """A function with its parameters, or a variable."""
        with self.nesting():
            qualified, bare, qualifiers = self.name()
            last = bare.rpartition("::")[2] if not bare.endswith("}") else bare
            if self.at == len(self.text) or self.peek() == "E":
                return CxxName(qualified, qualified, bare, last)
            returns = ""
            if qualified.endswith(">") and qualified != bare:  # only templates name what they return
                returned = self.type()
                if with_result:
                    returns, qualifiers = f"{returned.left} ", returned.right + qualifiers
            parameters = self.parameters()
            return CxxName(f"{returns}{qualified}({parameters}){qualifiers}", qualified, bare, last)

    def name(self) -> tuple[str, str, str]:
        """A name: whole, without its last template arguments, and the qualifiers of a member function."""
        if self.takes("N"):
            return self.nested_name()
        if self.takes("Z"):
            return (*self.local_name(), "")
        if self.peek() == "S" and self.peek(2) != "St":
            bare = str(self.substitution())
        else:
            bare = ("std::" if self.takes("St") else "") + self.unqualified("")
            if self.peek() == "I":
                self.remember(TypeText(bare))
        return (bare + self.template_arguments() if self.peek() == "I" else bare), bare, ""

    def nested_name(self) -> tuple[str, str, str]:
        """A name in namespaces or classes."""
        qualifiers = self.qualifiers()
        qualifiers += " &" if self.takes("R") else " &&" if self.takes("O") else ""
        whole, bare = "", ""
        while not self.takes("E"):
            if self.peek() == "I":
                whole = bare + self.template_arguments()
            elif self.peek() == "S" and self.peek(2) != "St":
                whole = bare = str(self.substitution())
                continue
            elif self.takes("St"):
                whole = bare = "std"
                continue
            elif self.peek() == "T":
                whole = bare = str(self.template_parameter())
            else:
                whole = bare = f"{whole}::{self.unqualified(bare)}" if whole else self.unqualified("")
            if self.peek() != "E":
                self.remember(TypeText(whole))
        if not whole:
            raise NotReadable(self.text)
        return whole, bare, qualifiers

    def local_name(self) -> tuple[str, str]:
        """A name inside a function."""
        outer_arguments = self.arguments
        outer = self.encoding(with_result=False).text
        self.expect("E")
        if self.takes("s"):
            name = bare = "string literal"
        else:
            name, bare, _ = self.name()
        if self.takes("__"):
            self.digits()
            self.expect("_")
        elif self.takes("_"):
            self.digits()
        self.arguments = outer_arguments or self.arguments
        return f"{outer}::{name}", f"{outer}::{bare}"

    def unqualified(self, scope: str) -> str:
        """One part of a name: an identifier, an operator, a constructor, a lambda."""
        self.takes("L")
        if self.peek().isdecimal():
            name = self.source_name()
        elif self.peek() == "C" and self.peek(2)[1:] in {"1", "2", "3"}:
            self.at += 2
            name = scope.rpartition("::")[2]
        elif self.peek() == "D" and self.peek(2)[1:] in {"0", "1", "2"}:
            self.at += 2
            name = "~" + scope.rpartition("::")[2]
        elif self.takes("Ul"):
            parameters = self.parameters()
            self.expect("E")
            name = f"{{lambda({parameters})#{self.sequence_number() + 1}}}"
        elif self.takes("Ut"):
            name = f"{{unnamed type#{self.sequence_number() + 1}}}"
        elif self.takes("cv"):
            name = f"operator {self.type()}"
        elif self.peek(2) in OPERATORS:
            name = f"operator{OPERATORS[self.peek(2)]}"
            self.at += 2
        else:
            raise NotReadable(self.text)
        while self.takes("B"):
            name += f"[abi:{self.source_name()}]"
        return name

    def source_name(self) -> str:
        """An identifier behind its length."""
        length = self.digits()
        if not 1 <= len(length) <= 5 or self.at + int(length) > len(self.text):
            raise NotReadable(self.text)
        self.at += int(length)
        name = self.text[self.at - int(length) : self.at]
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N_") else name

    def substitution(self) -> TypeText:
        """What was there before: S_, S0_, or a name of the standard library."""
        if self.peek(2) in STANDARD:
            self.at += 2
            return TypeText(STANDARD[self.text[self.at - 2 : self.at]])
        self.expect("S")
        number = self.sequence_number(36)
        if number >= len(self.substitutions):
            raise NotReadable(self.text)
        return self.substitutions[number]

    # --- templates

    def template_arguments(self) -> str:
        """The arguments of a template, in angle brackets; parameters named from here on stand for them."""
        self.expect("I")
        arguments = self.argument_list()
        self.arguments = arguments
        return f"<{PackText(tuple(arguments))}>"

    def argument_list(self) -> list[TypeText | PackText]:
        """Arguments up to an E."""
        items: list[TypeText | PackText] = []
        with self.nesting():
            while not self.takes("E"):
                if self.takes("J"):
                    items.append(PackText(tuple(self.argument_list())))
                elif self.takes("L"):
                    items.append(TypeText(self.literal()))
                else:
                    outer = self.arguments  # a template among the arguments has arguments of its own
                    items.append(self.type())
                    self.arguments = outer
        return items

    def template_parameter(self) -> TypeText:
        """What a parameter stands for; of a pack, one item."""
        self.expect("T")
        number = self.sequence_number()
        if number >= len(self.arguments):
            raise NotReadable(self.text)
        argument = self.arguments[number]
        if isinstance(argument, TypeText):
            return argument
        self.pack_length = len(argument.items)
        item = argument.items[self.pack_index] if self.pack_index < self.pack_length else TypeText("")
        return item if isinstance(item, TypeText) else TypeText(str(item))

    def expansion(self) -> TypeText:
        """A pattern of types, read once for each item of the pack in it."""
        start, known, outer = self.at, len(self.substitutions), self.pack_index
        items: list[TypeText] = []
        self.pack_index, self.pack_length = 0, None
        while True:
            self.at = start
            del self.substitutions[known:]
            item = self.type()
            length = self.pack_length if self.pack_length is not None else 1
            if self.pack_index >= length:
                break
            items.append(item)
            self.pack_index += 1
            if self.pack_index >= length:
                break
        self.pack_index = outer
        return TypeText(str(PackText(tuple(items))))

    def literal(self) -> str:
        """A number, a bool, an enumerator or the address of something, behind its L."""
        if self.takes("_Z"):
            outer = self.arguments
            name = self.encoding().qualified
            self.arguments = outer
            self.expect("E")
            return f"&{name}"
        kind = str(self.type())
        if kind in {"float", "double"}:
            digits = self.digits("0123456789abcdef")
            self.expect("E")
            size = 4 if kind == "float" else 8
            if len(digits) != 2 * size:
                raise NotReadable(self.text)
            number = struct.unpack(">f" if size == 4 else ">d", bytes.fromhex(digits))[0]
            return f"{number!r}{'f' if size == 4 else ''}"
        sign = "-" if self.takes("n") else ""
        digits = self.digits()
        self.expect("E")
        if kind == "bool" and digits in {"0", "1"}:
            return "true" if digits == "1" else "false"
        if kind == "decltype(nullptr)":
            return "nullptr"
        if not digits:
            raise NotReadable(self.text)
        return f"{sign}{digits}{SUFFIXES[kind]}" if kind in SUFFIXES else f"({kind}){sign}{digits}"

    # --- types

    def parameters(self) -> str:
        """The types of parameters; void alone is none."""
        types: list[str] = []
        while self.at < len(self.text) and self.peek() not in {"E", "."}:
            types.append(str(self.type()))
        return "" if types == ["void"] else ", ".join(text for text in types if text)

    def qualifiers(self) -> str:
        """The words const, volatile and restrict."""
        words = ""
        while self.peek() in QUALIFIERS and self.peek():
            words = QUALIFIERS[self.peek()] + words
            self.at += 1
        return words

    def type(self) -> TypeText:
        """A type; all but the builtin ones may be named again by a substitution."""
        with self.nesting():
            for length in (1, 2, 5):
                if self.peek(length) in BUILTIN:
                    self.at += length
                    return TypeText(BUILTIN[self.text[self.at - length : self.at]])
            if self.peek() == "S" and self.peek(2) != "St":
                whole = self.substitution()
                if self.peek() != "I":
                    return whole
                return self.remember(TypeText(f"{whole}{self.inner_arguments()}"))
            return self.remember(self.compound_type())

    def inner_arguments(self) -> str:
        """The template arguments of a type, which leave those of the function as they are."""
        outer = self.arguments
        text = self.template_arguments()
        self.arguments = outer
        return text

    def compound_type(self) -> TypeText:
        """A type that is made of others, or a class."""
        if words := self.qualifiers():
            return self.type().with_qualifiers(words)
        for prefix, read in COMPOUND_TYPES.items():
            if self.takes(prefix):
                return read(self)
        if self.peek() == "T" and self.peek(2)[1:] not in {"s", "u", "e"}:
            parameter = self.template_parameter()
            if self.peek() != "I":
                return parameter
            return TypeText(f"{self.remember(parameter)}{self.inner_arguments()}")
        outer = self.arguments
        whole, _, _ = self.name()
        self.arguments = outer
        return TypeText(whole)

    def function_type(self) -> TypeText:
        """What a function returns, and its parameters."""
        self.takes("Y")
        returned = self.type()
        parameters = self.parameters()
        self.expect("E")
        return TypeText(returned.left, f"({parameters}){returned.right}", needs_parentheses=True)

    def array_type(self) -> TypeText:
        """An extent and the type of elements."""
        extent = self.digits()
        self.expect("_")
        element = self.type()
        return TypeText(element.left, f" [{extent}]{element.right.lstrip()}", needs_parentheses=True)

    def member_pointer(self) -> TypeText:
        """A pointer to a member of a class."""
        owner, member = self.type(), self.type()
        if member.needs_parentheses:
            return TypeText(f"{member.left} ({owner}::*", f"){member.right}")
        return TypeText(f"{member.left} {owner}::*", member.right)


COMPOUND_TYPES: dict[str, Callable[[Demangler], TypeText]] = {
    "P": lambda names: names.type().with_sign("*"),
    "R": lambda names: names.type().with_sign("&"),
    "O": lambda names: names.type().with_sign("&&"),
    "F": Demangler.function_type,
    "A": Demangler.array_type,
    "M": Demangler.member_pointer,
    "Dp": Demangler.expansion,
    "u": lambda names: TypeText(names.source_name()),
}
"""What follows each prefix of a type that is made of others."""
