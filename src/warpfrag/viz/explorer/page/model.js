// The data of the page as objects: instructions with their operands, operands with their layouts.

import { copiesOf, extentOf, narrowed, ofWarp, placesOf } from "./layout.js";

const DATA = JSON.parse(document.getElementById("data").textContent);
export const LETTERS = { a: "A", b: "B", c: "C", d: "D", metadata: "E", scale_a: "SA", scale_b: "SB" };
const MEANINGS = { metadata: "metadata", scale_a: "scales of A", scale_b: "scales of B" };
const CHOSEN_DIMS = new Set(["selector", "thread_id", "byte_id"]);

export const COORDINATE_WORDS = { row: "row", col: "column", chunk: "chunk", scale: "scale", tlane: "tensor lane", column: "column" };

/** Rows of tcgen05: products by spelling, loads and stores, and where elements lie; see tensor.js. */
export const TENSOR = { ...DATA.tensor, products: DATA.tensor.products.map(spelled) };
export const TARGETS = DATA.targets;

/** Names of GPUs, in lower case, with their targets. */
export const GPUS = DATA.gpus;

/** Names of element types elsewhere: what they may mean. */
export const NICKNAMES = DATA.nicknames;

export const COLOURS = DATA.colours; // lanes beyond the first so many have their colours again
export const VERSION = DATA.version;

/** What plans between fragments are made of; see relayouts.js. */
export const MOVES = {
  fragments: DATA.fragments,
  relayouts: DATA.relayouts,
  plans: DATA.plans,
  orders: DATA.orders,
  operands: DATA.operands,
  texts: DATA.texts,
};

/** What makes two operands the same fragment: the layout, and how an element lies in its place. */
export function fragmentKey({ layout, format, container, low }) {
  return [layout, format, container, low].join();
}

const WARP_ROWS = 16; // of a warpgroup's 64, that one warp holds

