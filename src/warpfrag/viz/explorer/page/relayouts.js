// Relayouts: fragments that hold matrices of the same extents, and the plans between them. Plans come from Python; the
// layouts determine which elements change lanes.

import { extentOf, placesOf, tiled } from "./layout.js";
import { BY_NAME, INSTRUCTIONS, MOVES, fragmentKey } from "./model.js";

const PLACES = new Map(MOVES.fragments.map(([operand], place) => [fragmentKey(MOVES.operands[operand]), place]));
const LIKED = ["a", "b", "d", "c"]; // default targets in the same instruction

/** The headings of plans in a list, cheapest first. */
export const KINDS = { free: "Free", lane: "Within a lane", movmatrix: "By movmatrix", shfl: "By shuffles" };

/** Return the name of an operand in the address. */
export function fragmentName(instruction, role) {
  return `${instruction.name}:${role}`;
}

/** Return the instruction and the operand that INSTRUCTION:OPERAND names, or null. */
function readFragment(text) {
  const [, name, role] = /^(.*):(\w+)$/.exec(text) ?? [];
  const instruction = BY_NAME.get(name);
  return instruction && Object.hasOwn(instruction.operands, role) ? [instruction, role] : null;
}

function planOf(place) {
  const [kind, verdict, steps] = MOVES.plans[place];
  const texts = steps.map((step) => step.map((text) => MOVES.texts[text]));
  return { kind, verdict: MOVES.texts[verdict], steps: texts };
}

/** Return the rows of all relayouts from an operand: target, plan, and plans with a permuted coordinate. */
function rowsFrom(operand) {
  return MOVES.relayouts[PLACES.get(operand.key)] ?? [];
}

/** Return every fragment to which an operand can be moved: its name, and the category of the plan. */
export function targetsFrom(instruction, role) {
  return rowsFrom(instruction.operands[role]).map(([place, plan]) => {
    const own = LIKED.find((other) => instruction.operands[other]?.key === keyAt(place));
    const [owner, target] = own ? [instruction, own] : ownerOf(place);
    return { place, name: fragmentName(owner, target), owner, target, kind: MOVES.plans[plan][0] };
  });
}

function keyAt(place) {
  return fragmentKey(MOVES.operands[MOVES.fragments[place][0]]);
}

function ownerOf(place) {
  const [operand, instruction] = MOVES.fragments[place];
  return [INSTRUCTIONS[instruction] ?? BY_NAME.get(instruction), MOVES.operands[operand].role];
}

/** Return the default target: another operand of the same instruction, or the first fragment. */
export function usualTarget(instruction, role) {
  const found = instruction.operands[role] ? targetsFrom(instruction, role) : [];
  const key = instruction.operands[role]?.key;
  const others = found.filter(({ place }) => keyAt(place) !== key);
  const own = LIKED.map((other) => others.find(({ name }) => name === fragmentName(instruction, other)));
  return (own.find(Boolean) ?? others[0] ?? found[0])?.name ?? "";
}

/** Return tiles of an operand as one operand, with its name in this view. */
export function tiledOperand(operand, counts, names = {}) {
  const layout = tiled(operand.layout, counts);
  const extents = layout.shape.slice(operand.plane);
  const parts = operand.parts * (operand.plane ? counts[0] : 1);
  const rows = layout.start ? operand.rows : extents[0]; // for a warpgroup, those of one warp
  return { ...operand, layout, regs: extentOf(layout, "reg"), rows, cols: extents[1], parts, counts, ...names };
}

function tilesFor(mine, other) {
  return mine.map((extent, dim) => Math.max(1, other[dim] / extent));
}

/** Return the relayout from an operand to the fragment that `to` names, or null. */
export function relayoutOf(instruction, role, to, permute) {
  const asked = readFragment(to);
  const given = instruction.operands[role];
  const wanted = asked?.[0].operands[asked[1]];
  const row = wanted && rowsFrom(given).find(([place]) => place === PLACES.get(wanted.key));
  if (!row) return null;
  const [, plan, ...permuted] = row;
  const chosen = permuted.find(([axis]) => axis === permute);
  const [text, order] = chosen ? MOVES.orders[chosen[2]] : [];
  const extents = [given.layout.shape, wanted.layout.shape];
  const mark = wanted.letter === given.letter ? "′" : "";
  return {
    source: tiledOperand(given, tilesFor(extents[0], extents[1]), { role: "source" }),
    target: tiledOperand(wanted, tilesFor(extents[1], extents[0]), { role: "target", letter: wanted.letter + mark }),
    ends: [[instruction, role], asked],
    plan: planOf(chosen ? chosen[1] : plan),
    axes: permuted.map(([axis]) => axis),
    permute: chosen ? permute : "",
    order: order ?? null,
    orderText: chosen ? MOVES.texts[text] : "",
  };
}

/** Return the same element on the other side: a permuted target holds source column p[j] in column j. */
export function counterpart({ permute, order }, { role, part, row, col }) {
  const toward = role === "target" ? (index) => order[index] : (index) => order.indexOf(index);
  return {
    role: role === "target" ? "source" : "target",
    part,
    row: permute === "row" ? toward(row) : row,
    col: permute === "col" ? toward(col) : col,
  };
}

/** Return the places of an element on its side; the product or matrix is the first coordinate. */
export function placesIn(relayout, { role, part, row, col }) {
  const { layout, plane } = relayout[role];
  return placesOf(layout, plane ? [part, row, col] : [row, col]);
}

/** Return true if a target element comes from another lane. */
export function changesLane(relayout, element) {
  const target = element.role === "target" ? element : counterpart(relayout, element);
  const [[lane]] = placesIn(relayout, target);
  return !placesIn(relayout, counterpart(relayout, target)).some(([from]) => from === lane);
}
