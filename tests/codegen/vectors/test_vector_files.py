"""Test vectors in files: npz and json come back as they were, and a damaged file is refused in one sentence."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from warpfrag import WarpfragError
from warpfrag.codegen.vectors import vectors
from warpfrag.codegen.vectors.vector_sets import VectorSet
from warpfrag.errors import UnusableFile

MMA = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k32.s32.s8.s8.s32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


@pytest.mark.parametrize("ending", [".npz", ".json"])
@pytest.mark.parametrize(("name", "arch"), [(MMA, "sm_90"), (SPARSE, "sm_90"), (SCALED, "sm_120")])
def test_files_are_read_back(tmp_path, name, arch, ending):
    found = vectors(name, arch=arch)
    found.save(tmp_path / f"v{ending}")
    back = VectorSet.load(tmp_path / f"v{ending}")

    assert (back.instruction, back.arch, len(back.groups)) == (found.instruction, arch, len(found.groups))
    for mine, its in zip(found.groups, back.groups, strict=True):
        assert (mine.name, mine.catches, mine.choice) == (its.name, its.catches, its.choice)
        assert mine.registers.keys() == its.registers.keys()
        assert all(np.array_equal(words, its.registers[role]) for role, words in mine.registers.items())


def test_an_archive_holds_the_registers_and_nothing_else(tmp_path):
    found = vectors(SPARSE)
    found.save(tmp_path / "v.npz")
    expected = {f"{group.name}/{role}" for group in found.groups for role in group.registers}
    with np.load(tmp_path / "v.npz") as archive:
        assert set(archive.files) == {"about", *expected}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    place = tmp_path / "v.json"
    found = vectors(MMA)
    found.save(place)
    before = place.read_bytes()

    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(UnusableFile, match="cannot write .*: No space left on device"):
        vectors(MMA, seed=2).save(place)
    monkeypatch.undo()

    assert place.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["v.json"]


@pytest.fixture(scope="module")
def good():
    """The JSON object of a set with one small group, and the same set."""
    found = vectors(SPARSE)
    small = VectorSet(found.instruction, found.arch, (found["positions"],))
    from warpfrag.codegen.vectors.vector_files import as_json

    return json.loads(as_json(small.instruction, small.arch, small.groups)), small


def load(folder, name, content):
    (folder / name).write_bytes(content)
    return VectorSet.load(folder / name)


def archive(about, arrays):
    buffer = io.BytesIO()
    np.savez(buffer, about=np.array(about), **arrays)
    return buffer.getvalue()


JSON_DAMAGE = {
    "no JSON": (lambda text, about: "no JSON", "expected test vectors of schema 1, got none"),
    "another list": (lambda text, about: "[1, 2]", "expected test vectors of schema 1, got none"),
    "another object": (lambda text, about: '{"name": 1}', "expected test vectors of schema 1, got none"),
    "another schema": (lambda text, about: '{"schema": 0, "groups": []}', "of schema 1, got 0"),
    "an answer": (lambda text, about: '{"schema": 1, "groups": []}', "as `save` writes them, got another JSON object"),
    "nothing": (lambda text, about: "", "expected test vectors of schema 1, got none"),
    "cut off": (lambda text, about: text[: len(text) // 2], "expected test vectors of schema 1, got none"),
    "deep": (lambda text, about: "[" * 100_000, "expected test vectors of schema 1, got none"),
    "digits": (lambda text, about: '{"schema": 1' + "0" * 5000 + "}", "expected test vectors of schema 1"),
    "bytes": (lambda text, about: "\udcff", "expected test vectors of schema 1, got none"),
    "no groups": (lambda text, about: about | {"groups": []}, r"expected a list of groups, got \[\]"),
    "groups a number": (lambda text, about: about | {"groups": 3}, "expected a list of groups, got 3"),
    "group a number": (lambda text, about: about | {"groups": [3]}, "expected a name for each group, got 3"),
    "twice": (lambda text, about: about | {"groups": 2 * about["groups"]}, "expected groups of different names"),
    "instruction": (lambda text, about: about | {"instruction": "mma.\x1b[0m"}, "mma"),
    "no instruction": (lambda text, about: about | {"instruction": 7}, "expected PTX text, got a int"),
    "a mover": (lambda text, about: about | {"instruction": "ldmatrix.m8n8.x4.b16"}, "expected a product"),
    "another product": (lambda text, about: about | {"instruction": MMA}, "expected uint32"),
    "arch": (lambda text, about: about | {"arch": "sm_91"}, "as arch, got 'sm_91'"),
    "arch a list": (lambda text, about: about | {"arch": []}, r"as arch, got \[\]"),
    "fragments": (lambda text, about: about | {"fragments": 3}, "3"),
}
GROUP_DAMAGE = {
    "catches": ({"catches": None}, "expected a text for what it catches, got None"),
    "cases": ({"cases": 3}, r"expected uint32\[3, 32, 2\] as a, got uint32\[2, 32, 2\]"),
    "cases a text": ({"cases": "2"}, r"as a, got uint32\[2, 32, 2\]"),
    "selector": ({"selector": 9}, "selector 9 is out of range"),
    "selector a text": ({"selector": "0"}, "expected a selector, two byte ids and two thread ids"),
    "ids": ({"byte_id": [0]}, "expected a selector, two byte ids and two thread ids"),
    "ids a number": ({"thread_id": 0}, "expected a selector, two byte ids and two thread ids"),
    "ids that it lacks": ({"byte_id": [1, 0]}, "has no scale factors"),
    "no d": ({"d": None}, r"expected uint32\[2, 32, 4\] as d, got nothing"),
    "words": ({"a": ["xyz", "xyz"]}, "expected cases of hex words, .* got 'xyz'"),
    "numbers": ({"a": [1, 2]}, "expected cases of hex words, .* got 1"),
    "large words": ({"a": ["1" * 9]}, "expected cases of hex words"),
    "ragged": ({"a": ["0,0 0"]}, "expected cases of hex words, .* got '0,0 0'"),
    "lanes": ({"a": ["0 0 0 0,0 0 0 0"] * 2}, r"as a, got uint32\[2, 2, 4\]"),
    "no case": ({"a": []}, "as a, got"),
    "metadata": ({"metadata": [",".join(["0 0"] * 32)] * 2}, r"expected uint32\[2, 32\] as metadata"),
}


@pytest.mark.parametrize("damage", JSON_DAMAGE)
def test_a_damaged_json_is_refused(tmp_path, good, damage):
    about, _ = good
    change, message = JSON_DAMAGE[damage]
    text = change(json.dumps(about), about)
    text = text if isinstance(text, str) else json.dumps(text)
    with pytest.raises(UnusableFile, match=f"^'v.json': .*{message}") as caught:
        load(tmp_path, "v.json", text.encode("utf-8", errors="surrogateescape"))

    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("damage", GROUP_DAMAGE)
def test_a_damaged_group_is_refused(tmp_path, good, damage):
    about, _ = good
    change, message = GROUP_DAMAGE[damage]
    text = json.dumps(about | {"groups": [about["groups"][0] | change]})
    with pytest.raises(UnusableFile, match=f"^'v.json': .*{message}"):
        load(tmp_path, "v.json", text.encode())


def test_a_damaged_archive_is_refused(tmp_path, good):
    about, small = good
    small.save(tmp_path / "good.npz")
    whole = (tmp_path / "good.npz").read_bytes()
    arrays = {f"positions/{role}": words for role, words in small["positions"].registers.items()}
    group = {key: entry for key, entry in about["groups"][0].items() if key not in arrays}
    text = json.dumps(about | {"groups": [group]})
    assert load(tmp_path, "same.npz", archive(text, arrays)).cases == small.cases
    member = io.BytesIO()
    with zipfile.ZipFile(member, "w") as made:
        made.writestr(
            "about.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<u4', 'fortran_order': False, 'shape': (1 << 60,)}"
        )
    damaged = {
        "empty": (b"", "cannot be read"),
        "text": (b"no archive", "cannot be read"),
        "cut off": (whole[: len(whole) // 2], "cannot be read"),
        "a member": (member.getvalue(), "cannot be read"),
        "another": (archive("x", {"a": np.zeros(3)}), "expected test vectors of schema 1, got none"),
        "no about": (archive(text, arrays).replace(b"about.npy", b"xbout.npy"), "expected test vectors of schema 1"),
        "floats": (archive(text, arrays | {"positions/a": np.zeros((2, 32, 4))}), "as a, got float64"),
        "scalar": (archive(text, arrays | {"positions/metadata": np.uint32(1)}), r"as metadata, got uint32\[\]"),
        "missing": (archive(text, {"positions/d": arrays["positions/d"]}), "got nothing"),
    }
    for content, message in damaged.values():
        with pytest.raises(UnusableFile, match=f"^'v.npz': .*{message}"):
            load(tmp_path, "v.npz", content)
    refused = 0
    for place in range(0, len(whole), len(whole) // 40):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        try:
            load(tmp_path, "v.npz", bytes(flipped))
        except UnusableFile:  # any other error fails
            refused += 1
    assert refused > 20


def test_what_is_no_such_file_is_refused(tmp_path):
    found = vectors(SPARSE)
    for path, message in (
        (tmp_path / "v.txt", r"'v.txt': the ending names the format and is one of \.npz, \.json"),
        (tmp_path / "missing" / "v.npz", "cannot write .*missing"),
        (7, "expected the path of a file, got 7"),
    ):
        with pytest.raises(WarpfragError, match=message):
            found.save(path)
    for path, message in (
        (tmp_path / "v.h", "npz and json can be read back, got '.h'"),
        (tmp_path / "v", "npz and json can be read back, got no ending"),
        (tmp_path / "missing.npz", "cannot read .*missing.npz': No such file"),
        ("a\0b.npz", "cannot read 'a\\\\x00b.npz'"),
        (None, "expected the path of a file, got None"),
    ):
        with pytest.raises(WarpfragError, match=message):
            VectorSet.load(path)
