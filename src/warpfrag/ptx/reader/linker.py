"""Link several modules into one, resolving `.extern` names as nvlink does.

A `.visible` name belongs to all modules; `.weak` and `.common` names may be defined in several modules. Any other name
is local to its module: if two modules have the same local name, the later one is renamed. Line numbers continue from
module to module, as if the files were concatenated.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import TypeAlias

from warpfrag.errors import PtxError
from warpfrag.ptx.reader import syntax
from warpfrag.ptx.reader.parser import parse

Declaration: TypeAlias = "syntax.VariableDecl | syntax.FunctionDecl"


@dataclass(frozen=True)
class LinkInput:
    """A module to link: its name for messages, its text and its syntax."""

    name: str
    text: str
    source: syntax.ModuleSyntax


def link_modules(
    inputs: Sequence[LinkInput], readable: Callable[[str], str], system_functions: Collection[str]
) -> syntax.ModuleSyntax:
    """Link several modules into one; raise PtxError for names that are undefined or defined twice.

    `readable` converts a name to the form that messages use.
    """
    sources = [entry.source for entry in inputs]
    for label, values in (
        ("target", {source.target for source in sources}),
        (".address_size", {source.address_size for source in sources}),
        ("debug mode", {source.is_debug for source in sources}),
    ):
        if len(values) > 1:
            raise PtxError(0, f"cannot link: expected the same {label} everywhere, got {', '.join(map(str, values))}")
    linker = Linker(readable, system_functions)
    for entry, renamed in zip(inputs, _with_own_names(inputs), strict=True):
        linker.add(entry.name, renamed)
    return linker.result(max(source.version for source in sources))


class Linker:
    """The declarations of all modules by name, and the errors among them."""

    def __init__(self, readable: Callable[[str], str], system_functions: Collection[str]) -> None:
        """Create a linker without modules; `system_functions` are the names that the GPU driver provides."""
        self.readable, self.system_functions = readable, system_functions
        # declarations by name, each with its module
        self.declared: dict[str, list[tuple[str, Declaration]]] = defaultdict(list)
        self.used: dict[str, str] = {}  # each name that is used, with the first module that uses it
        self.aliases: dict[str, str] = {}
        self.sources: list[syntax.ModuleSyntax] = []
        self.problems: list[str] = []

    def add(self, module: str, source: syntax.ModuleSyntax) -> None:
        """Add the declarations of a module."""
        self.sources.append(source)
        for declaration in _declarations(source):
            self.declared[declaration.name].append((module, declaration))
        for name in _references(source):
            self.used.setdefault(name, module)
        for alias, name in source.aliases.items():
            if self.aliases.setdefault(alias, name) != name:
                self.problems.append(f"multiple definition of {self._quote(alias)} in {module}")

    def result(self, version: tuple[int, int]) -> syntax.ModuleSyntax:
        """Return the linked module."""
        chosen: dict[str, Declaration] = {}
        for name, declarations in self.declared.items():
            definition = self._definition(name, declarations)
            if definition is not None:
                chosen[name] = definition
                self._check_declarations(name, definition, declarations)
        if self.problems:
            raise PtxError(0, f"cannot link: {'; '.join(self.problems)}")
        first = self.sources[0]
        definitions = list(chosen.values())
        return syntax.ModuleSyntax(
            version,
            first.target,
            first.address_size,
            tuple(decl for decl in definitions if isinstance(decl, syntax.VariableDecl)),
            tuple(decl for decl in definitions if isinstance(decl, syntax.FunctionDecl)),
            self.aliases,
            first.is_debug,
        )

    def _definition(self, name: str, declarations: list[tuple[str, Declaration]]) -> Declaration | None:
        """Return a name's definition: the `.visible` one, else the largest `.common`, else the first `.weak` one."""
        defining = [(module, decl) for module, decl in declarations if _defines(decl)]
        strong = [(module, decl) for module, decl in defining if decl.linkage not in {"weak", "common"}]
        if len(strong) > 1:
            text = f"multiple definition of {self._quote(name)} in {strong[1][0]}, first defined in {strong[0][0]}"
            self.problems.append(text)
        if strong:
            return strong[0][1]
        common = [decl for _, decl in defining if isinstance(decl, syntax.VariableDecl) and decl.linkage == "common"]
        if common:
            return max(common, key=_count_elements)
        if defining:
            return defining[0][1]
        declaration = declarations[0][1]
        if isinstance(declaration, syntax.VariableDecl) and declaration.space.startswith(
            "shared"
        ):  # this declares dynamic shared memory
            return max(
                (decl for _, decl in declarations if isinstance(decl, syntax.VariableDecl)), key=lambda decl: decl.align
            )
        if name in self.system_functions or name in self.aliases:
            return declaration
        if name in self.used:
            self.problems.append(f"undefined reference to {self._quote(name)} in {self.used[name]}")
        return None

    def _check_declarations(
        self, name: str, definition: Declaration, declarations: list[tuple[str, Declaration]]
    ) -> None:
        """Check that all declarations of a name have the category and size of its definition."""
        home = next(module for module, decl in declarations if decl is definition)
        for module, decl in declarations:
            if not _agrees(decl, definition):
                self.problems.append(f"the declaration of {self._quote(name)} in {module} differs from that in {home}")

    def _quote(self, name: str) -> str:
        return f"'{self.readable(name)}'"


