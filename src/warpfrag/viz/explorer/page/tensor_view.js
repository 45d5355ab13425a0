// The tcgen05 view: tensor memory by lane and column, in regions, and the place of an element before and after a load.

import { byId, choices, escapeText } from "./html.js";
import { LETTERS, productNamed } from "./model.js";
import { laneClass } from "./grid.js";
import { commandLine } from "./relayout_view.js";
import { showFacts } from "./details.js";
import { MORE } from "./fit.js";
import {
  LOADS,
  TENSOR_LANES,
  WARP_LANES,
  afterLoad,
  columnBits,
  dimsOf,
  extentsOf,
  isOtherHalf,
  placesInTensorMemory,
  tensorElement,
} from "./tensor.js";

const REGIONS_ACROSS = 4; // regions side by side, if columns can be grouped
const REGION_SHADES = 4;
const REGION_HUES = 8;
const DIM_WORDS = { row: "row", col: "col", chunk: "chunk", byte: "byte", selector: "selector" };

/** Draw the view of an mma: the choices, the map, and one element. */
export function drawTensor(instruction, state) {
  byId("view").innerHTML =
    choiceBar(instruction, state) + memoryMap(instruction, state) + elementBox(instruction, state) + tensorCommands(instruction, state);
}

function productChoice(label, field, values, current) {
  const options = values.map((value) => `<option${String(value) === String(current) ? " selected" : ""}>${value}</option>`);
  return `<label>${label} <select data-product="${field}" aria-label="${label}">${options.join("")}</select></label>`;
}

/** Return the choices of shape, types, operand and block. */
function choiceBar({ tensor, extents }, state) {
  const { family, shape, types } = tensor;
  const shapes = family.shapes.map(({ m, k }) => `${m}×${k}`);
  const roles = tensor.roles.map((role) => [role, LETTERS[role]]);
  const blocks = [[0, "0"], [1, "1"]];
  return (
    `<div class="view-bar memory-bar">${productChoice("m×k", "shape", shapes, `${shape.m}×${shape.k}`)}` +
    `${productChoice("n", "n", shape.widths, extents.n)}${productChoice("types", "types", family.types, types)}` +
    `<span>operand ${choices("operand", "operand", roles, state.operand)}</span>` +
    `${family.blocks > 1 ? `<span>block ${choices("block of the pair", "block", blocks, state.block)}</span>` : ""}` +
    `<span>data path ${shape.path}</span></div>`
  );
}

/** Return the instruction after a choice of shape or types. */
export function changedProduct({ tensor, extents }, select) {
  const { family, shape, types } = tensor;
  const chosen = { shape: `${shape.m}×${shape.k}`, n: extents.n, types, [select.dataset.product]: select.value };
  const next = family.shapes.find(({ m, k }) => `${m}×${k}` === chosen.shape);
  const n = next.widths.includes(Number(chosen.n)) ? Number(chosen.n) : next.widths.at(-1);
  return productNamed(`${family.name}.m${next.m}n${n}k${next.k}.${chosen.types}`);
}

/** Return the size of a region: lanes with consecutive rows, at most a warp, and grouped columns. */
function regionSize(instruction, role) {
  const { columns } = extentsOf(instruction, role);
  if (role.startsWith("scale")) return { lanes: WARP_LANES, columns: 1 };
  const main = mainDim(role);
  const first = (lane, column = 0) => tensorElement(instruction, role, { block: 0, lane, column, slot: 0 })?.[main];
  let lanes = 1;
  while (lanes < WARP_LANES && first(lanes) === first(0) + lanes && first(2 * lanes - 1) === first(0) + 2 * lanes - 1) lanes *= 2;
  if (role === "metadata") return { lanes, columns: 1 };
  let group = 1;
  while (columns / group > REGIONS_ACROSS && (columns / group) % 2 === 0) group *= 2;
  return { lanes, columns: group };
}

/** Return the coordinate that lanes count: the row or, for B's scale factors, the column. */
function mainDim(role) {
  return dimsOf(role).indexOf(role === "scale_b" ? "col" : "row");
}

function regionRange([first, last]) {
  return first === last ? `${first}` : `${first}–${last}`;
}

/** Return the range of each coordinate in a region, or null. */
function regionRanges(instruction, role, block, lane, column, size) {
  const { slots } = extentsOf(instruction, role);
  let ranges = null;
  for (let down = 0; down < size.lanes; down++) {
    for (let across = 0; across < size.columns; across++) {
      for (let slot = 0; slot < slots; slot++) {
        const element = tensorElement(instruction, role, { block, lane: lane + down, column: column + across, slot });
        if (!element) continue;
        ranges ??= element.map((one) => [one, one]);
        element.forEach((one, dim) => (ranges[dim] = [Math.min(ranges[dim][0], one), Math.max(ranges[dim][1], one)]));
      }
    }
  }
  return ranges;
}

