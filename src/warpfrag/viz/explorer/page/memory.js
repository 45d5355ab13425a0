// Shared memory: at which byte each element lies, and how many passes a request takes. See warpfrag/memory/shared_memory.py.

export const SWIZZLES = { 0: 0, 32: 1, 64: 2, 128: 3 }; // bytes, and how many bits of the row go into the unit
export const BANKS = 32;
export const BANK_BYTES = 4;
export const UNIT = 16; // bytes that a swizzle leaves together
export const ROW_BYTES = BANKS * BANK_BYTES; // each bank once; also a row of units

/** The address after a swizzle of so many bytes. */
function swizzled(address, swizzle) {
  return address ^ ((Math.floor(address / ROW_BYTES) & ((1 << SWIZZLES[swizzle]) - 1)) * UNIT);
}

/** The distance from one row to the next, in column order from column to column; without a pitch there is no gap. */
export function pitchOf({ order, pitch }, [rows, cols], bits) {
  return pitch ?? Math.ceil(((order === "row" ? cols : rows) * bits) / 8);
}

/** The byte in which an element of a matrix starts. */
export function addressIn(memory, row, col, bits, shape) {
  const [inner, outer] = memory.order === "row" ? [col, row] : [row, col];
  return swizzled(Math.floor((inner * bits) / 8) + outer * pitchOf(memory, shape, bits), memory.swizzle);
}

/** The words of memory that lanes reach. */
function wordsOfRequest(addresses, width) {
  const words = new Set();
  for (const address of addresses) {
    if (address === null) continue;
    const end = Math.ceil((address + width) / BANK_BYTES);
    for (let word = Math.floor(address / BANK_BYTES); word < end; word++) words.add(word);
  }
  return words;
}

/** How many words each bank has to give. */
export function bankLoads(addresses, width) {
  const loads = new Array(BANKS).fill(0);
  for (const word of wordsOfRequest(addresses, width)) loads[word % BANKS]++;
  return loads;
}

/** The passes of a request, and how many of them are there only because lanes want different words of one bank. */
export function passesOf(addresses, width) {
  const passes = Math.max(...bankLoads(addresses, width));
  return { passes, conflicts: passes - Math.ceil(wordsOfRequest(addresses, width).size / BANKS) };
}
