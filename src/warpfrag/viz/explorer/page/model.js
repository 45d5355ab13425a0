// The data of the page as objects: instructions with their operands, operands with their layouts.

import { copiesOf, extentOf, narrowed, ofWarp, placesOf } from "./layout.js";

const DATA = JSON.parse(document.getElementById("data").textContent);
export const LETTERS = { a: "A", b: "B", c: "C", d: "D", metadata: "E", scale_a: "SA", scale_b: "SB" };
const MEANINGS = { metadata: "metadata", scale_a: "scales of A", scale_b: "scales of B" };
const CHOSEN_DIMS = new Set(["selector", "thread_id", "byte_id"]);

export const COORDINATE_WORDS = { row: "row", col: "column", chunk: "chunk", scale: "scale", tlane: "tensor lane", column: "column" };

/** The rows of tcgen05: products by spelling, loads and stores, and layouts; see tensor.js. */
export const TENSOR = { ...DATA.tensor, products: DATA.tensor.products.map(spelled) };
export const TARGETS = DATA.targets;

/** Names of GPUs, in lower case, with their targets. */
export const GPUS = DATA.gpus;

/** The element types that an alias may mean. */
export const FORMAT_ALIASES = DATA.format_aliases;

export const COLOURS = DATA.colours; // further lanes repeat the colours
export const VERSION = DATA.version;

/** The tables of plans between fragments; see relayouts.js. */
export const MOVES = {
  fragments: DATA.fragments,
  relayouts: DATA.relayouts,
  plans: DATA.plans,
  orders: DATA.orders,
  operands: DATA.operands,
  texts: DATA.texts,
};

/** Return the key of a fragment: the layout, and the bits of an element in its slot. */
export function fragmentKey({ layout, format, container, low }) {
  return [layout, format, container, low].join();
}

const WARP_ROWS = 16; // the rows of one warp, out of a warpgroup's 64

/** Return an operand of an instruction, with derived properties. */
function operandOf(row, layout = DATA.layouts[row.layout]) {
  const plane = layout.dims.length - 2; // the last two coordinates span the grid, the others select one
  return {
    ...row,
    layout,
    key: fragmentKey(row),
    bits: DATA.format_bits[row.format],
    lanes: extentOf(layout, "lane"),
    regs: extentOf(layout, "reg"),
    slots: extentOf(layout, "slot"),
    copies: row.unknown ? 1 : copiesOf(layout),
    letter: LETTERS[row.role],
    meaning: MEANINGS[row.role] ?? "",
    prefix: row.role.length === 1 ? row.role : "",
    plane,
    first: layout.start?.[plane] ?? 0,
    rows: layout.start ? WARP_ROWS : layout.shape[plane],
    cols: layout.shape[plane + 1],
    parts: CHOSEN_DIMS.has(layout.dims[0]) ? 1 : layout.shape.slice(0, plane).reduce((all, extent) => all * extent, 1),
  };
}

/** Return the names of an instruction in other tools, each with its tool and, for machine code, its targets. */
function namesOf([cute, sass, nvvm, mlir, also], text) {
  const [before, behind, ...attributes] = mlir.map(text);
  return [
    ...cute.map((place) => ({ kind: "CuTe", name: text(place) })),
    ...sass.map(([place, targets]) => ({ kind: "SASS", name: text(place), targets: DATA.target_sets[targets] })),
    ...nvvm.map((place) => ({ kind: "NVVM", name: text(place) })),
    ...(mlir.length ? [{ kind: "MLIR", name: `${before} {${attributes.join(", ")}}${behind}` }] : []),
    ...also.map((place) => ({ kind: "also", name: text(place) })),
  ];
}

/** Return an instruction with its operands. */
function instructionOf(row) {
  const words = row.name.slice(row.op.length + 1).split(".");
  const shape = row.access ? `${row.access}.x${row.repeat}` : shapeText(row.shape);
  const text = (place) => DATA.texts[place].replaceAll("{n}", row.shape[1]).replaceAll("{x}", row.repeat);
  return {
    kind: "",
    bitop: "",
    selectors: [],
    traps: [],
    ...row,
    shapeText: shape,
    extents: { m: row.shape[0], n: row.shape[1], k: row.shape[2] },
    rest: words.filter((word) => !["sync", "aligned", ...shape.split(".")].includes(word)).join("."),
    targets: DATA.target_sets[row.targets],
    sources: row.sources.map((source) => DATA.texts[source]),
    pattern: row.pattern ? { name: row.pattern, ...DATA.patterns[row.pattern] } : null,
    addresses: "addresses" in row ? DATA.layouts[row.addresses] : null,
    evidence: ("evidence" in row ? DATA.evidence_sets[row.evidence] : []).map(([arch, place]) => {
      const [level, detail, machine] = DATA.evidence[place].map(text);
      return { arch, level, detail, machine };
    }),
    get names() {
      return namesOf(row.names, text);
    },
    get lanes() {
      return Math.max(1, ...Object.values(this.operands).map((operand) => operand.lanes));
    },
    get operands() {
      const operands = Object.fromEntries(
        Object.keys(row.operands).map((role) => [role, operandOf(rowOf(row, role), layoutOf(row, role))]),
      );
      Object.defineProperty(this, "operands", { value: operands });
      return operands;
    },
  };
}

