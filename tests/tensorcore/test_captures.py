"""Captured results of real GPUs: every code is equal, and the index matches the data."""

import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from instructions import each_of, every
from tools.write_capture_index import count, write
from warpfrag.cli import main
from warpfrag.errors import FileError
from warpfrag.isa.immediates import Immediates
from warpfrag.tensorcore.captures import capture as capture_module
from warpfrag.tensorcore.captures.capture import MEMORY, CapturedCase, WgmmaCase, address_maps, captures
from warpfrag.tensorcore.captures.capture_index import HERE, INDEX, VARIABLE
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases


@cache
def captured_cases() -> dict[str, list[tuple[str, CapturedCase | WgmmaCase]]]:
    """Return the results of real GPUs by instruction and architecture."""
    found: dict[str, list[tuple[str, CapturedCase | WgmmaCase]]] = {}
    for known in captures():
        for case in known.cases():
            found.setdefault(case.instruction, []).append((known.about["arch"], case))
    return found


NAMES = sorted({entry["instruction"] for known in captures() for entry in known.about["entries"]})


def test_there_are_captures_to_compare_with():
    assert sorted(captured_cases()) == NAMES
    assert len(NAMES) == 352 + 41  # spellings; with each selector, 416 kernels of the H200, and 45 of wgmma
    assert sum(len(case.d) for cases in captured_cases().values() for _, case in cases) == 6720 + 404


@each_of(NAMES)
def test_every_code_equals_the_hardware(name: str):
    for arch, case in captured_cases()[name]:
        if isinstance(case, WgmmaCase):
            found = run_wgmma_cases(name, case.call, arch)
            assert np.array_equal(found, case.d), f"{case.operands} #{case.selector}"
            assert np.array_equal(staged(case), case.d), f"{case.operands} #{case.selector}: A in shared memory"
            continue
        options = {} if case.metadata is None else {"metadata": case.metadata, "immediates": Immediates(case.selector)}
        found = wf.execute(name, case.a, case.b, case.c, arch=arch, **options)
        alone = {} if case.metadata is None else {"metadata": case.metadata[0], "immediates": Immediates(case.selector)}
        assert np.array_equal(wf.execute(name, case.a[0], case.b[0], case.c[0], arch=arch, **alone), case.d[0])
        wrong = np.argwhere(found != case.d)
        assert wrong.size == 0, f"{case.operands} #{case.selector}: first of {len(wrong)} at {wrong[0]}"


def staged(case: WgmmaCase) -> np.ndarray:
    """Return the result if A is in shared memory too."""
    w, words = wf.get(case.instruction), case.call.words
    tile = w.a.store(w.a.unpack(words["a"], raw=True), raw=True)
    b = wf.Shared(case.call.shared, wf.Descriptor.decode(case.call.descriptors[1]))
    return wf.execute(w, tile, b, words["c"], metadata=words.get("metadata"), immediates=Immediates(case.selector or 0))


def test_every_address_map_equals_the_hardware():
    found = address_maps()
    assert (found.device, len(found.maps)) == ("NVIDIA H200", 500)
    modes = set()
    for one in found.maps:
        instruction, descriptor = wf.get(one.instruction), wf.Descriptor.decode(one.descriptor)
        addresses = instruction.operands[one.operand].addresses(descriptor, one.trans)
        assert np.array_equal(np.where(addresses < MEMORY, addresses, 0), one.addresses), one
        modes.add((one.operand, one.trans, descriptor.swizzle, instruction.form.is_sparse, instruction.a.format.bits))
    # K-major of 8, 16 and 32 bits and MN-major of 16, each with every swizzle, of A and B, dense and sparse
    assert len(modes) == 62


