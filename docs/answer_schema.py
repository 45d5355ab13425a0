"""The JSON Schema of every answer, derived from the types that verbs return and their docstrings.

A named tuple or dataclass is an object with its fields; lines `field: meaning` in the docstring describe them. A class
with `to_dict` is an object whose keys the library defines.
"""

import ast
import builtins
import inspect
import re
import sys
from importlib import import_module
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from warpfrag.cli import VERBS, verb_command
from warpfrag.cli.io.output import SCHEMA
from warpfrag.cli.io.verbs import Answer
from warpfrag.tensorcore.instruction import Instruction

MEANING = re.compile(r"^(\w+): (.*(?:\n +.*)*)", re.MULTILINE)
PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null", dict: "object"} | {
    Instruction: "string"
}
COMMON = {  # keys with the same meaning everywhere
    "instruction": "canonical name",
    "operand": "the operand",
    "name": "its name",
    "arch": "the architecture",
    "notes": "notes on the answer",
    "text": "in words",
    "row": "row",
    "col": "column",
    "n": "columns",
    "k": "depth",
    "first": "first m",
    "last": "last m",
    "seed": "seed of the operands",
    "shape": "extents",
    "cases": "number of cases",
    "count": "how many",
    "action": "the action",
    "entry": "the kernel",
    "format": "number format",
}
Schema = dict[str, Any]


class ModuleNames(dict[str, Any]):
    """The names of a module, including those imported only for types; an unknown name stands for any value."""

    def __init__(self, module: ModuleType) -> None:
        """Read the imports of the module's source."""
        super().__init__(vars(module))
        statements = [
            node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)
        ]
        self.imports = {
            alias.asname or alias.name: (node.module, alias.name) for node in statements for alias in node.names
        }

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 (a type)
        """Return a builtin, or the object that the module imports for types."""
        if hasattr(builtins, name):
            return getattr(builtins, name)
        module, attribute = self.imports.get(name, ("typing", "Any"))
        return getattr(import_module(str(module)), attribute, Any)


def answer_schema() -> Schema:
    """Return the schema: a definition for each verb, the error, and the shared parts."""
    parts: Schema = {}
    verbs: Schema = {}
    for verb in VERBS:
        function = verb_command(verb).function
        result = _hints(function)["return"]
        types = [get_args(each)[0] for each in _choices(result) if get_origin(each) is Answer]
        definitions = [_verb(verb, each, parts) for each in types]
        if definitions:
            description = f"`warpfrag {verb} --json`. {definitions[0]['description']}"
            several = {"description": description, "anyOf": definitions}
            verbs[verb] = {**definitions[0], "description": description} if len(definitions) == 1 else several
    names = {"type": "string", "description": "the error class"}
    message = {"type": "string", "description": "one sentence"}
    near = {"type": "array", "items": {"type": "string"}, "description": "the closest instructions"}
    error = {"type": names, "message": message, "reason": {**message, "description": "the reason"}, "nearest": near}
    inner = {"type": "object", "properties": error, "required": ["type", "message"], "description": "the error"}
    verbs["error"] = _object("An error, with exit status 2 or 3.", {"error": inner})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Answers of warpfrag --json",
        "description": "One definition for each verb, under its name, then the shared parts.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in verbs],
        "$defs": {**verbs, **dict(sorted(parts.items()))},
    }


def _verb(verb: str, result: type, parts: Schema) -> Schema:
    body = _class(result, parts)
    return _object(
        body["description"],
        {"verb": {"const": verb, "description": "the verb"}, **body.get("properties", {})},
        is_open="properties" not in body,
    )


def _object(description: str, properties: Schema, *, is_open: bool = False) -> Schema:
    keys = {"schema": {"const": SCHEMA, "description": "version of this schema"}, **properties}
    closed = {} if is_open else {"additionalProperties": False}
    return {"type": "object", "description": description, "properties": keys, "required": [*keys], **closed}


def _hints(source: Any) -> dict[str, Any]:  # noqa: ANN401 (a function or class)
    names = ModuleNames(sys.modules[source.__module__])
    return get_type_hints(source, names, names)


def _choices(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 (a type)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _class(source: type, parts: Schema) -> Schema:
    """Return the schema of a class."""
    documentation = inspect.cleandoc(source.__doc__ or "")
    description = " ".join(documentation.partition("\n\n")[0].split())
    if hasattr(source, "to_dict"):
        return {"type": "object", "description": description}
    meanings = {match[1]: " ".join(match[2].split()) for match in MEANING.finditer(documentation)}
    hints = _hints(source)
    names = getattr(source, "_fields", None) or getattr(source, "__dataclass_fields__", hints)
    properties = {
        name: {
            **_type(hints[name], parts),
            "description": meanings.get(name) or COMMON.get(name, name.replace("_", " ")),
        }
        for name in names
    }
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _type(hint: Any, parts: Schema) -> Schema:  # noqa: ANN401 (a type of each kind)
    """Return the schema of an annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if len(_choices(hint)) > 1:
        return {"anyOf": [_type(choice, parts) for choice in _choices(hint)]}
    if origin is Literal:
        return {"enum": [*arguments]}
    if origin is dict:
        entry = _type(arguments[1], parts)
        return {"type": "object", **({"additionalProperties": entry} if entry else {})}
    if origin in (list, tuple):
        entries = [entry for argument in arguments if argument is not ... and (entry := _type(argument, parts))]
        return {"type": "array", **({"items": entries[0]} if entries and all(e == entries[0] for e in entries) else {})}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if not inspect.isclass(hint) or not (
        hasattr(hint, "_fields")
        or hasattr(hint, "__dataclass_fields__")
        or is_typeddict(hint)
        or hasattr(hint, "to_dict")
    ):
        return {}
    if hint.__name__ not in parts:
        parts[hint.__name__] = {}  # a class may contain itself
        parts[hint.__name__] = _class(hint, parts)
    return {"$ref": f"#/$defs/{hint.__name__}"}
