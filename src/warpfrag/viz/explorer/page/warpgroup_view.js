// The wgmma view: the fragments of one of four warps, and operands in shared memory with an editable descriptor.

import { byId, choices, escapeText } from "./html.js";
import { bitsOfFormat } from "./model.js";
import { laneClass, operandGrid } from "./grid.js";
import { figureBar, selectorControls } from "./figure.js";
import { showFacts } from "./details.js";
import { MORE } from "./fit.js";
import { ROW_BYTES, SWIZZLES, UNIT } from "./memory.js";
import { LANE_LETTER, SMALL_LETTER } from "./memory_view.js";
import { FIELDS, compact, decode, encode, problems, staged, unitsOf, wordText } from "./descriptors.js";
import { commandLine } from "./relayout_view.js";

const WARPS = [0, 1, 2, 3];
const HUES = 8;
const SHADES = 4;
const MAX_LINES = 64; // visible lines of memory
const BESIDE = 8; // columns of D beside A
const FIELD_LABELS = { start: "start", leading: "leading", stride: "stride", base_offset: "base offset" };

/** Draw one of the views, below a bar with n and the warp. */
export function drawWarpgroup(instruction, state, writers) {
  const view = byId("view");
  if (state.view === "memory") view.innerHTML = descriptorView(instruction, state);
  else if (state.view === "matrix") view.innerHTML = widthBar(instruction, state) + warpFragments(instruction, state);
  else {
    writers[state.view](instruction, state);
    const bar = state.view === "relayout" && view.querySelector(".view-bar");
    if (bar) bar.insertAdjacentHTML("afterbegin", widthChoice(instruction));
    else view.insertAdjacentHTML("afterbegin", widthBar(instruction, state));
  }
}

function widthChoice({ widths, extents }) {
  const options = widths.map((width) => `<option${width === extents.n ? " selected" : ""}>${width}</option>`);
  return `<label>n <select data-width aria-label="n">${options.join("")}</select></label>`;
}

/** Return the choice of n and, for registers, of the warp. */
function widthBar(instruction, { view, warp }) {
  const warps = WARPS.map((one) => [one, String(one)]);
  const rows = `<span>warp ${choices("warp", "warp", warps, warp)}</span><span>rows ${16 * warp}–${16 * warp + 15}</span>`;
  return `<div class="view-bar">${widthChoice(instruction)}${view === "relayout" ? "" : rows}</div>`;
}

function warpFragments(instruction, state) {
  const { a, d, metadata } = instruction.operands;
  const grids = [operandGrid(a, 0, state, { pattern: instruction.pattern, caption: warpCaption(a, state) })];
  if (metadata)
    grids.push(
      operandGrid(metadata, 0, state, { pattern: instruction.pattern, controls: selectorControls(instruction, state) }),
    );
  grids.push(operandGrid(d, 0, state, { caption: warpCaption(d, state) }));
  const jumps = [a, ...(metadata ? [metadata] : []), d].map(({ role, letter }) => [`${role}.0`, letter]);
  return (
    `${figureBar("D = A × B + D", jumps, [["memory", "B", "B in shared memory"]])}` +
    `<div class="matrices${d.cols > BESIDE ? " with-note" : ""}">${grids.join("")}<div class="legend">` +
    `<p>A cell names the lane (T) of warp ${state.warp} that holds the element, and its PTX element; ` +
    `in narrow cells, the lane’s number is above the element’s.</p>` +
    `<p>Each warp of the warpgroup has 16 rows of A and D. A may be read from shared memory instead; ` +
    `B is always in shared memory: <button type="button" data-set="view" data-value="memory">Memory</button> shows its bytes.</p></div></div>`
  );
}

function warpCaption(operand, { warp }) {
  const { letter, layout, format, regs, ptx_type: type } = operand;
  return `<h3>${letter}</h3> <span>${layout.shape.join(" × ")} · ${format}, warp ${warp} · ${regs} × ${type}</span>`;
}

