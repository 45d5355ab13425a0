// Shared memory: the address of each element, and the passes of a request, as in warpfrag/smem/shared_memory.py.

export const SWIZZLES = { 0: 0, 32: 1, 64: 2, 128: 3 }; // bytes, and the row bits that are xored into the unit
export const BANKS = 32;
export const BANK_BYTES = 4;
export const UNIT = 16; // bytes that a swizzle keeps together
export const ROW_BYTES = BANKS * BANK_BYTES; // one word of each bank; also a row of units

/** Return the address after a swizzle of this width. */
function swizzled(address, swizzle) {
  return address ^ ((Math.floor(address / ROW_BYTES) & ((1 << SWIZZLES[swizzle]) - 1)) * UNIT);
}

/** Return the bytes from one row to the next, or in column order from one column to the next; by default without gaps. */
export function pitchOf({ order, pitch }, [rows, cols], bits) {
  return pitch ?? Math.ceil(((order === "row" ? cols : rows) * bits) / 8);
}

/** Return the address of an element of a matrix. */
export function addressIn(memory, row, col, bits, shape) {
  const [inner, outer] = memory.order === "row" ? [col, row] : [row, col];
  return swizzled(Math.floor((inner * bits) / 8) + outer * pitchOf(memory, shape, bits), memory.swizzle);
}

/** Return the words of memory that lanes access. */
function wordsOfRequest(addresses, width) {
  const words = new Set();
  for (const address of addresses) {
    if (address === null) continue;
    const end = Math.ceil((address + width) / BANK_BYTES);
    for (let word = Math.floor(address / BANK_BYTES); word < end; word++) words.add(word);
  }
  return words;
}

/** Return the number of words that each bank supplies. */
export function bankLoads(addresses, width) {
  const loads = new Array(BANKS).fill(0);
  for (const word of wordsOfRequest(addresses, width)) loads[word % BANKS]++;
  return loads;
}

/** Return the passes of a request, and the number of those caused by bank conflicts. */
export function passesOf(addresses, width) {
  const passes = Math.max(...bankLoads(addresses, width));
  return { passes, conflicts: passes - Math.ceil(wordsOfRequest(addresses, width).size / BANKS) };
}
