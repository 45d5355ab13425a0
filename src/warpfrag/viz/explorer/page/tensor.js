// Tensor memory: the lane and column of each element of a tcgen05 product, and its register after a load.
// The rows of tables/tcgen05.toml are read as in warpfrag/isa/tmem_layouts.py.

import { TENSOR } from "./model.js";

export const TENSOR_LANES = 128;
export const WARP_LANES = 32;
const SCALE_ROWS = 128; // scale factors take space for multiples of this many rows
const BITS = 32; // bits per column
const DIMS = { metadata: ["selector", "row", "chunk"], scale_a: ["row", "byte"], scale_b: ["byte", "col"] };

/** The available loads: each shape with its largest repeat. */
export const LOADS = Object.fromEntries(TENSOR.moves.map(({ access, repeats }) => [access, repeats.at(-1)]));

function padded(lines) {
  return Math.ceil(lines / SCALE_ROWS) * SCALE_ROWS;
}

/** Return the sum of the moves of a number's set bits; a move is a letter and an amount, or "0". */
function moved(words, number, amountOf) {
  return words
    .split(" ")
    .filter((word, bit) => word && (number >> bit) & 1)
    .map(amountOf)
    .reduce((all, moves) => all.map((one, dim) => one + moves[dim]), [0, 0, 0]);
}

/** Return the names of an operand's coordinates. */
export function dimsOf(role) {
  return DIMS[role] ?? ["row", "col"];
}

/** Return the extents of an operand: columns, elements per column, and coordinates. */
export function extentsOf({ tensor, extents: { m, n, k } }, role) {
  const { blocks, sparse, scales } = tensor.family;
  const { shape } = tensor;
  const words = Math.ceil(scales / 4);
  if (role === "a") return { columns: shape.a[0], slots: shape.a[1], outs: { row: m, col: sparse ? k / 2 : k } };
  if (role === "metadata") {
    const code = TENSOR.codes[tensor.family.metadata];
    const count = (words_) => 1 << words_.split(" ").length;
    const selectors = code.column.includes("s1") ? 2 : 1;
    return { columns: count(code.column), slots: count(code.slot), outs: { selector: selectors, row: m, chunk: shape.chunks } };
  }
  if (role === "scale_a") return { columns: (m / blocks / WARP_LANES) * words, slots: 4, outs: { row: m, byte: 4 * words } };
  if (role === "scale_b") {
    const lines = padded(isSplit(tensor, m) ? n / 2 : n);
    return { columns: (lines / WARP_LANES) * words, slots: 4, outs: { byte: 4 * words, col: n } };
  }
  const parts = TENSOR.placement[shape.path].tlane.split(" ").filter((word) => word[0] === "n").length;
  return { columns: n >> parts, slots: 1, outs: { row: m, col: n } };
}

/** Return true if lanes from 64 on have the scales of the second half of B's columns, as in a pair with m = 128. */
function isSplit({ family }, m) {
  return family.blocks === 2 && m === SCALE_ROWS;
}

/** Return the element at a place, as coordinates in the order of dimsOf, or null for padding. */
export function tensorElement(instruction, role, { block, lane, column, slot }) {
  const { tensor, extents } = instruction;
  const place = TENSOR.placement[tensor.shape.path];
  if (role === "metadata") return codeAt(tensor, place, { block, lane, column, slot });
  if (role.startsWith("scale")) return scaleAt(instruction, role, { block, lane, column, slot });
  const isA = role === "a";
  const amounts = (word) => {
    const amount = Number(word.slice(1));
    if (word[0] === "r") return [amount, 0, 0];
    return word[0] === "n" && !isA ? [0, extents.n / amount, 0] : [0, 0, 0];
  };
  const [row, col] = moved(place.tlane, lane, amounts);
  const [further] = moved(place.block, block, amounts);
  return [row + further, isA ? column * tensor.shape.a[1] + slot : col + column];
}