function regionWords(role, ranges, outs) {
  return dimsOf(role)
    .map((dim, place) => [dim, ranges[place]])
    .filter(([dim]) => outs[dim] > 1)
    .map(([dim, range]) => `${DIM_WORDS[dim]} ${regionRange(range)}`);
}

/** Return the tensor memory of a block: lanes down, columns across. */
function memoryMap(instruction, { operand: role, block }) {
  const { columns, slots, outs } = extentsOf(instruction, role);
  const size = regionSize(instruction, role);
  const across = Array.from({ length: columns / size.columns }, (_, place) => place * size.columns);
  const main = mainDim(role);
  const other = dimsOf(role).findLastIndex((_, place) => place !== main);
  const band = regionRanges(instruction, role, 0, 0, 0, size)[main];
  const height = band[1] - band[0] + 1;
  const several = isDivided(instruction, role, size, other);
  const colourOf = (ranges) => {
    const shade = Math.floor((REGION_SHADES * ranges[other][0]) / outs[dimsOf(role)[other]]);
    return laneClass(REGION_SHADES * (Math.floor(ranges[main][0] / height) % REGION_HUES) + (several ? shade : 1));
  };
  const words = [];
  const lines = [];
  for (let lane = 0; lane < TENSOR_LANES; lane += size.lanes) {
    const cells = across.map((column) => {
      const ranges = regionRanges(instruction, role, block, lane, column, size);
      const where = `lanes ${regionRange([lane, lane + size.lanes - 1])}, columns ${regionRange([column, column + size.columns - 1])}`;
      const isOther = isOtherHalf(instruction, role, lane);
      const held = ranges && !isOther ? regionWords(role, ranges, outs) : [isOther ? "base lane 16" : "padding"];
      words.push(...held);
      const text = held.length > 2 ? [held[0], held.slice(1).join(" ")] : held;
      return (
        `<div class="cell ${ranges && !isOther ? colourOf(ranges) : "vacant"}" role="gridcell" tabindex="-1" ` +
        `data-unit="${lane}.${column}" data-names="${held.join(", ")}" data-where="${where}" aria-label="${where}: ${held.join(", ")}">` +
        `<b>${text[0]}</b><span>${text[1] ?? ""}</span></div>`
      );
    });
    const warp = lane % WARP_LANES ? "" : `<small>warp ${lane / WARP_LANES}</small> `;
    lines.push(
      `<div class="line" role="row"><div class="head row-head" role="rowheader">${warp}${regionRange([lane, lane + size.lanes - 1])}</div>${cells.join("")}</div>`,
    );
  }
  const heads = across.map(
    (column) => `<div class="head col-head" role="columnheader">${regionRange([column, column + size.columns - 1])}</div>`,
  );
  const pair = instruction.tensor.family.blocks > 1 ? ` of block ${block}` : "";
  const name = `${LETTERS[role]} in tensor memory${pair}`;
  const longest = Math.max(...words.map((text) => text.length));
  const each = slots > 1 ? `${slots} elements in each` : "one element in each";
  const hue = `A hue stands for ${height} ${role === "scale_b" ? "columns" : "rows"}`;
  return (
    `<section class="operand memory tensor" tabindex="-1" aria-label="${name}"><div class="caption"><h3>${name}</h3> ` +
    `<span>lanes down, ${columns} columns of 32 bits across, ${each}</span>${MORE}</div><div class="scroll"><div class="grid" role="grid" ` +
    `aria-label="${name}" data-grid="memory" data-width="150" data-least="${Math.ceil(longest * 6.4) + 8}" data-height="${size.lanes < 16 ? 32 : 40}" ` +
    `data-count="${across.length}" data-head="96" data-heads="0"><div class="line heads" role="row">` +
    `<div class="head row-head" role="columnheader">lanes</div>${heads.join("")}</div>${lines.join("")}</div></div></section>` +
    `<div class="legend"><p>A cell is a region of lanes and columns, and names the elements in it. ${hue}` +
    `${several ? ", a shade for a quarter of the other coordinate" : ""}. Grey: padding, or lanes that a different base lane selects.</p></div>`
  );
}