/** Return the current operand in shared memory. */
function stagedOperand(instruction, state) {
  const { a } = instruction.operands;
  const { format, rows } = instruction.staged;
  const b = { role: "b", rows, cols: instruction.extents.n, bits: bitsOfFormat(format) };
  const found = state.staged === "a" ? { role: "a", rows: 64, cols: a.cols, bits: a.bits } : b;
  return staged(found, Boolean(state.trans) && found.bits === 16);
}

function descriptorOf(operand, state) {
  return state.word ? decode(BigInt(state.word)) : compact(operand);
}

/** Return the word after a field was changed. */
export function changedWord(instruction, state, input) {
  const operand = stagedOperand(instruction, state);
  const changed = { ...descriptorOf(operand, state), [input.dataset.descriptorField]: Number(input.value) || 0 };
  return wordText(encode(changed));
}

function descriptorView(instruction, state) {
  const operand = stagedOperand(instruction, state);
  const descriptor = descriptorOf(operand, state);
  return descriptorBox(instruction, operand, descriptor, state) + unitGrid(operand, descriptor) + descriptorCommands(instruction, operand, descriptor);
}

/** Return the word, its fields and its problems. */
function descriptorBox(instruction, operand, descriptor, state) {
  const fields = Object.entries(FIELD_LABELS).map(([name, label]) => {
    const { bits, unit } = FIELDS[name];
    return (
      `<label>${label} <input type="number" data-descriptor-field="${name}" min="0" step="${unit}" ` +
      `max="${((1 << bits) - 1) * unit}" inputmode="numeric" value="${descriptor[name]}"></label>`
    );
  });
  const swizzles = Object.keys(SWIZZLES).map(
    (width) => `<option${Number(width) === descriptor.swizzle ? " selected" : ""}>${width}</option>`,
  );
  const orders = [[0, "K-major"], [1, "MN-major"]];
  const order = operand.bits === 16 ? choices("order", "trans", orders, Number(operand.trans)) : "<span>K-major</span>";
  const texts = problems(operand, descriptor);
  return (
    `<div class="view-bar memory-bar">${widthChoice(instruction)}${choices("operand", "staged", [["b", "B"], ["a", "A"]], state.staged)}${order}` +
    `<label>descriptor <input class="long" data-set="word" spellcheck="false" autocomplete="off" ` +
    `value="${wordText(encode(descriptor))}"></label>${fields.join("")}` +
    `<label>swizzle <select data-descriptor-field="swizzle">${swizzles.join("")}</select></label></div>` +
    `<ul class="problems" aria-label="Problems">${
      texts.length ? texts.map((text) => `<li class="warning">${escapeText(text)}</li>`).join("") : "<li>No problems.</li>"
    }</ul>`
  );
}

/** Return lines of 128 bytes; the colour of a unit is that of its position in the matrix. */
function unitGrid(operand, descriptor) {
  const places = new Map();
  for (const unit of unitsOf(operand, descriptor)) {
    if (!places.has(unit.address)) places.set(unit.address, []);
    places.get(unit.address).push(unit);
  }
  const every = [...new Set([...places.keys()].map((address) => Math.floor(address / ROW_BYTES)))].sort((one, other) => one - other);
  const across = ROW_BYTES / UNIT;
  const lines = every.slice(0, MAX_LINES).map((line) => {
    const cells = Array.from({ length: across }, (_, place) => unitCell(operand, line * ROW_BYTES + place * UNIT, places));
    return `<div class="line" role="row"><div class="head row-head" role="rowheader">${line * ROW_BYTES}</div>${cells.join("")}</div>`;
  });
  const heads = Array.from(
    { length: across },
    (_, place) => `<div class="head col-head" role="columnheader" data-last="${(place + 1) * UNIT - 1}">${place * UNIT}</div>`,
  );
  const sizes = unitSizes(operand, [...places.values()].flat(), every.slice(0, MAX_LINES).at(-1) * ROW_BYTES);
  const [line, along] = operand.letters;
  const name = `${operand.role.toUpperCase()} in shared memory`;
  const more = every.length > MAX_LINES ? ` The first ${MAX_LINES} of ${every.length} lines are shown.` : "";
  return (
    `<section class="operand memory" tabindex="-1" aria-label="${name}"><div class="caption"><h3>${name}</h3> ` +
    `<span>lines of 128 bytes, units of 16</span>${MORE}</div><div class="scroll"><div class="grid" role="grid" ` +
    `aria-label="${name}" data-grid="memory" data-counts="bytes" data-width="104" data-least="${sizes.least}" data-height="32" ` +
    `data-count="${across}" data-head="${sizes.head}" data-heads="0"><div class="line heads" role="row">` +
    `<div class="head row-head" role="columnheader">byte</div>${heads.join("")}</div>${lines.join("")}</div></div></section>` +
    `<div class="legend"><p>A cell is 16 bytes, and names the ${line} and ${along} of its elements. A hue stands for the position of the unit ` +
    `along ${along}, a shade for ${line}. Grey: not read.${more}</p></div>`
  );
}

