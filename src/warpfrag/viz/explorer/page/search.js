// Find instructions by parts of the name, and by choices.

import { namedByAlias } from "./aliases.js";
import { FORMAT_ALIASES, GPUS, INSTRUCTIONS, productNamed } from "./model.js";
import { FACETS } from "./state.js";

const TARGET = /^sm_\d+[af]?$/; // sm_90 matches instructions of sm_90 and sm_90a
const USUAL_WIDTH = 64; // n of wgmma
const USUAL_REPEAT = 4; // the repeat of a tensor-memory load
const HAYSTACKS = new Map(INSTRUCTIONS.map((instruction) => [instruction, wordsToFind(instruction)]));

/** Return the text that is searched: the name and, for a tcgen05 spelling, all its shapes and types. */
function wordsToFind({ name, tensor }) {
  if (!tensor) return name.toLowerCase();
  const { shapes, types } = tensor.family;
  const every = shapes.flatMap(({ m, k, widths }) => widths.map((n) => `m${m}n${n}k${k}`));
  return [tensor.family.name, ...every, ...types].join(" ").toLowerCase();
}

/** Return the value of an instruction for a facet. */
function facetValues(instruction, facet) {
  if (facet === "target") return instruction.targets;
  if (instruction.tensor && facet !== "op" && facet !== "kind") return tensorValues(instruction.tensor.family, facet);
  if (facet === "shape" && instruction.access) return [instruction.access];
  if (facet === "shape") return [instruction.shapeFamily ?? instruction.shapeText];
  return [instruction[facet] ?? ""];
}

/** Return the values of a spelling's products for a facet. */
function tensorValues({ shapes, types }, facet) {
  if (facet === "shape") return shapes.map(({ m, k }) => `m${m}nNk${k}`);
  const place = { d: 0, c: 0, a: 1, b: 2 }[facet];
  return [...new Set(types.map((text) => text.split(".")[place]))];
}

function answers(instruction, chosen, but = "") {
  return FACETS.every(
    (facet) => facet === but || !chosen[facet] || facetValues(instruction, facet).includes(chosen[facet]),
  );
}

