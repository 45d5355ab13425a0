"""Record launches of several programs on a GPU, or unpack the results.

    python3 record_programs.py FOLDER                             on a GPU machine: writes FOLDER/recorded.zip.N
    python record_programs.py unpack recorded.zip.0 ... TARGET    here: writes TARGET/PROGRAM for `warpfrag replay`

The first form needs Python's own library, a C compiler and nvcc, and no package. It stops after about 90 seconds.
"""

import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src" / "warpfrag" / "device" / "record.c"
CHUNK, PART = 1 << 16, 15 << 20
PROGRAMS = {
    "driver_ptx": 10, "triton_kernels": 12, "plain": 20, "hopper": 10, "torch_ops": 70, "cupy_kernels": 8,
    "numba_kernels": 4,
}  # fmt: skip
"""The programs, in order, and the number of launches to record."""
SECONDS = 90


def find_cupti(nvcc):
    homes = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")), Path(nvcc).resolve().parents[1]]
    for home in homes:
        for part in ("lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib"):
            yield from sorted(home.glob(f"{part}/libcupti.so.1[0-9]"), reverse=True)


def build(work):
    """Start the compilers, and return the commands that are running."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    commands = {
        "librecord.so": ["gcc", "-O2", "-shared", "-fPIC", SOURCE, "-o", work / "librecord.so", "-ldl", "-lpthread"]
    }
    for name in ("plain", "hopper", "tensor_maps"):
        target = "-gencode=arch=compute_90a,code=sm_90a"
        commands[name] = [nvcc, "-std=c++17", target, "-lineinfo", HERE / f"{name}.cu", "-o", work / name]
    started = {
        name: subprocess.Popen(list(map(str, row)), stderr=subprocess.PIPE, text=True) for name, row in commands.items()
    }
    return nvcc, started


def run(name, work, raw, limit, preload, seconds, cupti):
    """Run a program, and return its output; its launches go to `raw`."""
    command = [str(work / name)] if (HERE / f"{name}.cu").exists() else [sys.executable, str(HERE / f"{name}.py")]
    settings = {"WARPFRAG_RECORD": str(raw), "WARPFRAG_RECORD_LIMIT": str(limit), "WARPFRAG_RECORD_BYTES": str(1 << 28)}
    settings |= {"WARPFRAG_CUPTI": cupti, "CUDA_MODULE_LOADING": "LAZY"}
    library = str(work / "librecord.so")
    settings |= (
        {"LD_PRELOAD": library, "WARPFRAG_RECORD_PRELOAD": "1"} if preload else {"CUDA_INJECTION64_PATH": library}
    )
    try:
        done = subprocess.run(
            command, env=os.environ | settings, capture_output=True, text=True, timeout=seconds, check=False
        )
        return f"status {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    except subprocess.TimeoutExpired as error:
        return f"timeout\n{(error.stdout or b'')[-1500:]}\n{(error.stderr or b'')[-3000:]}"


def rows_of(raw):
    for path in raw.glob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def blank_unused(raw):
    """Remove cubins without a recorded kernel, and blank the other kernels of the rest."""
    rows = list(rows_of(raw))
    used = {row["name"] for row in rows if "launch" in row}
    for path in raw.glob("*.cubin"):
        data = bytearray(path.read_bytes())
        (table,), (width, count, strings) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + width * index) for index in range(count)]
        start = sections[strings][4]
        names = [data[start + row[0] : data.index(b"\0", start + row[0])].decode() for row in sections]
        kernels = {name[len(".nv.constant0.") :] for name in names if name.startswith(".nv.constant0.")}
        if not kernels & used:
            path.unlink()
            continue
        suffixes = tuple(f".{name}" for name in kernels - used)
        for name, row in zip(names, sections, strict=True):
            if row[1] != 8 and suffixes and name.endswith(suffixes):
                data[row[4] : row[4] + row[5]] = bytes(row[5])
        path.write_bytes(data)


class Recorder:
    """Runs the programs, and collects their results."""

    def __init__(self, work):
        self.begin, self.work = time.time(), work
        nvcc, self.started = build(work)
        self.cupti = str(next(find_cupti(nvcc), ""))
        self.report, self.index, self.known = [f"cupti {self.cupti}"], {}, set()
        self.stored = io.BytesIO()
        self.archive = zipfile.ZipFile(self.stored, "w", zipfile.ZIP_DEFLATED)

    @property
    def left(self):
        return SECONDS - (time.time() - self.begin)

    def record(self, name, limit):
        for tool in ("librecord.so", name):
            if tool in self.started and self.started[tool].wait():
                self.report.append(f"{tool}: {self.started[tool].stderr.read()[-2000:]}")
        raw = self.work / f"raw_{name}"
        for preload in (False, True):
            shutil.rmtree(raw, ignore_errors=True)
            raw.mkdir()
            text = run(name, self.work, raw, limit, preload, min(self.left, 45), self.cupti)
            rows = list(rows_of(raw))
            launches = sum("launch" in row for row in rows)
            notes = [row["note"] for row in rows if "note" in row]
            self.report.append(
                f"{name}: {launches} launches, preload {preload}, {notes}, {self.left:.0f} s left\n{text}"
            )
            if any("driver" in row for row in rows) or "ModuleNotFoundError" in text or self.left < 25:
                break
        try:
            blank_unused(raw)
        except (ValueError, struct.error, IndexError) as error:  # the files are kept whole
            self.report.append(f"{name}: {error!r}")
        for path in sorted(raw.iterdir()):
            self.index[f"{name}/{path.name}"] = self.chunks(path.read_bytes())

    def chunks(self, data):
        digests = []
        for at in range(0, len(data), CHUNK):
            digests.append(hashlib.sha256(data[at : at + CHUNK]).hexdigest()[:32])
            if digests[-1] not in self.known:
                self.known.add(digests[-1])
                self.archive.writestr(digests[-1], data[at : at + CHUNK])
        return digests

    def tensor_maps(self):
        try:
            self.started["tensor_maps"].wait(20)
            maps = subprocess.run([str(self.work / "tensor_maps")], capture_output=True, timeout=15, check=False)
            self.archive.writestr("tensor_maps.jsonl", maps.stdout)
            self.report.append(f"tensor_maps: {len(maps.stdout.splitlines())} lines, {maps.stderr[-300:]!r}")
        except (OSError, subprocess.TimeoutExpired) as error:
            self.report.append(f"tensor_maps: {error} {self.started['tensor_maps'].stderr.read()[-1500:]}")

    def close(self):
        self.archive.writestr("index.json", json.dumps(self.index))
        self.archive.writestr("report.txt", "\n".join(self.report))
        self.archive.close()
        return self.stored.getvalue()


def record(target):
    out = Path(target)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        for name, limit in PROGRAMS.items():
            if recorder.left > 8:
                recorder.record(name, limit)
            else:
                recorder.report.append(f"{name}: no time left")
        recorder.tensor_maps()
        data = recorder.close()
    for number, at in enumerate(range(0, len(data), PART)):
        (out / f"recorded.zip.{number}").write_bytes(data[at : at + PART])
    print("\n".join(recorder.report))
    print(f"{len(data)} bytes, {SECONDS - recorder.left:.0f} s")


def unpack(parts, target):
    """Write a folder for `warpfrag replay` for each program."""
    from warpfrag.device.record import pack

    data = b"".join(Path(part).read_bytes() for part in sorted(parts))
    with zipfile.ZipFile(io.BytesIO(data)) as archive, tempfile.TemporaryDirectory() as folder:
        index = json.loads(archive.read("index.json"))
        for name, digests in index.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as file:
                for digest in digests:
                    file.write(archive.read(digest))
        for raw in sorted(Path(folder).iterdir()):
            result = pack(raw, Path(target) / raw.name)
            print(raw.name, len(result.records), "launches", result.gpu)


if __name__ == "__main__":
    if sys.argv[1] == "unpack":
        unpack(sys.argv[2:-1], sys.argv[-1])
    else:
        record(sys.argv[1])
