// The matrix view: A on the left, B above, D in the corner, as the product is written.

import { byId, choices, escapeText, listed } from "./html.js";
import { elementAt } from "./layout.js";
import { chosenId, currentCode, idWord, legalCodes } from "./model.js";
import { foldOf, laneClass, operandGrid } from "./grid.js";
import { CORNERS } from "./state.js";

const GROUPS = [0, 1, 2, 3, 4, 5, 6, 7];

/** The figure of an instruction. */
export function drawFigure(instruction, state) {
  const { a, b } = instruction.operands;
  byId("view").innerHTML = b && a ? productFigure(instruction, state) : moverFigure(instruction, state);
}

/** Which colour stands for which lanes. */
function legend(text) {
  const groups = GROUPS.map(
    (group) => `<span class="key ${laneClass(4 * group + 1)}">T${4 * group}–${4 * group + 3}</span>`,
  );
  return `<div class="legend"><p>${text}</p><p class="keys" aria-hidden="true">${groups.join("")}</p></div>`;
}

function equationText(instruction) {
  const { bitop, operands } = instruction;
  if (bitop) return `D = C + popcount(A ${bitop} B)`;
  return operands.scale_a ? "D = (A · SA) × (B · SB) + C" : "D = A × B + C";
}

function cellText(instruction) {
  const folded = foldOf(instruction.operands.a ?? instruction.operands.d).length > 1;
  const what = folded
    ? "A box is one register: its lane (T), its PTX elements, and one small cell for each of them, lowest bits first."
    : "A cell names the lane (T) that holds the element, and its PTX element.";
  const copies = Object.values(instruction.operands).some(({ layout }) =>
    [...layout.reg, ...layout.lane].some(([, step]) => !step),
  );
  const more = copies ? " With ×2 or ×4 the element is held so many times; the first holder is named." : "";
  const how = "Point at a cell, or walk with the arrow keys; click or press Enter to keep it.";
  return `${what}${more} <span class="hint">${how}</span>`;
}

function productFigure(instruction, state) {
  const { a } = instruction.operands;
  const note = legend(`<strong class="equation">${equationText(instruction)}</strong><br>${cellText(instruction)}`);
  const parts = Array.from({ length: a.parts }, (_, part) =>
    oneProduct(instruction, state, part, a.parts > 1 ? "" : note),
  );
  const figures = a.parts > 1 ? `${note}<div class="products">${parts.join("")}</div>` : parts[0];
  return figures + extras(instruction, state);
}

/** The lanes that hold a product of m8n8k4, as ranges. */
function lanesOf(operand, part) {
  const lanes = [...Array(operand.lanes).keys()].filter((lane) => elementAt(operand.layout, lane, 0, 0)[0] === part);
  const starts = lanes.filter((lane) => !lanes.includes(lane - 1));
  const ends = lanes.filter((lane) => !lanes.includes(lane + 1));
  return listed(starts.map((start, place) => `${start}–${ends[place]}`));
}

function oneProduct(instruction, state, part, note) {
  const { a, b } = instruction.operands;
  const corner = instruction.operands[state.corner];
  const fit = { width: foldOf(b).size, height: foldOf(a).size }; // the columns are those of B, the rows those of A
  const swap = choices(
    "accumulator shown",
    "corner",
    CORNERS.map((role) => [role, role.toUpperCase()]),
    state.corner,
  );
  const title =
    a.parts > 1 ? `<h3 class="product-title">Product ${part} <span>lanes ${lanesOf(a, part)}</span></h3>` : "";
  return (
    `<div class="product-block">${title}<div class="product"><div class="at-corner">${note}</div>` +
    `<div class="at-b">${operandGrid(b, part, state)}</div>` +
    `<div class="at-a">${operandGrid(a, part, state, { pattern: instruction.pattern })}</div>` +
    `<div class="at-d">${operandGrid(corner, part, state, { ...fit, controls: swap })}</div></div></div>`
  );
}

/** The words beside the product: metadata of a sparse A, scale factors. */
function extras(instruction, state) {
  const { metadata, scale_a, scale_b } = instruction.operands;
  const grids = [];
  if (metadata)
    grids.push(
      operandGrid(metadata, 0, state, { pattern: instruction.pattern, controls: selectorControls(instruction, state) }),
    );
  for (const scale of [scale_a, scale_b].filter(Boolean)) {
    grids.push(operandGrid(scale, 0, state, { controls: scaleControls(scale, state) }));
  }
  return grids.length ? `<div class="extras">${grids.join("")}</div>` : "";
}

/** Stepping the sparsity selector, and the code that the products behind an output are shown for. */
export function selectorControls(instruction, state) {
  const selectors = instruction.selectors.map((selector) => [selector, String(selector)]);
  const codes = legalCodes(instruction).map(([text, columns]) => {
    const selected = text === currentCode(instruction, state)[0] ? " selected" : "";
    return `<option value="${text}"${selected}>${text} keeps ${listed(columns)}</option>`;
  });
  const traps = instruction.traps.length
    ? ` <span class="warning">${listed(instruction.traps)} assemble, but trap</span>`
    : "";
  return (
    `<span class="controls"><span>` +
    `selector ${choices("sparsity selector", "selector", selectors, state.selector)}${traps}</span>` +
    `<label>every code <select data-set="code">${codes.join("")}</select></label></span>`
  );
}

function scaleControls(scale, state) {
  const side = scale.role.at(-1);
  const [threads, groups] = scale.layout.shape;
  const control = (dim, field, count) => {
    const word = idWord(dim);
    const options = Array.from({ length: count }, (_, place) => [place, String(chosenId(scale, dim, place))]);
    return `<span>${word} ${choices(`${word} of ${scale.letter}`, field, options, state[field])}</span>`;
  };
  return (
    `<span class="controls">${control("thread_id", `thread_${side}`, threads)}` +
    `${control("byte_id", `byte_${side}`, groups)}</span>`
  );
}

/** A mover or a wmma load or store: its matrices side by side. */
function moverFigure(instruction, state) {
  const operands = Object.values(instruction.operands);
  if (operands[0].unknown) return `<p class="empty">${escapeText(operands[0].unknown)}.</p>`;
  const { addresses } = instruction;
  const grids = operands.flatMap((operand) =>
    Array.from({ length: operand.parts }, (_, part) =>
      operandGrid(operand, part, state, { addresses, caption: moverCaption(instruction, operand, part) }),
    ),
  );
  const text = addresses ? `${cellText(instruction)} ${addressText(addresses)}` : cellText(instruction);
  return `${legend(text)}<div class="matrices">${grids.join("")}</div>`;
}

function addressText({ dims }) {
  return dims[1] === "row"
    ? "The rounded cells (adr) name the lane that gives the address of each row."
    : "The rounded cells on top name the lane that gives the address of each column.";
}

function moverCaption(instruction, operand, part) {
  const shape = `${operand.rows} × ${operand.cols} · ${operand.format}`;
  if (instruction.op === "movmatrix") {
    return `<h3>${operand.role === "a" ? "Source a" : "Destination d"}</h3> <span>${shape}</span>`;
  }
  if (!instruction.addresses)
    return `<h3>${operand.letter}</h3> <span>${shape} · ${operand.regs} × ${operand.ptx_type}</span>`;
  return `<h3>Matrix ${part}</h3> <span>${shape}</span>`;
}