def test_evidence_of_every_width_of_wgmma_is_that_of_the_least():
    assert wf.get("wgmma.mma_async.m64n8k16.f32.f16.f16").evidence("sm_90").detail.endswith(" 12 captured cases")
    level, detail, cases = wf.get("wgmma.mma_async.m64n96k16.f32.f16.f16").evidence("sm_90a")
    assert (level, cases) == ("hardware", 12)
    assert detail.endswith(" 12 captured cases with n8, because the terms of an element of D do not depend on n")
    assert {one.evidence("sm_90").level for one in every() if one.form.is_warpgroup} == {"hardware"}


def test_the_index_says_what_the_data_hold():
    written = json.loads((Path(HERE) / INDEX).read_text(encoding="utf-8"))
    assert written == count(Path(HERE))


def test_the_data_stay_small():
    assert sum(path.stat().st_size for path in Path(HERE).iterdir() if path.is_file()) < 6_000_000


def test_a_folder_of_ones_own_counts_as_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from warpfrag.tensorcore.captures.capture import write_capture

    mma = wf.get("mma.m16n8k16.s32.s8.s8.s32")
    assert mma.evidence("sm_80").level == "specified"
    arrays = {role: np.zeros((3, 32, operand.words), np.uint32) for role, operand in mma.operands.items()}
    entry = {"instruction": mma.name, "selector": None, "classes": {"bits": {role: role for role in arrays}}}
    about = {"device": "NVIDIA A100", "arch": "sm_80", "driver": "1.2", "assembler": "ptxas 13.4", "entries": [entry]}
    write_capture(tmp_path / "a100.npz", about, arrays)
    write(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    level, detail, cases = mma.evidence("sm_80")
    assert (level, detail, cases) == ("hardware", "NVIDIA A100, driver 1.2, 3 captured cases", 3)


def test_a_folder_without_an_index_is_refused_with_the_command_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(wf.WarpfragError, match="no index.json .*; write it with `python -m tools.write_capture_index"):
        wf.get("mma.m16n8k16.s32.s8.s8.s32").evidence("sm_80")


def test_evidence_of_an_unknown_architecture_is_refused():
    with pytest.raises(wf.errors.IllegalInstruction, match="unknown arch 'sm91'; expected one of sm_70"):
        wf.get("mma.m16n8k16.s32.s8.s8.s32").evidence("sm91")


ABOUT = {"device": "GPU", "arch": "sm_80", "driver": "1", "assembler": "ptxas"}
INTEGERS = wf.get("mma.m16n8k16.s32.s8.s8.s32")


def capture(**changed: object) -> dict[str, object]:
    """The arrays of a sound capture of one instruction, with some of them, or its entry, changed."""
    arrays = {role: np.zeros((3, 32, operand.words), np.uint32) for role, operand in INTEGERS.operands.items()}
    entry = {"instruction": INTEGERS.name, "selector": None, "classes": {"bits": {role: role for role in arrays}}}
    entries = changed.pop("entries", [entry | changed.pop("entry", {})])
    about = json.dumps(ABOUT | {"entries": entries} | changed.pop("about", {})).encode()
    return {"about": np.frombuffer(about, np.uint8), **arrays, **changed}


def saved(arrays: dict[str, object]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


SOUND = saved(capture())
DAMAGED = {
    "empty": b"",
    "text": b"hello",
    "cut off": SOUND[:-200],
    "no archive": io.BytesIO().getvalue() + b"PK\x03\x04" + bytes(100),
    "flipped": SOUND.replace(b"NUMPY", b"NUMPI"),
    "without about": saved({"a": np.zeros(3)}),
    "about of another kind": saved({"about": np.zeros(3)}),
    "about is no object": saved({"about": np.frombuffer(b"[1]", np.uint8)}),
    "about is a nest": saved({"about": np.frombuffer(b"[" * 100_000, np.uint8)}),
    "no entries": saved(capture(entries=[])),
    "entries of another kind": saved(capture(entries=[3])),
    "entries as a text": saved(capture(entries="mma")),
    "no such instruction": saved(capture(entry={"instruction": "mma.x"})),
    "instruction of another kind": saved(capture(entry={"instruction": [1]})),
    "classes of another kind": saved(capture(entry={"classes": 3})),
    "no such role": saved(capture(entry={"classes": {"bits": {"x": "a"}}})),
    "no such array": saved(capture(entry={"classes": {"bits": dict.fromkeys("abcd", "x")}})),
    "no result": saved(capture(entry={"classes": {"bits": dict.fromkeys("abc", "a")}})),
    "dtype": saved(capture(d=np.zeros((3, 32, 4)))),
    "shape": saved(capture(d=np.zeros((3, 31, 4), np.uint32))),
    "scalar": saved(capture(d=np.uint32(3))),
    "unlike lengths": saved(capture(d=np.zeros((4, 32, 4), np.uint32))),
}


WGMMA = wf.get("wgmma.mma_async.m64n8k32.s32.s8.s8")


def warpgroup_capture(**changed: object) -> bytes:
    """A sound capture of one wgmma, with some of its arrays, or its call, changed."""
    registers = {role: np.zeros((3, 4, 32, WGMMA.operands[role].words), np.uint32) for role in "acd"}
    arrays = {**registers, "shared": np.zeros((3, 64), np.uint32)}
    pair = [False, False]
    call = {"staged": False, "trans": pair, "negate": pair, "descriptors": ["0x0", "0xc000001000000000"]}
    calls = {"bits": {**call, "scale_d": True} | changed.pop("call", {})}
    entry = {"instruction": WGMMA.name, "selector": None, "classes": {"bits": {role: role for role in arrays}}}
    return saved(capture(entries=[entry | {"calls": calls}], about={"arch": "sm_90"}, **arrays) | changed)


DAMAGED_CALLS = {
    "a call of another kind": warpgroup_capture(call={"trans": 3}),
    "a call without truth": warpgroup_capture(call={"staged": 1}),
    "a call without descriptors": warpgroup_capture(call={"descriptors": ["0x0"]}),
    "warps": warpgroup_capture(d=np.zeros((3, 2, 32, 4), np.uint32)),
    "registers of floats": warpgroup_capture(c=np.zeros((3, 4, 32, 4))),
    "shared memory of other cases": warpgroup_capture(shared=np.zeros((2, 64), np.uint32)),
}


def test_a_capture_of_wgmma_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for d, status in ((0, 0), (1, 1)):
        (tmp_path / "mine.npz").write_bytes(warpgroup_capture(d=np.full((3, 4, 32, 4), d, np.uint32)))
        capture_module._opened.cache_clear()
        assert main(["check", "--only", WGMMA.name]) == status


@pytest.mark.parametrize("name", DAMAGED | DAMAGED_CALLS)
def test_a_damaged_capture_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    (tmp_path / "mine.npz").write_bytes((DAMAGED | DAMAGED_CALLS)[name])
    with pytest.raises(FileError, match="mine.npz' is not a capture written by `warpfrag verify --capture`: "):
        count(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert main(["check", "--only", (WGMMA if name in DAMAGED_CALLS else INTEGERS).name]) == 2
    assert "mine.npz" in capsys.readouterr().err


@pytest.mark.parametrize(("d", "status"), [(0, 0), (1, 1)])
def test_a_capture_of_ones_own_is_compared(d: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine.npz").write_bytes(saved(capture(d=np.full((3, 32, 4), d, np.uint32))))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert main(["check", "--only", INTEGERS.name]) == status


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            "{",
            "[]",
            "3",
            "\udcff",
            "[" * 100_000,
            '{"captures": 3}',
            '{"captures": [{}]}',
            '{"captures": {"a": 1}}',
        ],
        *['{"captures": [{"cases": 3}]}', json.dumps({"captures": [{**ABOUT, "cases": {"mma": "many"}}]})],
    ],
)
def test_a_damaged_index_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / INDEX).write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(FileError, match="index.json' is not an index of captures written by `python -m .*: "):
        INTEGERS.evidence("sm_80")


def test_an_index_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / INDEX).mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(FileError, match="cannot read .*index.json': Is a directory"):
        INTEGERS.evidence("sm_80")
