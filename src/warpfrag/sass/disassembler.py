"""Decode machine code with nvdisasm, whose text is cached by the contents of the code.

A single nvdisasm process decodes all functions as one raw binary, because starting nvdisasm takes most of the time.
Code addresses are then made relative to the start of each function, so its text does not depend on other functions.
"""

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import accumulate, pairwise
from os import PathLike
from pathlib import Path

from warpfrag.cuda_tools import CudaTool, check_machine_code_allowed, find_tool
from warpfrag.disk_cache import DiskCache
from warpfrag.errors import SassError, quote
from warpfrag.sass.instruction_parser import OFFSET_BRANCHES, has_target, parse_instruction
from warpfrag.sass.sass_instruction import INSTRUCTION_BYTES, SassInstruction

CACHE = DiskCache("sass", ".sass", 1 << 27)
TEXT_VERSION = "1"
"""The version of the cached text, to be changed whenever the format of that text changes."""
SECONDS = 600
ARCHITECTURE = re.compile(r"sm_([0-9]{2,3})([af]?)")
OLDEST = 75
LINE = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(\S.*?)\s*;\s*$", re.MULTILINE)
BRANCH = re.compile(r"(?:@\S+\s+)?([A-Z]\w*)((?:\.\w+)*)\s.*?(0x[0-9a-f]+)$")
ERROR = re.compile(r"nvdisasm (?:error|fatal)\s*: (.*)")
ERROR_ADDRESS = re.compile(r"(.*?) at address 0x([0-9a-f]+)")


def disassemble(
    codes: Sequence[bytes], arch: str, nvdisasm: str | PathLike[str] | None = None
) -> list[tuple[SassInstruction, ...]]:
    """Disassemble functions given as raw code for one architecture, such as sm_90a.

    Raises SassError with the address of an instruction that nvdisasm or the parser does not know, and MissingExtra if
    nvdisasm is required but not found.
    """
    check_machine_code_allowed()
    texts = _texts(codes, arch, find_tool("nvdisasm", nvdisasm))
    return [_parse(code, text) for code, text in zip(codes, texts, strict=True)]


def _parse(code: bytes, text: str) -> tuple[SassInstruction, ...]:
    addresses = range(0, len(code), INSTRUCTION_BYTES)
    return tuple(
        parse_instruction(line, address, int.from_bytes(code[address : address + INSTRUCTION_BYTES], "little"))
        for address, line in zip(addresses, text.split("\n") if code else (), strict=True)
    )


def _texts(codes: Sequence[bytes], arch: str, tool: CudaTool) -> list[str]:
    """Return each function's text, one line per instruction, from the cache or from nvdisasm."""
    name = _nvdisasm_name(arch)
    keys = []
    for code in codes:
        if len(code) % INSTRUCTION_BYTES:
            raise SassError(len(code), f"the code has {len(code)} bytes, not a multiple of {INSTRUCTION_BYTES}")
        keys.append(hashlib.sha256(f"{TEXT_VERSION} {tool.version} {name} ".encode() + code).hexdigest() + CACHE.suffix)
    found: dict[str, str] = {}
    missing: dict[str, bytes] = {}
    for key, code in zip(keys, codes, strict=True):
        data = CACHE.find(key)
        if data is None:
            missing[key] = code
        else:
            found[key] = data.decode()
    if missing:
        fresh = _run_nvdisasm(list(missing.values()), name, tool)
        for key, text in zip(missing, fresh, strict=True):
            CACHE.keep(key, text.encode())
            found[key] = text
    return [found[key] for key in keys]


def _nvdisasm_name(arch: str) -> str:
    match = ARCHITECTURE.fullmatch(arch)
    if not match or int(match[1]) < OLDEST:
        raise SassError(-1, f"expected sm_{OLDEST} or a later architecture, such as sm_90a, got {quote(arch)}")
    return f"SM{match[1]}{match[2]}"


def _run_nvdisasm(codes: list[bytes], name: str, tool: CudaTool) -> list[str]:
    """Decode functions with one nvdisasm process and return their text; raise an error if that fails."""
    if not any(codes):
        return [""] * len(codes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.bin"
        path.write_bytes(b"".join(codes))
        command = [str(tool.path), "--binary", name, "--print-raw", "--no-dataflow", str(path)]
        try:
            done = subprocess.run(  # noqa: S603 (nvdisasm, with arguments that no shell reads)
                command, capture_output=True, check=False, text=True, encoding="utf-8", errors="replace",
                stdin=subprocess.DEVNULL, timeout=SECONDS,
            )  # fmt: skip
        except OSError as error:
            raise SassError(-1, f"nvdisasm cannot be run: {error.strerror or error}") from None
        except subprocess.TimeoutExpired:
            raise SassError(-1, f"nvdisasm did not finish within {SECONDS} s") from None
    lines = {int(address, 16): text for address, text in LINE.findall(done.stdout)}
    starts = [0, *accumulate(map(len, codes))]
    if done.returncode:
        raise _decoding_error(done.stderr, starts, name, tool)
    if not lines or not lines.keys() <= set(range(0, starts[-1], INSTRUCTION_BYTES)):
        raise SassError(-1, f"nvdisasm {tool.version} printed {len(lines)} instructions in an unknown format")
    return [  # nvdisasm skips a few instructions, such as LDSM with 6-bit elements on sm_100
        "\n".join(_rebase(lines.get(address, ""), start) for address in range(start, end, INSTRUCTION_BYTES))
        for start, end in pairwise(starts)
    ]


def _rebase(text: str, start: int) -> str:
    """Return an instruction's text with code addresses made relative to the start of its function."""
    match = BRANCH.fullmatch(text) if start else None
    if not match or not has_target(match[1], match[2]) or match[1] in OFFSET_BRANCHES:
        return text
    if match[1].startswith("JM") or ".ABS" in match[2]:
        return text
    # a target before the function wraps around, as in nvdisasm's text for this function alone
    return f"{text[: match.start(3)]}{(int(match[3], 16) - start) % (1 << 64):#x}"


def _decoding_error(message: str, starts: list[int], name: str, tool: CudaTool) -> SassError:
    """Return an error for nvdisasm's message, with the address relative to the start of the function."""
    errors = ERROR.findall(message) or [message.strip() or "no message"]
    for error in errors:
        if match := ERROR_ADDRESS.match(error):
            address = int(match[2], 16)
            start = max(start for start in starts if start <= address)
            return SassError(address - start, f"nvdisasm {tool.version} cannot decode this {name} code: {match[1]}")
    return SassError(-1, f"nvdisasm {tool.version} cannot decode this {name} code: {errors[0]}")
