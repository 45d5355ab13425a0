"""The part of JSON Schema that docs/reference/schema.json uses, as a list of complaints."""

from __future__ import annotations

from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
KNOWN = {
    "$ref", "anyOf", "const", "enum", "type", "items", "properties", "required", "additionalProperties", "description",
}  # fmt: skip


def complaints(found: Any, rule: dict[str, Any], definitions: dict[str, Any], path: str = "$") -> list[str]:
    """What is wrong with a value; nothing if it is valid. A word of the language that is not known here is an error."""
    if rule.keys() - KNOWN:
        msg = f"{path}: this checker does not know {sorted(rule.keys() - KNOWN)}"
        raise ValueError(msg)
    if "$ref" in rule:
        return complaints(found, definitions[rule["$ref"].removeprefix("#/$defs/")], definitions, path)
    if "anyOf" in rule:
        tried = [complaints(found, choice, definitions, path) for choice in rule["anyOf"]]
        return [] if [] in tried else min(tried, key=len)
    if "const" in rule and found != rule["const"]:
        return [f"{path}: expected {rule['const']!r}, got {found!r}"]
    if "enum" in rule and found not in rule["enum"]:
        return [f"{path}: expected one of {rule['enum']}, got {found!r}"]
    if "type" in rule and not has_type(found, rule["type"]):
        return [f"{path}: expected {rule['type']}, got {type(found).__name__}"]
    if isinstance(found, dict):
        return _of_object(found, rule, definitions, path)
    if isinstance(found, list) and "items" in rule:
        return [
            text
            for place, entry in enumerate(found)
            for text in complaints(entry, rule["items"], definitions, f"{path}[{place}]")
        ]
    return []


def has_type(found: Any, kinds: str | list[str]) -> bool:
    """Whether a value has one of some types; True is no integer."""
    names = [kinds] if isinstance(kinds, str) else kinds
    return any(
        isinstance(found, TYPES[name]) and not (isinstance(found, bool) and name in {"integer", "number"})
        for name in names
    )


def _of_object(found: dict[str, Any], rule: dict[str, Any], definitions: dict[str, Any], path: str) -> list[str]:
    wrong = [f"{path}: {key} is missing" for key in rule.get("required", ()) if key not in found]
    properties, others = rule.get("properties", {}), rule.get("additionalProperties", True)
    for key, entry in found.items():
        if key in properties:
            wrong += complaints(entry, properties[key], definitions, f"{path}.{key}")
        elif others is False:
            wrong.append(f"{path}: {key} is not in the schema")
        elif isinstance(others, dict):
            wrong += complaints(entry, others, definitions, f"{path}.{key}")
    return wrong
