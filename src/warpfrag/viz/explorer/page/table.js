// The table view, and the same table as CSV.

import { byId, escapeText } from "./html.js";
import { elementAt } from "./layout.js";
import { bitsOf, elementName } from "./model.js";
import { laneClass } from "./grid.js";
import { operandChoices } from "./warp.js";

const WHOLE = 1024; // longer tables are shown lane by lane

/** Return the headings of an operand's table. */
function tableHeads(operand) {
  return ["lane", "reg", "slot", "high", "low", ...(operand.prefix ? ["element"] : []), ...operand.layout.dims];
}

/** Return a row for every place: lane, register, slot, bits, PTX's element, coordinates. */
function* tableLines(operand, lanes) {
  for (const lane of lanes) {
    for (let reg = 0; reg < operand.regs; reg++) {
      for (let slot = 0; slot < operand.slots; slot++) {
        const { low, high } = bitsOf(operand, slot);
        const name = operand.prefix ? [elementName(operand, reg, slot)] : [];
        yield [lane, reg, slot, high, low, ...name, ...elementAt(operand.layout, lane, reg, slot)];
      }
    }
  }
}

function allLanes(operand) {
  return Array.from({ length: operand.lanes }, (_, lane) => lane);
}

/** Return the table of one operand, or of all, as CSV. */
export function csvText(operands) {
  const dims = [...new Set(operands.flatMap((operand) => operand.layout.dims))];
  const heads = ["operand", "lane", "reg", "slot", "high", "low", "element", ...dims];
  const lines = operands.flatMap((operand) => {
    const own = tableHeads(operand);
    return Array.from(tableLines(operand, allLanes(operand)), (line) =>
      heads.map((name) => (name === "operand" ? operand.role : (line[own.indexOf(name)] ?? ""))).join(","),
    );
  });
  return `${[heads.join(","), ...lines].join("\n")}\n`;
}

/** Return the table view of the current operand. */
export function drawTable(instruction, state) {
  const operand = instruction.operands[state.operand];
  if (operand.unknown) {
    byId("view").innerHTML = `<p class="empty">${escapeText(operand.unknown)}.</p>`;
    return;
  }
  const whole = operand.lanes * operand.regs * operand.slots <= WHOLE;
  const lanes = whole ? allLanes(operand) : [Math.min(state.lane, operand.lanes - 1)];
  const heads = tableHeads(operand).map((name) => `<th scope="col">${name}</th>`);
  const plane = heads.length - 2;
  const lines = Array.from(tableLines(operand, lanes), (line) => {
    const [lane, reg, slot] = line;
    const part = operand.parts > 1 ? ` data-part="${line[plane - 1]}"` : "";
    const cells = line.map((value, place) => `<td${place ? "" : ` class="${laneClass(lane)}"`}>${value}</td>`);
    return (
      `<tr tabindex="-1" data-operand="${operand.role}"${part} data-row="${line[plane]}" ` +
      `data-col="${line[plane + 1]}"` +
      ` data-lane="${lane}" data-reg="${reg}" data-slot="${slot}">${cells.join("")}</tr>`
    );
  });
  const pick = whole
    ? ""
    : `<label>lane <select data-set="lane">${allLanes(operand)
        .map((lane) => `<option${lane === lanes[0] ? " selected" : ""}>${lane}</option>`)
        .join("")}</select></label><span>One lane is shown; Copy CSV copies all of them.</span>`;
  const bar = operandChoices(instruction, state) + pick;
  byId("view").innerHTML =
    `${bar ? `<div class="view-bar">${bar}</div>` : ""}` +
    `<table class="places" data-grid="table"><caption class="hidden">places of ${operand.letter}</caption>` +
    `<thead><tr>${heads.join("")}</tr></thead><tbody>${lines.join("")}</tbody></table>`;
}
