// One operand as a grid of cells. Everything is written as one text, so that thousands of cells appear at once.

import { elementAt, slotRun } from "./layout.js";
import { addressOf, bitsText, elementName, elementText, leading, partWord } from "./model.js";
import { escapeText } from "./html.js";

const FOLD = 4; // registers with a run of at least so many neighbours become boxes

/** How an operand is drawn: a cell per element, or a box per register with a small cell per element in it. */
export function foldOf(operand) {
  const { dim, length } = slotRun(operand.layout);
  const along = dim === operand.plane + 1 ? "h" : "v";
  const folded = operand.prefix !== "" && length >= FOLD && dim >= operand.plane;
  return folded
    ? { length, along, size: `${along}${length}` }
    : { length: 1, along, size: operand.prefix ? "plain" : "field" };
}

/** The class that gives a cell the colour of a lane. */
export function laneClass(lane) {
  return `t${lane}`;
}

/** For each element of a grid, by row and column, every place that holds it, in order. */
function ownersOf(operand, part, state) {
  const owners = Array.from({ length: operand.rows * operand.cols }, () => []);
  const first = leading(operand, part, state);
  for (let lane = 0; lane < operand.lanes; lane++) {
    for (let reg = 0; reg < operand.regs; reg++) {
      for (let slot = 0; slot < operand.slots; slot++) {
        const coordinates = elementAt(operand.layout, lane, reg, slot);
        if (first.some((value, dim) => value !== coordinates[dim])) continue;
        owners[coordinates[operand.plane] * operand.cols + coordinates[operand.plane + 1]].push([lane, reg, slot]);
      }
    }
  }
  return owners;
}

/** What every cell carries: which element it is, and where that sits. */
export function cellData(operand, part, row, col, [lane, reg, slot], owners = []) {
  const copies = owners.length > 1 ? ` data-owners="${owners.map((owner) => owner.join(".")).join(" ")}"` : "";
  const which = operand.parts > 1 ? ` data-part="${part}"` : "";
  return (
    `role="gridcell" tabindex="-1" data-operand="${operand.role}"${which} data-row="${row}" data-col="${col}"` +
    ` data-lane="${lane}" data-reg="${reg}" data-slot="${slot}"${copies}`
  );
}

function plainCell(operand, part, row, col, owners) {
  const [lane, reg, slot] = owners[0];
  const second = operand.prefix ? elementName(operand, reg, slot) : bitsText(operand, slot);
  const more = owners.length > 1 ? `<small>×${owners.length}</small>` : "";
  const label = `${elementText(operand, part, row, col)}: lane ${lane}, ${operand.prefix ? second : `bits ${second}`}`;
  return (
    `<div class="cell ${laneClass(lane)}" ` +
    `aria-label="${label}" ${cellData(operand, part, row, col, owners[0], owners)}>` +
    `<b>T${lane}</b><span>${second}${more}</span></div>`
  );
}

/** A register whose elements are neighbours: its lane and elements once, and a small cell for each element. */
function box(operand, part, elements, fold) {
  const [lane, reg, first] = elements[0].owners[0];
  const name = elementName(operand, reg, first);
  const range = fold.along === "h" ? `${name}–${reg * operand.slots + first + fold.length - 1}` : name;
  const cells = elements.map(({ row, col, owners }) => {
    const label = `${elementText(operand, part, row, col)}: lane ${lane}, ${elementName(operand, reg, owners[0][2])}`;
    return `<i class="micro" aria-label="${label}" ${cellData(operand, part, row, col, owners[0], owners)}></i>`;
  });
  return (
    `<div class="box ${fold.size} ${laneClass(lane)}" role="presentation">` +
    `<div class="box-label" data-register="${operand.role}.${lane}.${reg}">` +
    `<b>T${lane}</b><span>${range}</span></div><div class="micros" role="presentation">${cells.join("")}</div></div>`
  );
}

