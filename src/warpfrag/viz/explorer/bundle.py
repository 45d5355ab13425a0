"""Joining JavaScript modules: a page opened from disk may not import files, so its modules become one script.

A module is a file with `import { name } from "./other.js";` lines at its top and `export` before what it gives away.
Joined, the lines and the words go, and each module stands after those it imports. All of them then share one scope, so
a name may be declared at the top level of one module only; this is checked, and so is every imported name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

IMPORT = re.compile(r'^import \{([\w\s,]+)\} from "\./([\w.]+)";\n', re.MULTILINE)
DECLARATION = re.compile(r"^(export )?(?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)
LEFT_OVER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


@dataclass(frozen=True)
class ScriptModule:
    """One file: what it takes from which other file, what it declares, what it gives away, and its own text."""

    imports: dict[str, tuple[str, ...]]
    declares: tuple[str, ...]
    exports: frozenset[str]
    body: str

    @classmethod
    def read(cls, text: str) -> ScriptModule:
        """Take a module apart."""
        imports = {file: tuple(re.findall(r"\w+", names)) for names, file in IMPORT.findall(text)}
        body = IMPORT.sub("", text)
        declared = DECLARATION.findall(body)
        return cls(
            imports,
            tuple(name for _, name in declared),
            frozenset(name for exported, name in declared if exported),
            EXPORT.sub("", body),
        )


def join_modules(files: Mapping[str, str]) -> str:
    """One script out of modules, given by file name. ValueError names the file that cannot be joined, and why."""
    modules = {name: ScriptModule.read(text) for name, text in files.items()}
    owners: dict[str, str] = {}
    for name, module in modules.items():
        _check(name, module, modules)
        for declared in module.declares:
            if declared in owners:
                msg = f"{name}: {declared} is declared in {owners[declared]} too; joined modules share one scope"
                raise ValueError(msg)
            owners[declared] = name
    try:
        order = list(TopologicalSorter({name: module.imports for name, module in modules.items()}).static_order())
    except CycleError as error:
        msg = f"modules import each other in a circle: {' -> '.join(error.args[1])}"
        raise ValueError(msg) from None
    return "\n".join(f"// {name}\n{modules[name].body.strip()}\n" for name in order)


def _check(name: str, module: ScriptModule, modules: Mapping[str, ScriptModule]) -> None:
    """Refuse a module that imports what is not there or has an import or export that cannot be joined."""
    left = LEFT_OVER.search(module.body)
    if left:
        expected = 'import { name } from "./file.js"; or export before a declaration'
        msg = f"{name}: cannot join {left[0]!r}; expected {expected}"
        raise ValueError(msg)
    for file, names in module.imports.items():
        if file not in modules:
            msg = f"{name}: imports {file}, which is not there; there are {', '.join(sorted(modules))}"
            raise ValueError(msg)
        missing = [wanted for wanted in names if wanted not in modules[file].exports]
        if missing:
            msg = f"{name}: {file} does not export {', '.join(missing)}"
            raise ValueError(msg)
