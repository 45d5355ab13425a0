// The scene of a view: an instruction with its operands, two fragments, or tiles of one operand.

import { isWarpgroup, warpOperands } from "./model.js";
import { relayoutOf, tiledOperand } from "./relayouts.js";

export const TILES = { "": [1, 1], "row=2": [2, 1], "col=2": [1, 2] };

let last = { asked: "", scene: null };

/** Return true if an operand is a matrix in the registers of a warp, not metadata or scale factors. */
export function isMatrix(operand) {
  return operand.prefix !== "" && !operand.unknown;
}

/** Return true if it is a single matrix, which can be in shared memory; m8n8k4 and ldmatrix have several. */
export function isSingle(operand) {
  return isMatrix(operand) && operand.plane === 0;
}

/** Return the scene of a state; the same object as long as it does not change. */
export function sceneOf(instruction, { view, operand, to, permute, tiles, warp }) {
  if (isWarpgroup(instruction) && view !== "relayout") {
    const wanted = `${instruction.name} ${warp}`;
    if (wanted !== last.asked) last = { asked: wanted, scene: of(instruction, warpOperands(instruction, warp), { pattern: instruction.pattern }) };
    return last.scene;
  }
  if (view !== "relayout" && view !== "memory") return instruction;
  const asked = [instruction.name, view, operand, to, permute, tiles].join(" ");
  if (asked !== last.asked) last = { asked, scene: writers[view](instruction, { operand, to, permute, tiles }, asked) };
  return last.scene;
}

function of(instruction, operands, more) {
  const lanes = Math.max(...Object.values(operands).map((operand) => operand.lanes));
  return { ...instruction, operands, lanes, pattern: null, addresses: null, ...more };
}

const writers = {
  relayout: (instruction, { operand, to, permute }, asked) => {
    const relayout = relayoutOf(instruction, operand, to, permute);
    if (!relayout) return instruction;
    return of(instruction, { source: relayout.source, target: relayout.target }, { relayout, asked });
  },
  memory: (instruction, { operand, tiles }, asked) => {
    const whole = instruction.operands[operand];
    if (!isSingle(whole)) return instruction;
    return of(instruction, { [operand]: tiledOperand(whole, TILES[tiles]) }, { asked });
  },
};