function head(kind, text, extra = "") {
  return `<div class="head ${kind}" role="${kind === "row-head" ? "rowheader" : "columnheader"}"${extra}>${text}</div>`;
}

/** The lane that gives the address of a line of a mover's matrix. */
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

/** The heads above the columns; a sparse A and its metadata have a pattern, and name the logical columns behind it. */
function columnHeads(operand, fold, pattern) {
  const heads = [];
  const step = fold.along === "h" ? fold.length : 1;
  if (pattern) {
    const kept = operand.role === "a" ? pattern.kept : 1;
    const span = Math.max(step, kept);
    const width = (span / kept) * pattern.chunk;
    for (let col = 0, first = 0; col < operand.cols; col += span, first += width) {
      heads.push(
        head(
          `col-head span-${span / step}`,
          rangeText(first, width),
          ` title="logical columns ${rangeText(first, width)}"`,
        ),
      );
    }
  } else {
    for (let col = 0; col < operand.cols; col += step) heads.push(head("col-head", rangeText(col, step)));
  }
  return heads.join("");
}

/** The grid of one operand (or of one of its products or matrices), under a caption. */
export function operandGrid(operand, part, state, options = {}) {
  const { width, height, pattern, addresses, controls = "", caption } = options;
  const fold = foldOf(operand);
  const owners = ownersOf(operand, part, state);
  const down = fold.along === "v" ? fold.length : 1;
  const across = fold.along === "h" ? fold.length : 1;
  const byRow = addresses?.dims[1] === "row";
  const rows = [];
  if (addresses && !byRow) {
    const lines = Array.from({ length: operand.cols }, (_, col) => addressHead(addresses, part, col, "col-head"));
    rows.push(`<div class="line" role="row">${head("row-head", "")}${lines.join("")}</div>`);
  }
  const corner = head("row-head", pattern ? "k" : "") + (byRow ? head("row-head", "adr") : "");
  rows.push(`<div class="line" role="row">${corner}${columnHeads(operand, fold, pattern)}</div>`);
  for (let top = 0; top < operand.rows; top += down) {
    const cells = [];
    for (let left = 0; left < operand.cols; left += across) {
      if (fold.length === 1) {
        cells.push(plainCell(operand, part, top, left, owners[top * operand.cols + left]));
        continue;
      }
      const elements = [];
      for (let step = 0; step < fold.length; step++) {
        const [row, col] = fold.along === "v" ? [top + step, left] : [top, left + step];
        elements.push({ row, col, owners: owners[row * operand.cols + col] });
      }
      cells.push(box(operand, part, elements, fold));
    }
    const address = byRow ? addressHead(addresses, part, top, "row-head") : "";
    rows.push(
      `<div class="line" role="row">${head("row-head", rangeText(top, down))}${address}${cells.join("")}</div>`,
    );
  }
  const name =
    `${operand.letter}${operand.parts > 1 ? `, ${partWord(operand)} ${part}` : ""}, ${operand.rows} ` +
    `by ${operand.cols}`;
  return (
    `<section class="operand"><div class="caption">${caption ?? operandCaption(operand, part)}${controls}</div>` +
    `<div class="grid w-${width ?? fold.size} h-${height ?? fold.size}" role="grid" ` +
    `aria-label="${escapeText(name)}" data-grid="${operand.role}.${part}">` +
    `${rows.join("")}</div></section>`
  );
}

/** Name, shape and registers of an operand in one line. */
function operandCaption(operand, part) {
  const which = operand.parts > 1 ? `<sub>${part}</sub>` : "";
  const meaning = operand.meaning ? ` ${operand.meaning}` : "";
  return (
    `<h3>${operand.letter}${which}</h3> <span>${operand.rows} × ${operand.cols}${meaning} · ${operand.format}` +
    `${operand.parts > 1 ? "" : ` · ${operand.regs} × ${operand.ptx_type}`}</span>`
  );
}
