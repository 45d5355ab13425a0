// The data of the page as objects: instructions with their operands, operands with their layouts.

import { copiesOf, extentOf, narrowed, ofWarp, placesOf } from "./layout.js";

const DATA = JSON.parse(document.getElementById("data").textContent);
const LETTERS = { a: "A", b: "B", c: "C", d: "D", metadata: "E", scale_a: "SA", scale_b: "SB" };
const MEANINGS = { metadata: "metadata", scale_a: "scales of A", scale_b: "scales of B" };
const CHOSEN_DIMS = new Set(["selector", "thread_id", "byte_id"]);

export const COORDINATE_WORDS = { row: "row", col: "column", chunk: "chunk", scale: "scale" };
export const TARGETS = DATA.targets;

/** Names of GPUs, in lower case, with their targets. */
export const GPUS = DATA.gpus;

/** Names of element types elsewhere: what they may mean. */
export const NICKNAMES = DATA.nicknames;

/** How names of frameworks are found and read; see frameworks.js. */
export const FRAMEWORKS = DATA.frameworks;
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
  const shape = shapeText(row.shape);
  const text = (place) => DATA.texts[place].replaceAll("{n}", row.shape[1]);
  return {
    kind: "",
    bitop: "",
    selectors: [],
    traps: [],
    ...row,
    shapeText: shape,
    extents: { m: row.shape[0], n: row.shape[1], k: row.shape[2] },
    rest: words.filter((word) => !["sync", "aligned", shape].includes(word)).join("."),
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
      return Math.max(...Object.values(this.operands).map((operand) => operand.lanes));
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
  if (!row.widths) return layout;
  return ofWarp(role === "d" ? narrowed(layout, row.shape[1]) : layout, 0);
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

export const INSTRUCTIONS = [...DATA.instructions.map(instructionOf), ...DATA.warpgroups.flatMap(ofWidths)];
export const BY_NAME = new Map(INSTRUCTIONS.map((instruction) => [instruction.name, instruction]));

/** The instruction of another width, or the same where there is no such width. */
export function ofWidth(instruction, width) {
  return BY_NAME.get(instruction.family.replace("{n}", width)) ?? instruction;
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
