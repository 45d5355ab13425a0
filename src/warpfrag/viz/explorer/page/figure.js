// The matrix view: A and D side by side with aligned rows, B above D with aligned columns, other operands above A.

import { byId, choices, escapeText, listed, ranges } from "./html.js";
import { elementAt } from "./layout.js";
import { COLOURS, chosenId, currentCode, idWord, legalCodes } from "./model.js";
import { copiesText, foldOf, laneClass, operandGrid } from "./grid.js";
import { CORNERS } from "./state.js";

const GROUP = 4; // lanes that share a hue

/** Draw the figure of an instruction. */
export function drawFigure(instruction, state) {
  const { a, b } = instruction.operands;
  byId("view").innerHTML = b && a ? productFigure(instruction, state) : moverFigure(instruction, state);
}

/** Return the legend: the text of a cell, and the colours of the lanes. */
function legend(instruction, text, more = "") {
  const groups = Array.from({ length: Math.min(instruction.lanes, COLOURS) / GROUP }, (_, group) => {
    const first = GROUP * group;
    return `<span class="key ${laneClass(first + 1)}">T${first}–${first + GROUP - 1}</span>`;
  });
  return `<div class="legend"><p>${text}</p><p class="keys" aria-hidden="true">${groups.join("")}</p>${more}</div>`;
}

/** Return the fixed line above a figure: its title, links to its parts, and links to parts in other views (`elsewhere`). */
export function figureBar(title, jumps, elsewhere = []) {
  const links = [
    ...jumps.map(([grid, text]) => `<button type="button" data-jump="${grid}">${escapeText(text)}</button>`),
    ...elsewhere.map(
      ([view, text, label]) =>
        `<button type="button" data-set="view" data-value="${view}" title="${label}">${escapeText(text)}</button>`,
    ),
  ];
  const go = links.length > 1 ? `<span class="jumps" role="group" aria-label="Go to">${links.join("")}</span>` : "";
  return title || go ? `<div class="figure-bar">${title && `<strong class="equation">${title}</strong>`}${go}</div>` : "";
}

/** Return the index formulas of a product in both directions, which fill the corner above A. */
function cornerFormulas({ operands: { a, b, d } }) {
  const lines = (formulas) => Object.entries(formulas).map(([name, formula]) => `${name} = ${formula}`);
  const code = (formulas, kind) => `<pre class="${kind}"><code>${escapeText(lines(formulas).join("\n"))}</code></pre>`;
  const rows = [a, b, d].map(
    ({ letter, layout }) => `<b>${letter}</b>${code(layout.element_formulas, "forth")}${code(layout.place_formulas, "back")}`,
  );
  const index = "<p>i is the number of an element in its lane: a5 has i = 5.</p>";
  return `<div class="corner-formulas">${rows.join("")}${index}</div>`;
}

function equationText(instruction) {
  const { bitop, operands } = instruction;
  if (bitop) return `D = C + popcount(A ${bitop} B)`;
  return operands.scale_a ? "D = (A · SA) × (B · SB) + C" : "D = A × B + C";
}

function cellText(instruction) {
  const folded = foldOf(instruction.operands.a ?? instruction.operands.d).length > 1;
  const what = folded
    ? "A box is one register: its lane (T), its PTX elements, and a small cell for each of them, lowest bits first."
    : "A cell names the lane (T) that holds the element, and its PTX element.";
  const copies = Object.values(instruction.operands).some((operand) => operand.copies > 1);
  return copies ? `${what} If several places hold it, the first is named.` : what;
}

function productFigure(instruction, state) {
  const { a, c, d, ...others } = instruction.operands;
  const numbers = Array.from({ length: a.parts }, (_, part) => part);
  const operands = [a, others.b, instruction.operands[state.corner], ...Object.values(others).filter((operand) => operand !== others.b)];
  const jumps =
    a.parts > 1
      ? numbers.map((part) => [`a.${part}`, `Product ${part}`])
      : operands.map(({ role, letter }) => [`${role}.0`, letter]);
  const hasCorner = a.parts === 1 && (!others.metadata || others.scale_a);
  const known = [a, others.b, d].every((operand) => !operand.unknown);
  const note = legend(
    instruction,
    `${cellText(instruction)} D[r][c] is row r of A times column c of B.`,
    hasCorner && known ? cornerFormulas(instruction) : "",
  );
  const [above, inside] = a.parts > 1 ? [note, ""] : ["", note]; // a single product has space for the note above A
  const products = numbers.map((part) => oneProduct(instruction, state, part, inside));
  return (
    `${figureBar(equationText(instruction), jumps)}${above}` +
    `${a.parts > 1 ? `<div class="products">${products.join("")}</div>` : products[0]}`
  );
}

