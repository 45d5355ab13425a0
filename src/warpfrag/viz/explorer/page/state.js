// The state of the page, stored in the address, so that a link shows the same view.

import { BY_NAME, productNamed } from "./model.js";
import { LOADS } from "./tensor.js";
import { SWIZZLES } from "./memory.js";
import { relayoutOf, usualTarget } from "./relayouts.js";
import { TILES, isMatrix, sceneOf } from "./scene.js";

const START = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const NUMBERS = ["selector", "byte_a", "thread_a", "byte_b", "thread_b", "lane", "swizzle", "warp", "trans", "row", "col", "block"];
const COUNTED = ["way", "access"]; // counted from 1, as on the command line
export const FACETS = ["target", "op", "shape", "a", "b", "c", "d", "kind"];
const DEFAULTS = {
  i: START,
  view: "matrix",
  operand: "",
  corner: "d",
  at: "",
  code: "",
  q: "",
  to: "",
  permute: "",
  verb: "load",
  order: "row",
  pitch: "",
  tiles: "",
  staged: "b",
  word: "",
  load: "32x32b",
  ...Object.fromEntries(NUMBERS.map((name) => [name, 0])),
  ...Object.fromEntries(COUNTED.map((name) => [name, 1])),
  ...Object.fromEntries(FACETS.map((name) => [name, ""])),
};
const ALLOWED = {
  view: ["matrix", "warp", "table", "relayout", "memory"],
  verb: ["load", "store"],
  order: ["row", "col"],
  permute: ["", "row", "col"],
  tiles: Object.keys(TILES),
  staged: ["a", "b"],
  warp: [0, 1, 2, 3],
  trans: [0, 1],
  block: [0, 1],
  load: Object.keys(LOADS),
  swizzle: Object.keys(SWIZZLES).map(Number),
};
// A new choice resets the choices that depend on it.
const INSIDE = {
  i: ["at", "operand", "to", "permute", "way", "access"],
  operand: ["to", "permute", "way", "access"],
  to: ["permute", "at"],
  permute: ["at"],
  verb: ["way", "access"],
  order: ["way", "access"],
  pitch: ["way", "access"],
  tiles: ["way", "access", "at"],
  swizzle: ["way", "access"],
  way: ["access"],
};

export const CORNERS = ["c", "d"]; // operands that the corner of a product can show
export const state = { ...DEFAULTS };

/** Read the state from the address; return an error message if the address names something unknown. */
export function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const [name, normal] of Object.entries(DEFAULTS)) {
    const text = asked.get(name) ?? "";
    const number = /^\d{1,3}$/.test(text) ? Number(text) : normal;
    state[name] = typeof normal === "number" ? number : text || normal;
  }
  let complaint = "";
  if (!BY_NAME.has(state.i) && !productNamed(state.i)) {
    complaint = `The link names “${state.i}”, which is not the name of an instruction; the default instruction is shown instead.`;
    Object.assign(state, { i: START, at: "", operand: "" });
  }
  tidy();
  return complaint;
}

/** Write the state to the address; the browser's Back undoes a change of instruction. */
export function writeAddress({ remember = false } = {}) {
  const usual = { ...DEFAULTS, i: "", operand: firstOperand(), to: usualTo() };
  const unusual = Object.entries(state).filter(([name, value]) => value !== usual[name]);
  const hash = `#${new URLSearchParams(unusual.map(([name, value]) => [name, String(value)]))}`;
  if (hash === location.hash) return;
  history[remember ? "pushState" : "replaceState"](null, "", hash);
}

/** Change the state, and return the names of the fields that changed. */
export function change(changes) {
  const before = { ...state };
  const made = Object.keys(changes).filter((name) => changes[name] !== state[name]);
  if (made.includes("view") && state.operand === firstOperand()) Object.assign(state, { operand: DEFAULTS.operand, to: DEFAULTS.to }); // the operand was the default
  for (const name of made.flatMap((one) => INSIDE[one] ?? [])) state[name] = DEFAULTS[name];
  Object.assign(state, changes);
  tidy();
  return Object.keys(state).filter((name) => state[name] !== before[name]);
}

/** Return the current instruction. */
export function currentInstruction() {
  return BY_NAME.get(state.i);
}

/** Return the scene: the instruction, or a combination of its operands. */
export function scene() {
  return sceneOf(currentInstruction(), state);
}

/** Return the selected element, or null. */
export function picked() {
  const [role, ...numbers] = state.at.split(".");
  const { operands } = scene();
  const operand = Object.hasOwn(operands, role) ? operands[role] : null;
  if (!operand || operand.unknown || !numbers.every((number) => /^\d+$/.test(number))) return null;
  const [col, row, part = 0] = numbers.reverse().map(Number);
  const inside = row >= operand.first && row < operand.first + operand.rows && col < operand.cols && part < operand.parts;
  return inside ? { role, part, row, col } : null;
}

/** Return the name of an element in the address. */
export function pickText(operand, part, row, col) {
  return [operand.role, ...(operand.parts > 1 ? [part] : []), row, col].join(".");
}

/** Return the default target of a relayout; operands in tensor memory have none. */
function usualTo() {
  const instruction = currentInstruction();
  return instruction.tensor ? DEFAULTS.to : usualTarget(instruction, state.operand);
}

/** Return the default operand of a view: the accumulator for a relayout, otherwise A. */
function firstOperand() {
  const instruction = currentInstruction();
  const { operands } = instruction;
  if (instruction.tensor) return "d";
  if (state.view === "relayout" && "d" in operands && usualTarget(instruction, "d")) return "d";
  return "a" in operands ? "a" : Object.keys(operands)[0];
}

/** Reset choices that the current instruction does not have. */
function tidy() {
  const instruction = currentInstruction();
  const operands = instruction.operands;
  for (const [name, values] of Object.entries(ALLOWED)) {
    if (!values.includes(state[name])) state[name] = DEFAULTS[name];
  }
  if (!/^0x[0-9a-f]{1,16}$/i.test(state.word)) state.word = DEFAULTS.word;
  if (!/^[1-9]\d{0,4}$/.test(state.pitch)) state.pitch = DEFAULTS.pitch;
  if (instruction.tensor) {
    if (!instruction.tensor.roles.includes(state.operand)) state.operand = "d";
    if (state.block >= instruction.tensor.family.blocks) state.block = 0;
    Object.assign(state, { view: "matrix", to: "", permute: "", at: "", lane: 0 });
    return;
  }
  if (instruction.access && (state.view === "relayout" || state.view === "memory")) state.view = "matrix";
  const choosable = state.view === "relayout" || state.view === "memory" ? isMatrix : () => true;
  if (!Object.hasOwn(operands, state.operand) || !choosable(operands[state.operand])) state.operand = firstOperand();
  if (!relayoutOf(instruction, state.operand, state.to)) state.to = usualTarget(instruction, state.operand);
  if (!relayoutOf(instruction, state.operand, state.to)?.axes.includes(state.permute)) state.permute = DEFAULTS.permute;
  if (!CORNERS.includes(state.corner)) state.corner = DEFAULTS.corner; // kept even if there is no corner
  if (!instruction.selectors.includes(state.selector)) state.selector = 0;
  state.lane = Math.min(state.lane, instruction.lanes - 1);
  for (const side of ["a", "b"]) {
    const [threads = 1, bytes = 1] = operands[`scale_${side}`]?.layout.shape ?? [];
    if (state[`thread_${side}`] >= threads) state[`thread_${side}`] = 0;
    if (state[`byte_${side}`] >= bytes) state[`byte_${side}`] = 0;
  }
  if (!picked()) state.at = "";
}
