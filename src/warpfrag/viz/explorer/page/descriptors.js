// Shared-memory descriptors of wgmma: the fields of the word, the byte of each element, and its problems. See
// warpfrag/smem/descriptor.py.

import { ROW_BYTES, SWIZZLES, UNIT } from "./memory.js";

const ATOM_LINES = 8; // lines of an atom
const MOST_SHARED = 232448; // bytes of shared memory that a block of sm_90 may have
const CODES = [0, 128, 64, 32]; // the swizzles that the two bits encode

/** The fields of the word: lowest bit, number of bits, and bytes per unit. */
export const FIELDS = {
  start: { low: 0, bits: 14, unit: UNIT },
  leading: { low: 16, bits: 14, unit: UNIT },
  stride: { low: 32, bits: 14, unit: UNIT },
  base_offset: { low: 49, bits: 3, unit: 1 },
  swizzle: { low: 62, bits: 2, unit: 1 },
};

function maskOf({ low, bits }) {
  return ((1n << BigInt(bits)) - 1n) << BigInt(low);
}

const IN_FIELDS = Object.values(FIELDS).reduce((all, field) => all | maskOf(field), 0n);

/** Return the descriptor in a word; all fields except the base offset are in bytes. */
export function decode(word) {
  const read = ({ low, bits, unit }) => Number((word >> BigInt(low)) & ((1n << BigInt(bits)) - 1n)) * unit;
  const numbers = Object.fromEntries(Object.entries(FIELDS).map(([name, field]) => [name, read(field)]));
  return { ...numbers, swizzle: CODES[numbers.swizzle], other: word & ~IN_FIELDS };
}

/** Return the word of a descriptor; bits that do not fit into a field are dropped. */
export function encode(descriptor) {
  const numbers = { ...descriptor, swizzle: CODES.indexOf(descriptor.swizzle) };
  return Object.entries(FIELDS).reduce((word, [name, field]) => {
    const raw = BigInt(Math.max(0, Math.floor(numbers[name] / field.unit)));
    return word | ((raw << BigInt(field.low)) & maskOf(field));
  }, descriptor.other ?? 0n);
}

/** Return a word in hexadecimal. */
export function wordText(word) {
  return `0x${word.toString(16).padStart(16, "0")}`;
}

/** Return the bytes of one line of an atom. */
function widthOf({ swizzle }) {
  return swizzle || UNIT;
}

/** Return the offset along a line, and the offset from line to line. */
function offsetsOf(descriptor, trans) {
  return trans && !descriptor.swizzle ? ["stride", "leading"] : ["leading", "stride"];
}

/** Return the address of a byte in a line of the operand. */
function addressAt(descriptor, trans, line, byte) {
  const width = widthOf(descriptor);
  const [along, across] = offsetsOf(descriptor, trans).map((name) => descriptor[name]);
  const address =
    descriptor.start +
    (byte % width) +
    Math.floor(byte / width) * along +
    (line % ATOM_LINES) * width +
    Math.floor(line / ATOM_LINES) * across;
  const mask = (1 << SWIZZLES[descriptor.swizzle]) - 1;
  return address ^ (((Math.floor(address / ROW_BYTES) - descriptor.base_offset) & mask) * UNIT);
}

/** Return the operand as lines of bytes: `rows` and `cols` of the matrix, along K unless `trans`. */
export function staged({ role, rows, cols, bits }, trans) {
  const [k, other] = role === "a" ? [cols, rows] : [rows, cols];
  const [inner, outer] = trans ? [other, k] : [k, other];
  const letters = trans ? ["k", role === "a" ? "m" : "n"] : [role === "a" ? "m" : "n", "k"];
  return { role, rows, cols, bits, trans, inner: (inner * bits) / 8, outer, letters, perUnit: (UNIT * 8) / bits };
}

/** Return every 16-byte unit: its line, its index in the line, and its address. */
export function unitsOf(operand, descriptor) {
  const numbers = operand.inner / UNIT;
  return Array.from({ length: operand.outer * numbers }, (_, place) => {
    const [line, number] = [Math.floor(place / numbers), place % numbers];
    return { line, number, address: addressAt(descriptor, operand.trans, line, number * UNIT) };
  });
}

