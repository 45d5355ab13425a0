"""Generated tables inside pages, from `<!-- generated: NAME -->` to `<!-- end of NAME -->`.

Each function generates the text of one region from the package's tables.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from facts import captured_gpus, evidence_by_architecture, facts

from warpfrag.cli import VERBS
from warpfrag.cli.io.output import STATUSES
from warpfrag.diagnosis.diagnose import diagnose
from warpfrag.errors import WarpfragError
from warpfrag.formats.number_formats import FORMATS, Format, format_aliases
from warpfrag.isa.targets import targets
from warpfrag.layout import NOTATIONS
from warpfrag.layout.linear_layout import Layout
from warpfrag.tables import read_table
from warpfrag.tensorcore.registry import find, get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

REGION = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
REPORTS = Path(__file__).parent / "evidence"
REPORT_SAYS = 80  # characters, after which the list of reports ends at the next sentence
AUTHORITIES = ("specified", "published", "measured", "not modelled")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in which columns of numbers are right-aligned."""
    cells = [list(row) for row in rows]
    numeric = [bool(cells) and all(isinstance(row[place], int) for row in cells) for place in range(len(header))]
    lines = [header, ["---:" if right else "---" for right in numeric], *cells]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(words: Iterable[str], joint: str = " ") -> str:
    """Return words as code, or an empty string if there are none."""
    text = joint.join(words)
    return f"`{text}`" if text else ""


def facts_table() -> str:
    """Counts of instructions, formats and targets."""
    return markdown_table(["", "count"], facts().items())


def captured_table() -> str:
    """The GPUs whose results were compared."""
    header = ["GPU", "architecture", "driver", "assembler", "instructions", "kernels", "cases"]
    rows = [
        [gpu.device, f"`{gpu.arch}`", gpu.driver, gpu.assembler, gpu.instructions, gpu.kernels, gpu.cases]
        for gpu in captured_gpus()
    ]
    return markdown_table(header, rows)


def reports_list() -> str:
    """List the reports, each with its title and first sentences."""
    lines = []
    for path in sorted(REPORTS.glob("*.md")):
        if path.name != "README.md":
            title, paragraph, *_ = path.read_text(encoding="utf-8").split("\n\n")
            first, *others = re.split(r"(?<=[.:?]) (?=[A-Z0-9`])", " ".join(paragraph.split()))
            while others and len(first) < REPORT_SAYS:
                first += f" {others.pop(0)}"
            lines.append(f"- [{title.removeprefix('# ')}]({path.name}): {first.rstrip(':')}")
    return "\n".join(lines)


