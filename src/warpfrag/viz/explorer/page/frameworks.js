// Names that stand for several instructions: functions of CUDA C++, CUTLASS's Mma, MLIR's warpgroup, Triton's layouts.
// Patterns and types are those of warpfrag.isa.aliases.frameworks; each reader takes the words that a text has.

import { FRAMEWORKS, INSTRUCTIONS, bitsOfFormat } from "./model.js";

const WORD_BITS = 32;
const TRITON_OPS = { 1: "mma", 2: "mma", 3: "wgmma.mma_async" };
const { types: TYPES, families: FAMILIES } = FRAMEWORKS;
const PATTERNS = Object.fromEntries(
  Object.entries(FRAMEWORKS.patterns).map(([name, pattern]) => [name, new RegExp(pattern, "gs")]),
);

function first(name, text) {
  return [...text.matchAll(PATTERNS[name])][0];
}

function typeOf(name) {
  return TYPES[name] ?? name;
}

function shapeOf([, m, n, k]) {
  return `m${m}n${n}k${k}`;
}

const READERS = {
  builtin(text) {
    const [, family, shape, operation, types] = first("builtin", text);
    const op = { mma: "wmma.mma", st_c: "wmma.store.d" }[operation] ?? `wmma.load.${operation.at(-1)}`;
    if (op !== "wmma.mma") return { op, shapeText: shape };
    const sums = family === "hmma" && types.length === 6 ? { d: types.slice(0, 3), c: types.slice(3) } : {};
    return { op, shapeText: shape, a: FAMILIES[family] || types, ...sums };
  },

  wmma(text) {
    const words = { op: "wmma.mma" };
    const sums = first("accumulator", text);
    if (sums) Object.assign(words, { shapeText: shapeOf(sums), d: typeOf(sums[4]) });
    for (const [, role, ...parts] of text.matchAll(PATTERNS.fragment)) {
      Object.assign(words, { shapeText: shapeOf(["", ...parts]), [role]: typeOf(parts[3]) });
    }
    return words;
  },

  cutlass(text) {
    const match = first("cutlass_shape", text);
    if (!match) return { op: "mma" };
    const names = match[4].split(",").map((part) => part.trim().split("::").at(-1));
    const [a, b, d] = names.filter((name) => name in TYPES).map(typeOf);
    return { op: "mma", shapeText: shapeOf(match), a, b, d };
  },

  warpgroup(text) {
    const words = { op: "wgmma.mma_async" };
    const shape = first("mlir_shape", text);
    if (shape) words.shapeText = shapeOf(shape);
    for (const [, side, name] of text.matchAll(PATTERNS.mlir_sides)) words[side.toLowerCase()] = typeOf(name);
    const stored = [...text.matchAll(PATTERNS.memref)].map(([, name]) => (name === "f32" ? "tf32" : typeOf(name)));
    return words.a || !stored.length ? words : { ...words, a: stored[0], b: stored[1] };
  },

  triton(text) {
    const version = first("version", text)?.[1] ?? "2";
    if (!(version in TRITON_OPS)) return null;
    const words = { op: TRITON_OPS[version], shapeText: version === "1" ? "m8n8k4" : "" };
    const extents = first("shape", text)?.[1].split(",").map((extent) => Number(extent.trim())) ?? [];
    if (version === "2") Object.assign(words, { m: 16 }, extents.length > 1 && { m: extents.at(-2), n: extents.at(-1) });
    if (version === "3") Object.assign(words, { m: 64 }, extents.length === 3 && { n: extents[1], k: extents[2] });
    const width = first("k_width", text)?.[1];
    return width ? { ...words, bits: WORD_BITS / Number(width) } : words;
  },
};

/** Whether an instruction has a word: a field of its name, an extent of its shape, or bits of an element of A. */
function fits(instruction, [name, word]) {
  if (["m", "n", "k"].includes(name)) return instruction.extents[name] === word;
  return (name === "bits" ? bitsOfFormat(instruction.a) : instruction[name]) === word;
}

/** The instructions that fit everything a text of a framework says; none where it names no framework. */
export function namedByFramework(text) {
  const kind = FRAMEWORKS.names.find(([, pattern]) => new RegExp(pattern, "s").test(text))?.[0];
  const words = kind && READERS[kind](text);
  if (!words) return [];
  const asked = Object.entries(words).filter(([, word]) => word !== undefined && word !== "");
  return INSTRUCTIONS.filter((instruction) => asked.every((word) => fits(instruction, word)));
}