/** Return the descriptor of one instruction's tile without gaps, with the widest swizzle that its lines fill. */
export function compact({ inner, outer, trans }) {
  const swizzle = [128, 64, 32].find((width) => inner % width === 0) ?? 0;
  const width = swizzle || UNIT;
  const [along, across] = offsetsOf({ swizzle }, trans);
  const offsets = {
    [along]: inner > width ? outer * width : 0,
    [across]: outer > ATOM_LINES ? ATOM_LINES * width : 0,
  };
  return { start: 0, leading: 0, stride: 0, ...offsets, swizzle, base_offset: 0, other: 0n };
}

/** Return the problems of a descriptor as sentences; the hardware does not report them. */
export function problems(operand, descriptor) {
  const { inner, outer, trans } = operand;
  const { start, swizzle, base_offset: base, other } = descriptor;
  const width = widthOf(descriptor);
  const period = ATOM_LINES * width;
  const [along, across] = offsetsOf(descriptor, trans);
  const used = { [along]: inner > width, [across]: outer > ATOM_LINES };
  const inside = { [along]: `the ${inner} bytes of a line are in one atom`, [across]: `all ${outer} lines are in one atom` };
  const sentences = [];
  if (other) sentences.push(`bits 0x${other.toString(16)} belong to no field and should be 0`);
  for (const [name, isUsed] of Object.entries(used)) {
    const number = descriptor[name];
    const isIgnored = !number || (swizzle && number === UNIT); // the manual assumes 1 unit, and CuTe stores it
    if (!isUsed && !isIgnored)
      sentences.push(`${name} ${number} is not used: ${trans ? "MN" : "K"}-major, ${inside[name]}`);
  }
  if (swizzle) {
    const phases = width / UNIT;
    const phase = Math.floor(start / ROW_BYTES) % phases;
    if (phase !== base % phases)
      sentences.push(
        `start ${start} is ${phase} rows of 128 bytes into a pattern that repeats every ${period} bytes: the tile is read ` +
          `as if the pattern began before it; start at a multiple of ${period}, or set base_offset to ${phase}`,
      );
    for (const [name, isUsed] of Object.entries(used)) {
      const number = descriptor[name];
      if (isUsed && number % period)
        sentences.push(
          `${name} ${number} is not a multiple of ${period}, after which a ${swizzle}-byte swizzle repeats: each atom is ` +
            `read with a different part of the pattern`,
        );
    }
    if (start % width && inner + (start % width) > width)
      sentences.push(
        `start ${start} is ${start % width} bytes into a line of ${width} bytes: ${inner} bytes from there run into the ` +
          `next line`,
      );
  } else if (base) sentences.push(`base_offset ${base} has no effect without a swizzle`);
  return [...sentences, ...overlapOf(operand, descriptor), ...reachOf(operand, descriptor)];
}

/** Return the first element in row-major order that overlaps an earlier one. */
function overlapOf({ role, rows, cols, bits, trans }, descriptor) {
  const alongRow = (role === "a") !== trans;
  const seen = new Map();
  for (let row = 0; row < rows; row++) {
    for (let col = 0; col < cols; col++) {
      const [line, inner] = alongRow ? [row, col] : [col, row];
      const address = addressAt(descriptor, trans, line, Math.floor((inner * bits) / 8));
      const place = bits < 8 ? address * 8 + ((inner * bits) % 8) : address;
      const first = seen.get(place);
      if (first)
        return [
          `elements overlap: row ${first[0]}, column ${first[1]} and row ${row}, column ${col} are both at byte ${address}`,
        ];
      seen.set(place, [row, col]);
    }
  }
  return [];
}

function reachOf(operand, descriptor) {
  const end = Math.max(...unitsOf(operand, descriptor).map(({ address }) => address)) + UNIT;
  return end > MOST_SHARED
    ? [`the operand reaches byte ${end - 1}, beyond the ${MOST_SHARED} bytes that a block of sm_90 can have`]
    : [];
}
