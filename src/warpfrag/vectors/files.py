"""Test vectors in files: npz, json, or a C++ header. What npz and json hold can be read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.emit.statement import Choice, identifier
from warpfrag.errors import WarpfragError
from warpfrag.registry import get
from warpfrag.vectors.cases import Group

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from warpfrag.instruction import Instruction
    from warpfrag.vectors.sets import VectorSet

SCHEMA = 1
ENDINGS = (".npz", ".json", ".h", ".hpp", ".cuh")
ROLES = ("a", "b", "c", "metadata", "scale_a", "scale_b", "d")


def save(vectors: VectorSet, path: str | PathLike[str]) -> None:
    """Write a set, in the format that the path's ending names."""
    place = Path(path)
    if place.suffix not in ENDINGS:
        msg = f"{place.name}: the ending names the format and is one of {', '.join(ENDINGS)}"
        raise WarpfragError(msg)
    if place.suffix == ".npz":
        arrays: dict[str, Any] = {"about": np.array(json.dumps(_about(vectors)))}
        for group in vectors.groups:
            arrays |= {f"{group.name}/{role}": words for role, words in _arrays(group).items()}
        np.savez_compressed(place, **arrays)
    else:
        text = as_json(vectors) if place.suffix == ".json" else as_header(vectors)
        place.write_text(text, encoding="utf-8")


def read(path: str | PathLike[str]) -> tuple[Instruction, str, tuple[Group, ...]]:
    """Instruction, architecture and groups from npz or json."""
    place = Path(path)
    if place.suffix == ".npz":
        with np.load(place, allow_pickle=False) as archive:
            about = _checked(place, str(archive["about"]) if "about" in archive else "")
            arrays = {name: archive[name] for name in archive.files if name != "about"}
    elif place.suffix == ".json":
        about = _checked(place, place.read_text(encoding="utf-8"))
        arrays = {
            f"{group['name']}/{role}": _from_hex(role, group[role])
            for group in about["groups"]
            for role in ROLES
            if role in group
        }
    else:
        msg = f"{place.name}: npz and json can be read back, got {place.suffix or 'no ending'}"
        raise WarpfragError(msg)
    groups = []
    for row in about["groups"]:
        words = {role: arrays[f"{row['name']}/{role}"] for role in ROLES if f"{row['name']}/{role}" in arrays}
        choice = Choice(row["selector"], tuple(row["byte_id"]), tuple(row["thread_id"]))
        groups.append(Group(row["name"], row["catches"], words, words.pop("d"), choice))
    return get(about["instruction"], about["fragments"]), about["arch"], tuple(groups)


def _checked(place: Path, text: str) -> dict[str, Any]:
    """What a file says about itself; refused where `save` does not write such a file."""
    try:
        about = json.loads(text)
    except json.JSONDecodeError:
        about = None
    schema = about.get("schema") if isinstance(about, dict) else None
    if not isinstance(about, dict) or schema != SCHEMA:
        found = "none" if schema is None else repr(schema)
        msg = f"{place.name}: expected test vectors of schema {SCHEMA}, got {found}"
        raise WarpfragError(msg)
    if "fragments" not in about:  # answers of the command line have a schema 1 too, but never this key
        msg = f"{place.name}: expected test vectors as `save` writes them, got another JSON object"
        raise WarpfragError(msg)
    return about


def _about(vectors: VectorSet) -> dict[str, Any]:
    """Everything but the registers."""
    return {
        "schema": SCHEMA,
        "instruction": vectors.instruction.name,
        "arch": vectors.arch,
        "fragments": vectors.instruction.arch or None,
        "groups": [
            {
                "name": group.name,
                "catches": group.catches,
                "cases": group.cases,
                "selector": group.choice.selector,
                "byte_id": list(group.choice.byte_id),
                "thread_id": list(group.choice.thread_id),
            }
            for group in vectors.groups
        ],
    }


def _arrays(group: Group) -> dict[str, NDArray[np.uint32]]:
    return {**group.words, "d": group.d}


def as_json(vectors: VectorSet) -> str:
    """For each case and lane the words of each operand, in hex."""
    about = _about(vectors)
    for row, group in zip(about["groups"], vectors.groups, strict=True):
        row |= {role: _to_hex(words) for role, words in _arrays(group).items()}
    return json.dumps(about, indent=1) + "\n"


def _to_hex(words: NDArray[np.uint32]) -> list[str]:
    """One text for each case: lanes apart by a comma, words of a lane by a blank."""
    lanes = words.reshape(len(words), 32, -1)
    return [",".join(" ".join(f"{word:08x}" for word in lane) for lane in case) for case in lanes.tolist()]


def _from_hex(role: str, cases: list[str]) -> NDArray[np.uint32]:
    lanes = [[[int(word, 16) for word in lane.split()] for lane in case.split(",")] for case in cases]
    words = np.array(lanes, np.uint32)
    return words if role in "abcd" else words[..., 0]


def as_header(vectors: VectorSet) -> str:
    """A C++17 header: arrays [case][lane][word], and a table of the groups."""
    name = identifier(vectors.instruction)
    lines = [
        f"// Test vectors of {vectors.instruction.name}, arithmetic of {vectors.arch}.",
        "// Every operand is uint32[cases][32][words]; what an instruction does not have is null.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        f"namespace warpfrag_vectors::{name} {{",
        "",
        "struct Group {",
        "    const char* name;",
        "    const char* catches;",
        "    int cases, selector, byte_id_a, byte_id_b, thread_id_a, thread_id_b;",
        f"    const uint32_t {', '.join(f'*{role}' for role in ROLES)};",
        "};",
        "",
    ]
    rows = []
    for number, group in enumerate(vectors.groups):
        arrays = _arrays(group)
        for role, words in arrays.items():
            lines.append(f"inline constexpr uint32_t group{number}_{role}[] = {{")
            lines += _numbers(words)
            lines.append("};")
        choice = group.choice
        numbers = (group.cases, choice.selector, *choice.byte_id, *choice.thread_id)
        places = [f"group{number}_{role}" if role in arrays else "nullptr" for role in ROLES]
        facts = [json.dumps(group.name), json.dumps(group.catches), *map(str, numbers), *places]
        rows.append(f"    {{{', '.join(facts)}}},")
    return "\n".join([*lines, "", "inline constexpr Group groups[] = {", *rows, "};", "", "}  // namespace", ""])


def _numbers(words: NDArray[np.uint32]) -> list[str]:
    flat = words.reshape(-1).tolist()
    return ["    " + ", ".join(f"0x{word:08x}" for word in flat[at : at + 8]) + "," for at in range(0, len(flat), 8)]