/** Return the operand of a role; D of a warpgroup has a separate row for the width with relayouts. */
function rowOf({ operands, moved, shape }, role) {
  const hasOwn = moved && role === "d" && moved[0] === shape[1];
  return DATA.operands[hasOwn ? moved[1] : operands[role]];
}

/** Return the layout of an operand; a warpgroup's D has the width of the instruction, and is shown for warp 0. */
function layoutOf(row, role) {
  const layout = DATA.layouts[rowOf(row, role).layout];
  if (row.repeats) return ofRepeat(layout, row);
  if (!row.widths) return layout;
  return ofWarp(role === "d" ? narrowed(layout, row.shape[1]) : layout, 0);
}

/**
 * Return the fields of a shorter load or store. The halves of 16x32bx2 are side by side, so the formulas of the longest
 * do not apply to the others.
 */
function ofRepeat(layout, { access, repeat, repeats }) {
  const share = repeat / repeats.at(-1);
  const columns = layout.shape[1] * share;
  const cut = { ...layout, shape: [layout.shape[0], columns], extents: { reg: (1 << layout.reg.length) * share } };
  if (access !== "16x32bx2" || share === 1) return cut;
  return { ...cut, lane: layout.lane.with(-1, [0, columns / 2]), element_formulas: {}, place_formulas: {} };
}

/** Return an instruction for each repeat of a tensor-memory load or store. */
function ofRepeats(row) {
  return row.repeats.map((repeat) =>
    instructionOf({ ...row, repeat, name: row.name.replace("{x}", repeat), family: row.name, shape: [0, repeat] }),
  );
}

/** Return the operands of a warpgroup for another warp. */
export function warpOperands({ operands }, warp) {
  return Object.fromEntries(
    Object.entries(operands).map(([role, operand]) => {
      const layout = ofWarp(operand.layout, warp);
      return [role, { ...operand, layout, first: layout.start[operand.plane] }];
    }),
  );
}

/** Return an instruction for each width of a wgmma row. */
function ofWidths(row) {
  return row.widths.map((width) =>
    instructionOf({
      ...row,
      name: row.name.replace("{n}", width),
      family: row.name,
      shape: row.shape.with(1, width),
      shapeFamily: `m64nNk${row.shape[2]}`,
    }),
  );
}

function shapeText([m, n, k]) {
  return `m${m}n${n}` + (k ? `k${k}` : "");
}

/** Return a spelling with its lists of types and widths. */
function spelled(row) {
  const { type_lists: types, width_lists: widths } = DATA.tensor;
  const shapes = row.shapes.map((shape) => ({ ...shape, widths: widths[shape.widths] }));
  return { ...row, shapes, types: types[row.types] };
}

/** Return a tcgen05 product: a spelling with a shape, a width and types, and operands in tensor memory. */
function productOf(family, shape, n, types) {
  const [d, a, b] = types.split(".");
  const { m, k } = shape;
  const name = `${family.name}.m${m}n${n}k${k}.${types}`;
  const roles = ["d", "a", ...(family.sparse ? ["metadata"] : []), ...(family.scales ? ["scale_a", "scale_b"] : [])];
  const instruction = instructionOf({ ...family, operands: {}, name, shape: [m, n, k], a, b, c: d, d });
  return Object.assign(instruction, { tensor: { family, shape, types, roles } });
}

/** Return the default product of a spelling. */
function usualProduct(family) {
  const [m, n, k] = family.usual;
  return productOf(family, family.shapes.find((shape) => shape.m === m && shape.k === k), n, family.types[0]);
}

/** Return the tcgen05 product with this full name, or undefined. */
export function productNamed(name) {
  const [, spelling, m, n, k, types] = /^(.*)\.m(\d+)n(\d+)k(\d+)\.(.+)$/.exec(name) ?? [];
  const family = TENSOR.products.find((row) => row.name === spelling);
  const shape = family?.shapes.find((one) => one.m === Number(m) && one.k === Number(k));
  if (!shape?.widths.includes(Number(n)) || !family.types.includes(types)) return undefined;
  if (!BY_NAME.has(name)) BY_NAME.set(name, productOf(family, shape, Number(n), types));
  return BY_NAME.get(name);
}