/** Return true if regions differ in a coordinate. */
function isDivided(instruction, role, size, dim) {
  const { columns } = extentsOf(instruction, role);
  const seen = new Set();
  for (let lane = 0; lane < TENSOR_LANES; lane += size.lanes) {
    for (let column = 0; column < columns; column += size.columns) {
      const ranges = regionRanges(instruction, role, 0, lane, column, size);
      if (ranges) seen.add(String(ranges[dim]));
    }
  }
  return seen.size > 1;
}

/** Describe a region. */
export function showRegion(cell) {
  const { names, where } = cell.dataset;
  showFacts({ title: names, where, facts: where.split(", ").map((text) => text.split(" ")), notes: [] });
}

function coordinatesOf(role, { row, col }, outs) {
  const [first, second] = dimsOf(role).filter((dim) => dim !== "selector");
  const numbers = [Math.min(row, outs[first] - 1), Math.min(col, outs[second] - 1)];
  return role === "metadata" ? [0, ...numbers] : numbers;
}

/** Return one element: its lane and column, and the thread and register that hold it after a load. */
function elementBox(instruction, state) {
  const role = state.operand;
  const { columns, slots, outs } = extentsOf(instruction, role);
  const dims = dimsOf(role).filter((dim) => dim !== "selector");
  const asked = coordinatesOf(role, state, outs);
  const shown = asked.slice(-2);
  const places = placesInTensorMemory(instruction, role, asked);
  const inputs = dims.map(
    (dim, place) =>
      `<label>${DIM_WORDS[dim]} <input type="number" min="0" max="${outs[dim] - 1}" inputmode="numeric" ` +
      `data-set="${place ? "col" : "row"}" value="${shown[place]}"></label>`,
  );
  const loads = Object.keys(LOADS).map((shape) => `<option${shape === state.load ? " selected" : ""}>${shape}</option>`);
  const lines = places.map(({ block, lane, column, slot }) => {
    const of = instruction.tensor.family.blocks > 1 ? `block ${block}, ` : "";
    const bits = slots > 1 ? `, bits ${columnBits(slots, slot)}` : "";
    const after = afterLoad(state.load, columns, { lane, column });
    const address = `0x${((lane << 16) | column).toString(16).padStart(8, "0")}`;
    const held = after ? `warp ${after.warp}, lane ${after.thread}, register ${after.reg}${bits}` : "not reached";
    return `<tr><td>${of}lane ${lane}, column ${column}${bits}</td><td><code>${address}</code></td><td>${held}</td></tr>`;
  });
  const first = places[0] && afterLoad(state.load, columns, places[0]);
  const load = first ? `${first.load}${first.start ? `, from column ${first.start}` : ""}${first.base ? `, base lane ${first.base}` : ""}` : "";
  return (
    `<section class="tensor-element" aria-label="One element"><h3>${LETTERS[role]}[${shown.join("][")}]</h3>` +
    `<div class="view-bar">${inputs.join("")}<label>after a load <select data-set="load">${loads.join("")}</select></label></div>` +
    `<div class="wide"><table><thead><tr><th>Tensor memory</th><th>Address</th><th>After <code>${escapeText(load)}</code></th></tr></thead>` +
    `<tbody>${lines.join("")}</tbody></table></div></section>`
  );
}

function tensorCommands(instruction, state) {
  const role = state.operand;
  const { columns, outs } = extentsOf(instruction, role);
  const asked = coordinatesOf(role, state, outs);
  const [place] = placesInTensorMemory(instruction, role, asked);
  const after = place && afterLoad(state.load, columns, place);
  const options = after ? ` --through ${after.load}${after.start ? ` --column ${after.start}` : ""}${after.base ? ` --base-lane ${after.base}` : ""}` : "";
  return (
    commandLine(`warpfrag where ${instruction.name} ${role} ${asked.slice(-2).join(" ")}${options}`) +
    commandLine(`warpfrag draw ${instruction.name} ${role} -o ${role}.svg`)
  );
}

/** Return the element at each place, as CSV. */
export function tensorText(instruction, { operand: role }) {
  const { columns, slots } = extentsOf(instruction, role);
  const isPair = instruction.tensor.family.blocks > 1;
  const lines = [[...(isPair ? ["block"] : []), "tlane", "column", "slot", ...dimsOf(role)].join(",")];
  for (let block = 0; block < instruction.tensor.family.blocks; block++) {
    for (let lane = 0; lane < TENSOR_LANES; lane++) {
      for (let column = 0; column < columns; column++) {
        for (let slot = 0; slot < slots; slot++) {
          const element = tensorElement(instruction, role, { block, lane, column, slot });
          if (element) lines.push([...(isPair ? [block] : []), lane, column, slot, ...element].join(","));
        }
      }
    }
  }
  return `${lines.join("\n")}\n`;
}
