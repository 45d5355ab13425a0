"""Compare many kernels on many cores and one GPU, find the causes of differences, and write the report."""

from __future__ import annotations

import json
import time
import zipfile
import zlib
from base64 import b64decode
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tools.fuzz import matrix_probe
from tools.fuzz.coverage import missing
from tools.fuzz.fixed_set import Kept, choose, keep
from tools.fuzz.fixed_set import write as write_set
from tools.fuzz.generate import generate
from tools.fuzz.matrix_probe import matrix_probes
from tools.fuzz.pool import work
from tools.fuzz.probe import PER_MODULE, probes
from tools.fuzz.spellings import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

JOB_SECONDS = 25
ENGINE_SECONDS = 120  # most of it is compile time
KEPT_KERNELS = 400  # maximum number of differing kernels that are written in full
SHRUNK_OF_EACH = 2  # number of kernels that are reduced in each group
SHRINK_SECONDS = 40
KINDS: dict[str, tuple[str, Callable[[str], Sequence[object]], int]] = {
    "matrices": ("matrix probe", matrix_probes, matrix_probe.PER_MODULE),
    "lanes": ("probe", probes, PER_MODULE),
}
"""For each category of probes: the job, the function that lists them, and the number per module."""
ANSWERS = "answers.jsonl"
CALLED_CERTAIN = "DIFFERS AND CALLED CERTAIN"
TWO_NANS = "different NaNs"  # the start of a reason that does not depend on the compiler


@dataclass
class Tally:
    """The outcome of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    seeds: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    examples: dict[str, str] = field(default_factory=dict)
    differing: dict[int, dict[str, Any]] = field(default_factory=dict)
    kept: list[dict[str, Any]] = field(default_factory=list)  # candidates for the fixed set
    digests: dict[int, list[Any]] = field(default_factory=dict)  # by seed: digest of the output, certainty, reasons

    def add(self, answer: dict[str, Any]) -> None:
        """Count an answer."""
        state = verdict(answer)
        self.counts["kernels"] += 1
        self.counts["instructions"] += answer.get("statements", 0)
        self.counts["warp instructions"] += answer.get("warp_instructions", 0)
        self.counts["milliseconds of the machine"] += round(1000 * answer.get("seconds_here", 0))
        self.counts["milliseconds of the driver"] += round(1000 * answer.get("seconds_there", 0))
        self.counts[state] += 1
        if answer["state"] in {"equal", "differs"}:
            self.rows.update(answer["rows"])
            self.digests[answer["seed"]] = [answer.get("digest"), answer["certain"], answer["reasons"]]
            if not any(reason.startswith(TWO_NANS) for reason in answer["reasons"]):
                self.counts["compared, without two NaNs in an f64 operation"] += 1
        if not answer.get("certain", True):
            self.reasons.update(answer["reasons"])
        if not state.startswith("equal"):
            self.seeds[state].append(answer["seed"])
            self.examples.setdefault(state, answer.get("why", ""))
        if answer["state"] == "differs":
            self.differing[answer["seed"]] = answer
        if answer.get("keeps") and "gpu" in answer:
            self.kept.append(answer)


def verdict(answer: dict[str, Any]) -> str:
    """Return the category under which the report counts a kernel."""
    if answer["state"] == "equal":
        return "equal and certain" if answer["certain"] else "equal but uncertain"
    if answer["state"] == "differs":
        return CALLED_CERTAIN if answer["certain"] else "differs and uncertain"
    return str(answer["state"])


def compare_all(
    seeds: Iterable[int], size: int, workers: int, seconds: float, folder: Path, *, on_gpu: bool = True, kept: int = 0
) -> Tally:
    """Compare the kernels of seeds until the time is up; keep the GPU's bytes for the first ones.

    Each answer is written immediately, so that `read_answers` can read the tally of a run that was stopped.
    """
    jobs = [
        {"do": "compare", "seed": seed, "size": size, "on_gpu": on_gpu, "keeps": number < kept}
        for number, seed in enumerate(seeds)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ANSWERS).open("w", encoding="utf-8") as written:
        for answer in work(jobs, workers, seconds_each=JOB_SECONDS, seconds=seconds):
            written.write(json.dumps(answer) + "\n")
            written.flush()
    return read_answers(folder)


def read_answers(folder: Path) -> Tally:
    """Return the tally of a run's stored answers; an incomplete last line is ignored."""
    tally = Tally()
    with (folder / ANSWERS).open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                tally.add(json.loads(line))
    return tally


def compare_engines(tally: Tally, seeds: Sequence[int], size: int, workers: int, seconds: float) -> None:
    """Run kernels in both engines and count those that differ."""
    jobs = [{"do": "engines", "seed": seed, "size": size} for seed in seeds]
    for answer in work(jobs, workers, seconds_each=ENGINE_SECONDS, seconds=seconds):
        tally.counts[answer["state"]] += 1
        if answer["state"] != "engines agree":
            tally.seeds[answer["state"]].append(answer["seed"])


