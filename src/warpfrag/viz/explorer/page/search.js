// Finding instructions: by words of the name, and by choosing.

import { namedByAlias } from "./aliases.js";
import { GPUS, INSTRUCTIONS, NICKNAMES, productNamed } from "./model.js";
import { FACETS } from "./state.js";

const TARGET = /^sm_\d+[af]?$/; // sm_90 asks for what sm_90 or sm_90a can do
const USUAL_WIDTH = 64; // n
const USUAL_REPEAT = 4; // of a load of tensor memory
const HAYSTACKS = new Map(INSTRUCTIONS.map((instruction) => [instruction, wordsToFind(instruction)]));

/** What a query is looked for in: the name; of a spelling of tcgen05 also all its shapes and types. */
function wordsToFind({ name, tensor }) {
  if (!tensor) return name.toLowerCase();
  const { shapes, types } = tensor.family;
  const every = shapes.flatMap(({ m, k, widths }) => widths.map((n) => `m${m}n${n}k${k}`));
  return [tensor.family.name, ...every, ...types].join(" ").toLowerCase();
}

/** The value of an instruction for a facet. */
function facetValues(instruction, facet) {
  if (facet === "target") return instruction.targets;
  if (instruction.tensor && facet !== "op" && facet !== "kind") return tensorValues(instruction.tensor.family, facet);
  if (facet === "shape" && instruction.access) return [instruction.access];
  if (facet === "shape") return [instruction.shapeFamily ?? instruction.shapeText];
  return [instruction[facet] ?? ""];
}

/** The values that the products of a spelling have for a facet. */
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

/** The words of a query; of a pasted line of code what is around the name is dropped: asm("...", operands and ;. */
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

/** Whether a query spells the operation and then other words of the name in their order, some left out. */
function spells(instruction, pieces) {
  const op = piecesOf([instruction.op.toLowerCase()]);
  if (op.some((piece, place) => piece !== pieces[place])) return false;
  const words = HAYSTACKS.get(instruction).split(/[.\s]/);
  let next = 0;
  return pieces.every((piece) => (next = words.indexOf(piece, next) + 1) > 0);
}

/** Whether an instruction has elements that a nickname means: fp8, or nvfp4, which asks for scale factors too. */
function hasElements(instruction, { types, lists }) {
  return (
    ["a", "b", "c", "d"].some((role) => facetValues(instruction, role).some((type) => types.includes(type))) &&
    Object.values(lists).every((words) => words.some((word) => instruction.name.includes(word)))
  );
}

/**
 * What the names of GPUs and of element types in a query ask for, as the command knows them, and the words that are
 * left: "H100 fp8 mma" asks for sm_90a and e4m3 or e5m2, "e4m3 sm_90 k32" for what sm_90 or sm_90a can do.
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
    if (word in NICKNAMES) asked.push((instruction) => hasElements(instruction, NICKNAMES[word]));
    return word && !(word in NICKNAMES);
  });
  return { asked, rest: asked.length ? words.join(" ") : query };
}

/**
 * The instructions whose name has all words, in any order; words are cut at their dots if nothing has them whole. Those
 * whose name is spelt come first, so that Enter takes what was meant: without .sync.aligned, or with blanks for dots.
 * What no name has may be what others call an instruction.
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

/** The instructions that answer the query and all choices, and which choices would still find something. */
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

/** The product of a spelling that the words and choices mean: with that shape and those types, where they are said. */
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

/** Of the widths of a wgmma that are found the usual one, or the first: the page has a choice of the others. */
function firstOfEachFamily(found) {
  const taken = new Map();
  for (const instruction of found) {
    const { family, extents } = instruction;
    const usual = instruction.access ? USUAL_REPEAT : USUAL_WIDTH;
    if (family && (!taken.has(family) || extents.n === usual)) taken.set(family, instruction);
  }
  return found.filter((instruction) => !instruction.family || taken.get(instruction.family) === instruction);
}

/** Every value of a facet, in the order of the tables. */
export function allValues(facet) {
  return [...new Set(INSTRUCTIONS.flatMap((instruction) => facetValues(instruction, facet)))].filter(Boolean);
}