export const INSTRUCTIONS = [
  ...DATA.instructions.map(instructionOf),
  ...DATA.warpgroups.flatMap(ofWidths),
  ...TENSOR.moves.flatMap(ofRepeats),
  ...TENSOR.products.map(usualProduct),
];
export const BY_NAME = new Map(INSTRUCTIONS.map((instruction) => [instruction.name, instruction]));

/** Return the instruction with another width, or the same if there is no such width. */
export function ofWidth(instruction, width) {
  return BY_NAME.get(instruction.family.replace(/\{[nx]\}/, width)) ?? instruction;
}

/** Return true if a warpgroup executes the instruction; its registers are shown warp by warp. */
export function isWarpgroup({ widths }) {
  return Boolean(widths);
}

/** Return the bits of a format. */
export function bitsOfFormat(format) {
  return DATA.format_bits[format];
}

/** Return the lowest and highest bit of a slot's code in its register. */
export function bitsOf(operand, slot) {
  const low = slot * operand.container + operand.low;
  return { low, high: low + operand.bits - 1 };
}

/** Return a range of bits as text, high bit first. */
export function bitsText(operand, slot) {
  const { low, high } = bitsOf(operand, slot);
  return high === low ? `${low}` : `${high}:${low}`;
}

/** Return PTX's name of an element in a lane: a0, a1, ... */
export function elementName(operand, reg, slot) {
  return `${operand.prefix}${reg * operand.slots + slot}`;
}

/** Return PTX's names of adjacent elements of a register: a0–7. */
export function elementRange(operand, reg, slot, length) {
  const last = reg * operand.slots + slot + length - 1;
  return elementName(operand, reg, slot) + (length > 1 ? `–${last}` : "");
}

/** Return the leading coordinates of a grid: the product or matrix, or the selector or ids that are read. */
export function leading(operand, part, state) {
  const chosen = {
    selector: state.selector,
    thread_id: state[operand.role === "scale_a" ? "thread_a" : "thread_b"],
    byte_id: state[operand.role === "scale_a" ? "byte_a" : "byte_b"],
  };
  return operand.layout.dims
    .slice(0, operand.plane)
    .map((dim, place) => Math.min(CHOSEN_DIMS.has(dim) ? chosen[dim] : part, operand.layout.shape[place] - 1));
}

/** Return the label of a selecting coordinate, such as byte-id. */
export function idWord(dim) {
  return dim.replace("_", "-");
}

/** Return the value of a selecting coordinate in PTX: a byte-id is the first of the bytes that are read. */
export function chosenId(operand, dim, coordinate) {
  const { dims, shape } = operand.layout;
  return dim === "byte_id" ? (coordinate * operand.slots) / shape[dims.indexOf(dim)] : coordinate;
}

/** Return the selecting coordinates of an operand that have more than one value. */
export function chosenDims({ layout }) {
  return layout.dims.filter((dim, place) => CHOSEN_DIMS.has(dim) && layout.shape[place] > 1);
}

/** Return the places of an element of a grid. */
export function holders(operand, part, row, col, state) {
  return placesOf(operand.layout, [...leading(operand, part, state), row, col]);
}

/** Return an element as text: A[9][3], or A2[9][3] for the third product or matrix. */
export function elementText(operand, part, row, col) {
  return `${operand.letter}${operand.parts > 1 ? part : ""}[${row}][${col}]`;
}

/** Return the meaning of the third coordinate: products of m8n8k4, or matrices of ldmatrix. */
export function partWord(operand) {
  return operand.layout.dims[0] === "mma" ? "product" : "matrix";
}

/** Return the lane that passes the address of a matrix row or column, and a sentence about it. */
export function addressOf(addresses, part, line) {
  const [[lane]] = placesOf(addresses, [part, line]);
  return { lane, sentence: `Lane ${lane} gives the address of this ${COORDINATE_WORDS[addresses.dims[1]]}.` };
}

/** Return each legal metadata code as text, with the columns of a chunk that it keeps, in storage order. */
export function legalCodes(instruction) {
  const { rising, descending } = instruction.pattern;
  const codes = instruction.ordered ? rising : [...rising, ...descending];
  return codes.map(([code, columns]) => [code.toString(2).padStart(4, "0"), columns]);
}

/** Return the metadata code with which every chunk is shown, and the columns that it keeps. */
export function currentCode(instruction, state) {
  const codes = legalCodes(instruction);
  return codes.find(([text]) => text === state.code) ?? codes[0];
}