/** Return the minimum widths of a cell and of the line numbers. */
function unitSizes(operand, units, last) {
  const words = units.map((unit) => unitWords(operand, unit));
  const most = (place) => Math.max(...words.map((some) => some[place].length));
  const least = Math.max(most(0) * LANE_LETTER, (most(1) + 1) * SMALL_LETTER) + 1;
  return { least: Math.ceil(least), head: Math.ceil(Math.max(4, String(last).length) * 6.2 + 8) };
}

function unitWords({ letters, perUnit }, { line, number }) {
  return [`${letters[0]}${line}`, `${letters[1]}${number * perUnit}–${(number + 1) * perUnit - 1}`];
}

function unitCell(operand, address, places) {
  const units = places.get(address) ?? [];
  const names = units.map((unit) => unitWords(operand, unit).join(" "));
  const [line, along] = units.length ? unitWords(operand, units[0]) : ["", ""];
  const colour = units.length ? laneClass(SHADES * (units[0].number % HUES) + (units[0].line % SHADES)) : "vacant";
  return (
    `<div class="cell ${colour}" role="gridcell" tabindex="-1" data-unit="${address}" data-names="${names.join("; ")}" ` +
    `aria-label="bytes ${address}–${address + UNIT - 1}: ${names.join(" and ") || "not read"}">` +
    `${units.length ? `<b>${line}</b><span>${along}${units.length > 1 ? "+" : ""}</span>` : ""}</div>`
  );
}

/** Describe a unit of memory. */
export function showUnit(cell) {
  const address = Number(cell.dataset.unit);
  const names = cell.dataset.names.split("; ").filter(Boolean);
  showFacts({
    title: names[0] ?? "Not read",
    where: `bytes ${address}–${address + UNIT - 1}`,
    facts: [["Byte", address], ["Hex", `0x${address.toString(16)}`]],
    notes: names.length > 1 ? [`Elements overlap: ${names.join(" and ")} are stored here.`] : [],
  });
}

/** Return the first element and the address of every unit, as CSV. */
export function unitsText(instruction, state) {
  const operand = stagedOperand(instruction, state);
  const lines = unitsOf(operand, descriptorOf(operand, state)).map(({ line, number, address }) =>
    [line, number * operand.perUnit, address].join(","),
  );
  return `${[[...operand.letters, "byte"].join(","), ...lines].join("\n")}\n`;
}

function descriptorCommands({ name }, { role, trans }, descriptor) {
  const word = wordText(encode(descriptor));
  const turned = trans ? " --trans" : "";
  return (
    commandLine(`warpfrag descriptor ${word} --for ${name} ${role}${turned}`) +
    commandLine(`warpfrag draw ${name} ${role} --descriptor ${word}${turned} -o ${role}.svg`)
  );
}
