// One operand as a grid of cells, written as one HTML text, because that is fast for thousands of cells.

import { slotRun } from "./layout.js";
import { COLOURS, addressOf, bitsText, elementName, elementRange, elementText, holders, partWord } from "./model.js";
import { escapeText } from "./html.js";
import { MORE } from "./fit.js";

const FOLD = 4; // registers with at least this many adjacent elements become boxes
const LETTER = 6.2; // width of a letter in headings, in pixels
const SMALLEST = 5.45; // width of the smallest letters in a cell
const ADDRESS = 28; // width of the headings that name the lane of an address

/** The sizes of each type of cell: preferred and minimum width, height, and minimum height. */
const SIZES = {
  plain: { width: 31, least: 20, height: 26, low: 19 },
  field: { width: 42, least: 36, height: 26, low: 19 },
  h4: { width: 56, least: 37, height: 33, low: 23 },
  h8: { width: 56, least: 37, height: 33, low: 23 },
  h32: { width: 64, least: 43, height: 36, low: 26 },
  v4: { width: 48, least: 40, height: 34, low: 26 },
  v8: { width: 48, least: 44, height: 36, low: 26 },
  v32: { width: 56, least: 50, height: 44, low: 32 },
};

/** Return the form of an operand: a cell per element, or a box per register with a small cell per element. */
export function foldOf(operand) {
  const { dim, length } = slotRun(operand.layout);
  const along = dim === operand.plane + 1 ? "h" : "v";
  const folded = operand.prefix !== "" && length >= FOLD && dim >= operand.plane;
  if (!folded) return { length: 1, down: 1, across: 1, along, size: operand.prefix ? "plain" : "field" };
  const [down, across] = along === "v" ? [length, 1] : [1, length];
  return { length, down, across, along, size: `${along}${length}` };
}

/** Return the class with the colour of a lane. */
export function laneClass(lane) {
  return `t${lane % COLOURS}`;
}

/** Return the data attributes of a cell: its element, and the element's place. */
export function cellData(operand, part, row, col, [lane, reg, slot], owners = []) {
  const copies = owners.length > 1 ? ` data-owners="${owners.map((owner) => owner.join(".")).join(" ")}"` : "";
  const which = operand.parts > 1 ? ` data-part="${part}"` : "";
  return (
    `role="gridcell" tabindex="-1" data-operand="${operand.role}"${which} data-row="${row}" data-col="${col}"` +
    ` data-lane="${lane}" data-reg="${reg}" data-slot="${slot}"${copies}`
  );
}

function plainCell(operand, part, row, col, owners, mark) {
  const [lane, reg, slot] = owners[0];
  const second = operand.prefix ? elementName(operand, reg, slot) : bitsText(operand, slot);
  const label = `${elementText(operand, part, row, col)}: lane ${lane}, ${operand.prefix ? second : `bits ${second}`}`;
  return (
    `<div class="cell ${laneClass(lane)}${mark(part, row, col)}" ` +
    `aria-label="${label}" ${cellData(operand, part, row, col, owners[0], owners)}>` +
    `<b>T${lane}</b><span>${second}</span></div>`
  );
}

/** Return a register with adjacent elements: its lane and elements once, and a small cell for each element. */
function box(operand, part, elements, fold, mark) {
  const [lane, reg, first] = elements[0].owners[0];
  const cells = elements.map(({ row, col, owners }) => {
    const label = `${elementText(operand, part, row, col)}: lane ${lane}, ${elementName(operand, reg, owners[0][2])}`;
    return `<i class="micro${mark(part, row, col)}" aria-label="${label}" ${cellData(operand, part, row, col, owners[0], owners)}></i>`;
  });
  return (
    `<div class="box ${fold.size} ${laneClass(lane)}" role="presentation">` +
    `<div class="box-label" data-register="${operand.role}.${lane}.${reg}">` +
    `<b>T${lane}</b><span>${elementRange(operand, reg, first, fold.length)}</span></div><div class="micros" role="presentation">${cells.join("")}</div></div>`
  );
}

function head(kind, text, extra = "") {
  return `<div class="head ${kind}" role="${kind === "row-head" ? "rowheader" : "columnheader"}"${extra}>${text}</div>`;
}

/** Return the lane that passes the address of a line of a matrix. */
function addressHead(addresses, part, line, kind) {
  const { lane, sentence } = addressOf(addresses, part, line);
  return head(
    `${kind} address ${laneClass(lane)}`,
    `T${lane}`,
    ` data-address="${lane}" title="${sentence}" aria-label="${sentence}"`,
  );
}

function rangeText(first, length) {
  return length === 1 ? `${first}` : `${first}–${first + length - 1}`;
}

/** Return the column headings: text and width in cells. A sparse A also names the logical columns. */
function columnWords(operand, fold, pattern) {
  const step = fold.along === "h" ? fold.length : 1;
  const kept = pattern && operand.role === "a" ? pattern.kept : 1;
  const span = pattern ? Math.max(step, kept) : step;
  const width = pattern ? (span / kept) * pattern.chunk : step;
  const words = Array.from({ length: operand.cols / span }, (_, place) => rangeText(place * width, width));
  return { words, cells: span / step };
}