/** An operand of one instruction, with what follows from its row. */
function operandOf(row, layout = DATA.layouts[row.layout]) {
  const plane = layout.dims.length - 2; // the last two coordinates span the grid, those before choose one
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

/** What an instruction is called elsewhere: pairs of who calls it so and the name; machine code also says where. */
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

/** One instruction, with its operands. */
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

/** The operand of a role; D of a warpgroup has a row of its own for the width whose relayouts are known. */
function rowOf({ operands, moved, shape }, role) {
  const hasOwn = moved && role === "d" && moved[0] === shape[1];
  return DATA.operands[hasOwn ? moved[1] : operands[role]];
}

/** The layout of an operand; that of a warpgroup's D is as wide as the instruction, and shown for the first warp. */
function layoutOf(row, role) {
  const layout = DATA.layouts[rowOf(row, role).layout];
  if (row.repeats) return ofRepeat(layout, row);
  if (!row.widths) return layout;
  return ofWarp(role === "d" ? narrowed(layout, row.shape[1]) : layout, 0);
}

/**
 * What a shorter load or store has: so many columns and registers. The halves of 16x32bx2 stand side by side, so the
 * formulas of the longest are not those of others.
 */
function ofRepeat(layout, { access, repeat, repeats }) {
  const share = repeat / repeats.at(-1);
  const columns = layout.shape[1] * share;
  const cut = { ...layout, shape: [layout.shape[0], columns], extents: { reg: (1 << layout.reg.length) * share } };
  if (access !== "16x32bx2" || share === 1) return cut;
  return { ...cut, lane: layout.lane.with(-1, [0, columns / 2]), element_formulas: {}, place_formulas: {} };
}

/** Every repeat of a load or store of tensor memory as an instruction of its own. */
function ofRepeats(row) {
  return row.repeats.map((repeat) =>
    instructionOf({ ...row, repeat, name: row.name.replace("{x}", repeat), family: row.name, shape: [0, repeat] }),
  );
}

/** The operands of a warpgroup as another warp holds them. */
export function warpOperands({ operands }, warp) {
  return Object.fromEntries(
    Object.entries(operands).map(([role, operand]) => {
      const layout = ofWarp(operand.layout, warp);
      return [role, { ...operand, layout, first: layout.start[operand.plane] }];
    }),
  );
}

/** Every width of a row of wgmma as an instruction of its own. */
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

/** A spelling with its lists of types and widths. */
function spelled(row) {
  const { type_lists: types, width_lists: widths } = DATA.tensor;
  const shapes = row.shapes.map((shape) => ({ ...shape, widths: widths[shape.widths] }));
  return { ...row, shapes, types: types[row.types] };
}

/** A product of tcgen05: a spelling with one of its shapes, widths and types. Its operands lie in tensor memory. */
function productOf(family, shape, n, types) {
  const [d, a, b] = types.split(".");
  const { m, k } = shape;
  const name = `${family.name}.m${m}n${n}k${k}.${types}`;
  const roles = ["d", "a", ...(family.sparse ? ["metadata"] : []), ...(family.scales ? ["scale_a", "scale_b"] : [])];
  const instruction = instructionOf({ ...family, operands: {}, name, shape: [m, n, k], a, b, c: d, d });
  return Object.assign(instruction, { tensor: { family, shape, types, roles } });
}

/** The product that a spelling is first shown with. */
function usualProduct(family) {
  const [m, n, k] = family.usual;
  return productOf(family, family.shapes.find((shape) => shape.m === m && shape.k === k), n, family.types[0]);
}

/** A product of tcgen05 by its whole name; undefined where there is none. */
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

/** The instruction of another width, or the same where there is no such width. */
export function ofWidth(instruction, width) {
  return BY_NAME.get(instruction.family.replace(/\{[nx]\}/, width)) ?? instruction;
}

/** Whether a warpgroup runs it: its registers are shown warp by warp. */
export function isWarpgroup({ widths }) {
  return Boolean(widths);
}

/** The formats' bits. */
export function bitsOfFormat(format) {
  return DATA.format_bits[format];
}

/** The lowest and highest bit of the register that the code in a slot takes. */
export function bitsOf(operand, slot) {
  const low = slot * operand.container + operand.low;
  return { low, high: low + operand.bits - 1 };
}

/** A range of bits as PTX and people write it, high bit first. */
export function bitsText(operand, slot) {
  const { low, high } = bitsOf(operand, slot);
  return high === low ? `${low}` : `${high}:${low}`;
}

/** PTX's name of an element of a lane: a0, a1, ... count through its registers. */
export function elementName(operand, reg, slot) {
  return `${operand.prefix}${reg * operand.slots + slot}`;
}

/** Some neighbouring elements of a register, by PTX's names: a0–7. */
export function elementRange(operand, reg, slot, length) {
  const last = reg * operand.slots + slot + length - 1;
  return elementName(operand, reg, slot) + (length > 1 ? `–${last}` : "");
}

/** The leading coordinates of one grid: which product or matrix, or what the programmer has chosen to be read. */
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

/** The word for a coordinate that the programmer chooses: the byte-id. */
export function idWord(dim) {
  return dim.replace("_", "-");
}

/** Such a coordinate as the programmer writes it: a byte-id is the first byte that is read, and may read several. */
export function chosenId(operand, dim, coordinate) {
  const { dims, shape } = operand.layout;
  return dim === "byte_id" ? (coordinate * operand.slots) / shape[dims.indexOf(dim)] : coordinate;
}

/** The coordinates of an operand by which the programmer chooses what is read, where there is a choice. */
export function chosenDims({ layout }) {
  return layout.dims.filter((dim, place) => CHOSEN_DIMS.has(dim) && layout.shape[place] > 1);
}

/** The places of one element of a grid. */
export function holders(operand, part, row, col, state) {
  return placesOf(operand.layout, [...leading(operand, part, state), row, col]);
}

/** An element as text: A[9][3], or A2[9][3] for the third product or matrix. */
export function elementText(operand, part, row, col) {
  return `${operand.letter}${operand.parts > 1 ? part : ""}[${row}][${col}]`;
}

/** What the third coordinate counts: products of m8n8k4, matrices of a mover. */
export function partWord(operand) {
  return operand.layout.dims[0] === "mma" ? "product" : "matrix";
}

/** The lane that gives the address of a row or column of a mover's matrix, and a sentence that says so. */
export function addressOf(addresses, part, line) {
  const [[lane]] = placesOf(addresses, [part, line]);
  return { lane, sentence: `Lane ${lane} gives the address of this ${COORDINATE_WORDS[addresses.dims[1]]}.` };
}

/** Each legal metadata code, as text, with the columns inside a chunk that it keeps, in the order of storage. */
export function legalCodes(instruction) {
  const { rising, descending } = instruction.pattern;
  const codes = instruction.ordered ? rising : [...rising, ...descending];
  return codes.map(([code, columns]) => [code.toString(2).padStart(4, "0"), columns]);
}

/** The metadata code that every chunk is shown with, and the columns that it keeps. */
export function currentCode(instruction, state) {
  const codes = legalCodes(instruction);
  return codes.find(([text]) => text === state.code) ?? codes[0];
}
