// Every plan to load or store an operand, cheapest first, by the rules of warpfrag/plans/loads.py.

import { elementAt, extentOf } from "./layout.js";
import { addressIn, passesOf } from "./memory.js";

const WORD = 4; // bytes
const LINE = 16; // bytes of a line that ldmatrix or stmatrix moves
const LINES = 8; // lines of a matrix
const WARP = 32;
const MATRIX_BITS = 16; // bits of the elements that movmatrix transposes
const TURNED = 2; // the cost of movmatrix: an instruction and a pass
const TURN = "movmatrix.sync.aligned.m8n8.trans.b16";

/** Return the number of 32-bit words of an operand in a lane. */
function registerWords({ container, regs, slots }) {
  return (regs * slots * container) / (8 * WORD);
}

function upTo(length) {
  return Array.from({ length }, (_, place) => place);
}

/** Return the address of each byte, by lane and word, and true if each byte comes from one byte of memory. */
function bytesOf(operand, memory) {
  const { container, layout, regs, slots } = operand;
  const bytes = upTo(WARP).map(() => upTo(registerWords(operand)).map(() => new Array(WORD).fill(null)));
  let whole = true;
  for (const lane of upTo(WARP)) {
    for (const reg of upTo(regs)) {
      for (const slot of upTo(slots)) {
        const [row, col] = elementAt(layout, lane, reg, slot);
        const address = addressIn(memory, row, col, container, layout.shape);
        const first = (reg * slots + slot) * (container / 8);
        const along = (memory.order === "row" ? col : row) * container;
        for (const byte of upTo(Math.max(1, container / 8))) {
          const at = Math.floor(first) + byte;
          const word = bytes[lane][Math.floor(at / WORD)];
          const old = word[at % WORD];
          whole &&= (old === null || old === address + byte) && (slot * container) % 8 === along % 8;
          word[at % WORD] = address + byte;
        }
      }
    }
  }
  return { bytes, whole };
}

/** Return the address of a word if its bytes are contiguous and aligned, otherwise null. */
function wordStart([first, ...others]) {
  const inOrder = first !== null && others.every((byte, place) => byte === first + place + 1);
  return inOrder && first % WORD === 0 ? first : null;
}

/** Return `size` words, including the first remaining one, that are contiguous and aligned in every lane, or null. */
function neighbours(left, starts, size) {
  for (const first of left) {
    const group = [first];
    while (group.length < size) {
      const last = starts[group.at(-1)];
      const next = left.find((word) => !group.includes(word) && starts[word].every((at, lane) => at === last[lane] + WORD));
      if (next === undefined) break;
      group.push(next);
    }
    const aligned = starts[first].every((start) => start % (WORD * size) === 0);
    if (group.length === size && group.includes(left[0]) && aligned) return group;
  }
  return null;
}

/** Yield plain loads of 16, 8 and 4 bytes per lane, the widest that fit. */
function* byWords(operand, { bytes, whole }, verb) {
  const words = upTo(registerWords(operand));
  const starts = words.map((word) => bytes.map((lane) => wordStart(lane[word])));
  if (!whole || starts.some((word) => word.includes(null))) return;
  const seen = new Set();
  for (const widest of [4, 2, 1]) {
    let left = words;
    const accesses = [];
    while (left.length) {
      const taken = left;
      const group = [4, 2, 1].filter((size) => size <= widest).map((size) => neighbours(taken, starts, size)).find(Boolean);
      left = left.filter((word) => !group.includes(word));
      const vector = group.length > 1 ? `.v${group.length}` : "";
      accesses.push({
        instruction: `${verb}${vector}.b32`,
        words: group,
        addresses: starts[group[0]],
        width: WORD * group.length,
      });
    }
    const widths = accesses.map(({ width }) => width).join();
    if (!seen.has(widths)) yield { accesses };
    seen.add(widths);
  }
}

/** Return the plan that moves one element at a time, if elements are whole bytes and smaller than a word. */
function* byElements(operand, { bytes }, verb) {
  const size = operand.container / 8;
  if (size < 1 || size >= WORD) return;
  const accesses = upTo(registerWords(operand)).flatMap((word) =>
    upTo(WORD / size).map((slot) => ({
      instruction: `${verb}.b${8 * size}`,
      words: [word],
      addresses: bytes.map((lane) => lane[word][slot * size]),
      width: size,
      slot,
    })),
  );
  yield { accesses };
}