/** Return the words of a query; in pasted code, everything around the name is dropped: asm("...", operands and ;. */
function wordsOf(query) {
  return query
    .toLowerCase()
    .replace(/^[^"]*\basm\b[^"]*"\s*/s, "")
    .replace(/[;{%["].*$/s, "")
    .split(/[\s,]+/)
    .filter(Boolean);
}

function piecesOf(words) {
  return words.flatMap((word) => word.split(".").filter(Boolean));
}

function namesWith(words) {
  return INSTRUCTIONS.filter((instruction) => words.every((word) => HAYSTACKS.get(instruction).includes(word)));
}

/** Return true if a query has the operation and then some qualifiers of the name in order. */
function spells(instruction, pieces) {
  const op = piecesOf([instruction.op.toLowerCase()]);
  if (op.some((piece, place) => piece !== pieces[place])) return false;
  const words = HAYSTACKS.get(instruction).split(/[.\s]/);
  let next = 0;
  return pieces.every((piece) => (next = words.indexOf(piece, next) + 1) > 0);
}

/** Return true if an instruction has the types of an alias: fp8, or nvfp4, which also needs scale factors. */
function hasElements(instruction, { types, lists }) {
  return (
    ["a", "b", "c", "d"].some((role) => facetValues(instruction, role).some((type) => types.includes(type))) &&
    Object.values(lists).every((words) => words.some((word) => instruction.name.includes(word)))
  );
}

/**
 * Return a condition for each GPU, target and element type that a query names, and the remaining words: "H100 fp8 mma"
 * means sm_90a and e4m3 or e5m2, "e4m3 sm_90 k32" means sm_90 or sm_90a.
 */
function vocabulary(query) {
  const asked = [];
  let rest = ` ${query.toLowerCase().replaceAll("-", " ")} `.replace(/\b([rg]tx)(?=\d)/g, "$1 ");
  for (const gpu of Object.keys(GPUS).sort((one, other) => other.length - one.length)) {
    if (rest.includes(` ${gpu} `)) {
      rest = rest.replace(` ${gpu} `, " ");
      asked.push((instruction) => instruction.targets.includes(GPUS[gpu]));
    }
  }
  const words = rest.split(/[\s,]+/).filter((word) => {
    const target = TARGET.exec(word);
    if (target) asked.push((instruction) => [word, `${word}a`].some((name) => instruction.targets.includes(name)));
    if (target) return false;
    if (word in FORMAT_ALIASES) asked.push((instruction) => hasElements(instruction, FORMAT_ALIASES[word]));
    return word && !(word in FORMAT_ALIASES);
  });
  return { asked, rest: asked.length ? words.join(" ") : query };
}

/**
 * Return the instructions whose names contain all words, in any order; words are split at dots if none contains them
 * whole. Names that the query spells (without .sync.aligned, or with spaces for dots) come first, so that Enter opens
 * them. If no name matches, the query is tried as an alias.
 */
function named(text) {
  const found = spelt(text);
  const { asked, rest } = vocabulary(text);
  if (found.length || !asked.length) return found;
  return spelt(rest).filter((instruction) => asked.every((fits) => fits(instruction)));
}

function spelt(query) {
  const words = wordsOf(query);
  const whole = namesWith(words);
  const pieces = piecesOf(words);
  const cut = whole.length ? whole : namesWith(pieces);
  const found = cut.length ? cut : namedByAlias(query);
  const meant = new Set(found.filter((instruction) => spells(instruction, pieces)));
  return [...meant, ...found.filter((instruction) => !meant.has(instruction))];
}

/** Return the instructions that match the query and all choices, and the choices that still have matches. */
export function search(chosen) {
  const candidates = named(chosen.q);
  const open = Object.fromEntries(
    FACETS.map((facet) => {
      const values = candidates
        .filter((instruction) => answers(instruction, chosen, facet))
        .flatMap((instruction) => facetValues(instruction, facet));
      return [facet, new Set(values.filter(Boolean))];
    }),
  );
  const found = firstOfEachFamily(candidates.filter((instruction) => answers(instruction, chosen)));
  return { matches: found.map((instruction) => (instruction.tensor ? meantProduct(instruction, chosen) : instruction)), open };
}

/** Return the product of a spelling with the shape and types in the words and choices. */
function meantProduct(instruction, chosen) {
  const { family } = instruction.tensor;
  const text = chosen.q.toLowerCase();
  const [, m, n] = /\bm(\d+)(?:n(\d+))?/.exec(text) ?? [];
  const [, k] = /\bm\d+n\d+k(\d+)/.exec(text) ?? [];
  const [first, width, depth] = family.usual;
  const shape =
    ((m || n) && family.shapes.find((one) => (!m || one.m === Number(m)) && (!k || one.k === Number(k)) && (!n || one.widths.includes(Number(n))))) ||
    family.shapes.find((one) => one.m === first && one.k === depth);
  const widths = [Number(n), width, shape.widths.at(-1)];
  const words = new Set(piecesOf(wordsOf(text)));
  const answering = family.types.filter((types) => {
    const [d, a, b] = types.split(".");
    return Object.entries({ d, c: d, a, b }).every(([facet, type]) => !chosen[facet] || chosen[facet] === type);
  });
  const types =
    answering.find((one) => text.includes(one)) ??
    answering.find((one) => one.split(".").slice(1, 3).every((type) => words.has(type))) ??
    answering[0] ??
    family.types[0];
  return productNamed(`${family.name}.m${shape.m}n${widths.find((one) => shape.widths.includes(one))}k${shape.k}.${types}`);
}

/** Return the usual width of a wgmma, or else the first match; the page offers the others. */
function firstOfEachFamily(found) {
  const taken = new Map();
  for (const instruction of found) {
    const { family, extents } = instruction;
    const usual = instruction.access ? USUAL_REPEAT : USUAL_WIDTH;
    if (family && (!taken.has(family) || extents.n === usual)) taken.set(family, instruction);
  }
  return found.filter((instruction) => !instruction.family || taken.get(instruction.family) === instruction);
}

/** Return every value of a facet, in the order of the tables. */
export function allValues(facet) {
  return [...new Set(INSTRUCTIONS.flatMap((instruction) => facetValues(instruction, facet)))].filter(Boolean);
}
