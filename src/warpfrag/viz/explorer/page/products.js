// The terms of an output element, and other related elements.

import { currentCode, holders } from "./model.js";
import { counterpart } from "./relayouts.js";

/** Return one term per stored element of A's row: k, the places in A and B, metadata and scales. */
export function termsOf(instruction, part, row, col, state) {
  const { a, b, metadata, scale_a: scaleA } = instruction.operands;
  const pattern = instruction.pattern;
  const columns = pattern ? currentCode(instruction, state)[1] : null;
  const perScale = scaleA ? instruction.extents.k / scaleA.cols : 0;
  return Array.from({ length: a.cols }, (_, stored) => {
    const chunk = pattern ? Math.floor(stored / pattern.kept) : 0;
    const k = pattern ? chunk * pattern.chunk + columns[stored % pattern.kept] : stored;
    return {
      k,
      stored,
      chunk: metadata ? chunk : null,
      scale: scaleA ? Math.floor(k / perScale) : null,
      a: holders(a, part, row, stored, state)[0],
      b: holders(b, part, k, col, state)[0],
    };
  });
}

/** Return related elements: the terms of an output, the code of a stored element, scaled elements. */
export function related(instruction, { role, part, row, col }, state) {
  if (instruction.relayout) return [counterpart(instruction.relayout, { role, part, row, col })];
  const { a, b, metadata, scale_a: scaleA, scale_b: scaleB } = instruction.operands;
  if (!a || !b) return [];
  const found = [];
  const pattern = instruction.pattern;
  if (role === "c" || role === "d") {
    for (const term of termsOf(instruction, part, row, col, state)) {
      found.push(["a", row, term.stored], ["b", term.k, col]);
      if (metadata) found.push(["metadata", row, term.chunk]);
      if (scaleA) found.push(["scale_a", row, term.scale], ["scale_b", term.scale, col]);
    }
  } else if (role === "a") {
    if (metadata) found.push(["metadata", row, Math.floor(col / pattern.kept)]);
    if (scaleA) found.push(["scale_a", row, Math.floor((col * scaleA.cols) / a.cols)]);
  } else if (role === "metadata") {
    for (let place = 0; place < pattern.kept; place++) found.push(["a", row, col * pattern.kept + place]);
  } else if (role === "scale_a") {
    for (let k = 0; k < a.cols / scaleA.cols; k++) found.push(["a", row, (col * a.cols) / scaleA.cols + k]);
  } else if (role === "scale_b") {
    for (let k = 0; k < b.rows / scaleB.rows; k++) found.push(["b", (row * b.rows) / scaleB.rows + k, col]);
  } else if (role === "b" && scaleB) {
    found.push(["scale_b", Math.floor((row * scaleB.rows) / b.rows), col]);
  }
  return found.map(([other, otherRow, otherCol]) => ({ role: other, part, row: otherRow, col: otherCol }));
}