function codeAt({ family }, place, { block, lane, column, slot }) {
  const code = TENSOR.codes[family.metadata];
  const physical = place.tlane.split(" ");
  const amounts = (word) => {
    const stated = word[0] === "p" ? physical[Math.log2(Number(word.slice(1)))] : word;
    const amount = Number(stated.slice(1));
    return ["s", "r", "k"].map((letter) => (stated[0] === letter ? amount : 0));
  };
  const steps = [moved(code.tlane, lane, amounts), moved(code.column, column, amounts), moved(code.slot, slot, amounts)];
  steps.push(moved(place.block, block, amounts));
  return [0, 1, 2].map((dim) => steps.reduce((all, step) => all + step[dim], 0));
}

function scaleAt({ tensor, extents: { m, n } }, role, { block, lane, column, slot }) {
  const { blocks } = tensor.family;
  const split = role === "scale_b" && isSplit(tensor, m);
  const lines = role === "scale_a" ? m / blocks : padded(split ? n / 2 : n);
  const across = lines / WARP_LANES;
  const line = (lane % WARP_LANES) + WARP_LANES * (column % across);
  const byte = slot + 4 * Math.floor(column / across);
  if (role === "scale_a") return [line + block * lines, byte];
  const limit = split ? n / 2 : n;
  if (line >= limit) return null;
  return [byte, line + (split && lane >= TENSOR_LANES / 2 ? limit : 0)];
}

/** Return true if the lane belongs to the half that a different base lane selects. */
export function isOtherHalf({ tensor }, role, lane) {
  const bit = TENSOR.placement[tensor.shape.path].tlane.split(" ").indexOf("0");
  return bit >= 0 && !role.startsWith("scale") && Boolean((lane >> bit) & 1);
}

/** Return every place that holds an element, without those of the other base lane. */
export function placesInTensorMemory(instruction, role, coordinates) {
  const { columns, slots } = extentsOf(instruction, role);
  const found = [];
  for (let block = 0; block < instruction.tensor.family.blocks; block++) {
    for (let lane = 0; lane < TENSOR_LANES; lane++) {
      if (isOtherHalf(instruction, role, lane)) continue;
      for (let column = 0; column < columns; column++) {
        for (let slot = 0; slot < slots; slot++) {
          const element = tensorElement(instruction, role, { block, lane, column, slot });
          if (element?.every((one, dim) => one === coordinates[dim])) found.push({ block, lane, column, slot });
        }
      }
    }
  }
  return found;
}

/** Return the bits of a slot in its column. */
export function columnBits(slots, slot) {
  const width = BITS / slots;
  return `${(slot + 1) * width - 1}:${slot * width}`;
}

/** Return the thread and register of a column after a load of this shape, and the load's name, column and base lane. */
export function afterLoad(shape, columns, { lane, column }) {
  const row = TENSOR.access[shape];
  const bits = row.reg.split(" ").filter(Boolean).length;
  const isTwo = shape === "16x32bx2";
  const each = row.next * (isTwo ? 2 : 1); // columns of one repeat
  const wanted = 2 ** Math.floor(Math.log2(Math.max(1, columns / each)));
  const repeat = Math.max(1, Math.min(LOADS[shape], wanted));
  const reach = each * repeat;
  const isHalf = shape !== "32x32b";
  const base = isHalf && (lane & 16) !== 0 ? 16 : 0;
  const start = Math.floor(column / reach) * reach;
  const amounts = (word) => {
    const amount = word === "split" ? repeat : Number(word.slice(1));
    return word[0] === "l" ? [amount, 0, 0] : [0, amount, 0];
  };
  for (let thread = 0; thread < WARP_LANES; thread++) {
    for (let reg = 0; reg < repeat << bits; reg++) {
      const [ofLane, acrossLane] = moved(row.lane, thread, amounts);
      const [ofReg, acrossReg] = moved(row.reg, reg, amounts);
      const at = [ofLane + ofReg + base, acrossLane + acrossReg + (reg >> bits) * row.next + start];
      if (at[0] === lane % WARP_LANES && at[1] === column) {
        return { load: `tcgen05.ld.sync.aligned.${shape}.x${repeat}.b32`, start, base, warp: Math.floor(lane / WARP_LANES), thread, reg };
      }
    }
  }
  return null;
}