def _declarations(source: syntax.ModuleSyntax) -> list[Declaration]:
    """Return the declarations of a module outside its functions."""
    return [*source.variables, *source.functions]


def _defines(decl: Declaration) -> bool:
    return decl.body is not None if isinstance(decl, syntax.FunctionDecl) else decl.linkage != "extern"


def _count_elements(decl: syntax.VariableDecl) -> int:
    return decl.vector * prod(decl.dims or (1,))


def _agrees(decl: Declaration, definition: Declaration) -> bool:
    """Return True if a declaration matches a definition."""
    if isinstance(decl, syntax.FunctionDecl):
        return isinstance(definition, syntax.FunctionDecl) and _signature(decl) == _signature(definition)
    if not isinstance(definition, syntax.VariableDecl) or decl.space != definition.space:
        return False
    if decl.linkage == "common" or decl.space.startswith("shared") or (decl.dims and not decl.dims[0]):
        return True
    return _width(decl) == _width(definition)


def _signature(function: syntax.FunctionDecl) -> tuple[bool, list[int], list[int]]:
    results, parameters = ([_width(decl) for decl in items] for items in (function.results, function.parameters))
    return function.is_entry, results, parameters


def _width(decl: syntax.VariableDecl) -> int:
    """Return the size of a variable in bits.

    Declarations are compared by size, because nvcc may declare .b8 x[16] for a variable defined as .u64 x[2].
    """
    bits = re.fullmatch(r"[a-z]*(\d+)(?:x(\d+))?", decl.type)
    return int(bits[1]) * int(bits[2] or 1) * _count_elements(decl) if bits else 0


def _references(source: syntax.ModuleSyntax) -> Iterator[str]:
    """Yield all names that a module's instructions and initial values use."""
    for variable in source.variables:
        yield from (name for value in variable.initial for name in _names(value))
    for function in source.functions:
        if function.body is not None:
            yield from _names_in(function.body)


def _names_in(scope: syntax.Scope) -> Iterator[str]:
    for statement in scope.items:
        if isinstance(statement, syntax.Scope):
            yield from _names_in(statement)
        elif isinstance(statement, syntax.Statement):
            yield from (name for operand in statement.operands for name in _names(operand))
        elif isinstance(statement, syntax.Label):
            yield from statement.targets


def _names(value: syntax.OperandSyntax | syntax.MaskedAddress) -> Iterator[str]:
    if isinstance(value, syntax.SymbolRef):
        yield value.text
    elif isinstance(value, syntax.MaskedAddress):
        yield value.name.text
    elif isinstance(value, syntax.BracedList | syntax.ArgumentList):
        yield from (name for operand in value.items for name in _names(operand))
    elif isinstance(value, syntax.Address):
        yield from (name for operand in (value.base, *value.coordinates) for name in _names(operand))


def _with_own_names(inputs: Sequence[LinkInput]) -> Iterator[syntax.ModuleSyntax]:
    """Yield the modules with consecutive line numbers, and with local names made unique."""
    taken = {name for entry in inputs for name in _shared_names(entry.source)}
    line = 1
    for entry in inputs:
        names: dict[str, str] = {}
        for name in sorted({decl.name for decl in _declarations(entry.source)} - _shared_names(entry.source)):
            others = (f"{name}${number}" for number in count(1))
            own = name if name not in taken else next(other for other in others if other not in taken)
            taken.add(own)
            if own != name:
                names[name] = own
        yield parse(entry.text, line, names) if names or line > 1 else entry.source
        line += entry.text.count("\n") + 1


def _shared_names(source: syntax.ModuleSyntax) -> set[str]:
    """Return the names of a module that other modules can use."""
    declarations = _declarations(source)
    named = {
        decl.name for decl in declarations if decl.linkage or (isinstance(decl, syntax.FunctionDecl) and decl.is_entry)
    }
    return named | set(source.aliases)