/** Return the lanes that hold a product of m8n8k4, as ranges. */
function lanesOf(operand, part) {
  const lanes = [...Array(operand.lanes).keys()].filter((lane) => elementAt(operand.layout, lane, 0, 0)[0] === part);
  return ranges(lanes);
}

function oneProduct(instruction, state, part, note) {
  const { a, b } = instruction.operands;
  const corner = instruction.operands[state.corner];
  const height = foldOf(a).size; // its rows are those of A
  const swap = choices(
    "accumulator shown",
    "corner",
    CORNERS.map((role) => [role, role.toUpperCase()]),
    state.corner,
  );
  const title =
    a.parts > 1 ? `<h3 class="product-title">Product ${part} <span>lanes ${lanesOf(a, part)}</span></h3>` : "";
  return (
    `<div class="product-block">${title}<div class="product">${extras(instruction, state, note)}` +
    `<div class="at-a">${operandGrid(a, part, state, { pattern: instruction.pattern })}</div>` +
    `<div class="at-d">${operandGrid(corner, part, state, { height, controls: swap })}</div>` +
    `<div class="at-b">${operandGrid(b, part, state)}</div></div></div>`
  );
}

/** Return the part above A: metadata, scale factors and the legend. */
function extras(instruction, state, note) {
  const { metadata, scale_a, scale_b } = instruction.operands;
  const grids = [];
  if (metadata)
    grids.push(
      operandGrid(metadata, 0, state, { pattern: instruction.pattern, controls: selectorControls(instruction, state) }),
    );
  for (const scale of [scale_a, scale_b].filter(Boolean)) {
    grids.push(operandGrid(scale, 0, state, { controls: scaleControls(scale, state) }));
  }
  if (!grids.length) return note;
  if (grids.length > 1 || scale_a) return `${note}<div class="extras below">${grids.join("")}</div>`; // too large for the corner
  return `<div class="extras">${grids.join("")}${note}</div>`;
}

/** Return controls for the sparsity selector, and for the metadata code with which products are shown. */
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

/** Return the matrices of a load, store or transpose, side by side. */
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
  const jumps = operands.flatMap(({ role, parts, letter }) =>
    Array.from({ length: parts }, (_, part) => [`${role}.${part}`, parts > 1 ? `Matrix ${part}` : letter]),
  );
  return `${figureBar("", jumps)}${legend(instruction, text)}<div class="matrices">${grids.join("")}</div>`;
}

function addressText({ dims }) {
  return dims[1] === "row"
    ? "The rounded cells (adr) name the lane that gives a row’s address."
    : "The rounded cells on top name the lane that gives a column’s address.";
}

function moverCaption(instruction, operand, part) {
  const shape = `${operand.rows} × ${operand.cols} · ${operand.format}`;
  if (instruction.op === "movmatrix") {
    return `<h3>${operand.role === "a" ? "Source A" : "Destination D"}</h3> <span>${shape}</span>`;
  }
  if (instruction.access) {
    const lanes = `lanes 0–${operand.rows - 1} down, ${operand.cols} columns across`;
    const repeats = instruction.repeats.map((one) => `<option${one === instruction.repeat ? " selected" : ""}>${one}</option>`);
    const choice = `<span class="controls"><label>repeat <select data-width aria-label="repeat">${repeats.join("")}</select></label></span>`;
    return `<h3>Tensor memory of warp 0</h3> <span>${lanes} · ${operand.regs} × ${operand.ptx_type}; each further warp accesses the next 32 lanes</span>${choice}`;
  }
  if (!instruction.addresses) {
    const registers = `${operand.regs} × ${operand.ptx_type}${copiesText(operand)}`;
    return `<h3>${operand.letter}</h3> <span>${shape} · ${registers}</span>`;
  }
  return `<h3>Matrix ${part}</h3> <span>${shape}</span>`;
}
