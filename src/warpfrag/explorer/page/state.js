// What the page shows, kept in the address, so that a link shows the same thing.

import { BY_NAME } from "./model.js";

const START = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const NUMBERS = ["selector", "byte_a", "thread_a", "byte_b", "thread_b", "lane"];
export const FACETS = ["target", "op", "shape", "a", "b", "c", "d", "kind"];
const DEFAULTS = {
  i: START,
  view: "matrix",
  operand: "",
  corner: "d",
  at: "",
  code: "",
  q: "",
  ...Object.fromEntries(NUMBERS.map((name) => [name, 0])),
  ...Object.fromEntries(FACETS.map((name) => [name, ""])),
};
const VIEWS = ["matrix", "warp", "table"];

export const CORNERS = ["c", "d"]; // the operands that the corner of a product can show
export const state = { ...DEFAULTS };

/** Read the address into the state; gives a sentence where the address names something that does not exist. */
export function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const [name, normal] of Object.entries(DEFAULTS)) {
    const text = asked.get(name) ?? "";
    const number = /^\d{1,3}$/.test(text) ? Number(text) : normal;
    state[name] = NUMBERS.includes(name) ? number : text || normal;
  }
  if (!VIEWS.includes(state.view)) state.view = DEFAULTS.view;
  let complaint = "";
  if (!BY_NAME.has(state.i)) {
    complaint = `The link asks for “${state.i}”, which is not the name of an instruction; this one is shown.`;
    Object.assign(state, { i: START, at: "", operand: "" });
  }
  tidy();
  return complaint;
}

/** Write the state into the address; a change of instruction can be undone with the browser's Back. */
export function writeAddress({ remember = false } = {}) {
  const usual = { ...DEFAULTS, i: "", operand: firstOperand() };
  const unusual = Object.entries(state).filter(([name, value]) => value !== usual[name]);
  const hash = `#${new URLSearchParams(unusual.map(([name, value]) => [name, String(value)]))}`;
  if (hash === location.hash) return;
  history[remember ? "pushState" : "replaceState"](null, "", hash);
}

/** Change the state. */
export function change(changes) {
  Object.assign(state, changes);
  tidy();
}

/** The instruction that is shown. */
export function shown() {
  return BY_NAME.get(state.i);
}

/** The element that is picked, or null. */
export function picked() {
  const [role, ...numbers] = state.at.split(".");
  const operands = shown().operands;
  const operand = Object.hasOwn(operands, role) ? operands[role] : null;
  if (!operand || operand.unknown || !numbers.every((number) => /^\d+$/.test(number))) return null;
  const [col, row, part = 0] = numbers.reverse().map(Number);
  const inside = row < operand.rows && col < operand.cols && part < operand.parts;
  return inside ? { role, part, row, col } : null;
}

/** How the address names an element. */
export function pickText(operand, part, row, col) {
  return [operand.role, ...(operand.parts > 1 ? [part] : []), row, col].join(".");
}

/** The operand that the warp view and the table show first. */
function firstOperand() {
  const { operands } = shown();
  return "a" in operands ? "a" : Object.keys(operands)[0];
}

/** Drop choices that the instruction shown does not have. */
function tidy() {
  const instruction = shown();
  const operands = instruction.operands;
  if (!Object.hasOwn(operands, state.operand)) state.operand = firstOperand();
  if (!CORNERS.includes(state.corner)) state.corner = DEFAULTS.corner; // kept also where there is no corner to show
  if (!instruction.selectors.includes(state.selector)) state.selector = 0;
  state.lane = Math.min(state.lane, instruction.lanes - 1);
  for (const side of ["a", "b"]) {
    const [threads = 1, bytes = 1] = operands[`scale_${side}`]?.layout.shape ?? [];
    if (state[`thread_${side}`] >= threads) state[`thread_${side}`] = 0;
    if (state[`byte_${side}`] >= bytes) state[`byte_${side}`] = 0;
  }
  if (!picked()) state.at = "";
}