/** Return the first element of the line that each lane addresses, or null if its parts contradict each other. */
function lineStarts(mover, operand, order, first) {
  const { layout, container, addresses } = mover;
  const along = addresses.dims[1] === "row" ? 2 : 1; // an index into matrix, row and column
  const givers = upTo(extentOf(addresses, "lane")).map((lane) => elementAt(addresses, lane, 0, 0));
  const starts = [];
  const step = Math.min(container, operand.container);
  if (operand.container > 8 * WORD) return null;
  for (const lane of upTo(WARP)) {
    for (let bit = 0; bit < 8 * WORD; bit += step) {
      const place = elementAt(layout, lane, 0, Math.floor(bit / container));
      const giver = givers.findIndex(([matrix, line]) => matrix === place[0] && line === place[3 - along]);
      const at = place[along] * container + (bit % container);
      const [row, col] = elementAt(operand.layout, lane, first, Math.floor(bit / operand.container));
      const passed = Math.floor(at / operand.container);
      const start = order === "row" ? [row, col - passed] : [row - passed, col];
      starts[giver] ??= start;
      if (at % operand.container !== bit % operand.container || starts[giver].join() !== start.join()) return null;
    }
  }
  return starts;
}

/** Return the address of each line of each register, or null if a line is not 16 contiguous, aligned bytes. */
function linesOf(operand, memory, mover) {
  const lineAddresses = [];
  for (const reg of upTo(operand.regs)) {
    const starts = lineStarts(mover, operand, memory.order, reg);
    if (!starts) return null;
    const lines = starts.map(([row, col]) => addressIn(memory, row, col, operand.container, operand.layout.shape));
    if (lines.length < LINES || lines.some((line) => line % LINE)) return null;
    lineAddresses.push(lines);
  }
  return lineAddresses;
}

/** Return the fewest instructions for the words: up to four matrices at a time. */
function matrixAccesses(op, trans, lines) {
  const accesses = [];
  for (let first = 0; first < lines.length; first += accesses.at(-1).words.length) {
    const size = [4, 2, 1].find((some) => first + some <= lines.length);
    const used = lines.slice(first, first + size).flat();
    accesses.push({
      instruction: `${op}.sync.aligned.m8n8.x${size}${trans}.shared.b16`,
      words: upTo(size).map((word) => first + word),
      addresses: upTo(WARP).map((lane) => used[lane] ?? null),
      width: LINE,
    });
  }
  return accesses;
}

/** Yield plans with ldmatrix or stmatrix, with and without .trans, and with movmatrix after or before it. */
function* byMatrix(operand, memory, op, movers) {
  const [plain, turned] = [movers.plain, movers.trans].map((mover) => linesOf(operand, memory, mover));
  if (plain) yield { accesses: matrixAccesses(op, "", plain) };
  if (turned) yield { accesses: matrixAccesses(op, ".trans", turned) };
  if (turned && operand.container === MATRIX_BITS) yield { accesses: matrixAccesses(op, "", turned), transposes: true };
}

/** Return the addresses of each request: those of the warp, or of one matrix of ldmatrix and stmatrix. */
export function requestsOf({ instruction, addresses }) {
  if (!instruction.includes("matrix")) return [addresses];
  const used = addresses.filter((address) => address !== null);
  return upTo(used.length / LINES).map((matrix) => used.slice(LINES * matrix, LINES * (matrix + 1)));
}

/** Return an access with its cost. */
function costed(access) {
  const costs = requestsOf(access).map((request) => passesOf(request, access.width));
  const sum = (of) => costs.reduce((all, cost) => all + cost[of], 0);
  return { ...access, passes: sum("passes"), conflicts: sum("conflicts") };
}

/** Return a plan with its name and its cost: instructions, passes, and insertions of narrow elements into words. */
function weighed(operand, verb, { accesses, transposes = false }) {
  const done = accesses.map(costed);
  const sum = (of) => done.reduce((all, access) => all + of(access), 0);
  const turns = transposes ? registerWords(operand) : 0;
  const passes = sum(({ passes }) => passes);
  const names = [...new Set(done.map(({ instruction }) => instruction))];
  const moved = transposes ? [TURN] : [];
  return {
    name: (verb === "load" ? [...names, ...moved] : [...moved, ...names]).join(" + "),
    accesses: done,
    instructions: done.length + turns,
    passes,
    conflicts: sum(({ conflicts }) => conflicts),
    cost: done.length + passes + TURNED * turns + sum(({ slot = 0 }) => (slot ? 1 : 0)),
  };
}

/** Return all plans; `movers` has the layouts of ldmatrix for one matrix, without and with .trans. */
export function accessPlansOf(operand, memory, verb, movers) {
  const bytes = bytesOf(operand, memory);
  const plain = verb === "load" ? "ld.shared" : "st.shared";
  const plans = [
    ...byMatrix(operand, memory, verb === "load" ? "ldmatrix" : "stmatrix", movers),
    ...byWords(operand, bytes, plain),
    ...byElements(operand, bytes, plain),
  ];
  return plans.map((plan) => weighed(operand, verb, plan)).sort((one, other) => one.cost - other.cost);
}