def evidence_table() -> str:
    """Count the instructions of each architecture by level of evidence, and those compared with a GPU."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for arch, known in evidence_by_architecture().items():
        compared = f"{known.compared} ({', '.join(known.gpus)}, {known.cases} cases)" if known.compared else "0"
        alike.setdefault((*(known.authorities[authority] for authority in AUTHORITIES), compared), []).append(arch)
    rows = [[code(archs), *numbers] for numbers, archs in alike.items()]
    return markdown_table(["architecture", *AUTHORITIES, "compared with hardware"], rows)


def mistakes_line() -> str:
    """The number of mistakes that `diagnose` tries if no mistake explains a result."""
    mma = get("mma.m16n8k16.f32.f16.f16.f32")
    random = np.random.default_rng(0)
    A, B = (random.integers(-9, 10, operand.shape).astype(float) for operand in (mma.a, mma.b))
    tried = diagnose(mma, random.integers(0, 2**31, (32, 4), dtype=np.uint32), A, B)
    return f"It tries {sum(tried.tried.values()):,} mistakes for `{mma.name}`."


def units_table() -> str:
    """Return the parameters in tables/arithmetic_units.toml; units with the same parameters share a row."""
    columns = ("rule", "products", "fraction_bits", "rounding", "zero_exponent", "accumulator")
    alike: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for unit in read_table("arithmetic_units")["unit"]:
        alike.setdefault((*(unit[column] for column in columns), *unit["operands"]), []).append(unit)
    rows = []
    for same in alike.values():
        unit = same[0]
        names = ", ".join(dict.fromkeys(one["unit"] for one in same))
        archs = dict.fromkeys(arch for one in same for arch in one["arch"])
        types = [code(unit["operands"]), f"`{unit['accumulator']}`"]
        rows.append([names, code(archs), *types, unit["rule"], *(unit[column] for column in columns[1:-1])])
    header = ["units", "architectures", "A and B", "D", "rule", "products at once", "fraction bits", "rounding"]
    return markdown_table([*header, "exponent of 0"], rows)


def targets_table() -> str:
    """List the targets, with their instructions and arithmetic."""
    first = read_table("versions")["target"]
    rows = [
        [
            f"`{name}`",
            target.generation,
            f"`{target.arch}`",
            code(target.features),
            first[name],
            target.ptxas or "newest",
        ]
        for name, target in targets().items()
    ]
    header = ["target", "baseline", "arithmetic", "features", "first PTX", "last ptxas"]
    return markdown_table(header, rows)


def gpus_table() -> str:
    """List the GPUs by target."""
    rows = [[f"`{target}`", ", ".join(names)] for target, names in read_table("gpus")["gpu"].items()]
    return markdown_table(["target", "GPUs"], rows)


def format_aliases_table() -> str:
    """Aliases of formats."""
    rows = [
        [f"`{name}`", code(row.types), "; ".join(f"{word} {code(choices)}" for word, choices in row.lists.items())]
        for name, row in format_aliases().items()
    ]
    return markdown_table(["alias", "type", "with"], rows)


def formats_table() -> str:
    """Every number format."""

    def fields(row: Format) -> str:
        return f"{row.exponent} + {row.fraction}" if row.is_float else ""

    def short(value: float) -> str:
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    rows = [
        [
            f"`{row.name}`",
            row.bits,
            fields(row),
            f"{short(row.min)} .. {short(row.max)}",
            f"`{row.dtype}`",
            f"`{row.register}`",
        ]
        for row in FORMATS.values()
    ]
    return markdown_table(["format", "bits", "exponent + fraction", "finite values", "numpy type", "register"], rows)


def sparsity_table() -> str:
    """The elements that each metadata code keeps."""
    table = read_table("sparsity")
    kept: dict[str, dict[str, str]] = {}
    legal: dict[str, str] = {}
    for name, pattern in table["pattern"].items():
        for order, codes in table["codes"][pattern["codes"]].items():
            for text, units in sorted(codes.items()):
                columns = [unit * pattern["unit"] + place for unit in units for place in range(pattern["unit"])]
                key = f"`{int(text, 0):04b}`"
                kept.setdefault(key, {})[name] = " ".join(map(str, columns))
                if order != "rising":
                    legal[key] = "`mma.sp` only"
    rows = [
        [key, *(columns.get(name, "") for name in table["pattern"]), legal.get(key, "both")]
        for key, columns in sorted(kept.items(), key=lambda row: (row[0] in legal, row[0]))
    ]
    return markdown_table(["code", *table["pattern"], "legal in"], rows)


def notations_table() -> str:
    """Test which layouts each notation can express."""
    plain = Layout.parse({"row": 16, "col": 8}, lane="c2 c4 r1 r2 r4", reg="c1 r8")
    whole = [layout for layout in registry_layouts() if not any(size & (size - 1) for size in layout.shape)]
    other = [layout for layout in registry_layouts() if layout not in whole]
    kinds = {
        f"{len(whole)} of the {len(registry_layouts())} layouts of the instruction set": whole,
        f"the other {len(other)}: accumulators of wgmma whose n is not a power of two": other,
        "copies: an index bit that does not change the element": [
            Layout.parse({"row": 8, "col": 8}, lane="c2 c4 r1 r2 r4", reg="c1 0")
        ],
        "warps": [Layout.parse({"row": 64, "col": 8}, warp="r16 r32", lane="c2 c4 r1 r2 r4", reg="c1 r8")],
        "a tile of 24 columns, several times": [plain.tiled(col=3).tiled(col=2)],
        "a swizzle: several index bits that change the same coordinate bit": [
            Layout.parse({"row": 8, "col": 8}, lane="c1 c2 c4 r1+c1 r2", reg="r4")
        ],
        "a first place that does not hold element 0": [plain.fix(reg=3)],
        "elements without a place": [plain.fix(reg=0)],
        "an inverse, from elements to places": [plain.inverse()],
    }
    alike: dict[tuple[str, ...], list[str]] = {}
    for kind, layouts in kinds.items():  # "no" if one layout cannot be expressed
        alike.setdefault(tuple(_expressed(name, layouts) for name in NOTATIONS), []).append(kind)
    rows = [["; ".join(same), *answers] for answers, same in alike.items()]
    return markdown_table(["layouts", *(f"`{name}`" for name in NOTATIONS)], rows)


def registry_layouts() -> list[Layout]:
    """Return every layout of the instruction set."""
    operands = [operand for instruction in find() for operand in instruction.operands.values()]
    found = [operand.layout for operand in operands if operand.storage != "shared" and not operand.spec.unknown]
    found += [instruction.addresses for instruction in find() if instruction.addresses is not None]
    return list(dict.fromkeys(found))


def _expressed(notation: str, layouts: list[Layout]) -> str:
    """Return "yes" if all layouts can be expressed, "written" if they cannot be read back, else "no"."""
    try:
        texts = [layout.to(notation) for layout in layouts]
    except WarpfragError:
        return "no"
    if not NOTATIONS[notation].is_read:
        return "yes"
    try:
        back = [
            Layout.read(
                notation,
                text,
                **({"shape": layout.shape, "slots": layout.slots, "dims": layout.dims} if notation == "cute" else {}),
            )
            for layout, text in zip(layouts, texts, strict=True)
        ]
    except WarpfragError:
        return "written"
    return "yes" if back == layouts else "written"


def verbs_table() -> str:
    """Every verb of the command."""
    return markdown_table(["verb", "purpose"], [[f"`warpfrag {verb}`", text] for verb, (_, text) in VERBS.items()])


def statuses_table() -> str:
    """The meaning of each exit status."""
    return markdown_table(["status", "meaning"], STATUSES.items())


REGIONS: dict[str, Callable[[], str]] = {
    "facts": facts_table,
    "captured": captured_table,
    "reports": reports_list,
    "evidence": evidence_table,
    "mistakes": mistakes_line,
    "units": units_table,
    "targets": targets_table,
    "formats": formats_table,
    "gpus": gpus_table,
    "format-aliases": format_aliases_table,
    "sparsity": sparsity_table,
    "notations": notations_table,
    "verbs": verbs_table,
    "statuses": statuses_table,
}


@cache
def region(name: str) -> str:
    """Return the text of a region."""
    if name not in REGIONS:
        msg = f"no region is called {name!r}: there are {', '.join(REGIONS)}"
        raise KeyError(msg)
    return REGIONS[name]()


def fill(text: str) -> str:
    """Return a page with every region regenerated; raise an error for an unknown region."""
    return REGION.sub(lambda found: f"{found[1]}{region(found[2])}\n{found[3]}", text)
