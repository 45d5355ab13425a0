// The warp view: every lane, its registers, their bits and their contents.

import { byId, choices, escapeText } from "./html.js";
import { elementAt } from "./layout.js";
import { bitsText, elementName, elementText, leading } from "./model.js";
import { cellData, laneClass } from "./grid.js";
import { selectorControls } from "./figure.js";
import { MORE } from "./fit.js";

const FEW = 8; // with more registers, or with one element per register, headings are shorter

/** Return buttons for the operands of an instruction, or for some of them. */
export function operandChoices(instruction, state, wanted = () => true) {
  const operands = Object.values(instruction.operands).filter(wanted);
  const options = operands.map((operand) => [operand.role, operand.letter]);
  return options.length > 1 ? choices("operand", "operand", options, state.operand) : "";
}

/** Draw the warp view of the current operand. */
export function drawWarp(instruction, state) {
  const operand = instruction.operands[state.operand];
  if (operand.unknown) {
    byId("view").innerHTML = `<p class="empty">${escapeText(operand.unknown)}.</p>`;
    return;
  }
  const packed = operand.prefix !== "" && operand.slots >= 8; // too many names: a register shows its range
  const heads = Array.from({ length: operand.regs }, (_, reg) => registerHead(operand, reg, packed));
  const lines = Array.from({ length: operand.lanes }, (_, lane) => {
    const registers = Array.from({ length: operand.regs }, (_, reg) => register(operand, state, lane, reg, packed));
    return (
      `<div class="line" role="row">` +
      `<div class="head row-head lane-head ${laneClass(lane)}" role="rowheader" data-address="${lane}">` +
      `T${lane}</div>` +
      `${registers.join("")}</div>`
    );
  });
  const note = operand.role === "metadata" ? selectorControls(instruction, state) : "";
  byId("view").innerHTML =
    `<div class="view-bar">${operandChoices(instruction, state)}${note}<span>` +
    `Each line is a lane, and each box is a register, lowest bits first, with the row and column of its element.</span>` +
    `</div>` +
    `<section class="operand" aria-label="registers of ${operand.letter}"><div class="caption">${MORE}</div>` +
    `<div class="scroll"><div class="grid warp${packed ? ` packed-${operand.slots}` : ""}" role="grid" ` +
    `aria-label="registers of ${operand.letter}" data-grid="warp" data-counts="registers">` +
    `<div class="line heads" role="row">` +
    `<div class="head row-head lane-head" role="columnheader">` +
    `lane</div>${heads.join("")}</div>${lines.join("")}</div></div></section>`;
  const words = [...byId("view").querySelectorAll(".warp .cell, .slot-bits span, .warp:has(.slot-bits span:only-child) b")];
  byId("view").querySelector(".warp").style.setProperty("--letters", Math.max(0, ...words.map((one) => one.textContent.length)));
}

function registerHead(operand, reg, packed) {
  const bits = packed
    ? ""
    : Array.from({ length: operand.slots }, (_, slot) => `<span>${bitsText(operand, slot)}</span>`).join("");
  return (
    `<div class="head register-head" role="columnheader"><b>${operand.regs > FEW || operand.slots === 1 ? "reg" : "register"} ${reg}</b>` +
    `<div class="slot-bits">${bits}</div></div>`
  );
}

/** Return the part that has the element, or null if the current selector or ids do not select the element. */
function partOf(operand, coordinates, state) {
  if (operand.parts > 1) return coordinates[0];
  const wanted = leading(operand, 0, state);
  return wanted.every((value, dim) => value === coordinates[dim]) ? 0 : null;
}

function register(operand, state, lane, reg, packed) {
  const cells = [];
  for (let slot = 0; slot < operand.slots; slot++) {
    const coordinates = elementAt(operand.layout, lane, reg, slot);
    const [row, col] = coordinates.slice(operand.plane);
    const part = partOf(operand, coordinates, state);
    const text = `${operand.parts > 1 ? `${part}: ` : ""}${row},${col}`;
    const words =
      `${elementText(operand, part ?? 0, row, col)}: lane ${lane}, register ${reg}, ` +
      `bits ${bitsText(operand, slot)}`;
    const idle = part === null;
    cells.push(
      `<div class="${packed ? "micro" : `cell ${laneClass(lane)}`}${idle ? " idle" : ""}" ` +
        `aria-label="${words}${idle ? ", not read" : ""}"` +
        ` ${cellData(operand, part ?? 0, row, col, [lane, reg, slot])}${idle ? " data-idle" : ""}>` +
        `${packed ? "" : text}</div>`,
    );
  }
  const inside = packed
    ? `<div class="box-label" data-register="${operand.role}.${lane}.${reg}">` +
      `<b>${rangeOf(operand, lane, reg)}</b></div>` +
      `<div class="micros" role="presentation">${cells.join("")}</div>`
    : cells.join("");
  return (
    `<div class="register ${packed ? `box ${laneClass(lane)}` : ""}" role="presentation" ` +
    `data-register="${operand.role}.${lane}.${reg}">${inside}</div>`
  );
}

/** Return the contents of a packed register, which are adjacent: 5,64–95. */
function rangeOf(operand, lane, reg) {
  const first = elementAt(operand.layout, lane, reg, 0).slice(operand.plane);
  const last = elementAt(operand.layout, lane, reg, operand.slots - 1).slice(operand.plane);
  const name = elementName(operand, reg, 0);
  return `${name}: ` + first.map((start, dim) => (start === last[dim] ? start : `${start}–${last[dim]}`)).join(",");
}