function columnHeads({ words, cells }, pattern) {
  const kind = cells > 1 ? `col-head span-${cells}` : "col-head";
  return words.map((text) => head(kind, text, pattern ? ` title="logical columns ${text}"` : "")).join("");
}

/** Return the size of a grid: preferred and minimum cell width, number of columns, and width of the row headings. */
function measures(operand, fold, { words, cells }, { height = fold.size, heads = 0 }) {
  const longest = Math.max(...words.map((text) => text.length));
  const letters = fold.size === "plain" ? elementName(operand, operand.regs - 1, operand.slots - 1).length : 0; // of the longest name, such as d127
  const least = Math.max(
    SIZES[fold.size].least,
    Math.ceil((longest * LETTER + 1) / cells),
    Math.ceil(letters * SMALLEST + 3),
  );
  const last = rangeText(operand.first + operand.rows - fold.down, fold.down);
  return {
    width: Math.max(SIZES[fold.size].width, least),
    least,
    bare: Math.max(Math.ceil((letters - 1) * SMALLEST + 2), Math.ceil(longest * LETTER)),
    height: SIZES[height].height,
    low: SIZES[height].low,
    count: words.length * cells,
    letters,
    head: Math.ceil(Math.max(last.length, 2) * LETTER) + 6,
    heads,
  };
}

/** Return the grid of one operand, or of one of its products or matrices, with a caption. */
export function operandGrid(operand, part, state, options = {}) {
  const { height, pattern, addresses, controls = "", caption, mark = () => "" } = options;
  const fold = foldOf(operand);
  const owners = (row, col) => holders(operand, part, row, col, state);
  const { down, across } = fold;
  const columns = columnWords(operand, fold, pattern);
  const byRow = addresses?.dims[1] === "row";
  const rows = [];
  if (addresses && !byRow) {
    const lines = Array.from({ length: operand.cols }, (_, col) => addressHead(addresses, part, col, "col-head"));
    rows.push(`<div class="line" role="row">${head("row-head", "")}${lines.join("")}</div>`);
  }
  const corner = head("row-head", pattern ? "k" : "") + (byRow ? head("row-head", "adr") : "");
  rows.push(`<div class="line heads" role="row">${corner}${columnHeads(columns, pattern)}</div>`);
  for (let top = operand.first; top < operand.first + operand.rows; top += down) {
    const cells = [];
    for (let left = 0; left < operand.cols; left += across) {
      if (fold.length === 1) {
        cells.push(plainCell(operand, part, top, left, owners(top, left), mark));
        continue;
      }
      const elements = [];
      for (let step = 0; step < fold.length; step++) {
        const [row, col] = fold.along === "v" ? [top + step, left] : [top, left + step];
        elements.push({ row, col, owners: owners(row, col) });
      }
      cells.push(box(operand, part, elements, fold, mark));
    }
    const address = byRow ? addressHead(addresses, part, top, "row-head") : "";
    rows.push(
      `<div class="line" role="row">${head("row-head", rangeText(top, down))}${address}${cells.join("")}</div>`,
    );
  }
  const name =
    `${operand.letter}${operand.parts > 1 ? `, ${partWord(operand)} ${part}` : ""}, ${operand.rows} ` +
    `by ${operand.cols}`;
  const sizesOf = measures(operand, fold, columns, { height, heads: byRow ? ADDRESS : 0 });
  const sizes = Object.entries(sizesOf).map(([field, pixels]) => `data-${field}="${pixels}"`);
  return (
    `<section class="operand" tabindex="-1" aria-label="${escapeText(name)}">` +
    `<div class="caption">${caption ?? operandCaption(operand, part)}${controls}${MORE}</div>` +
    `<div class="scroll"><div class="grid" role="grid" ` +
    `aria-label="${escapeText(name)}" data-grid="${operand.role}.${part}" ${sizes.join(" ")}>` +
    `${rows.join("")}</div></div></section>`
  );
}

/** Return a note on the number of copies of each element, if there are several. */
export function copiesText({ copies }) {
  if (copies === 1) return "";
  return ` · each held ${copies === 2 ? "twice" : `${copies} times`}`;
}

/** Return the name, shape and registers of an operand in one line. */
function operandCaption(operand, part) {
  const which = operand.parts > 1 ? `<sub>${part}</sub>` : "";
  const meaning = operand.meaning ? ` ${operand.meaning}` : "";
  const registers = operand.parts > 1 ? "" : ` · ${operand.regs} × ${operand.ptx_type}`;
  return (
    `<h3>${operand.letter}${which}</h3> <span>${operand.rows} × ${operand.cols}${meaning} · ${operand.format}` +
    `${registers}${copiesText(operand)}</span>`
  );
}