def explain(seeds: Sequence[int], size: int, workers: int, seconds: float) -> dict[str, Any]:
    """Find the causes of differences: trace each kernel, and reduce a few of each group."""
    began = time.monotonic()
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    jobs = [{"do": "trace", "seed": seed, "size": size} for seed in seeds]
    for found in work(jobs, workers, seconds_each=JOB_SECONDS, seconds=seconds / 2):
        key = found.get("key") or ("vanishes in a trace" if found.get("found") is False else "not traced")
        groups[key].append(found)
    small: dict[int, str] = {}
    chosen = [
        item["seed"]
        for key, items in groups.items()
        for item in items[: SHRUNK_OF_EACH if key != "vanishes in a trace" else None]
    ]
    left = seconds - (time.monotonic() - began)
    jobs = [{"do": "shrink", "seed": seed, "size": size, "seconds": min(SHRINK_SECONDS, left / 2)} for seed in chosen]
    for answer in work(jobs, workers, seconds_each=SHRINK_SECONDS + JOB_SECONDS, seconds=left):
        if answer.get("left"):
            small[answer["seed"]] = answer["left"]
    return {"groups": dict(sorted(groups.items(), key=lambda item: -len(item[1]))), "small": small}


def probe_all(
    workers: int, seconds: float, targets: Sequence[str] = TARGETS, only: str | None = None
) -> dict[str, Any]:
    """Compare every spelling in every context, and return the differences."""
    jobs = [
        {"do": job, "target": target, "first": first}
        for kind, (job, listed, step) in KINDS.items()
        if only in {None, kind}
        for target in reversed(targets)
        for first in range(0, len(listed(target)), step)
    ]
    count, failed, differences = 0, [], []
    for answer in work(jobs, workers, seconds_each=JOB_SECONDS, seconds=seconds):
        if "differences" not in answer:
            failed.append(answer)
            continue
        count += answer["probes"]
        differences += [{"target": answer["target"], **item} for item in answer["differences"]]
    return {"modules": len(jobs), "probes": count, "failed": failed, "differences": differences}


def write_report(folder: Path, tally: Tally, causes: dict[str, Any], size: int) -> str:
    """Write `fuzz.json`, `fuzz.md` and the kernels that differ; return the text of the report."""
    folder.mkdir(parents=True, exist_ok=True)
    lacking = missing(tally.rows, 20)
    found = {
        "counts": tally.counts, "seeds": tally.seeds, "reasons": tally.reasons, "examples": tally.examples,
        "rows": dict(sorted(tally.rows.items())), "rows in fewer than 20": lacking, "causes": causes,
        "digests": tally.digests,
    }  # fmt: skip
    (folder / "fuzz.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    text = readable(tally, causes, lacking)
    (folder / "fuzz.md").write_text(text, encoding="utf-8")
    if tally.kept:
        found_set = [kept_kernel(answer, size) for answer in choose(tally.kept)]
        write_set(folder / "kept.tar.xz", found_set)
    if tally.differing:
        with zipfile.ZipFile(folder / "differing.zip", "w", zipfile.ZIP_DEFLATED) as kept:
            ordered = sorted(tally.differing.items(), key=lambda item: (len(item[1]["reasons"]), item[0]))
            for seed, answer in ordered[:KEPT_KERNELS]:
                kept.writestr(f"{seed}.ptx", generate(seed, size).text())
                kept.writestr(f"{seed}.gpu.z", b64decode(answer["gpu"]))
            for seed, small in causes.get("small", {}).items():
                kept.writestr(f"{seed}.small.ptx", small)
    return text


def kept_kernel(answer: dict[str, Any], size: int) -> Kept:
    """Return a kernel of the fixed set from a worker's answer."""
    kernel = generate(answer["seed"], size)
    return keep(answer["seed"], kernel.text(), kernel.grid, kernel.block, zlib.decompress(b64decode(answer["gpu"])))


def readable(tally: Tally, causes: dict[str, Any], lacking: list[str]) -> str:
    """Return the report as text."""
    lines = [f"{count:>12,}  {name}" for name, count in tally.counts.items()]
    for state, seeds in tally.seeds.items():
        lines += [
            "",
            f"{state}: {len(seeds)}, seeds {', '.join(map(str, sorted(seeds)[:40]))}",
            tally.examples.get(state, ""),
        ]
    lines += [
        "",
        "Why results are uncertain:",
        *(f"{count:>8}  {reason}" for reason, count in tally.reasons.most_common()),
    ]
    lines += ["", "What differs first:"]
    for key, items in causes.get("groups", {}).items():
        lines.append(f"{len(items):>6}  {key}")
        lines += [
            f"          seed {item['seed']} thread {item['thread']}: {item['statement']} {item['operands']}"
            f" before {item['before']} by {item['writers']}: gpu {item['gpu']} here {item['here']}"
            for item in items[:3]
            if "operands" in item
        ]
        lines += [f"          {items[0]['why']}"] if "why" in items[0] else []
    lines += ["", f"Rows in fewer than 20 kernels: {len(lacking)}", *(f"    {name}" for name in lacking)]
    lines += ["", "Rows, by the kernels that have them:"]
    lines += [f"{count:>8}  {name}" for name, count in sorted(tally.rows.items(), key=lambda item: item[1])]
    return "\n".join([*lines, ""])
